"""`familiar verify`: decide whether two photos show the same identity."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from familiar.cli.console import note_face, print_json
from familiar.cli.options import FILE, embedding_options, json_option, model_option

if TYPE_CHECKING:  # --help imports nothing heavy
    from familiar.core.recognition_types import VerificationResult
    from familiar.core.types import Crop


@click.command()
@click.argument("first", metavar="A", type=FILE)
@click.argument("second", metavar="B", type=FILE)
@model_option
@click.option(
    "--face",
    "faces",
    type=click.IntRange(min=1),
    multiple=True,
    metavar="N",
    help="Take the Nth face from the left, in both photos; given twice: of A, then of B. [default: the best]",
)
@embedding_options
@json_option
def verify(
    first: Path,
    second: Path,
    model: Path,
    faces: tuple[int, ...],
    tta: bool,
    detector: str | None,
    detector_model: Path | None,
    providers: tuple[str, ...] | None,
    as_json: bool,
) -> None:
    """Decide whether two photos show the same identity.

    Prints the similarity, the probability that both show one identity, and the decision; with a router (.json) the
    species too. Photos of different species are not compared. A bundle that was never calibrated gives only the
    similarity. If a photo has several faces, stderr says which one was taken.

    \b
    Example:
      familiar verify a.jpg b.jpg --model runs/cats/model.onnx
    """
    from familiar.embedding.species.router import RoutedEmbedder
    from familiar.embedding.species.router_file import open_model
    from familiar.embedding.species.verification import verify_routed
    from familiar.embedding.verification import verify_photos

    if len(faces) > 2:
        raise click.UsageError("--face is given at most twice: for A, then for B")
    # One number is for both photos.
    chosen = (faces[0], faces[-1]) if faces else (None, None)
    opened = open_model(model, providers=providers)
    face_detector = opened.detector(detector, detector_model)
    crops: list[Crop] = []
    if isinstance(opened, RoutedEmbedder):
        routed = verify_routed(opened, first, second, face_detector, flip=tta, faces=chosen, on_crop=crops.append)
        result, species = routed.verification, list(zip(routed.species, routed.probabilities, strict=True))
    else:
        result = verify_photos(opened, first, second, face_detector, flip=tta, faces=chosen, on_crop=crops.append)
        species = []
    for crop in crops:
        note_face(crop)
    if as_json:
        print_json(_to_json(result) | _faces(crops) | _species(species))
        return
    text = "different species" if result is None else _describe(result)
    labels = " and ".join(f"{name} ({probability:.1%})" for name, probability in species)
    click.echo(f"{labels}: {text}" if species else text)


def _describe(result: "VerificationResult") -> str:
    if result.same is None:
        return (
            f"similarity {result.similarity:.3f}; this bundle was never calibrated, so there is no verdict: import its "
            "network with familiar import --calibrate DATA, or train it with more validation identities"
        )
    return (
        f"{'the same identity' if result.same else 'different identities'}: similarity {result.similarity:.3f} "
        f"(threshold {result.threshold:.3f}, probability {result.probability:.1%})"
    )


def _to_json(result: "VerificationResult | None") -> dict[str, Any]:
    if result is None:  # different species: two identities, with nothing to compare
        return {"similarity": None, "probability": None, "same": False, "threshold": None}
    return {
        "similarity": round(result.similarity, 6),
        "probability": None if result.probability is None else round(result.probability, 6),
        "same": result.same,
        "threshold": result.threshold,
    }


def _faces(crops: "list[Crop]") -> dict[str, Any]:
    """Say for both photos which face was compared, counted from the left and from 1, and how many there are."""
    return {"faces": [crop.face for crop in crops], "face_counts": [crop.face_count for crop in crops]}


def _species(species: list[tuple[str, float]]) -> dict[str, Any]:
    if not species:
        return {}
    return {
        "species": [name for name, _ in species],
        "species_probability": [round(probability, 6) for _, probability in species],
    }
