"""`familiar gallery backup` and `familiar gallery restore`."""

from dataclasses import asdict
from pathlib import Path

import click

from familiar.cli.commands.gallery.arguments import folder_argument, open_gallery
from familiar.cli.console import print_json
from familiar.cli.options import FILE, json_option
from familiar.core.plural import pluralize


def _parse_retention(_: click.Context, __: click.Parameter, text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    numbers = text.split(",")
    if len(numbers) != 2 or not all(number.strip().isdecimal() for number in numbers):
        raise click.BadParameter("give two numbers, such as 3,3")
    return int(numbers[0]), int(numbers[1])


@click.command()
@folder_argument
@click.argument("file", metavar="[FILE]", required=False, type=FILE)
@click.option(
    "--automatic",
    metavar="DAYS,WEEKS",
    callback=_parse_retention,
    help="Keep so many daily and weekly automatic copies from now on (0,0: make none), instead of writing a file.",
)
@json_option
def backup(folder: Path, file: Path | None, automatic: tuple[int, int] | None, as_json: bool) -> None:
    """Write a gallery into one file, and verify it.

    Everybody may go on using the gallery meanwhile. Uploaded photos are in the file; photos outside the gallery's
    folder are not. The file is an ordinary ZIP file.

    Before the first change of a day the gallery also copies its database into its folder `backups` by itself, and
    before `migrate`, imports and `cluster --rebuild`.

    \b
    Example:
      familiar gallery backup album album.zip
    """
    if (file is None) == (automatic is None):
        raise click.UsageError("give either a FILE or --automatic")
    with open_gallery(folder, backups=automatic) as gallery:
        if automatic is not None:
            days, weeks = automatic
            if as_json:
                print_json({"days": days, "weeks": weeks})
            else:
                click.echo(f"{folder}: keeps automatic copies of {days} days and {weeks} weeks")
            return
        assert file is not None
        result = gallery.backup(file)
    if as_json:
        print_json(asdict(result))
        return
    click.echo(
        f"{file}: {pluralize(result.photos, 'photo')}, {pluralize(result.faces, 'face')}, "
        f"{pluralize(result.uploads, 'uploaded file')}; {result.size_bytes:,} bytes, verified"
    )
    click.echo(f"SHA-256: {result.sha256}")


@click.command()
@folder_argument
@click.argument("file", metavar="[FILE]", required=False, type=FILE)
@click.option("--yes", is_flag=True, help="Restore it even if it has fewer names than the gallery has now.")
@json_option
def restore(folder: Path, file: Path | None, yes: bool, as_json: bool) -> None:
    """Restore a gallery from a backup.

    FILE is one that `familiar gallery backup` wrote, or an automatic copy in the gallery's folder `backups`; without
    it, the newest automatic copy is restored. Other programs may have the gallery open, and go on with the restored
    one. What was there before is kept as an automatic copy; uploaded photos stay. A file with fewer names than the
    gallery has now is refused, unless --yes is given.

    \b
    Example:
      familiar gallery restore album album.zip
    """
    from familiar.gallery import Gallery

    result = Gallery.restore(folder, file, fewer_names=yes)
    if as_json:
        print_json(asdict(result))
        return
    before = "" if result.names_before is None else f" (before: {pluralize(result.names_before, 'name')})"
    click.echo(
        f"{folder}: restored from {result.source}, with {pluralize(result.photos, 'photo')}, "
        f"{pluralize(result.faces, 'face')} and {pluralize(result.names, 'name')}{before}; "
        f"{pluralize(result.uploads, 'uploaded file')} restored"
    )
    if result.previous is not None:
        click.echo(f"the gallery as it was before is in {result.previous}")
