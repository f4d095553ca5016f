"""`familiar verify`: decide whether two photos show the same identity."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from familiar.cli.console import note_face, print_json
from familiar.cli.options import FILE, embedding_options, json_option, species_option, verify_model_option

if TYPE_CHECKING:  # --help imports nothing heavy
    from familiar.core.recognition_types import VerificationResult


@click.command()
@click.argument("first", metavar="A", type=FILE)
@click.argument("second", metavar="B", type=FILE)
@verify_model_option
@click.option(
    "--face",
    "faces",
    type=click.IntRange(min=1),
    multiple=True,
    metavar="N",
    help="Take the Nth face from the left, in both photos; given twice: of A, then of B. [default: the best]",
)
@species_option
@embedding_options
@json_option
def verify(
    first: Path,
    second: Path,
    models: tuple[str, ...],
    faces: tuple[int, ...],
    species: str | None,
    tta: bool,
    detector: str | None,
    detector_model: Path | None,
    providers: tuple[str, ...] | None,
    as_json: bool,
) -> None:
    """Decide whether two photos show the same identity.

    Prints the similarity, the probability that both show one identity, and the decision; with bundles of several
    species the species too. Photos of different species are not compared. A bundle that was never calibrated gives only
    the similarity. If a photo has several faces, stderr says which one was taken.

    \b
    Example:
      familiar verify a.jpg b.jpg
      familiar verify a.jpg b.jpg --model runs/cats/model.onnx
    """
    from familiar.embedding.embedder import Embedder
    from familiar.embedding.species import FAMILY
    from familiar.embedding.verification import verify_faces

    if len(faces) > 2:
        raise click.UsageError("--face is given at most twice: for A, then for B")
    # One number is for both photos.
    chosen = (faces[0], faces[-1]) if faces else ("best", "best")
    embedder = Embedder(models or FAMILY, providers=providers)
    face_detector = embedder.detector(detector, detector_model)
    photos = [
        embedder.detect_faces(photo, face_detector, choice=choice, species=species, rate=False)
        for photo, choice in zip((first, second), chosen, strict=True)
    ]
    for photo in photos:
        note_face(photo)
    first_face, second_face = embedder.embed_faces([photo.faces[0] for photo in photos], flip=tta)
    result = verify_faces(embedder, first_face, second_face)
    names = [str(face.species) for face in (first_face, second_face)] if embedder.species is not None else []
    if as_json:
        numbers = {
            "faces": [first_face.from_left, second_face.from_left],
            "face_counts": [photo.face_count for photo in photos],
        }
        print_json(_to_json(result) | numbers | ({"species": names} if names else {}))
        return
    text = "different species" if len(set(names)) > 1 else _describe(result)
    click.echo(f"{' and '.join(names)}: {text}" if names else text)


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


def _to_json(result: "VerificationResult") -> dict[str, Any]:
    return {
        "similarity": round(result.similarity, 6),
        "probability": None if result.probability is None else round(result.probability, 6),
        "same": result.same,
        "threshold": result.threshold,
    }
