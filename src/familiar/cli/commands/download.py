"""`familiar download`: a public data set into a folder that the other commands read."""

from pathlib import Path

import click

from familiar.cli.console import print_json
from familiar.cli.options import FILE, json_option


@click.command()
@click.argument("name", type=click.Choice(["mnist", "lfw"]))
@click.option("--output", "-o", required=True, type=FILE, help="The folder to create.")
@json_option
def download(name: str, output: Path, as_json: bool) -> None:
    """Download a public data set.

    MNIST (11 MB) or LFW (240 MB, funneled). An incomplete download is not kept, and an existing one is not repeated.
    Observe the terms of the data set.

    \b
    Example:
      familiar download mnist --output data/mnist
    """
    from familiar.loading.downloads import DOWNLOADS

    fetched = DOWNLOADS[name](output)
    data = f"mnist:{output}" if name == "mnist" else str(output)
    if as_json:
        print_json({"folder": output, "downloaded": fetched, "data": data})
        return
    click.echo(f"{output}: {'downloaded' if fetched else 'downloaded already'}. Inspect it: familiar inspect {data}")
