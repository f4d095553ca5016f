"""From photos to faces to unit vectors."""

import hashlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, islice
from pathlib import Path
from typing import TypeVar

import numpy as np
from jaxtyping import Float32, UInt8

from familiar.core.cpu import available_cores
from familiar.core.errors import BadBundle, FamiliarError, NoBundleForSpecies, UnknownSpecies
from familiar.core.files import absolute_path
from familiar.core.types import Crop, Face, Photo
from familiar.core.vectors import check_unit_rows, normalize
from familiar.detection.alignment import align
from familiar.detection.detector import Detector
from familiar.detection.detectors import available_detector, build_detector
from familiar.detection.faces import MIN_SCORE, Choice, DetectedFaces, find_faces, min_decoded_side_px
from familiar.embedding.bundle import Bundle, BundleMetadata
from familiar.embedding.hub_download import hub_name
from familiar.embedding.networks import Network, SharedNetwork, onnx_network
from familiar.embedding.species import SUFFIX, Models, open_bundles, species_of
from familiar.embedding.zoo import shipped_bundles
from familiar.photos.decoding import PhotoOpener, Source, load_photo
from familiar.photos.preprocessing import Preprocessing, stack_crops

BATCH_PIXELS = 16 * 112**2  # with larger batches a core waits for memory, with smaller ones for Python
BATCHES_AHEAD = 4  # of each thread, while the caller is busy with an earlier one
CPU = "CPUExecutionProvider"
SPACE_ID_DIGITS = 32
Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass(frozen=True, eq=False)
class _Part:
    """A bundle of an embedder, its network, and its components of an embedding."""

    bundle: Bundle
    network: Network
    columns: slice


