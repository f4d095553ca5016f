"""`familiar gallery calibrate`."""

from pathlib import Path

import click

from familiar.cli.commands.gallery.arguments import describe_source, folder_argument
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
    from familiar.gallery.clustering.calibration import calibrate as fit_calibration
    from familiar.gallery.clustering.calibration import clustering_calibration, reset_calibration
    from familiar.gallery.database.connection import GalleryDatabase

    with GalleryDatabase.open(folder) as gallery:
        if reset:
            reset_calibration(gallery)
            calibration = clustering_calibration(gallery)
        else:
            _, calibration = fit_calibration(gallery)
    if as_json:
        print_json({"threshold": calibration.threshold, "own": not reset, "f": calibration.f})
    elif reset:
        click.echo(f"{folder}: clustering threshold {calibration.threshold:.3f}, {describe_source(calibration)}")
    else:
        click.echo(
            f"{folder}: clustering threshold {calibration.threshold:.3f} (F score {calibration.f:.3f} on the "
            "confirmed faces)"
        )
