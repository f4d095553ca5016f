"""`familiar export`: a run into one bundle file."""

from pathlib import Path

import click

from familiar.app.console import print_json
from familiar.app.options import FILE, json_option, licence_option


@click.command()
@click.argument("run", type=FILE)
@click.option("--output", "-o", required=True, type=FILE, help="The .onnx file to write.")
@click.option("--data", multiple=True, help="The photos of the run, where they have moved since.")
@licence_option
@json_option
def export(
    run: Path,
    output: Path,
    data: tuple[str, ...],
    licence: str | None,
    as_json: bool,
) -> None:
    """A run as one bundle file.

    Self-contained, in float32, with proof that it computes the same.

    \b
    Example:
      familiar export runs/cats --output cats.onnx
    """
    from familiar.datasets.folders import DataSpec
    from familiar.export.bundle import UNKNOWN_LICENCE, export_run

    spec = DataSpec(data) if data else None
    bundle = export_run(run, output, spec, licence or UNKNOWN_LICENCE)
    parity = bundle.metadata.parity
    if as_json:
        print_json(
            {
                "bundle": output,
                "size_bytes": len(bundle.onnx),
                "file_id": bundle.file_id,
                "space_id": bundle.metadata.space_id,
                "parity": parity,
            }
        )
        return
    click.echo(
        f"{output}: {len(bundle.onnx) / 1e6:.2f} MB; on {parity['crops']} crops within "
        f"{parity['max_difference']:.1e} of the network it came from"
    )
