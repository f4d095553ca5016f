"""Arguments and options that the gallery commands share, and how they print identities."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from familiar.cli.options import FILE

if TYPE_CHECKING:  # --help imports nothing heavy
    import numpy as np

    from familiar.embedding.embedder import Embedder
    from familiar.gallery.database.connection import GalleryDatabase

folder_argument = click.argument("folder", metavar="GALLERY", type=FILE)
identity_argument = click.argument("identity", metavar="IDENTITY")
faces_argument = click.argument("faces", nargs=-1, required=True, metavar="FACES...")
bundle_option = click.option(
    "--model",
    "-m",
    required=True,
    type=FILE,
    help="A bundle (.onnx), a run folder, or the name of a shipped bundle (familiar models --shipped).",
)


def open_embedder(model: Path) -> "Embedder":
    """Open a bundle.

    Raises:
        SpaceMismatch: for a router, whose bundles have spaces of their own.
    """
    from familiar.core.errors import SpaceMismatch
    from familiar.embedding.embedder import Embedder
    from familiar.embedding.species.router_file import SUFFIX

    if model.suffix == SUFFIX:
        raise SpaceMismatch(
            f"{model}: this is a router, but a gallery holds embeddings of one bundle, as those of different bundles "
            "cannot be compared; give one bundle, and make a gallery for each species"
        )
    return Embedder(model)


def embed_best_face(
    gallery: "GalleryDatabase",
    embedder: "Embedder",
    photo: Path,
    detector: str | None,
    detector_model: Path | None,
    *,
    flip: bool,
) -> "np.ndarray":
    """Embed the best face of a photo.

    Raises:
        SpaceMismatch: the embedding cannot be compared with those in the gallery.
    """
    from familiar.embedding.embedder import crop_photo

    gallery.check_space(embedder.metadata.space_id, embedder.metadata.embedding_dim)
    crop = crop_photo(photo, embedder.metadata.preprocessing, embedder.detector(detector, detector_model))
    return embedder.embed([crop], flip=flip)[0]


def resolve_faces(gallery: "GalleryDatabase", references: Sequence[str]) -> list[int]:
    """Find the faces given as numbers or photo paths, each once."""
    from familiar.gallery.clustering.assignments import resolve_face

    return list(dict.fromkeys(resolve_face(gallery, reference) for reference in references))


def label(number: int | None, name: str | None) -> str:
    """Write an identity's name and number.

    >>> label(3, "Tom"), label(4, None), label(None, None)
    ('Tom (#3)', '#4', 'unassigned')
    """
    if number is None:
        return "unassigned"
    return f"#{number}" if name is None else f"{name} (#{number})"


def label_of(gallery: "GalleryDatabase", number: int | None) -> str:
    """Write the name and number of an identity of the gallery."""
    from familiar.gallery.clustering.assignments import load_assignments

    return label(number, None if number is None else load_assignments(gallery).names.get(number))


def format_similarity(similarity: float, probability: float | None) -> str:
    """Write a similarity and, where the bundle is calibrated, the probability of one identity.

    >>> format_similarity(0.5, 0.25), format_similarity(0.5, None)
    ('similarity 0.500, probability 25.0%', 'similarity 0.500')
    """
    calibrated = "" if probability is None else f", probability {probability:.1%}"
    return f"similarity {similarity:.3f}{calibrated}"
