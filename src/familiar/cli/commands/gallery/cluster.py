"""`familiar gallery cluster`."""

from dataclasses import asdict
from pathlib import Path

import click

from familiar.cli.commands.gallery.arguments import describe_threshold, folder_argument, open_to_correct
from familiar.cli.console import StatusLine, print_json
from familiar.cli.options import json_option
from familiar.core.plural import pluralize


@click.command()
@folder_argument
@click.option(
    "--threshold",
    type=click.FloatRange(-1, 1),
    help="Minimum similarity of two faces of one identity, compared as they are (default: estimated from the album, or "
    "else the gallery's or the model's calibration).",
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
    is that of the calibration; --threshold sets another.

    \b
    Example:
      familiar gallery cluster album
    """
    with open_to_correct(folder) as gallery:
        status = StatusLine()
        status.show(f"clustering {pluralize(gallery.counts().faces, 'face')}")
        result = gallery.cluster(threshold=threshold, rebuild=rebuild)
        status.clear()
        described = f"{result.threshold:.3f}, as given"
        if threshold is None:
            described = describe_threshold(gallery.main_species(), gallery.clustering())
            thresholds = gallery.thresholds()
            if len(thresholds) > 1:
                described = ", ".join(f"{each.species or 'others'} {each.threshold:.3f}" for each in thresholds)
    if as_json:
        print_json(asdict(result))
        return
    click.echo(
        f"{folder}: {pluralize(result.identities, 'identity')} with {pluralize(result.faces, 'face')}, "
        f"{result.unassigned:,} unassigned; {result.changed:,} changed (threshold {described})"
    )
