"""Embedding of crops and photos as unit vectors, with ONNX Runtime."""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar, runtime_checkable

import numpy as np
import onnxruntime as ort
from jaxtyping import Float32, Int64, UInt8

from familiar.core.cpu import available_cores
from familiar.core.errors import BadBundle, FamiliarError
from familiar.core.onnx_runtime import session_options
from familiar.core.types import Crop, Detection, Photo
from familiar.core.vectors import check_unit_rows, normalize
from familiar.detection.alignment import align, detect_and_align
from familiar.detection.detector import Detector
from familiar.detection.detectors import WholePhoto, build_detector
from familiar.embedding.bundle import Bundle, BundleMetadata, load_bundle
from familiar.photos.decoding import load_photo
from familiar.photos.preprocessing import Preprocessing, stack_crops, standardize

BATCH_PIXELS = 16 * 112**2  # with larger batches a core waits for memory, with smaller ones for Python
CPU = "CPUExecutionProvider"

Source = TypeVar("Source", contravariant=True)
# Maps crops in RGB to unit rows; may be called by several threads at once.
Network = Callable[[UInt8[np.ndarray, "n s s 3"]], Float32[np.ndarray, "n d"]]


@runtime_checkable
class PhotoOpener(Protocol[Source]):
    """Loads a source, such as a path, as a photo. `load_photo` is one."""

    def __call__(self, source: Source, /, *, min_side_px: int | None = None) -> Photo:
        """Load a source; its shorter side may be decoded at a smaller size, but not below `min_side_px`."""
        ...


@dataclass(frozen=True, eq=False)
class EmbedResult:
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


@runtime_checkable
class Model(Protocol):
    """What embeds the faces of photos: a bundle (`Embedder`), or a router with a bundle for each species."""

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
        """What tells whether its embeddings can be compared with others: space, dimension and prefixes."""
        ...

    @property
    def bundles(self) -> Mapping[tuple[str, ...], Bundle]:
        """Its bundles, by the species that each is for; of a single bundle, by none."""
        ...

    def detector(self, chosen: Detector | str | None = None, model_path: Path | None = None) -> Detector:
        """Return the detector to use with this model."""
        ...

    def min_decoded_side_px(self, detector: Detector) -> int | None:
        """Return the `min_side_px` to load a photo with; None: in full."""
        ...

    def align(self, photo: Photo, detection: Detection) -> Crop:
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


