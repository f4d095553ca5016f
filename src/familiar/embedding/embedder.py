"""A bundle at work: crops in, unit vectors out, with ONNX Runtime."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar, runtime_checkable

import numpy as np
import onnxruntime as ort
from jaxtyping import Float32, Int64

from familiar.core.cpu import available_cores
from familiar.core.errors import BadBundle, FamiliarError
from familiar.core.types import Crop, Photo
from familiar.core.vectors import check_unit_rows, normalize
from familiar.detection.alignment import detect_and_align
from familiar.detection.detectors import Detector, WholePhoto
from familiar.embedding.bundle import Bundle, BundleMetadata, load_bundle
from familiar.photos.decoding import load_photo
from familiar.photos.preprocessing import Preprocessing, to_tensor

BATCH_PIXELS = 16 * 112**2  # with more at once a core waits for memory, with fewer for Python
CPU = "CPUExecutionProvider"

Source = TypeVar("Source", contravariant=True)
# Standardized crops, as `to_tensor` makes them, to unit rows; may be called by several threads at once.
Network = Callable[[Float32[np.ndarray, "n 3 s s"]], Float32[np.ndarray, "n d"]]


@runtime_checkable
class PhotoOpener(Protocol[Source]):
    """`load_photo`, or whatever else turns a source into a photo."""

    def __call__(self, source: Source, /, *, min_side_px: int | None = None) -> Photo: ...


class Embedder:
    """Unit embeddings of crops. Opening a bundle checks its seals; BadBundle where they do not hold.

    ONNX Runtime computes them on the CPU, or with `providers` of its, each doing what those before it cannot;
    FamiliarError where one is missing. Or `network` does, in place of the bundle's own: see `torch_embedder`.

    The network runs in one thread: `threads` (None: as many as cores) is how many small batches are under way at
    once. That leaves no core waiting for another, and a small batch stays in a core's cache.
    """

    def __init__(
        self,
        model: Path | str | Bundle,
        threads: int | None = None,
        *,
        providers: Sequence[str] | None = None,
        network: Network | None = None,
    ) -> None:
        if providers is not None and network is not None:
            raise ValueError("providers are ONNX Runtime's, which is not used where a network is given")
        self.threads = threads or available_cores()
        self.bundle = model if isinstance(model, Bundle) else load_bundle(model)
        self._network = network or _onnx_network(self.bundle, providers or (CPU,))

    @property
    def batch_size(self) -> int:
        """Photos a batch where nothing else is asked for."""
        return max(1, BATCH_PIXELS // self.metadata.preprocessing.size_px**2)

    @property
    def metadata(self) -> BundleMetadata:
        return self.bundle.metadata

    def embed(
        self, crops: Sequence[Crop], *, flip: bool = False, batch_size: int | None = None
    ) -> Float32[np.ndarray, "n d"]:
        """One unit row per crop. `flip` averages each crop with its mirror image, at twice the cost."""

        def embed_batch(batch: Sequence[Crop]) -> np.ndarray:
            return self.run(to_tensor(batch, self.metadata.preprocessing), flip=flip)

        batch_size = batch_size or self.batch_size
        batches = [crops[start : start + batch_size] for start in range(0, len(crops), batch_size)]
        with ThreadPoolExecutor(self.threads) as pool:
            embeddings = list(pool.map(embed_batch, batches))
        return np.concatenate([self.empty_embeddings(), *embeddings])

    def empty_embeddings(self) -> Float32[np.ndarray, "0 d"]:
        return np.empty((0, self.metadata.embedding_dim), np.float32)

    def run(self, images: Float32[np.ndarray, "n 3 s s"], *, flip: bool = False) -> Float32[np.ndarray, "n d"]:
        """Embeddings of a standardized tensor, as `to_tensor` makes it."""
        embeddings = self._run_once(images)
        if flip:
            embeddings = normalize(embeddings + self._run_once(np.ascontiguousarray(images[..., ::-1])))
        return embeddings

    def _run_once(self, images: Float32[np.ndarray, "n 3 s s"]) -> Float32[np.ndarray, "n d"]:
        embeddings = self._network(images)
        try:
            check_unit_rows(embeddings)
        except ValueError as error:
            raise BadBundle(f"{self.bundle.path}: its network gives no unit vectors ({error})") from error
        return embeddings


def _onnx_network(bundle: Bundle, providers: Sequence[str]) -> Network:
    """The bundle's network, each call of it in one thread."""
    available = ort.get_available_providers()
    if absent := [provider for provider in providers if provider not in available]:
        raise FamiliarError(f"ONNX Runtime has no {absent[0]} here; it has {', '.join(available)}")
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3  # errors only: warnings are about the graph, not for the user
    try:
        session = ort.InferenceSession(bundle.onnx, options, providers=providers, enable_fallback=0)
    except Exception as error:  # ONNX Runtime's errors share no public base
        # The seals held, so the file is as its exporter wrote it.
        raise BadBundle(
            f"{bundle.path}: ONNX Runtime {ort.__version__} cannot open it with {', '.join(providers)}; if the network "
            f"is newer than that, update onnxruntime ({str(error).strip()})"
        ) from error
    # One that finds no device or library is left out without a word, and the CPU computes in its place.
    if absent := [provider for provider in providers if provider not in session.get_providers()]:
        raise FamiliarError(
            f"ONNX Runtime has {absent[0]}, but it did not start: its device or its libraries are missing"
        )
    input_name = session.get_inputs()[0].name

    def compute(images: Float32[np.ndarray, "n 3 s s"]) -> Float32[np.ndarray, "n d"]:
        (embeddings,) = session.run(None, {input_name: images})
        assert isinstance(embeddings, np.ndarray)
        return embeddings

    return compute


