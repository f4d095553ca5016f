"""`familiar export`: a run into one bundle file."""

from pathlib import Path
from typing import Annotated

import typer

from familiar.app.console import print_json
from familiar.app.options import Json


def export(
    run: Annotated[Path, typer.Argument(help="The folder of a run.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The .onnx file to write.")],
    data: Annotated[
        list[str] | None, typer.Option(help="The photos of the run, where they have moved since.")
    ] = None,
    licence: Annotated[str | None, typer.Option(help="Terms of use to write into the bundle.")] = None,
    as_json: Json = False,
) -> None:
    """A run as one bundle file.

    Self-contained, in float32, with proof that it computes the same.

    Example: familiar export runs/cats --output cats.onnx
    """
    from familiar.datasets.folders import DataSpec
    from familiar.export.bundle import UNKNOWN_LICENCE, export_run

    spec = DataSpec(tuple(data)) if data else None
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
    typer.echo(
        f"{output}: {len(bundle.onnx) / 1e6:.2f} MB; on {parity['crops']} crops within "
        f"{parity['max_difference']:.1e} of the network it came from"
    )
