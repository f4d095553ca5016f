"""Arguments and options that the gallery commands share, and how they print identities."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from familiar.cli.console import note, note_face
from familiar.cli.options import FILE

if TYPE_CHECKING:  # --help imports nothing heavy
    import numpy as np

    from familiar import VectorIndex
    from familiar.core.gallery_types import StoredType
    from familiar.gallery import Gallery

folder_argument = click.argument("folder", metavar="GALLERY", type=FILE)
identity_argument = click.argument("identity", metavar="IDENTITY")
face_option = click.option(
    "--face",
    type=click.IntRange(min=1),
    metavar="N",
    help="Take the Nth face of PHOTO from the left. [default: the best]",
)
faces_argument = click.argument("faces", nargs=-1, required=True, metavar="FACES...")


def open_gallery(
    folder: Path,
    models: tuple[str, ...] | None = None,
    *,
    providers: tuple[str, ...] | None = None,
    backups: tuple[int, int] | None = None,
) -> "Gallery":
    """Open a gallery, and the index that it has outside its folder once that is needed; as `Gallery.open`."""
    from familiar.gallery import Gallery

    return Gallery.open(folder, models, providers=providers, backups=backups, open_index=_open_index)


def _open_index(address: str, collection: str, dim: int) -> "VectorIndex":
    from familiar.integrations.milvus import open_index

    return open_index(address, collection, dim)


def open_or_create(
    folder: Path,
    models: tuple[str, ...],
    detector: str | None,
    detector_model: Path | None,
    providers: tuple[str, ...] | None,
    *,
    embeddings: "StoredType" = "float16",
) -> "Gallery":
    """Open a gallery; where it is missing, create it, by default for pets and people."""
    from familiar.embedding.embedder import Embedder
    from familiar.embedding.species import FAMILY
    from familiar.gallery import Gallery

    if Gallery.exists(folder):
        return open_gallery(folder, models or None, providers=providers)
    embedder = Embedder(models or FAMILY, providers=providers)
    gallery = Gallery.create(
        folder,
        embedder,
        detector=detector,
        detector_model=detector_model,
        embedding_dtype=embeddings,
    )
    note(f"{folder}: a new gallery, with the model {' and '.join(embedder.names)}")
    return gallery


def embed_best_face(
    gallery: "Gallery",
    photo: Path,
    detector: str | None,
    detector_model: Path | None,
    *,
    flip: bool,
    face: int | None = None,
    species: str | None = None,
) -> "np.ndarray":
    """Embed the best face of a photo, or the one of a number; if it has several, say which.

    Raises:
        SpaceMismatch: the embedding cannot be compared with those in the gallery.
    """
    face_detector = gallery.detector(detector, detector_model, for_query=True)
    detected = gallery.find_face(photo, face_detector, face=face, species=species)
    note_face(detected)
    return gallery.embed_face(detected, flip=flip)


def label(number: int | None, name: str | None) -> str:
    """Write an identity's name and number.

    >>> label(3, "Tom"), label(4, None), label(None, None)
    ('Tom (#3)', '#4', 'unassigned')
    """
    if number is None:
        return "unassigned"
    return f"#{number}" if name is None else f"{name} (#{number})"


def label_of(gallery: "Gallery", number: int | None) -> str:
    """Write the name and number of an identity of the gallery."""
    return label(number, None if number is None else gallery.names().get(number))


def format_similarity(similarity: float, probability: float | None) -> str:
    """Write a similarity and, where the bundle is calibrated, the probability of one identity.

    >>> format_similarity(0.5, 0.25), format_similarity(0.5, None)
    ('similarity 0.500, probability 25.0%', 'similarity 0.500')
    """
    calibrated = "" if probability is None else f", probability {probability:.1%}"
    return f"similarity {similarity:.3f}{calibrated}"
