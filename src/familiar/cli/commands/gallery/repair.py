"""`familiar gallery repair`."""

from dataclasses import asdict
from pathlib import Path

import click

from familiar.cli.commands.gallery.arguments import folder_argument
from familiar.cli.commands.gallery.check import LISTED
from familiar.cli.console import note, print_json
from familiar.cli.options import FILE, json_option
from familiar.core.terminal_text import printable

_SHOWN = ("photos", "faces", "identities", "assignments")


@click.command()
@folder_argument
@click.option("--model", "-m", type=FILE, help="The gallery's model, where the damaged file no longer tells.")
@json_option
def repair(folder: Path, model: Path | None, as_json: bool) -> None:
    """Make a damaged gallery usable again.

    What another program has written is accepted, if nothing is wrong with it. Of a damaged file all rows that can be
    read are kept; end other programs that have the gallery open before. The damaged file stays in the gallery's
    folder. Going back to a backup may save more: familiar gallery restore.

    \b
    Example:
      familiar gallery repair album
    """
    from familiar.gallery import Gallery

    result = Gallery.repair(folder, model)
    if as_json:
        print_json(asdict(result))
        return
    for category, rows in (("accepted", result.accepted), ("lost", result.lost)):
        for row in rows[:LISTED]:
            click.echo(f"{category}: {printable(row)}")
        if len(rows) > LISTED:
            click.echo(f"{category}: ... and {len(rows) - LISTED:,} more: --json lists all")
    if result.kept_in is None:
        click.echo(f"{folder}: accepted as it is")
    else:
        saved = ", ".join(f"{result.saved[table]:,} {table}" for table in _SHOWN if table in result.saved)
        click.echo(f"{folder}: repaired, with {saved or 'no rows'}; the damaged file is in {result.kept_in}")
    if result.backup is not None:
        note(f"an automatic copy has more: familiar gallery restore {folder} {result.backup}")
