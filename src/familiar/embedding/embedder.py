"""Embedding of crops as unit vectors by a bundle, with ONNX Runtime."""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import onnxruntime as ort
from jaxtyping import Float32, UInt8

from familiar.core.cpu import available_cores
from familiar.core.errors import BadBundle, FamiliarError
from familiar.core.onnx_runtime import session_options
from familiar.core.types import Crop, Face, Photo
from familiar.core.vectors import check_unit_rows, normalize
from familiar.detection.alignment import align
from familiar.detection.cropping import crop_photo, min_decoded_side_px
from familiar.detection.detector import Detector
from familiar.detection.detectors import available_detector, build_detector
from familiar.embedding.bundle import Bundle, BundleMetadata, load_bundle
from familiar.embedding.model import EmbedResult
from familiar.photos.decoding import PhotoOpener, Source, load_photo
from familiar.photos.preprocessing import stack_crops

BATCH_PIXELS = 16 * 112**2  # with larger batches a core waits for memory, with smaller ones for Python
CPU = "CPUExecutionProvider"

# Maps crops in RGB to unit rows; may be called by several threads at once.
Network = Callable[[UInt8[np.ndarray, "n s s 3"]], Float32[np.ndarray, "n d"]]


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

    @property
    def path(self) -> Path:
        """The bundle's file."""
        return self.bundle.path

    @property
    def species(self) -> None:
        """None: faces of any species can be embedded."""
        return

    @property
    def detector_name(self) -> str:
        """The name of the detector that the bundle names."""
        return self.metadata.detector

    def detector(self, chosen: Detector | str | None = None, model_path: Path | None = None) -> Detector:
        """Return the detector to use with this bundle.

        Args:
            chosen: a detector, or the name of one as for `build_detector`; None: the one that the bundle names, or
                "auto" where its model file is missing (`available_detector`).
            model_path: as for `build_detector`.

        Raises:
            BadDetector: there is none of that name, or its file has not been downloaded.
        """
        if chosen is None:
            chosen = available_detector(self.detector_name, model_path)
        return build_detector(chosen, model_path) if isinstance(chosen, str) else chosen

    @property
    def space(self) -> tuple[str, int, tuple[int, ...]]:
        """Its space, dimension and prefixes, which decide whether its embeddings can be compared with others."""
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

    def align(self, photo: Photo, face: Face) -> Crop:
        """Crop a face as the network takes it; see `alignment.align`.

        Args:
            photo: decoded at `min_decoded_side_px` or more.
            face: in pixels of the photo.
        """
        return align(photo, face, self.metadata.preprocessing)

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


def as_embedder(model: Embedder | Path | str) -> Embedder:
    """Open a model given as a file, a folder or a name; an embedder is returned as it is."""
    return model if isinstance(model, Embedder) else Embedder(model)


def _onnx_network(bundle: Bundle, providers: Sequence[str]) -> Network:
    """Create a function that runs the bundle's network, each call in one thread."""
    available = ort.get_available_providers()
    if missing := [provider for provider in providers if provider not in available]:
        raise FamiliarError(
            f"ONNX Runtime has no {missing[0]} here; it has {', '.join(available)}. Install one that has it, such as "
            "onnxruntime-gpu for CUDA"
        )
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
        (embeddings,) = session.run(None, {input_name: crops_u8})
        assert isinstance(embeddings, np.ndarray)
        return embeddings

    return compute
