"""`familiar verify`: are two photos of the same individual?"""

from pathlib import Path

import click

from familiar.app.console import print_json
from familiar.app.options import FILE, embedding_options, json_option, model_option


@click.command()
@click.argument("first", metavar="A", type=FILE)
@click.argument("second", metavar="B", type=FILE)
@model_option
@embedding_options
@json_option
def verify(
    first: Path,
    second: Path,
    model: Path,
    tta: bool,
    detector: str,
    detector_model: Path | None,
    as_json: bool,
) -> None:
    """Two photos: the same individual?

    Prints similarity, probability and decision.

    \b
    Example:
      familiar verify a.jpg b.jpg --model runs/cats/model.onnx
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
    click.echo(
        f"{'the same individual' if answer.same else 'different individuals'}: similarity "
        f"{answer.similarity:.3f} (threshold {answer.threshold:.3f}), probability {answer.probability:.1%}"
    )
