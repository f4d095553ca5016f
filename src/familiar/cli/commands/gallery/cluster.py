"""`familiar gallery cluster`."""

from dataclasses import asdict
from pathlib import Path

import click

from familiar.cli.commands.gallery.arguments import folder_argument, open_gallery
from familiar.cli.console import StatusLine, print_json
from familiar.cli.options import json_option
from familiar.core.plural import pluralize
from familiar.core.terminal_text import printable


@click.command()
@folder_argument
@click.option(
    "--threshold",
    type=click.FloatRange(-1, 1),
    help="Minimum similarity of two faces of one identity, compared as they are (default: estimated from the album, or "
    "else by the model's calibration).",
)
@click.option(
    "--rebuild", is_flag=True, help="Cluster again all faces that are neither confirmed nor in a named identity."
)
@json_option
def cluster(folder: Path, threshold: float | None, rebuild: bool, as_json: bool) -> None:
    """Cluster faces into identities.

    Faces that have an identity keep it; new faces join existing identities or form new ones. Corrections are never
    changed, and two faces of one photo are in one identity only where you said so. The threshold is estimated from the
    similarities of the album's faces, for each species. With fewer than 24 faces, or of fewer than four individuals, it
    is the model's; --threshold sets another.

    \b
    Example:
      familiar gallery cluster album
    """
    with open_gallery(folder) as gallery:
        status = StatusLine()
        status.show(f"clustering {pluralize(gallery.counts().faces, 'face')}")
        result = gallery.cluster(threshold=threshold, rebuild=rebuild)
        status.clear()
        thresholds = gallery.thresholds() if threshold is None and not as_json else ()
    if as_json:
        print_json(asdict(result))
        return
    click.echo(
        f"{folder}: {pluralize(result.identities, 'identity')} with {pluralize(result.faces, 'face')}, "
        f"{result.unassigned:,} unassigned; {result.changed:,} changed"
    )
    for each in thresholds:
        click.echo(f"{f'{printable(each.species)}: ' if each.species else ''}{each.decided}")
