"""`familiar verify`: are two photos of the same individual?"""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from familiar.cli.console import print_json
from familiar.cli.options import FILE, embedding_options, json_option, model_option

if TYPE_CHECKING:  # --help imports nothing heavy
    from familiar.embedding.verification import VerificationResult


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

    Prints similarity, probability and decision; with a router (.json) the species too, and of two species nothing
    is compared.

    \b
    Example:
      familiar verify a.jpg b.jpg --model runs/cats/model.onnx
    """
    from familiar.detection.detectors import build_detector
    from familiar.embedding.species.router import RoutedEmbedder, verify_routed
    from familiar.embedding.species.router_file import open_model
    from familiar.embedding.verification import verify_photos

    opened, found = open_model(model), build_detector(detector, detector_model)
    if isinstance(opened, RoutedEmbedder):
        routed = verify_routed(opened, first, second, found, flip=tta)
        answer, species = routed.verification, list(zip(routed.species, routed.probabilities, strict=True))
    else:
        answer, species = verify_photos(opened, first, second, found, flip=tta), []
    if as_json:
        print_json(_answered(answer) | _species(species))
        return
    said = "different species" if answer is None else _said(answer)
    shown = " and ".join(f"{name} ({probability:.1%})" for name, probability in species)
    click.echo(f"{shown}: {said}" if species else said)


def _said(answer: "VerificationResult") -> str:
    return (
        f"{'the same individual' if answer.same else 'different individuals'}: similarity "
        f"{answer.similarity:.3f} ({_trust(answer)})"
    )


def _trust(answer: "VerificationResult") -> str:
    if answer.probability is None:
        return f"threshold {answer.threshold:.3f}, a fixed one: this bundle was never calibrated, so it proves little"
    return f"threshold {answer.threshold:.3f}, probability {answer.probability:.1%}"


def _answered(answer: "VerificationResult | None") -> dict[str, Any]:
    if answer is None:  # of two species: two individuals, with nothing to compare
        return {"similarity": None, "probability": None, "same": False, "threshold": None}
    return {
        "similarity": round(answer.similarity, 6),
        "probability": None if answer.probability is None else round(answer.probability, 6),
        "same": answer.same,
        "threshold": answer.threshold,
    }


def _species(found: list[tuple[str, float]]) -> dict[str, Any]:
    if not found:
        return {}
    return {
        "species": [name for name, _ in found],
        "species_probability": [round(probability, 6) for _, probability in found],
    }
