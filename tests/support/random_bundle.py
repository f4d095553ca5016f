"""A bundle of random weights, centered on the given photos, so that wrong pixels change its embeddings clearly."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper

from familiar.conversion.pixel_input import take_pixels
from familiar.core.calibration import Calibration, Threshold
from familiar.detection.faces import crop_photo
from familiar.embedding.bundle import BundleMetadata, serialize_bundle
from familiar.photos.preprocessing import Preprocessing, stack_crops, standardize

EMBEDDING_DIM = 16


def random_bundle(
    path: Path, photos: Sequence[Path], preprocessing: Preprocessing, seed: int = 0, **changed: Any
) -> Path:
    """Write a bundle whose balanced threshold half of the photos' pairs reach; `changed` overrides metadata fields."""
    crops = [crop_photo(photo, preprocessing) for photo in photos]
    images = standardize(stack_crops(crops, preprocessing.size_px), preprocessing)
    features = run_network(random_network(preprocessing.size_px, seed), images)
    network = random_network(preprocessing.size_px, seed, -features.mean(axis=0))
    embeddings = run_network(network, images)
    pairs = (embeddings @ embeddings.T)[np.triu_indices(len(embeddings), 1)]
    low, middle, high = (Threshold(float(np.quantile(pairs, q)), 0.1, 0.9) for q in (0.25, 0.5, 0.75))
    metadata = BundleMetadata(
        space_id="random",
        embedding_dim=EMBEDDING_DIM,
        preprocessing=preprocessing,
        calibration=Calibration(high, middle, low, 8.0, -8 * middle.similarity, 0.1, 99, 99),
        prefixes=(EMBEDDING_DIM,),
        recipe="none",
        network="random",
        precision="float32",
        trained_on={},
        results={},
        parity={},
        license="Apache-2.0",
    )
    model = onnx.load_from_string(network)
    take_pixels(model, preprocessing)
    path.write_bytes(serialize_bundle(model.SerializeToString(), replace(metadata, **changed)))
    return path


def random_network(size_px: int, seed: int = 0, bias: np.ndarray | None = None) -> bytes:
    """Create a convolution and a projection as ONNX; with a `bias` that centers the features, normalize them."""
    rng = np.random.default_rng(seed)
    positions = ((size_px - 1) // 2) ** 2
    weights = {
        "kernel": rng.normal(size=(4, 3, 3, 3)),
        "project": rng.normal(size=(4 * positions, EMBEDDING_DIM)) / size_px,
        "bias": np.zeros(EMBEDDING_DIM) if bias is None else bias,
    }
    nodes = [
        helper.make_node("Conv", ["images", "kernel"], ["maps"], strides=[2, 2]),
        helper.make_node("Relu", ["maps"], ["lit"]),
        helper.make_node("Flatten", ["lit"], ["flat"]),
        helper.make_node("Gemm", ["flat", "project", "bias"], ["features"]),
        helper.make_node("LpNormalization", ["features"], ["embeddings"]),
    ]
    last = "features" if bias is None else "embeddings"
    graph = helper.make_graph(
        nodes[:-1] if bias is None else nodes,
        "random",
        [helper.make_tensor_value_info("images", TensorProto.FLOAT, ["n", 3, size_px, size_px])],
        [helper.make_tensor_value_info(last, TensorProto.FLOAT, ["n", EMBEDDING_DIM])],
        [numpy_helper.from_array(values.astype(np.float32), name) for name, values in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    return model.SerializeToString()


def run_network(network: bytes, images: np.ndarray) -> np.ndarray:
    (output,) = ort.InferenceSession(network, providers=["CPUExecutionProvider"]).run(None, {"images": images})
    return np.asarray(output)
