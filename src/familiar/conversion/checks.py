"""Checks of an imported network: it must compute what the original does, for every batch size and every photo."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnxruntime as ort
from jaxtyping import Float32, Float64, UInt8

from familiar.conversion.graph import ImageInput
from familiar.core.errors import BadNetwork
from familiar.datasets.synthetic import SyntheticSource
from familiar.photos.preprocessing import Preprocessing, resize_crop, standardize

TOLERANCE = 1e-5  # of a component, for float32; float16 has 11 bits of mantissa
TOLERANCE_FLOAT16 = 5e-3
BATCHES = (1, 2, 7)
DRAWN = slice(4, None)  # of `_crops`
MAX_COSINE = 0.9999  # of drawn individuals: a network above it says the same of all photos


@dataclass(frozen=True)
class Comparison:
    """Agreement of an imported network with its original.

    Attributes:
        embedding_dim: length of the embeddings.
        crops: number of crops compared.
        max_difference: largest difference of a component of two unit vectors.
    """

    embedding_dim: int
    crops: int
    max_difference: float


def check_import(
    original: Path, taken: ImageInput, output: str, token: int | None, imported: bytes, preprocessing: Preprocessing
) -> Comparison:
    """Compare an imported network with its original in ONNX Runtime.

    Args:
        original: the file as its publisher wrote it.
        taken: its input.
        output: the name of its output.
        token: which of several vectors per photo is the embedding.
        imported: the network that takes pixels and returns unit vectors.
        preprocessing: how the original's input is made of crops.

    Returns:
        The length of the embeddings, and how closely they agree.

    Raises:
        BadNetwork: they differ, the imported one does not take every batch size, or its output is not finite or the
            same for all photos.
    """
    source, session = _open(str(original), original), _open(imported, original)
    name = session.get_inputs()[0].name

    def embed(crops: UInt8[np.ndarray, "n s s 3"]) -> Float32[np.ndarray, "n d"]:
        return _run(session, name, crops, None, original)

    half = "float16" in source.get_inputs()[0].type
    crops = _crops(preprocessing.size_px)
    expected = _original_embeddings(source, crops, taken, output, token, preprocessing, original)
    largest = 0.0
    for count in BATCHES:
        rows = slice(len(crops) - count, None)
        largest = max(largest, _largest_difference(embed(crops[rows]), expected[rows], original))
    embeddings = np.concatenate([embed(crops[start : start + 2]) for start in range(0, len(crops), 2)])
    largest = max(largest, _largest_difference(embeddings, expected, original))
    if largest > (TOLERANCE_FLOAT16 if half else TOLERANCE):
        raise BadNetwork(f"{original}: the imported network does not compute what the original does ({largest:.1e})")
    drawn = embeddings[DRAWN]
    if (cosines := drawn @ drawn.T)[~np.eye(len(drawn), dtype=bool)].min() > MAX_COSINE:
        raise BadNetwork(
            f"{original}: gives all photos the same embedding (cosine {cosines.min():.5f}); the preprocessing may be "
            "wrong (--mean, --std, --color), or it is no embedding network"
        )
    return Comparison(embeddings.shape[1], len(crops), largest)


def _crops(size_px: int) -> UInt8[np.ndarray, "n s s 3"]:
    """Return black, white, noise of two kinds, and six drawn cats."""
    rng = np.random.default_rng(0)
    shape = (size_px, size_px, 3)
    noise = [rng.integers(0, 256, shape, dtype=np.uint8), rng.integers(100, 156, shape, dtype=np.uint8)]
    source = SyntheticSource.parse("synthetic:cats:6x1")
    stretch = Preprocessing(size_px=size_px, resize_px=size_px)
    cats = [resize_crop(source.photos(cat)[0].draw().rgb_u8, stretch) for cat in range(6)]
    return np.stack([np.zeros(shape, np.uint8), np.full(shape, 255, np.uint8), *noise, *cats])


def _original_embeddings(
    session: ort.InferenceSession,
    crops: UInt8[np.ndarray, "n s s 3"],
    taken: ImageInput,
    output: str,
    token: int | None,
    preprocessing: Preprocessing,
    original: Path,
) -> Float64[np.ndarray, "n d"]:
    """Embed with the original in batches of the size it takes, filled with other crops, and normalize."""
    images = standardize(crops, preprocessing)
    if taken.layout == "NHWC":
        images = np.ascontiguousarray(images.transpose(0, 2, 3, 1))
    if "float16" in next(each.type for each in session.get_inputs() if each.name == taken.name):
        images = images.astype(np.float16)
    size = taken.batch or 1
    rows: list[np.ndarray] = []
    for start in range(0, len(images), size):
        count = min(size, len(images) - start)
        filled = images[np.arange(start, start + size) % len(images)]
        vectors = _run(session, taken.name, filled, output, original).astype(np.float64)[:count]
        if vectors.ndim == 3:
            vectors = vectors[:, token]
        rows.append(vectors.reshape(count, -1))
    embeddings = np.concatenate(rows)
    with np.errstate(invalid="ignore", divide="ignore"):
        return embeddings / np.linalg.norm(embeddings, axis=1, keepdims=True)


def _run(
    session: ort.InferenceSession, name: str, images: np.ndarray, output: str | None, original: Path
) -> np.ndarray:
    """Return an output for images, the first one if none is named."""
    try:
        return np.asarray(session.run(None if output is None else [output], {name: images})[0])
    except Exception as error:  # ONNX Runtime's errors share no public base
        raise BadNetwork(f"{original}: fails for {len(images)} crops at once ({_first_line(error)})") from error


def _largest_difference(embeddings: np.ndarray, expected: np.ndarray, original: Path) -> float:
    if not np.isfinite(embeddings).all():
        raise BadNetwork(f"{original}: its output for black, white, noise or a drawing is not a finite vector")
    if embeddings.shape != expected.shape:
        raise BadNetwork(f"{original}: gives {len(embeddings)} vectors for {len(expected)} crops")
    return float(np.abs(embeddings - expected).max())


def _open(network: str | bytes, original: Path) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.log_severity_level = 3  # warnings concern the graph, not the user
    try:
        return ort.InferenceSession(network, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # ONNX Runtime's errors share no public base
        raise BadNetwork(f"{original}: ONNX Runtime cannot open it ({_first_line(error)})") from error


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0]