class Embedder:
    """Computes unit embeddings of crops with a bundle.

    Each call of the network runs in one thread, and several small batches run at once. So no core waits for another,
    and a small batch stays in a core's cache.
    """

    def __init__(
        self,
        model: Path | str | Bundle,
        threads: int | None = None,
        *,
        providers: Sequence[str] | None = None,
        network: Network | None = None,
    ) -> None:
        """Open a bundle and verify its checksums.

        Args:
            model: a bundle, or a file, folder or name as for `resolve_model`.
            threads: batches computed at once; None: as many as there are cores.
            providers: execution providers of ONNX Runtime, each for the operators that those before it do not
                support; None: the CPU.
            network: used instead of the bundle's own network (see `torch_embedder`).

        Raises:
            BadBundle: the bundle is missing or corrupted, or ONNX Runtime cannot open it.
            FamiliarError: a provider is missing or does not start.
            ValueError: both `providers` and `network` are given.
        """
        if providers is not None and network is not None:
            raise ValueError("providers are ONNX Runtime's and cannot be combined with a network")
        self.threads = threads or available_cores()
        self.bundle = model if isinstance(model, Bundle) else load_bundle(model)
        self._network = network or _onnx_network(self.bundle, providers or (CPU,))

    @property
    def batch_size(self) -> int:
        """Default number of photos per batch."""
        return max(1, BATCH_PIXELS // self.metadata.preprocessing.size_px**2)

    @property
    def metadata(self) -> BundleMetadata:
        """Metadata of the bundle."""
        return self.bundle.metadata

    def detector(self, chosen: Detector | str | None = None, model_path: Path | None = None) -> Detector:
        """Return the detector to use with this bundle.

        Args:
            chosen: a detector, or the name of one as for `build_detector`; None: the one that the bundle names.
            model_path: as for `build_detector`.

        Raises:
            BadDetector: there is none of that name, or its file has not been downloaded.
        """
        if chosen is None:
            chosen = self.metadata.detector
        return build_detector(chosen, model_path) if isinstance(chosen, str) else chosen

    @property
    def space(self) -> tuple[str, int, tuple[int, ...]]:
        """What tells whether its embeddings can be compared with others: space, dimension and prefixes."""
        return self.metadata.space

    @property
    def bundles(self) -> Mapping[tuple[str, ...], Bundle]:
        """Its bundle, for all species."""
        return {(): self.bundle}

    def min_decoded_side_px(self, detector: Detector) -> int | None:
        """Return the `min_side_px` to load a photo with: a crop is needed at the network's size, others in full (None).

        Args:
            detector: that will search the photo.
        """
        return min_decoded_side_px(detector, self.metadata.preprocessing)

    def align(self, photo: Photo, detection: Detection) -> Crop:
        """Crop a face as the network takes it; see `alignment.align`.

        Args:
            photo: decoded at `min_decoded_side_px` or more.
            detection: the face, in pixels of the photo.
        """
        return align(photo, detection, self.metadata.preprocessing)

    def crop(
        self,
        source: Source,
        detector: Detector | None = None,
        *,
        open_photo: PhotoOpener[Source] = load_photo,
        face: int | None = None,
    ) -> Crop:
        """Load a source and crop one of its faces; see `crop_photo`.

        Args:
            source: what `open_photo` loads.
            detector: finds the face; None: the photo is a crop already.
            open_photo: loads the source.
            face: number of the face, counted from the left and from 1; None: the best one.
        """
        return crop_photo(source, self.metadata.preprocessing, detector, open_photo=open_photo, face=face)

    def check_species(self, species: str | None) -> None:
        """Do nothing: faces of any species can be embedded.

        Args:
            species: the name of any.
        """

    def embedder_for(self, species: str | None) -> tuple["Embedder", slice]:  # noqa: ARG002 - all are alike
        """Return this embedder and all components: it embeds faces of any species.

        Args:
            species: the name of any.
        """
        return self, slice(None)

    def embed_faces(self, crops: Sequence[Crop], *, flip: bool = False, species: str | None = None) -> EmbedResult:
        """Embed one batch of crops in the calling thread, each with its species.

        Args:
            crops: as for `embed`.
            flip: as for `embed`.
            species: of all crops; None: what the detector says.
        """
        pixels = stack_crops(crops, self.metadata.preprocessing.size_px)
        embeddings = self.run(pixels, flip=flip) if crops else self.empty_embeddings()
        return EmbedResult(embeddings, np.arange(len(crops)), (), tuple(species or crop.label for crop in crops))

    def embed(
        self, crops: Sequence[Crop], *, flip: bool = False, batch_size: int | None = None
    ) -> Float32[np.ndarray, "n d"]:
        """Embed crops.

        Args:
            crops: each of the size that the preprocessing says.
            flip: average each crop's embedding with that of its mirror image, at twice the cost.
            batch_size: crops per batch; None: `self.batch_size`.

        Returns:
            One unit row per crop.

        Raises:
            BadBundle: the network does not return unit vectors.
            ValueError: a crop of another size.
        """

        def embed_batch(batch: Sequence[Crop]) -> np.ndarray:
            return self.run(stack_crops(batch, self.metadata.preprocessing.size_px), flip=flip)

        batch_size = batch_size or self.batch_size
        batches = [crops[start : start + batch_size] for start in range(0, len(crops), batch_size)]
        with ThreadPoolExecutor(self.threads) as pool:
            embeddings = list(pool.map(embed_batch, batches))
        return np.concatenate([self.empty_embeddings(), *embeddings])

    def empty_embeddings(self) -> Float32[np.ndarray, "0 d"]:
        """Return embeddings of no crops."""
        return np.empty((0, self.metadata.embedding_dim), np.float32)

    def run(self, crops_u8: UInt8[np.ndarray, "n s s 3"], *, flip: bool = False) -> Float32[np.ndarray, "n d"]:
        """Embed a batch of crops.

        Args:
            crops_u8: pixels in RGB, of the size that the preprocessing says.
            flip: average each crop's embedding with that of its mirror image, at twice the cost.

        Returns:
            One unit row per crop.

        Raises:
            BadBundle: the network does not return unit vectors.
        """
        embeddings = self._run_once(crops_u8)
        if flip:
            embeddings = normalize(embeddings + self._run_once(np.ascontiguousarray(crops_u8[:, :, ::-1])))
        return embeddings

    def _run_once(self, crops_u8: UInt8[np.ndarray, "n s s 3"]) -> Float32[np.ndarray, "n d"]:
        embeddings = self._network(crops_u8)
        try:
            check_unit_rows(embeddings)
        except ValueError as error:
            raise BadBundle(f"{self.bundle.path}: its network does not return unit vectors ({error})") from error
        return embeddings


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


def as_embedder(model: Embedder | Path | str) -> Embedder:
    """Open a model given as a file, a folder or a name; an embedder is returned as it is."""
    return model if isinstance(model, Embedder) else Embedder(model)


def _onnx_network(bundle: Bundle, providers: Sequence[str]) -> Network:
    """Create a function that runs the bundle's network, each call in one thread."""
    available = ort.get_available_providers()
    if missing := [provider for provider in providers if provider not in available]:
        raise FamiliarError(f"ONNX Runtime has no {missing[0]} here; it has {', '.join(available)}")
    options = session_options(dequantize_at_opening=bundle.metadata.precision == "int4-weights")
    try:
        session = ort.InferenceSession(bundle.onnx, options, providers=providers, enable_fallback=0)
    except Exception as error:  # ONNX Runtime's errors share no public base
        # The checksums are right, so the file is as it was exported.
        raise BadBundle(
            f"{bundle.path}: ONNX Runtime {ort.__version__} cannot open it with {', '.join(providers)}; if the network "
            f"is newer than that, update onnxruntime ({str(error).strip()})"
        ) from error
    # ONNX Runtime silently falls back to the CPU if a provider finds no device or library.
    if missing := [provider for provider in providers if provider not in session.get_providers()]:
        raise FamiliarError(
            f"ONNX Runtime has {missing[0]}, but it did not start: its device or its libraries are missing"
        )
    input_name = session.get_inputs()[0].name

    def compute(crops_u8: UInt8[np.ndarray, "n s s 3"]) -> Float32[np.ndarray, "n d"]:
        images = crops_u8
        if bundle.metadata.format_version == 1:  # its network takes standardized pixels
            images = standardize(crops_u8, bundle.metadata.preprocessing)
        (embeddings,) = session.run(None, {input_name: images})
        assert isinstance(embeddings, np.ndarray)
        return embeddings

    return compute


def crop_photo(
    source: Source,
    preprocessing: Preprocessing,
    detector: Detector | None = None,
    *,
    open_photo: PhotoOpener[Source] = load_photo,
    face: int | None = None,
) -> Crop:
    """Load a source and crop one of its faces for a network.

    Args:
        source: what `open_photo` loads.
        preprocessing: of the network.
        detector: finds the face; None: the photo is a crop already.
        open_photo: loads the source.
        face: number of the face, counted from the left and from 1; None: the best one.

    Returns:
        The face, with its number and that of all faces in the photo.

    Raises:
        NoFaceFound: no face is found, or none of this number.
        FamiliarError: whatever `open_photo` raises.
    """
    detector = detector or WholePhoto()
    photo = open_photo(source, min_side_px=min_decoded_side_px(detector, preprocessing))
    return detect_and_align(photo, detector, preprocessing, face)


def min_decoded_side_px(detector: Detector, preprocessing: Preprocessing) -> int | None:
    """Return the `min_side_px` to load a photo with: a crop is needed at the network's size, others in full (None)."""
    is_crop = isinstance(detector, WholePhoto)
    return max(preprocessing.size_px, preprocessing.resize_px) if is_crop else None


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

    >>> from familiar import find_photos
    >>> result = embed_photos(Embedder("pet-nano"), find_photos("photos"))
    >>> result.embeddings.shape  # one unit row per photo
    (4, 288)
    """
    face_detector = embedder.detector(detector)

    def embed_batch(batch: range) -> tuple[range, EmbedResult]:
        crops: dict[int, Crop] = {}
        skipped: dict[int, FamiliarError] = {}
        for row in batch:
            try:
                crops[row] = embedder.crop(sources[row], face_detector, open_photo=open_photo)
            except FamiliarError as error:
                skipped[row] = error
        embedded = embedder.embed_faces(list(crops.values()), flip=flip)
        rows = np.array(list(crops), np.int64)
        without = np.delete(rows, embedded.rows).tolist()
        skipped |= dict(zip(without, embedded.skipped, strict=True))
        errors = tuple(skipped[row] for row in sorted(skipped))
        return batch, EmbedResult(embedded.embeddings, rows[embedded.rows], errors, embedded.species)

    # A few photos are spread over the threads too.
    size = max(1, min(batch_size or embedder.batch_size, -(-len(sources) // embedder.threads)))
    batches = [range(start, min(start + size, len(sources))) for start in range(0, len(sources), size)]
    parts = [embedder.embed_faces([])]
    with ThreadPoolExecutor(embedder.threads) as pool:
        for batch, part in pool.map(embed_batch, batches):
            parts.append(part)
            on_batch(batch.stop)
    return EmbedResult(
        np.concatenate([part.embeddings for part in parts]),
        np.concatenate([part.rows for part in parts]),
        tuple(error for part in parts for error in part.skipped),
        tuple(species for part in parts for species in part.species),
    )
