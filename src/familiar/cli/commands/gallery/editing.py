"""What the user says of who is who: `name` to `undo`, and `forget`."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from familiar.cli.commands.gallery.arguments import (
    called_in,
    counted,
    faces_argument,
    find_faces,
    folder_argument,
    who_argument,
)
from familiar.cli.console import note, print_json
from familiar.cli.options import FILE, json_option

if TYPE_CHECKING:  # --help imports nothing heavy
    from familiar.gallery.database.connection import Gallery
    from familiar.gallery.editing.corrections import CorrectionResult


@click.command()
@folder_argument
@who_argument
@click.argument("called", metavar="NAME")
@click.option("--confirm", "sure", is_flag=True, help="All its faces are rightly there, too.")
@json_option
def name(folder: Path, who: str, called: str, sure: bool, as_json: bool) -> None:
    """Call an identity by a name, which it keeps for ever.

    \b
    Example:
      familiar gallery name album '#12' Tom --confirm
    """
    from familiar.gallery.clustering.assignments import resolve_identity
    from familiar.gallery.database.connection import Gallery
    from familiar.gallery.editing.corrections import name_identity as give_name

    with Gallery.open(folder) as gallery:
        number = resolve_identity(gallery, who)
        corrected = give_name(gallery, number, called, confirm=sure)
        _tell(gallery, corrected, f"#{number} is now", as_json)


@click.command()
@folder_argument
@faces_argument
@json_option
def confirm(folder: Path, faces: tuple[str, ...], as_json: bool) -> None:
    """These faces are rightly where they are.

    `familiar gallery name --confirm` says it of a whole identity.

    \b
    Example:
      familiar gallery confirm album 31 photos/tom.jpg
    """
    from familiar.gallery.database.connection import Gallery
    from familiar.gallery.editing.corrections import confirm as confirm_faces

    with Gallery.open(folder) as gallery:
        numbers = find_faces(gallery, faces)
        confirm_faces(gallery, numbers)
    if as_json:
        print_json({"faces": numbers})
    else:
        click.echo(f"{counted(len(numbers), 'face')} confirmed")


@click.command()
@folder_argument
@click.argument("into", metavar="WHO")
@click.argument("others", nargs=-1, required=True, metavar="OTHERS...")
@json_option
def merge(folder: Path, into: str, others: tuple[str, ...], as_json: bool) -> None:
    """These identities are one: WHO, or whichever has a name.

    \b
    Example:
      familiar gallery merge album Tom '#12' '#31'
    """
    from familiar.gallery.clustering.assignments import resolve_identity
    from familiar.gallery.database.connection import Gallery
    from familiar.gallery.editing.corrections import merge as merge_identities

    with Gallery.open(folder) as gallery:
        number, *rest = (resolve_identity(gallery, who) for who in (into, *others))
        _tell(gallery, merge_identities(gallery, number, rest), f"{', '.join(others)} became", as_json)


@click.command()
@folder_argument
@faces_argument
@click.option("--name", "called", metavar="NAME", help="Call it so.")
@json_option
def split(folder: Path, faces: tuple[str, ...], called: str | None, as_json: bool) -> None:
    """These faces show somebody of their own.

    Other faces of the group that are more like them go with them.

    \b
    Example:
      familiar gallery split album 31 photos/kitty.jpg --name Kitty
    """
    from familiar.gallery.database.connection import Gallery
    from familiar.gallery.editing.corrections import split as split_faces

    with Gallery.open(folder) as gallery:
        corrected = split_faces(gallery, numbers := find_faces(gallery, faces), called)
        _tell(gallery, corrected, f"{_show(len(numbers))} now", as_json)


@click.command()
@folder_argument
@faces_argument
@click.option("--to", "who", required=True, metavar="WHO", help="Whom they show.")
@json_option
def move(folder: Path, faces: tuple[str, ...], who: str, as_json: bool) -> None:
    """These faces show WHO, and not whom they were said to show.

    \b
    Example:
      familiar gallery move album 31 photos/kitty.jpg --to Kitty
    """
    from familiar.gallery.clustering.assignments import resolve_identity
    from familiar.gallery.database.connection import Gallery
    from familiar.gallery.editing.corrections import move as move_faces

    with Gallery.open(folder) as gallery:
        number = resolve_identity(gallery, who)
        corrected = move_faces(gallery, numbers := find_faces(gallery, faces), number)
        _tell(gallery, corrected, f"{_show(len(numbers))} now", as_json)


@click.command()
@folder_argument
@faces_argument
@click.option("--of", "who", metavar="WHO", help="Whom they do not show (default: whom each is said to show).")
@json_option
def reject(folder: Path, faces: tuple[str, ...], who: str | None, as_json: bool) -> None:
    """These faces do not show whom they are said to show.

    It is never said of them again.

    \b
    Example:
      familiar gallery reject album 31 --of Tom
    """
    from familiar.gallery.clustering.assignments import resolve_identity
    from familiar.gallery.database.connection import Gallery
    from familiar.gallery.editing.corrections import reject as reject_faces

    with Gallery.open(folder) as gallery:
        number = None if who is None else resolve_identity(gallery, who)
        corrected = reject_faces(gallery, numbers := find_faces(gallery, faces), number)
        _tell(gallery, corrected, f"{_show(len(numbers), 'does not show', 'do not show')}", as_json)


@click.command()
@folder_argument
@json_option
def undo(folder: Path, as_json: bool) -> None:
    """Take the last decision back.

    One correction, grouping or import; `familiar gallery stats` lists the last ones. What was forgotten stays
    forgotten.

    \b
    Example:
      familiar gallery undo album
    """
    from dataclasses import asdict

    from familiar.gallery.database.connection import Gallery
    from familiar.gallery.editing.undo_log import undo as take_back

    with Gallery.open(folder) as gallery:
        undone = take_back(gallery)
    if as_json:
        print_json(asdict(undone))
    else:
        click.echo(f"undone: {undone.kind} of {undone.decided_at} ({counted(undone.changes, 'row')})")


@click.command()
@folder_argument
@click.option("--identity", "who", metavar="WHO", help="This identity, and every face that shows it.")
@click.option("--photo", "photos", multiple=True, type=FILE, help="This photo, and every face in it.")
@click.option("--yes", is_flag=True, help="Do not ask first.")
@json_option
def forget(folder: Path, who: str | None, photos: tuple[Path, ...], yes: bool, as_json: bool) -> None:
    """Erase an identity or photos from the gallery for good.

    From its tables, index, log and free pages; it cannot be undone. The photos themselves are left alone.

    \b
    Example:
      familiar gallery forget album --identity Tom
    """
    from dataclasses import asdict

    from familiar.gallery.clustering.assignments import resolve_identity
    from familiar.gallery.database.connection import Gallery
    from familiar.gallery.editing.forget import forget_identity, forget_photos

    if (who is None) == (not photos):
        raise click.UsageError("give --identity or --photo, one of them")
    with Gallery.open(folder) as gallery:
        number = None if who is None else resolve_identity(gallery, who)
        if not yes:
            _make_sure(counted(len(photos), "photo") if number is None else called_in(gallery, number))
        forgotten = forget_photos(gallery, photos) if number is None else forget_identity(gallery, number)
    if not forgotten.erased:
        note("its bytes stay on the disk as long as another process has the gallery open; open it again after that")
    if as_json:
        print_json(asdict(forgotten))
    elif number is None:
        click.echo(f"forgotten: {counted(forgotten.photos, 'photo')} with {counted(forgotten.faces, 'face')}")
    else:
        click.echo(f"forgotten: {who} with {counted(forgotten.faces, 'face')}")


def _make_sure(what: str) -> None:
    if not sys.stdin.isatty():
        raise click.UsageError("forgetting cannot be undone; without a terminal to ask on, say --yes")
    click.confirm(f"erase {what} for good?", abort=True, err=True)


def _show(count: int, one: str = "shows", several: str = "show") -> str:
    return f"{counted(count, 'face')} {one if count == 1 else several}"


def _tell(gallery: "Gallery", corrected: "CorrectionResult", lead: str, as_json: bool) -> None:
    """Whom it was about, and how many faces nobody spoke of came along."""
    from familiar.gallery.clustering.assignments import load_assignments

    who = load_assignments(gallery)
    if as_json:
        print_json(
            {
                "identity": corrected.identity,
                "name": who.names.get(corrected.identity),
                "faces": len(who.rows_of_identity(corrected.identity)),
                "propagated_faces": corrected.propagated_faces,
            }
        )
        return
    others = (
        f"; {counted(corrected.propagated_faces, 'other face')} carried along" if corrected.propagated_faces else ""
    )
    click.echo(f"{lead} {called_in(gallery, corrected.identity)}{others}")
