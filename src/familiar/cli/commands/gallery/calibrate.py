"""`familiar gallery calibrate`."""

from pathlib import Path

import click

from familiar.cli.commands.gallery.arguments import describe_source, folder_argument, open_gallery
from familiar.cli.console import print_json
from familiar.cli.options import json_option


@click.command()
@folder_argument
@click.option("--reset", is_flag=True, help="Delete the gallery's own thresholds and use the model's.")
@json_option
def calibrate(folder: Path, reset: bool, as_json: bool) -> None:
    """Fit the gallery's similarity thresholds to the faces that were confirmed.

    Needs at least ten pairs of faces of one identity and ten of different identities; more are better. A gallery of a
    model that was never calibrated does this by itself, until it is calibrated with this command.

    \b
    Example:
      familiar gallery calibrate album
    """
    with open_gallery(folder) as gallery:
        if reset:
            gallery.reset_calibration()
        else:
            gallery.calibrate()
        parts = gallery.space.part_spaces
        calibrations = [gallery.clustering(part) for part in range(len(parts))]
    if as_json:
        rows = [
            {"species": part.species, "threshold": each.threshold, "own": each.from_gallery, "f": each.f}
            for part, each in zip(parts, calibrations, strict=True)
        ]
        print_json({key: rows[0][key] for key in ("threshold", "own", "f")} if len(rows) == 1 else {"parts": rows})
        return
    for part, calibration in zip(parts, calibrations, strict=True):
        source = describe_source(calibration)
        if calibration.from_gallery:
            source = f"F score {calibration.f:.3f} on the confirmed faces"
        species = f"{', '.join(part.species)}: " if part.species else ""
        click.echo(f"{folder}: {species}clustering threshold {calibration.threshold:.3f} ({source})")
