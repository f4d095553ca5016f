"""`familiar gallery repair`."""

from dataclasses import asdict
from pathlib import Path

import click

from familiar.cli.commands.gallery.arguments import folder_argument
from familiar.cli.commands.gallery.check import LISTED
from familiar.cli.console import print_json
from familiar.cli.options import FILE, json_option
from familiar.core.terminal_text import printable


@click.command()
@folder_argument
@click.option("--model", "-m", type=FILE, help="The gallery's model, where the damaged file no longer tells.")
@json_option
def repair(folder: Path, model: Path | None, as_json: bool) -> None:
    """Recover the readable rows of a damaged gallery.

    Where a single bit was flipped, it is flipped back. Keeps the damaged file in the gallery's folder. Other programs
    may go on using the gallery.

    \b
    Example:
      familiar gallery repair album
    """
    from familiar.embedding.bundle import load_bundle
    from familiar.gallery.database.connection import Space
    from familiar.gallery.integrity.repair import repair as repair_gallery

    result = repair_gallery(folder, None if model is None else Space.from_metadata(load_bundle(model).metadata))
    if as_json:
        print_json(asdict(result))
        return
    saved = ", ".join(f"{count:,} {table}" for table, count in result.saved.items() if table != "gallery")
    for category, rows in (("mended", result.mended), ("lost", result.lost)):
        for row in rows[:LISTED]:
            click.echo(f"{category}: {printable(row)}")
        if len(rows) > LISTED:
            click.echo(f"{category}: ... and {len(rows) - LISTED:,} more: --json lists all")
    click.echo(f"{folder}: repaired, with {saved or 'no rows'}; the damaged file is in {result.kept_in}")
