"""`familiar gallery forget`."""

import sys
from dataclasses import asdict
from pathlib import Path

import click

from familiar.cli.commands.gallery.arguments import folder_argument, label_of, open_gallery
from familiar.cli.commands.gallery.indexing import update_index
from familiar.cli.console import note, print_json
from familiar.cli.options import json_option
from familiar.core.plural import pluralize


@click.command()
@folder_argument
@click.option("--identity", metavar="IDENTITY", help="Erase this identity and every face assigned to it.")
@click.option(
    "--photo", "photos", multiple=True, metavar="PHOTO", help="Erase this photo (path or number) and every face in it."
)
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@json_option
def forget(folder: Path, identity: str | None, photos: tuple[str, ...], yes: bool, as_json: bool) -> None:
    """Erase an identity or photos permanently.

    Their data is overwritten in the database file and in its automatic copies, and cannot be recovered. Damaged files
    that `repair` and `restore` have moved aside are erased too. The photo files stay. Where another photo has replaced
    a photo's file, give the photo's number; `check` lists it.

    \b
    Example:
      familiar gallery forget album --identity Tom
    """
    if (identity is None) == (not photos):
        raise click.UsageError("give either --identity or --photo")
    with open_gallery(folder) as gallery:
        number, state, subject = None, None, pluralize(len(photos), "photo")
        if identity is not None:
            with gallery.read():
                number = gallery.resolve_identity(identity)
                state, subject = gallery.states([number])[number], label_of(gallery, number)
        damaged = {path.parent.name for path in gallery.damaged_files()}
        if not yes:
            _ask_for_confirmation(", ".join([subject, *sorted(damaged)]))
        references = [int(photo) if photo.isdecimal() else Path(photo) for photo in photos]
        result = gallery.forget(identity=number, photos=references, state=state)
        if result.erased:
            update_index(gallery)
    if result.erased and damaged:
        note(f"erased too, as it has copies: {', '.join(sorted(damaged))}")
    if not result.erased:
        note(
            "the erased bytes stay on disk while another process has the gallery open, or in Milvus while that cannot "
            "be reached; open the gallery again after that"
        )
    if as_json:
        print_json(asdict(result))
    elif number is None:
        click.echo(f"erased: {pluralize(result.photos, 'photo')} with {pluralize(result.faces, 'face')}")
    else:
        click.echo(f"erased: the identity with {pluralize(result.faces, 'face')}")  # its name would stay in a log


def _ask_for_confirmation(subject: str) -> None:
    if not sys.stdin.isatty():
        raise click.UsageError("erasing cannot be undone, and there is no terminal to ask on; pass --yes to confirm")
    click.confirm(f"erase {subject} permanently?", abort=True, err=True)
