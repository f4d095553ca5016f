"""Corrections: `familiar gallery name`, `confirm`, `merge`, `split`, `move`, `reject`, `undo`."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from familiar.cli.commands.gallery.arguments import (
    faces_argument,
    folder_argument,
    identity_argument,
    label_of,
    open_gallery,
)
from familiar.cli.console import print_json
from familiar.cli.options import json_option
from familiar.core.plural import pluralize

if TYPE_CHECKING:  # --help imports nothing heavy
    from familiar.gallery import CorrectionResult, Gallery

same_photo_option = click.option(
    "--same-photo", is_flag=True, help="Accept that a photo shows the identity twice, as a collage or a mirror does."
)


@click.command()
@folder_argument
@identity_argument
@click.argument("new_name", metavar="NAME")
@click.option("--confirm", is_flag=True, help="Also confirm all faces of the identity.")
@json_option
def name(folder: Path, identity: str, new_name: str, confirm: bool, as_json: bool) -> None:
    """Name an identity.

    \b
    Example:
      familiar gallery name album '#12' Tom --confirm
    """
    with open_gallery(folder) as gallery:
        result = gallery.name(identity, new_name, confirm=confirm)
        _print_result(gallery, result, f"#{result.identity} is now", as_json)


@click.command()
@folder_argument
@faces_argument
@json_option
def confirm(folder: Path, faces: tuple[str, ...], as_json: bool) -> None:
    """Confirm that faces show the identity they have.

    `familiar gallery name --confirm` confirms all faces of an identity.

    \b
    Example:
      familiar gallery confirm album 31 photos/tom.jpg
    """
    with open_gallery(folder) as gallery:
        numbers = gallery.resolve_faces(faces)
        gallery.confirm(numbers)
    if as_json:
        print_json({"faces": numbers})
    else:
        click.echo(f"{pluralize(len(numbers), 'face')} confirmed")


@click.command()
@folder_argument
@identity_argument
@click.argument("others", nargs=-1, required=True, metavar="OTHERS...")
@same_photo_option
@json_option
def merge(folder: Path, identity: str, others: tuple[str, ...], same_photo: bool, as_json: bool) -> None:
    """Merge identities.

    Merges OTHERS into IDENTITY, which keeps its number and name; without a name it takes the first among OTHERS. If a
    photo shows two of them, they are hardly the same: say --same-photo if they are.

    \b
    Example:
      familiar gallery merge album Tom '#12' '#31'
    """
    with open_gallery(folder) as gallery:
        result = gallery.merge(identity, others, same_photo=same_photo)
        _print_result(gallery, result, f"{', '.join(others)} became", as_json)


@click.command()
@folder_argument
@faces_argument
@click.option("--name", "new_name", metavar="NAME", help="Name of the new identity.")
@same_photo_option
@json_option
def split(folder: Path, faces: tuple[str, ...], new_name: str | None, same_photo: bool, as_json: bool) -> None:
    """Move faces to a new identity.

    Unconfirmed faces of the same identity move along if they resemble the moved faces more than the remaining ones.

    \b
    Example:
      familiar gallery split album 31 photos/kitty.jpg --name Kitty
    """
    with open_gallery(folder) as gallery:
        numbers = gallery.resolve_faces(faces)
        result = gallery.split(numbers, new_name, same_photo=same_photo)
        _print_result(gallery, result, f"{_faces_show(len(numbers))} now", as_json)


@click.command()
@folder_argument
@faces_argument
@click.option("--to", "identity", required=True, metavar="IDENTITY", help="The identity that the faces show.")
@same_photo_option
@json_option
def move(folder: Path, faces: tuple[str, ...], identity: str, same_photo: bool, as_json: bool) -> None:
    """Move faces to another identity.

    The identity that they had is rejected: they are never assigned to it again.

    \b
    Example:
      familiar gallery move album 31 photos/kitty.jpg --to Kitty
    """
    with open_gallery(folder) as gallery:
        numbers = gallery.resolve_faces(faces)
        result = gallery.move(numbers, identity, same_photo=same_photo)
        _print_result(gallery, result, f"{_faces_show(len(numbers))} now", as_json)


@click.command()
@folder_argument
@faces_argument
@click.option("--identity", metavar="IDENTITY", help="The identity to reject (default: the one that each face has).")
@json_option
def reject(folder: Path, faces: tuple[str, ...], identity: str | None, as_json: bool) -> None:
    """Remove faces from an identity.

    They are never assigned to it again.

    \b
    Example:
      familiar gallery reject album 31 --identity Tom
    """
    with open_gallery(folder) as gallery:
        numbers = gallery.resolve_faces(faces)
        result = gallery.reject(numbers, identity)
        _print_result(gallery, result, _faces_show(len(numbers), "does not show", "do not show"), as_json)


@click.command()
@folder_argument
@click.option(
    "--change",
    type=click.IntRange(min=1),
    metavar="NUMBER",
    help="Undo only if this is the last change, and no other program has made one since.",
)
@json_option
def undo(folder: Path, change: int | None, as_json: bool) -> None:
    """Undo the last change.

    A change is one correction, clustering or import; `familiar gallery stats` lists the last ones with their numbers.
    What was erased with `familiar gallery forget` is not restored.

    \b
    Example:
      familiar gallery undo album
    """
    with open_gallery(folder) as gallery:
        decision = gallery.undo(change)
    if as_json:
        print_json(asdict(decision))
    else:
        click.echo(f"undone: {decision.kind} of {decision.decided_at} ({pluralize(decision.changes, 'row')})")


def _faces_show(count: int, singular: str = "shows", plural: str = "show") -> str:
    return f"{pluralize(count, 'face')} {singular if count == 1 else plural}"


def _print_result(gallery: "Gallery", result: "CorrectionResult", lead: str, as_json: bool) -> None:
    """Print the identity that a correction was about, and how many other faces followed."""
    if as_json:
        print_json(
            {
                "identity": result.identity,
                "name": gallery.names().get(result.identity),
                "faces": gallery.count_faces(result.identity),
                "propagated_faces": result.propagated_faces,
            }
        )
        return
    followers = f"; {pluralize(result.propagated_faces, 'other face')} followed" if result.propagated_faces else ""
    click.echo(f"{lead} {label_of(gallery, result.identity)}{followers}")