class Embedder:
    """Embeds faces with one bundle, or each with the bundle of its species.

    Each call of a network runs in one thread, and several small batches run at once. So no core waits for another, and
    a small batch stays in a core's cache. An embedder may be used by several threads at once: what they embed at the
    same time goes through the network together.

    With several bundles, the embeddings of all species are rows of one length: each space has components of its own,
    and all others are zero. So the similarity of faces of the same bundle is what it is by that bundle alone, and that
    of others is 0. The species of a face is what the caller says, or else what the detector does.

    Attributes:
        threads: batches computed at once.
        path: the species file that it was opened from; None: there is none.
    """

    def __init__(
        self,
        model: Models,
        threads: int | None = None,
        *,
        providers: Sequence[str] | None = None,
        network: Network | None = None,
    ) -> None:
        """Open bundles and verify their checksums.

        Args:
            model: a bundle, or a file, folder or name as for `resolve_model`; or several, as for `open_bundles`.
            threads: batches computed at once; None: as many as there are cores.
            providers: execution providers of ONNX Runtime, each for the operators that those before it do not
                support; None: the CPU.
            network: used instead of the only bundle's own network (see `torch_embedder`).

        Raises:
            BadBundle: a bundle is missing or corrupted, or ONNX Runtime cannot open it.
            FamiliarError: a provider is missing or does not start.
            ValueError: both `providers` and `network` are given.
        """
        if providers is not None and network is not None:
            raise ValueError("providers are ONNX Runtime's and cannot be combined with a network")
        self.threads = threads or available_cores()
        if not isinstance(model, str | Path | Bundle | Mapping) and len(model) == 1:
            model = model[0]
        bundles = open_bundles(model)
        self.path: Path | None = None
        if isinstance(model, Path | str) and Path(model).suffix == SUFFIX:
            self.path = Path(model)
        networks = {
            file_id: SharedNetwork(
                network or onnx_network(bundle, providers or (CPU,)), self.threads, _batch_size(bundle)
            )
            for file_id, bundle in {bundle.file_id: bundle for bundle in bundles.values()}.items()
        }
        self._set_networks({species: (bundle, networks[bundle.file_id]) for species, bundle in bundles.items()})

    def _set_networks(self, networks: Mapping[str | None, tuple[Bundle, Network]]) -> None:
        dims = {bundle.metadata.space: bundle.metadata.embedding_dim for bundle, _ in networks.values()}
        ends = np.cumsum([0, *dims.values()]).tolist()
        columns = dict(zip(dims, map(slice, ends[:-1], ends[1:]), strict=True))
        self._parts = {
            species: _Part(bundle, network, columns[bundle.metadata.space])
            for species, (bundle, network) in networks.items()
        }

    # --- its bundles ------------------------------------------------------------------------------------------------

    @cached_property
    def bundles(self) -> Mapping[tuple[str, ...], Bundle]:
        """Its bundles, one of each space, by the species that they embed; a single one, of all species, by none."""
        species: dict[tuple[str, int, tuple[int, ...]], list[str]] = {}
        for name, part in self._parts.items():
            species.setdefault(part.bundle.metadata.space, []).extend([] if name is None else [name])
        return {tuple(names): self._part(names[0] if names else None).bundle for names in species.values()}

    @property
    def bundle(self) -> Bundle:
        """Its only bundle.

        Raises:
            FamiliarError: it has several.
        """
        first, *others = self.all_bundles
        if others:
            raise FamiliarError(f"takes a single bundle, not one for each of {', '.join(self.species or ())}")
        return first

    @cached_property
    def _preprocessings(self) -> tuple[Preprocessing, ...]:
        return tuple({bundle.metadata.preprocessing for bundle in self.all_bundles})

    @property
    def all_bundles(self) -> list[Bundle]:
        """All its bundles, each once."""
        return list({part.bundle.file_id: part.bundle for part in self._parts.values()}.values())

    @property
    def metadata(self) -> BundleMetadata:
        """Metadata of its only bundle."""
        return self.bundle.metadata

    @property
    def batch_size(self) -> int:
        """Default number of faces per batch."""
        return min(_batch_size(bundle) for bundle in self.bundles.values())

    def photos_per_batch(self, count: int) -> int:
        """Return how many photos are embedded together: a few of them are spread over the threads.

        Args:
            count: number of all photos.
        """
        return max(1, min(self.batch_size, -(-count // self.threads)))

    @property
    def species(self) -> tuple[str, ...] | None:
        """The species that it embeds; None: any."""
        return None if None in self._parts else tuple(name for name in self._parts if name is not None)

    @property
    def made_for(self) -> frozenset[str] | None:
        """The species that its bundles are made for; None: any, as a bundle does not say for which.

        A bundle alone also embeds other species, but tells their individuals apart much worse.
        """
        species = self.species or species_of(self.bundle)
        return frozenset(species) if species else None

    @property
    def names(self) -> tuple[str, ...]:
        """What opens it again, in any process: the names of shipped bundles and the absolute paths of files.

        Of several bundles, each with its species. Empty: a bundle has no file.
        """
        if self.path is not None:
            return (str(absolute_path(self.path)),)
        species: dict[str | None, list[str]] = {}
        for name, part in self._parts.items():
            species.setdefault(_name_of(part.bundle), []).extend([] if name is None else [name])
        if None in species:
            return ()
        return tuple(f"{','.join(names)}={model}" if names else str(model) for model, names in species.items())

    @property
    def space(self) -> tuple[str, int, tuple[int, ...]]:
        """Its space, dimension and prefixes, which decide whether its embeddings can be compared with others."""
        metadata = [bundle.metadata for bundle in self.bundles.values()]
        if len(metadata) == 1:
            return metadata[0].space
        spaces = [(each.space_id, each.embedding_dim) for each in metadata]
        space_id = hashlib.sha256(repr(spaces).encode()).hexdigest()[:SPACE_ID_DIGITS]
        return space_id, sum(dim for _, dim in spaces), ()

    def check_species(self, species: str | None) -> None:
        """Check that faces of a species can be embedded.

        Args:
            species: its name; None: they may be of any.

        Raises:
            NoBundleForSpecies: there is no bundle for it.
        """
        if species is not None:
            self._part(species)

    def only(self, species: str | None) -> tuple["Embedder", slice]:
        """Return the embedder of a species alone, and its components of an embedding.

        Args:
            species: that a face has.

        Raises:
            NoBundleForSpecies, UnknownSpecies: there is no bundle for it.
        """
        if None in self._parts:
            return self, slice(None)
        part = self._part(species)
        return self.with_bundles({None: (part.bundle, part.network)}), part.columns

    def with_bundles(self, networks: Mapping[str | None, tuple[Bundle, Network]]) -> "Embedder":
        """Return an embedder with other bundles or networks.

        Args:
            networks: the bundle of each species, as `networks` has them; of None: of all.
        """
        changed = Embedder.__new__(Embedder)
        changed.threads, changed.path = self.threads, None
        changed._set_networks(networks)
        return changed

    @property
    def networks(self) -> dict[str | None, tuple[Bundle, Network]]:
        """The bundle of each species and what computes it; of None: of all species."""
        return {species: (part.bundle, part.network) for species, part in self._parts.items()}

    def _part(self, species: str | None, source: Path | str = "") -> _Part:
        part = self._parts.get(species) or self._parts.get(None)
        if part is not None:
            return part
        where, known = f"{source}: " if source else "", ", ".join(self.species or ())
        if species is None:
            raise UnknownSpecies(
                f"{where}nothing says of which species this face is: name it, with --species and one of {known}"
            )
        raise NoBundleForSpecies(f"{where}there is no bundle for {species}, but for {known}")

    # --- the detector ----------------------------------------------------------------------------------------------

    @property
    def detector_name(self) -> str:
        """The name of the detector that its bundles name; of several that name different ones, "auto"."""
        names = {bundle.metadata.detector for bundle in self.bundles.values()}
        return names.pop() if len(names) == 1 else "auto"

    def detector(self, chosen: Detector | str | None = None, model_path: Path | None = None) -> Detector:
        """Return the detector to use.

        Args:
            chosen: a detector, or the name of one as for `build_detector`; None: `detector_name`, or "auto" where its
                model file is missing (`available_detector`).
            model_path: as for `build_detector`.

        Raises:
            BadDetector: there is none of that name, or its file has not been downloaded.
        """
        if chosen is None:
            chosen = available_detector(self.detector_name, model_path)
        return build_detector(chosen, model_path) if isinstance(chosen, str) else chosen

    # --- from photos to faces --------------------------------------------------------------------------------------

    def faces(
        self,
        sources: Iterable[Source],
        detector: Detector | str | None = None,
        *,
        open_photo: PhotoOpener[Source] = load_photo,
        choice: Choice = "all",
        species: str | None = None,
        flip: bool = False,
        min_score: float = MIN_SCORE,
        rate: bool = True,
        batch_size: int | None = None,
    ) -> Iterator[DetectedFaces | FamiliarError]:
        """Find and embed the faces of photos.

        Photos are read and searched in threads, a few at a time; their faces are embedded in batches, those of a photo
        with many faces by several threads.

        Args:
            sources: photos as `load_photo` takes them: paths, bytes, open files; or what `open_photo` loads.
            detector: finds the faces: a detector, or the name of one as for `build_detector`, such as "none" if the
                photos are crops already. None: the one that the bundles name.
            open_photo: loads a source.
            choice: which faces of each photo.
            species: of all faces; None: what the detector says.
            flip: average each face's embedding with that of its mirror image, at twice the cost.
            min_score: detections below it are ignored, in [0, 1].
            rate: whether the quality of the faces is needed.
            batch_size: photos that a thread takes at once; None: as many as the embedder's `batch_size`.

        Yields:
            For each source, in order, its faces, best first; or why there are none: whatever `open_photo` raises, and
            if a face was chosen, what `detect_faces` raises. Without a choice, a photo may have no face.

        Raises:
            BadDetector: there is none of that name.
            NoBundleForSpecies: there is none for `species`.

        >>> from familiar import Embedder, find_photos
        >>> [len(photo.faces) for photo in Embedder("pet-nano").faces(find_photos("photos"))]
        [1, 1, 1, 1]
        """
        chosen = self.detector(detector)
        self.check_species(species)

        def find(source: Source) -> DetectedFaces | FamiliarError:
            try:
                return self.detect_faces(
                    source,
                    chosen,
                    open_photo=open_photo,
                    choice=choice,
                    species=species,
                    min_score=min_score,
                    rate=rate,
                )
            except FamiliarError as error:
                return without_tracebacks(error)

        def process(batch: Sequence[Source]) -> list[DetectedFaces | FamiliarError]:
            photos = [find(source) for source in batch]
            faces = [face for photo in photos if isinstance(photo, DetectedFaces) for face in photo.faces]
            embedded = iter(self.embed_faces(faces, flip=flip))
            return [
                replace(photo, faces=tuple(islice(embedded, len(photo.faces))))
                if isinstance(photo, DetectedFaces)
                else photo
                for photo in photos
            ]

        size = batch_size or self.batch_size
        if isinstance(sources, Sized):
            size = min(size, self.photos_per_batch(len(sources)))
        for batch in self._in_threads(process, _batches(sources, size)):
            yield from batch

    def detect_faces(
        self,
        source: Source,
        detector: Detector,
        *,
        open_photo: PhotoOpener[Source] = load_photo,
        choice: Choice = "all",
        species: str | None = None,
        min_score: float = MIN_SCORE,
        rate: bool = True,
    ) -> DetectedFaces:
        """Find and crop the faces of a photo, each for the bundle of its species, without embedding them.

        Args:
            source: what `open_photo` loads.
            detector: finds the faces.
            open_photo: loads the source.
            choice: which faces.
            species: of all faces; None: what the detector says.
            min_score: detections below it are ignored, in [0, 1].
            rate: whether the quality of the faces is needed.

        Raises:
            FamiliarError: as from `open_photo` and `detection.find_faces`.
        """

        def crop(photo: Photo, face: Face) -> tuple[Crop, str | None]:
            name = species or face.species or face.label
            return align(photo, face, self._part(name, photo.source).bundle.metadata.preprocessing), name

        photo = open_photo(source, min_side_px=min_decoded_side_px(detector, self._preprocessings))
        return find_faces(photo, detector, crop, choice, min_score=min_score, rate=rate)

    def face(
        self,
        source: Source,
        detector: Detector | str | None = None,
        *,
        open_photo: PhotoOpener[Source] = load_photo,
        number: int | None = None,
        species: str | None = None,
        flip: bool = False,
    ) -> Face:
        """Find and embed one face of a photo.

        Args:
            source: a photo as for `faces`.
            detector: as for `faces`.
            open_photo: loads the source.
            number: of the face, counted from the left and from 1; None: the best one.
            species: of the face; None: what the detector says.
            flip: as for `faces`.

        Raises:
            FamiliarError: as from `open_photo` and `detection.find_faces`.
        """
        photo = self.detect_faces(
            source,
            self.detector(detector),
            open_photo=open_photo,
            choice="best" if number is None else number,
            species=species,
        )
        return self.embed_faces(photo.faces, flip=flip)[0]

    def embed_faces(self, faces: Sequence[Face], *, flip: bool = False) -> list[Face]:
        """Embed faces that are cropped.

        Args:
            faces: as from `detect_faces`.
            flip: as for `faces`.

        Returns:
            The faces with their embeddings.
        """
        crops = [face.crop for face in faces if face.crop is not None]
        embeddings = self.embed(crops, species=[face.species for face in faces], flip=flip)
        return [replace(face, embedding=embedding) for face, embedding in zip(faces, embeddings, strict=True)]

    def embed(
        self,
        crops: Sequence[Crop],
        *,
        species: Sequence[str | None] | str | None = None,
        flip: bool = False,
        batch_size: int | None = None,
    ) -> Float32[np.ndarray, "n d"]:
        """Embed crops.

        Args:
            crops: each of the size that the preprocessing of its bundle says.
            species: of each crop, or of all; a single bundle needs none.
            flip: average each crop's embedding with that of its mirror image, at twice the cost.
            batch_size: crops per batch; None: `self.batch_size`.

        Returns:
            One unit row per crop.

        Raises:
            BadBundle: a network does not return unit vectors.
            NoBundleForSpecies, UnknownSpecies: there is no bundle for a crop.
            ValueError: a crop of another size.
        """
        names = [species] * len(crops) if species is None or isinstance(species, str) else species
        parts = [self._part(name, crop.source) for name, crop in zip(names, crops, strict=True)]
        embeddings = np.zeros((len(crops), self.space[1]), np.float32)
        batches: list[tuple[_Part, list[int]]] = []
        for part in dict.fromkeys(parts):
            rows = [row for row, other in enumerate(parts) if other is part]
            batches += [(part, batch) for batch in _batches(rows, batch_size or self.batch_size)]

        def embed_batch(batch: tuple[_Part, list[int]]) -> None:
            part, rows = batch
            pixels = stack_crops([crops[row] for row in rows], part.bundle.metadata.preprocessing.size_px)
            embeddings[rows, part.columns] = _run(part, pixels, flip)

        for _ in self._in_threads(embed_batch, batches):
            pass
        return embeddings

    def run(self, crops_u8: UInt8[np.ndarray, "n s s 3"], *, flip: bool = False) -> Float32[np.ndarray, "n d"]:
        """Embed one batch of crops with the only bundle, in the calling thread.

        Args:
            crops_u8: pixels in RGB, of the size that the preprocessing says.
            flip: as for `embed`.

        Returns:
            One unit row per crop.

        Raises:
            BadBundle: the network does not return unit vectors.
        """
        self.bundle  # noqa: B018 - an error if there are several
        return _run(next(iter(self._parts.values())), crops_u8, flip)

    def _in_threads(self, work: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
        """Yield what `work` returns for each item, in order. A single item takes no thread."""
        iterator = iter(items)
        first = list(islice(iterator, 2))
        if len(first) < 2:
            yield from map(work, first)
            return
        waiting: deque[Future[Result]] = deque()
        pool = ThreadPoolExecutor(self.threads)
        try:
            for item in chain(first, iterator):
                waiting.append(pool.submit(work, item))
                if len(waiting) > self.threads * BATCHES_AHEAD:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:  # if the caller gives up, no other batch begins
            pool.shutdown(cancel_futures=True)


def as_embedder(model: Embedder | Models) -> Embedder:
    """Open a model given as a file, a folder or a name, or several; an embedder is returned as it is."""
    return model if isinstance(model, Embedder) else Embedder(model)


def _run(part: _Part, crops_u8: UInt8[np.ndarray, "n s s 3"], flip: bool) -> Float32[np.ndarray, "n d"]:
    embeddings = part.network(crops_u8)
    try:
        check_unit_rows(embeddings)
        if flip:
            mirrored = part.network(np.ascontiguousarray(crops_u8[:, :, ::-1]))
            check_unit_rows(mirrored)
            embeddings = normalize(embeddings + mirrored)
    except ValueError as error:
        raise BadBundle(f"{part.bundle.path}: its network does not return unit vectors ({error})") from error
    return embeddings


def without_tracebacks(error: FamiliarError) -> FamiliarError:
    """Return an error that may wait for long: tracebacks, its own and those of its causes, refer to a photo's bytes.

    Args:
        error: that was caught.
    """
    link: BaseException | None = error
    while link is not None:
        link.__traceback__ = None
        link = link.__cause__ or link.__context__
    return error


def _batches(items: Iterable[Item], size: int) -> Iterator[list[Item]]:
    iterator = iter(items)
    return iter(lambda: list(islice(iterator, size)), [])


def _batch_size(bundle: Bundle) -> int:
    return max(1, BATCH_PIXELS // bundle.metadata.preprocessing.size_px**2)


def _name_of(bundle: Bundle) -> str | None:
    """Return the name of a shipped bundle or one of the Hub, or the absolute path of a file; None: it has none."""
    if not bundle.path.is_file():
        return None
    path = absolute_path(bundle.path)
    shipped = next((name for name, file in shipped_bundles().items() if absolute_path(file) == path), None)
    return shipped or hub_name(path) or str(path)
