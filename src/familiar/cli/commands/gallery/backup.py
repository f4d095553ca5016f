"""`familiar gallery backup` and `familiar gallery restore`."""

from dataclasses import asdict
from pathlib import Path

import click

from familiar.cli.commands.gallery.arguments import folder_argument
from familiar.cli.console import print_json
from familiar.cli.options import FILE, json_option
from familiar.core.plural import pluralize

file_argument = click.argument("file", metavar="FILE", type=FILE)


@click.command()
@folder_argument
@file_argument
@json_option
def backup(folder: Path, file: Path, as_json: bool) -> None:
    """Write a gallery into one file, and verify it.

    Everybody may go on using the gallery meanwhile. Uploaded photos are in the file; photos outside the gallery's
    folder are not. The file is an ordinary ZIP file.

    \b
    Example:
      familiar gallery backup album album.zip
    """
    from familiar.gallery.database.connection import GalleryDatabase
    from familiar.gallery.integrity.backup import backup as backup_gallery

    with GalleryDatabase.open(folder) as gallery:
        result = backup_gallery(gallery, file)
    if as_json:
        print_json(asdict(result))
        return
    click.echo(
        f"{file}: {pluralize(result.photos, 'photo')}, {pluralize(result.faces, 'face')}, "
        f"{pluralize(result.uploads, 'uploaded file')}; {result.size_bytes:,} bytes, verified"
    )
    click.echo(f"SHA-256: {result.sha256}")


@click.command()
@file_argument
@folder_argument
@json_option
def restore(file: Path, folder: Path, as_json: bool) -> None:
    """Restore a gallery from a backup.

    A gallery that is in the folder already is moved aside, into a folder in it; its uploaded photos stay.

    \b
    Example:
      familiar gallery restore album.zip album
    """
    from familiar.gallery.integrity.backup import restore as restore_gallery

    result = restore_gallery(file, folder)
    if as_json:
        print_json(asdict(result))
        return
    click.echo(
        f"{folder}: restored, with {pluralize(result.photos, 'photo')} and {pluralize(result.faces, 'face')}; "
        f"{pluralize(result.uploads, 'uploaded file')} restored"
    )
    if result.kept_in is not None:
        click.echo(f"the previous gallery is in {result.kept_in}")
