"""Commands about groups as the gallery makes them: `group`, `suggest`, `calibrate`."""

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from familiar.cli.commands.gallery.arguments import called_in, counted, folder_argument
from familiar.cli.console import StatusLine, note, print_json
from familiar.cli.options import json_option
from familiar.core.terminal_text import printable

if TYPE_CHECKING:  # --help imports nothing heavy
    from familiar.gallery.clustering.review_queue import Question
    from familiar.gallery.database.connection import Gallery


@click.command()
@folder_argument
@click.option(
    "--threshold",
    type=click.FloatRange(-1, 1),
    help="Similarity from which two faces are one individual (default: as calibrated, here or by the model).",
)
@click.option("--rebuild", is_flag=True, help="Make groups anew that neither a name nor you hold.")
@json_option
def group(folder: Path, threshold: float | None, rebuild: bool, as_json: bool) -> None:
    """Put faces together that show one individual.

    What is in a group stays there, new faces join; what you said is never changed, and two faces of one photo are
    never one individual.

    \b
    Example:
      familiar gallery group album
    """
    from familiar.gallery.clustering.calibration import clustering_calibration
    from familiar.gallery.clustering.cluster import cluster as make_groups
    from familiar.gallery.database.connection import Gallery

    with Gallery.open(folder) as gallery:
        status = StatusLine()
        status.show(f"grouping {counted(len(gallery.faces().ids), 'face')}")
        made = make_groups(gallery, threshold=threshold, rebuild=rebuild)
        status.clear()
        own = clustering_calibration(gallery).own
    if as_json:
        print_json(asdict(made))
        return
    whose = "as asked for" if threshold is not None else "the gallery's own" if own else "the model's"
    click.echo(
        f"{folder}: {counted(made.identities, 'identity')} with {counted(made.faces, 'face')}, "
        f"{made.unassigned:,} alone; {made.changed:,} changed (threshold {made.threshold:.3f}, {whose})"
    )


@click.command()
@folder_argument
@click.option("-n", "count", type=click.IntRange(min=1), default=10, show_default=True, help="So many at most.")
@click.option("--ask", is_flag=True, help="Ask them one by one, and take the answers for your word.")
@json_option
def suggest(folder: Path, count: int, ask: bool, as_json: bool) -> None:
    """The few questions whose answers would mend most.

    Each is about two photos: do they show one individual? With --ask answer y (yes), n (no), s (skip) or q (quit);
    a question that was answered is never asked again.

    \b
    Example:
      familiar gallery suggest album --ask
    """
    from familiar.gallery.clustering.review_queue import propose_questions as questions_of
    from familiar.gallery.database.connection import Gallery

    with Gallery.open(folder) as gallery:
        if ask:
            answered = _ask(gallery, count)
            if as_json:
                print_json({"answered": answered})
            else:
                click.echo(f"{folder}: {counted(answered, 'question')} answered")
            return
        questions = questions_of(gallery, count)
        paths = [_paths(gallery, question) for question in questions]
        if as_json:
            print_json(
                [
                    asdict(question) | {"first_path": first, "second_path": second}
                    for question, (first, second) in zip(questions, paths, strict=True)
                ]
            )
            return
        for number, question in enumerate(questions, 1):
            for line in _lines(gallery, question, f"{number}."):
                click.echo(line)
    if questions:
        click.echo(f"answer them with: familiar gallery suggest {folder} --ask")
    else:
        click.echo(f"{folder}: nothing to ask")


@click.command()
@folder_argument
@click.option("--reset", is_flag=True, help="Back to what the model says.")
@json_option
def calibrate(folder: Path, reset: bool, as_json: bool) -> None:
    """Fit the thresholds to the faces you confirmed.

    Ten pairs of one individual and ten of two are needed at least; more are better.

    \b
    Example:
      familiar gallery calibrate album
    """
    from familiar.gallery.clustering.calibration import calibrate as fit
    from familiar.gallery.clustering.calibration import clustering_calibration, reset_calibration
    from familiar.gallery.database.connection import Gallery

    with Gallery.open(folder) as gallery:
        if reset:
            reset_calibration(gallery)
            threshold, f = clustering_calibration(gallery).threshold, None
        else:
            _, own = fit(gallery)
            threshold, f = own.threshold, own.f
    if as_json:
        print_json({"threshold": threshold, "own": not reset, "f": f})
    elif reset:
        click.echo(f"{folder}: groups from similarity {threshold:.3f} on, as the model says")
    else:
        click.echo(f"{folder}: groups from similarity {threshold:.3f} on (F {f:.3f} on what you confirmed)")


def _ask(gallery: "Gallery", count: int) -> int:
    """The number of answers. One answer may change what is best asked next, so that is computed anew."""
    from familiar.core.errors import FamiliarError
    from familiar.gallery.clustering.review_queue import answer_question, propose_questions

    passed: set[tuple[int, int]] = set()
    answered = 0
    while answered + len(passed) < count:
        faces_and_questions = (
            ((question.first_face, question.second_face), question)
            for question in propose_questions(gallery, len(passed) + 1)
        )
        faces, question = next(((f, q) for f, q in faces_and_questions if f not in passed), (None, None))
        if question is None or faces is None:
            break
        for line in _lines(gallery, question, f"{answered + len(passed) + 1}."):
            click.echo(line, err=True)
        said = _prompt()
        if said == "q":
            break
        if said == "s":
            passed.add(faces)
            continue
        try:
            answer_question(gallery, question, said == "y")
            answered += 1
        except FamiliarError as error:  # what was confirmed stands against it
            note(f"   cannot be: {error}")
            passed.add(faces)
    return answered


def _prompt() -> str:
    """y, n, s or q; the end of what is typed is q."""
    try:
        return click.prompt("   the same? y/n/s/q", type=click.Choice(list("ynsq")), show_choices=False, err=True)
    except click.Abort:
        return "q"


def _lines(gallery: "Gallery", question: "Question", lead: str) -> Iterator[str]:
    first, second = _paths(gallery, question)
    if question.kind == "merge":
        known = [called_in(gallery, one) for one in (question.first, question.second) if one is not None]
        these = " and ".join(known) if len(known) == 2 else f"{known[0]} and this one" if known else "these two"
        yield f"{lead} are {these} one individual? (probability {question.probability:.0%})"
    else:
        whose = called_in(gallery, question.first)
        yield f"{lead} does the first belong to {whose}? (probability {question.probability:.0%})"
    yield f"   {printable(first)} (face {question.first_face})"
    yield f"   {printable(second)} (face {question.second_face})"


def _paths(gallery: "Gallery", question: "Question") -> tuple[str, str]:
    with gallery.reading() as connection:
        first, second = (
            str(
                connection.execute(
                    "SELECT path FROM faces JOIN photos ON photos.id = photo_id WHERE faces.id = ?", (face,)
                ).fetchone()[0]
            )
            for face in (question.first_face, question.second_face)
        )
    return first, second
