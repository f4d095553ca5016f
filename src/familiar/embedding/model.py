"""The interface that bundles and routers share, and the functions that embed photos with either."""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeVar, runtime_checkable

import numpy as np
from jaxtyping import Float32, Int64

from familiar.core.data_table import DataTable, TableSource, read_only, texts
from familiar.core.errors import FamiliarError
from familiar.core.types import Crop, Face, Photo
from familiar.detection.detector import Detector
from familiar.detection.detectors import WholePhoto
from familiar.detection.ready_crops import are_crops
from familiar.embedding.bundle import Bundle
from familiar.photos.decoding import PhotoOpener, Source, load_photo

if TYPE_CHECKING:
    from familiar.embedding.embedder import Embedder

Item = TypeVar("Item")
Result = TypeVar("Result")
log = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class EmbedResult(TableSource):
    """Embeddings of several sources.

    Attributes:
        embeddings: unit rows of the sources that have one.
        rows: the index of each among the sources.
        skipped: the errors of all other sources.
        species: of each embedding, what the detector or the router says; None: neither does.
    """

    embeddings: Float32[np.ndarray, "n d"]
    rows: Int64[np.ndarray, " n"]
    skipped: tuple[FamiliarError, ...]
    species: tuple[str | None, ...]

    def table(self) -> DataTable:
        """Return a table with a row for each embedding: the index of its source, its species, and itself, uncopied."""
        columns = {"row": self.rows, "species": texts(self.species), "embedding": read_only(self.embeddings)}
        return DataTable(columns)

    def skipped_by_row(self) -> dict[int, FamiliarError]:
        """Map the index of each source without an embedding to its error."""
        count = len(self.rows) + len(self.skipped)
        return dict(zip(np.delete(np.arange(count), self.rows).tolist(), self.skipped, strict=True))


@runtime_checkable
class Model(Protocol):
    """A bundle (`Embedder`), or a router with a bundle for each species: it embeds the faces of photos."""

    @property
    def threads(self) -> int:
        """Batches computed at once."""
        ...

    @property
    def batch_size(self) -> int:
        """Default number of photos per batch."""
        ...

    @property
    def space(self) -> tuple[str, int, tuple[int, ...]]:
        """Its space, dimension and prefixes, which decide whether its embeddings can be compared with others."""
        ...

    @property
    def bundles(self) -> Mapping[tuple[str, ...], Bundle]:
        """Its bundles, by the species that each is for; of a single bundle, by none."""
        ...

    @property
    def path(self) -> Path | None:
        """The file that it was opened from; None: it was made in memory."""
        ...

    @property
    def species(self) -> tuple[str, ...] | None:
        """The species that it has bundles for; None: any."""
        ...

    @property
    def detector_name(self) -> str:
        """The name of the detector that it is made for."""
        ...

    def detector(self, chosen: Detector | str | None = None, model_path: Path | None = None) -> Detector:
        """Return the detector to use with this model."""
        ...

    def min_decoded_side_px(self, detector: Detector) -> int | None:
        """Return the `min_side_px` to load a photo with; None: in full."""
        ...

    def align(self, photo: Photo, face: Face) -> Crop:
        """Crop a face as the model takes it."""
        ...

    def crop(
        self,
        source: Source,
        detector: Detector | None = None,
        *,
        open_photo: PhotoOpener[Source] = load_photo,
        face: int | None = None,
    ) -> Crop:
        """Load a source and crop one of its faces."""
        ...

    def check_species(self, species: str | None) -> None:
        """Raise FamiliarError if faces of this species cannot be embedded."""
        ...

    def embed_faces(self, crops: Sequence[Crop], *, flip: bool = False, species: str | None = None) -> EmbedResult:
        """Embed one batch of crops."""
        ...

    def embedder_for(self, species: str | None) -> tuple["Embedder", slice]:
        """Return the bundle that embeds faces of a species, and its components of an embedding."""
        ...


def embed_face(model: Model, crop: Crop, *, flip: bool = False) -> Float32[np.ndarray, " d"]:
    """Embed one crop.

    Args:
        model: a bundle or a router.
        crop: as `Model.crop` returns it.
        flip: average its embedding with that of its mirror image.

    Raises:
        NoBundleForSpecies: the router has none for this face.
    """
    embedded = model.embed_faces([crop], flip=flip)
    if embedded.skipped:
        raise embedded.skipped[0]
    return embedded.embeddings[0]


