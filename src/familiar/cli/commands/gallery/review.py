"""`familiar gallery review`."""

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from familiar.cli.commands.gallery.arguments import folder_argument, label_of, open_to_correct
from familiar.cli.console import note, print_json
from familiar.cli.options import json_option
from familiar.core.plural import pluralize
from familiar.core.terminal_text import printable

if TYPE_CHECKING:  # --help imports nothing heavy
    from familiar.gallery import Gallery, Question


@click.command()
@folder_argument
@click.option(
    "-n", "count", type=click.IntRange(min=1), default=10, show_default=True, help="Maximum number of questions."
)
@click.option("--interactive", is_flag=True, help="Ask the questions one by one, and apply the answers.")
@json_option
def review(folder: Path, count: int, interactive: bool, as_json: bool) -> None:
    """List the questions whose answers would correct the most assignments.

    Each shows two faces: are they the same individual? With --interactive answer y (yes), n (no), s (skip) or q
    (quit). An answered question is never asked again.

    \b
    Example:
      familiar gallery review album --interactive
    """
    with open_to_correct(folder) as gallery:
        if interactive:
            answered = _ask(gallery, count)
            if as_json:
                print_json({"answered": answered})
            else:
                click.echo(f"{folder}: {pluralize(answered, 'question')} answered")
            return
        with gallery.read():  # all of one moment, whatever other programs write
            questions = gallery.questions(count)
            answers_left = gallery.answers_left()
            paths = [_paths(gallery, question) for question in questions]
            lines = [list(_lines(gallery, question, f"{number}.")) for number, question in enumerate(questions, 1)]
        if as_json:
            print_json(
                [
                    asdict(question) | {"first_path": first, "second_path": second}
                    for question, (first, second) in zip(questions, paths, strict=True)
                ]
            )
            return
        for line in (line for each in lines for line in each):
            click.echo(line)
    if questions:
        count_left = f"about {pluralize(answers_left.expected, 'answer')} ({answers_left.low} to {answers_left.high})"
        click.echo(f"{count_left} left that matter" if answers_left.expected else "none of them matters much")
        click.echo(f"answer them with: familiar gallery review {folder} --interactive")
    else:
        click.echo(f"{folder}: no questions")


def _ask(gallery: "Gallery", count: int) -> int:
    """Ask up to `count` questions and return how many were answered.

    An answer may change which question is best, so the next one is computed after each.
    """
    from familiar.core.errors import FamiliarError

    skipped: set[tuple[int, int]] = set()
    answered = 0
    while answered + len(skipped) < count:
        with gallery.read():
            question = _next_question(gallery, skipped)
            lines = [] if question is None else list(_lines(gallery, question, f"{answered + len(skipped) + 1}."))
        if question is None:
            break
        for line in lines:
            click.echo(line, err=True)
        key = _prompt()
        if key == "q":
            break
        if key == "s":
            skipped.add((question.first_face, question.second_face))
            continue
        try:
            gallery.answer(question, key == "y")
            answered += 1
        except FamiliarError as error:  # an earlier confirmation contradicts it, or another program changed the faces
            note(f"   not possible: {error}")
            skipped.add((question.first_face, question.second_face))
    return answered


def _next_question(gallery: "Gallery", skipped: set[tuple[int, int]]) -> "Question | None":
    questions = gallery.questions(len(skipped) + 1)
    return next((each for each in questions if (each.first_face, each.second_face) not in skipped), None)


def _prompt() -> str:
    """Read y, n, s or q; the end of input is q."""
    try:
        return click.prompt("   the same? y/n/s/q", type=click.Choice(list("ynsq")), show_choices=False, err=True)
    except click.Abort:
        return "q"


def _lines(gallery: "Gallery", question: "Question", lead: str) -> Iterator[str]:
    first, second = _paths(gallery, question)
    if question.kind == "split":
        name = label_of(gallery, question.first)
        yield f"{lead} are these two, both in {name}, the same identity? (probability {question.probability:.0%})"
    elif question.kind == "merge":
        names = [label_of(gallery, number) for number in (question.first, question.second) if number is not None]
        pair = " and ".join(names) if len(names) == 2 else f"{names[0]} and this face" if names else "these two faces"
        yield f"{lead} are {pair} the same identity? (probability {question.probability:.0%})"
    else:
        name = label_of(gallery, question.first)
        yield f"{lead} does the first face belong to {name}? (probability {question.probability:.0%})"
    yield f"   {printable(first)} (face {question.first_face})"
    yield f"   {printable(second)} (face {question.second_face})"


def _paths(gallery: "Gallery", question: "Question") -> tuple[str, str]:
    return gallery.face(question.first_face).path, gallery.face(question.second_face).path
