"""`familiar download`: a public data set, or a network that others publish."""

from pathlib import Path

import click

from familiar.cli.console import StatusLine, print_json
from familiar.cli.options import FILE, json_option

NETWORKS = ("yunet", "sface")


@click.command()
@click.argument("name", type=click.Choice(["mnist", "lfw", "yunet", "sface"]))
@click.option(
    "--output",
    "-o",
    type=FILE,
    help="The folder of the data set, or the file of the network. [default: for networks, "
    "where familiar looks for them]",
)
@click.option("--url", help="Where to get a network's file, if not from its publisher.")
@json_option
def download(name: str, output: Path | None, url: str | None, as_json: bool) -> None:
    """Download a public data set or network.

    Data sets: MNIST (11 MB) or LFW (240 MB, funneled). Networks, of OpenCV's model zoo: YuNet, which finds people's
    faces (.2 MB), or SFace, which recognizes them (39 MB). What is there already is not downloaded again; the download
    of a network goes on where it stopped, and its content is verified. Observe the terms of use.

    \b
    Example:
      familiar download mnist --output data/mnist
      familiar download yunet
    """
    if name in NETWORKS:
        _download_network(name, output, url, as_json)
        return
    if output is None:
        raise click.UsageError("a data set needs --output: the folder to create")
    from familiar.loading.downloads import DOWNLOADS

    fetched = DOWNLOADS[name](output)
    data = f"mnist:{output}" if name == "mnist" else str(output)
    if as_json:
        print_json({"folder": output, "downloaded": fetched, "data": data})
        return
    click.echo(f"{output}: {'downloaded' if fetched else 'downloaded already'}. Inspect it: familiar inspect {data}")


def _download_network(name: str, output: Path | None, url: str | None, as_json: bool) -> None:
    from familiar.core.download import download as download_file
    from familiar.core.published_files import PUBLISHED_FILES, published_path

    file, target = PUBLISHED_FILES[name], output or published_path(name)
    status = StatusLine()
    fetched = download_file(
        file,
        target,
        url=url,
        on_bytes=lambda done, total: status.show(f"{file.name}  {done / 1e6:.1f}/{total / 1e6:.1f} MB"),
    )
    status.clear()
    if as_json:
        print_json({"file": target, "downloaded": fetched, "license": file.license, "sha256": file.sha256})
        return
    use = f"; import it: familiar import {target} --output sface.onnx" if name == "sface" else ""
    click.echo(f"{target}: {'downloaded' if fetched else 'downloaded already'}. License: {file.license}{use}")
