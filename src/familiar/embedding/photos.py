"""The best face of each of many photos, as one array."""

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float32, Int64

from familiar.core.data_table import DataTable, TableSource, read_only, texts
from familiar.core.errors import FamiliarError
from familiar.core.types import Face
from familiar.detection.detector import Detector
from familiar.detection.detectors import WholePhoto
from familiar.detection.ready_crops import are_crops
from familiar.embedding.embedder import Embedder
from familiar.photos.decoding import PhotoOpener, Source, load_photo

log = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class EmbedResult(TableSource):
    """Embeddings of several sources.

    Attributes:
        embeddings: unit rows of the sources that have one.
        rows: the index of each among the sources.
        skipped: the errors of all other sources.
        species: of each embedding, what the caller or the detector says; None: neither does.
    """

    embeddings: Float32[np.ndarray, "n d"]
    rows: Int64[np.ndarray, " n"]
    skipped: tuple[FamiliarError, ...]
    species: tuple[str | None, ...]

    def table(self) -> DataTable:
        """Return a table with a row for each embedding: the index of its source, its species, and itself, uncopied."""
        columns = {"row": self.rows, "species": texts(self.species), "embedding": read_only(self.embeddings)}
        return DataTable(columns)


def embed_photos(
    embedder: Embedder,
    sources: Sequence[Source],
    detector: Detector | str | None = None,
    *,
    open_photo: PhotoOpener[Source] = load_photo,
    species: str | None = None,
    flip: bool = False,
    batch_size: int | None = None,
    on_photo: Callable[[int], None] = lambda _: None,
) -> EmbedResult:
    """Embed the best face of every source. A photo that cannot be read or has no face does not stop the others.

    Args:
        embedder: computes the embeddings.
        sources: photos as `load_photo` takes them: paths, bytes, open files; or what `open_photo` loads.
        detector: as for `Embedder.faces`.
        open_photo: loads a source.
        species: of all faces; None: what the detector says.
        flip: as for `Embedder.faces`.
        batch_size: photos per batch; None: the embedder's.
        on_photo: called after each photo with the number of sources done.

    >>> from familiar import Embedder, find_photos
    >>> result = embed_photos(Embedder("pet-nano"), find_photos("photos"))
    >>> result.embeddings.shape  # one unit row per photo
    (4, 288)
    """
    embeddings: dict[int, Float32[np.ndarray, " d"]] = {}
    species_of_rows: list[str | None] = []
    skipped: list[FamiliarError] = []
    photos = embedder.faces(
        sources,
        detector,
        open_photo=open_photo,
        choice="best",
        species=species,
        flip=flip,
        rate=False,
        batch_size=batch_size,
    )
    for row, photo in enumerate(photos):
        if isinstance(photo, FamiliarError):
            skipped.append(photo)
        else:
            (face,) = photo.faces
            assert face.embedding is not None
            embeddings[row] = face.embedding
            species_of_rows.append(face.species)
        on_photo(row + 1)
    stacked = np.stack(list(embeddings.values())) if embeddings else embedder.embed([])
    return EmbedResult(stacked, np.array(list(embeddings), np.int64), tuple(skipped), tuple(species_of_rows))


def stack_embeddings(faces: Iterable[Face]) -> Float32[np.ndarray, "n d"]:
    """Return the embeddings of faces, of which there is at least one, as rows.

    Args:
        faces: all of them embedded.
    """
    return np.stack([face.embedding for face in faces if face.embedding is not None])


def detector_for(
    embedder: Embedder,
    photos: Sequence[Source],
    chosen: Detector | str | None = None,
    model_path: Path | None = None,
    *,
    open_photo: PhotoOpener[Source] = load_photo,
) -> Detector:
    """Return the detector to search a set of photos with; none is if they are crops already, which the log says.

    An embedder with a bundle for each species needs the detector, which tells what a face is.

    Args:
        embedder: that embeds the faces.
        photos: what `open_photo` loads.
        chosen: as for `Embedder.detector`; what is chosen is used, also in crops.
        model_path: as for `build_detector`.
        open_photo: loads a photo.
    """
    detector = embedder.detector(chosen, model_path)
    is_chosen = chosen is not None or model_path is not None
    if is_chosen or embedder.species is not None or not are_crops(photos, detector, open_photo=open_photo):
        return detector
    log.warning(
        "a face fills nearly all of each photo: they are crops already, and are taken as they are; --detector %s looks "
        "for faces in them all the same",
        embedder.detector_name,
    )
    return WholePhoto()