def map_batches(
    model: Model, items: Sequence[Item], work: Callable[[Sequence[Item]], Result], batch_size: int | None = None
) -> Iterator[tuple[Sequence[Item], Result]]:
    """Yield batches of items, in their order, and what `work` returns for each in one of the model's threads.

    Args:
        model: computes in `work`.
        items: to process. A few are spread over the threads too.
        work: called with each batch.
        batch_size: maximum number of items in a batch; None: the model's.
    """
    size = max(1, min(batch_size or model.batch_size, -(-len(items) // model.threads)))
    batches = [items[start : start + size] for start in range(0, len(items), size)]
    pool = ThreadPoolExecutor(model.threads)
    try:
        yield from zip(batches, pool.map(work, batches), strict=True)
    finally:  # if the caller gives up, no other batch begins
        pool.shutdown(cancel_futures=True)


def detector_for(
    model: Model,
    photos: Sequence[Source],
    chosen: Detector | str | None = None,
    model_path: Path | None = None,
    *,
    open_photo: PhotoOpener[Source] = load_photo,
) -> Detector:
    """Return the detector to search a set of photos with; none is if they are crops already, which the log says.

    A router needs the detector, which tells what a face is.

    Args:
        model: that embeds the faces.
        photos: what `open_photo` loads.
        chosen: as for `Embedder.detector`; what is chosen is used, also in crops.
        model_path: as for `build_detector`.
        open_photo: loads a photo.
    """
    detector = model.detector(chosen, model_path)
    is_chosen = chosen is not None or model_path is not None
    if is_chosen or model.species is not None or not are_crops(photos, detector, open_photo=open_photo):
        return detector
    log.warning(
        "a face fills nearly all of each photo: they are crops already, and are taken as they are; --detector %s looks "
        "for faces in them all the same",
        model.detector_name,
    )
    return WholePhoto()


def embed_photos(
    embedder: Model,
    sources: Sequence[Source],
    detector: Detector | str | None = None,
    *,
    open_photo: PhotoOpener[Source] = load_photo,
    flip: bool = False,
    batch_size: int | None = None,
    on_batch: Callable[[int], None] = lambda _: None,
) -> EmbedResult:
    """Embed the best face of every source. A photo that cannot be read or has no face does not stop the others.

    Each of the model's threads processes whole batches, from files to vectors.

    Args:
        embedder: the model, a bundle or a router.
        sources: what `open_photo` loads.
        detector: finds the faces: a detector, or the name of one as for `build_detector`, such as "none" if the photos
            are crops already. None: the one that the bundle names.
        open_photo: loads a source.
        flip: as in `Embedder.embed`.
        batch_size: photos per batch; None: the embedder's.
        on_batch: called after each batch with the number of sources done.

    >>> from familiar import Embedder, find_photos
    >>> result = embed_photos(Embedder("pet-nano"), find_photos("photos"))
    >>> result.embeddings.shape  # one unit row per photo
    (4, 288)
    """
    face_detector = embedder.detector(detector)

    def embed_batch(batch: Sequence[int]) -> EmbedResult:
        crops: dict[int, Crop] = {}
        skipped: dict[int, FamiliarError] = {}
        for row in batch:
            try:
                crops[row] = embedder.crop(sources[row], face_detector, open_photo=open_photo)
            except FamiliarError as error:
                skipped[row] = error
        embedded = embedder.embed_faces(list(crops.values()), flip=flip)
        rows = np.array(list(crops), np.int64)
        skipped |= {int(rows[index]): error for index, error in embedded.skipped_by_row().items()}
        errors = tuple(skipped[row] for row in sorted(skipped))
        return EmbedResult(embedded.embeddings, rows[embedded.rows], errors, embedded.species)

    parts = [embedder.embed_faces([])]
    for batch, part in map_batches(embedder, range(len(sources)), embed_batch, batch_size):
        parts.append(part)
        on_batch(batch[-1] + 1)
    return EmbedResult(
        np.concatenate([part.embeddings for part in parts]),
        np.concatenate([part.rows for part in parts]),
        tuple(error for part in parts for error in part.skipped),
        tuple(species for part in parts for species in part.species),
    )
