"""Options that several commands share, said once."""

from pathlib import Path
from typing import Annotated

import typer

Json = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout.")]
Data = Annotated[
    list[str],
    typer.Argument(
        metavar="DATA...",
        help="Folders that hold one folder of photos per identity, or synthetic:cats:200x6.",
    ),
]
Model = Annotated[str, typer.Option("--model", "-m", help="A bundle (.onnx) or the folder of a run.")]
Identities = Annotated[
    Path | None,
    typer.Option(help="Keep only the identities listed in this file, one folder name a line."),
]
MaxIdentities = Annotated[int | None, typer.Option(min=1, help="Keep at most so many identities.")]
MaxPhotos = Annotated[int | None, typer.Option(min=1, help="Keep at most so many photos of each.")]
DetectorName = Annotated[
    str,
    typer.Option("--detector", help="none (photos are crops), centre, haar, haar-cat, or yunet."),
]
DetectorModel = Annotated[Path | None, typer.Option(help="The ONNX file of the yunet detector.")]
Flip = Annotated[bool, typer.Option("--tta", help="Average each photo with its mirror image.")]
