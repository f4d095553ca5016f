"""`familiar verify`: are two photos of the same individual?"""

from pathlib import Path
from typing import Annotated

import typer

from familiar.app.console import print_json
from familiar.app.options import DetectorModel, DetectorName, Flip, Json, Model


def verify(
    first: Annotated[Path, typer.Argument(metavar="A", help="A photo.")],
    second: Annotated[Path, typer.Argument(metavar="B", help="Another photo.")],
    model: Model,
    tta: Flip = False,
    detector: DetectorName = "none",
    detector_model: DetectorModel = None,
    as_json: Json = False,
) -> None:
    """Two photos: the same individual?

    Prints similarity, probability and decision.

    Example: familiar verify a.jpg b.jpg --model runs/cats/model.onnx
    """
    from familiar.faces.detect import build_detector
    from familiar.faces.embedder import Embedder
    from familiar.faces.verify import verify_photos

    answer = verify_photos(Embedder(model), first, second, build_detector(detector, detector_model), flip=tta)
    if as_json:
        print_json(
            {
                "similarity": round(answer.similarity, 6),
                "probability": round(answer.probability, 6),
                "same": answer.same,
                "threshold": answer.threshold,
            }
        )
        return
    typer.echo(
        f"{'the same individual' if answer.same else 'different individuals'}: similarity "
        f"{answer.similarity:.3f} (threshold {answer.threshold:.3f}), probability {answer.probability:.1%}"
    )
