"""`familiar gallery check`."""

from dataclasses import asdict
from pathlib import Path

import click

from familiar.cli.commands.gallery.arguments import folder_argument, open_gallery
from familiar.cli.console import print_json
from familiar.cli.options import json_option
from familiar.core.plural import pluralize
from familiar.core.terminal_text import printable

LISTED = 50  # photos or problems; --json has them all


@click.command()
@folder_argument
@json_option
def check(folder: Path, as_json: bool) -> None:
    """Verify a gallery's integrity (exit 1 on problems).

    Checks every page, every reference and every embedding. Photos that are missing or changed are listed, but are no
    problem.

    \b
    Example:
      familiar gallery check album
    """
    with open_gallery(folder) as gallery:
        result = gallery.check()
    if as_json:
        print_json(asdict(result))
    else:
        for category, lines in (
            ("problem", result.problems),
            ("missing", result.missing),
            ("changed", result.changed),
        ):
            for line in lines[:LISTED]:
                click.echo(f"{category}: {printable(line)}")
            if len(lines) > LISTED:
                click.echo(f"{category}: ... and {len(lines) - LISTED:,} more: --json lists all")
        verdict = pluralize(len(result.problems), "problem") if result.problems else "intact"
        click.echo(f"{folder}: {verdict}; {pluralize(result.photos, 'photo')}, {pluralize(result.faces, 'face')}")
        if result.needs_repair:
            click.echo(f"recover what can be read with: familiar gallery repair {folder}", err=True)
    if result.problems:
        raise SystemExit(1)
