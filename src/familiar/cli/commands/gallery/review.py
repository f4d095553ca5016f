"""`familiar gallery review`."""

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from familiar.cli.commands.gallery.arguments import folder_argument, label_of, open_gallery
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
@click.option("--species", metavar="NAME", help="Only questions about faces of this species.")
@click.option("--interactive", is_flag=True, help="Open the page of questions in a browser, and answer them there.")
@json_option
def review(folder: Path, count: int, species: str | None, interactive: bool, as_json: bool) -> None:
    """List the questions whose answers would correct the most assignments.

    Each shows two faces: are they the same individual? With --interactive the page of questions opens in a browser; it
    also names groups and places faces that are in none. Where there is no browser, its address is printed. An answered
    question is never asked again.

    \b
    Example:
      familiar gallery review album --interactive
    """
    if interactive:
        if as_json or species is not None:
            raise click.UsageError("--interactive goes without --json and --species")
        _serve(folder)
        return
    with open_gallery(folder) as gallery, gallery.read():  # all of one moment, whatever other programs write
        questions = gallery.questions(count, species=species)
        remaining = gallery.remaining(species=species)
        paths = [_paths(gallery, question) for question in questions]
        lines = [line for number, each in enumerate(questions, 1) for line in _lines(gallery, each, f"{number}.")]
    if as_json:
        print_json(
            [
                asdict(question) | {"first_path": first, "second_path": second}
                for question, (first, second) in zip(questions, paths, strict=True)
            ]
        )
        return
    for line in lines:
        click.echo(line)
    open_ends = (
        f"{pluralize(remaining.questions, 'question')} left that matter",
        f"{pluralize(remaining.unnamed, 'group')} without a name",
        f"{pluralize(remaining.unassigned, 'face')} in no group, {remaining.covered:,} of them asked about",
    )
    click.echo(f"{folder}: {'; '.join(open_ends)}")
    if remaining.questions or questions:
        click.echo(f"answer them with: familiar gallery review {folder} --interactive")


def _serve(folder: Path) -> None:
    """Serve the page of questions, and open it in a browser."""
    from familiar.web.server import serve
    from familiar.web.settings import Settings

    def show(url: str) -> None:
        address = f"{url}questions"
        note(f"{folder}: {'opened' if _open(address) else 'open'} {address} in a browser; Ctrl+C ends")

    serve(Settings(gallery=folder, port=0), show)


def _open(address: str) -> bool:
    """Open an address in a browser with windows, and return whether there is one."""
    import webbrowser

    try:
        browser = webbrowser.get()
    except webbrowser.Error:
        return False
    # A browser in the terminal would wait for the server, which starts only when it has ended.
    return type(browser) is not webbrowser.GenericBrowser and browser.open(address)


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
