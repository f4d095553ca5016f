"""`familiar export`: a run into one bundle file."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from familiar.app.console import print_json
from familiar.app.options import FILE, json_option, licence_option

if TYPE_CHECKING:
    from familiar.export.precision import Precision


@click.command()
@click.argument("run", type=FILE)
@click.option("--output", "-o", required=True, type=FILE, help="The .onnx file to write.")
@click.option("--data", multiple=True, help="The photos of the run, where they have moved since.")
@click.option(
    "--precision",
    type=click.Choice(["float32", "float16"]),
    default="float32",
    show_default=True,
    help="Of the weights in the file; it computes in float32.",
)
@licence_option
@json_option
def export(
    run: Path,
    output: Path,
    data: tuple[str, ...],
    precision: "Precision",
    licence: str | None,
    as_json: bool,
) -> None:
    """A run as one bundle file.

    Self-contained, with proof that it computes the same. float16 halves the file.

    \b
    Example:
      familiar export runs/cats --output cats.onnx --precision float16
    """
    from familiar.datasets.folders import DataSpec
    from familiar.export.bundle import UNKNOWN_LICENCE, export_run

    spec = DataSpec(data) if data else None
    bundle = export_run(run, output, spec, licence or UNKNOWN_LICENCE, precision)
    parity = bundle.metadata.parity
    if as_json:
        print_json(
            {
                "bundle": output,
                "size_bytes": len(bundle.onnx),
                "precision": precision,
                "file_id": bundle.file_id,
                "space_id": bundle.metadata.space_id,
                "parity": parity,
            }
        )
        return
    click.echo(
        f"{output}: {_size(len(bundle.onnx))} in {precision}; on {parity['crops']} crops within "
        f"{parity['max_difference']:.1e} of the network it came from"
    )


def _size(count: int) -> str:
    return f"{count / 1e6:.2f} MB" if count >= 1e6 else f"{count:,} bytes"