@dataclass(frozen=True, eq=False)
class EmbedResult:
    """Embeddings of the sources that could be read, `rows` saying which those were, and why others were not."""

    embeddings: Float32[np.ndarray, "n d"]
    rows: Int64[np.ndarray, " n"]
    skipped: tuple[FamiliarError, ...]


def crop_photo(
    source: Source,
    preprocessing: Preprocessing,
    detector: Detector | None = None,
    *,
    open_photo: PhotoOpener[Source] = load_photo,
) -> Crop:
    """The best face of a source as the network sees it; without a detector the photo is a crop already."""
    detector = detector or WholePhoto()
    photo = open_photo(source, min_side_px=min_decoded_side_px(detector, preprocessing))
    return detect_and_align(photo, detector, preprocessing)


def min_decoded_side_px(detector: Detector, preprocessing: Preprocessing) -> int | None:
    """A detector needs the whole picture (None); a crop is read no larger than the network takes it."""
    whole = isinstance(detector, WholePhoto)
    return max(preprocessing.size_px, preprocessing.resize_px) if whole else None


def embed_photos(
    embedder: Embedder,
    sources: Sequence[Source],
    detector: Detector | None = None,
    *,
    open_photo: PhotoOpener[Source] = load_photo,
    flip: bool = False,
    batch_size: int | None = None,
    on_batch: Callable[[int], None] = lambda _: None,
) -> EmbedResult:
    """Every source opened, its best face found and embedded; one bad photo never stops the others.

    Each of the embedder's threads takes a batch from the files to the vectors. `on_batch` is told how many
    sources are done.
    """
    preprocessing = embedder.metadata.preprocessing

    def embed_batch(batch: range) -> tuple[range, EmbedResult]:
        crops: dict[int, Crop] = {}
        skipped: list[FamiliarError] = []
        for row in batch:
            try:
                crops[row] = crop_photo(sources[row], preprocessing, detector, open_photo=open_photo)
            except FamiliarError as error:
                skipped.append(error)
        images = to_tensor(list(crops.values()), preprocessing)
        embeddings = embedder.run(images, flip=flip) if crops else embedder.empty_embeddings()
        return batch, EmbedResult(embeddings, np.array(list(crops), np.int64), tuple(skipped))

    # Few photos are shared out too.
    size = max(1, min(batch_size or embedder.batch_size, -(-len(sources) // embedder.threads)))
    batches = [range(start, min(start + size, len(sources))) for start in range(0, len(sources), size)]
    parts = [EmbedResult(embedder.empty_embeddings(), np.empty(0, np.int64), ())]
    with ThreadPoolExecutor(embedder.threads) as pool:
        for batch, part in pool.map(embed_batch, batches):
            parts.append(part)
            on_batch(batch.stop)
    return EmbedResult(
        np.concatenate([part.embeddings for part in parts]),
        np.concatenate([part.rows for part in parts]),
        tuple(error for part in parts for error in part.skipped),
    )
