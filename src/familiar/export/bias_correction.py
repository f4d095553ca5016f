"""Weights rounded to 8 bits, and biases that make up for it.

Rounding moves what a channel gives on average, and later layers amplify that: of a MobileNetV3 rounded plainly, the
mean cosine to its own embeddings is .95. With kernels that keep their sum it is .985, and with corrected biases .998.
"""

import numpy as np
import onnx
import onnxruntime as ort
from jaxtyping import Float32, Float64
from onnx import TensorProto, helper, numpy_helper

from familiar.core.errors import BadRun
from familiar.export.onnx import INPUT_NAME
from familiar.export.precision import FEWEST_WORTH_SHORTENING
from familiar.export.rounding import rows_in_8_bits

FEWEST_PHOTOS = 32  # fewer show neither what a channel gives on average nor how far it reaches
BATCH = 32

Photos = Float32[np.ndarray, "n 3 s s"]


def round_weights(model: onnx.ModelProto, photos: Photos) -> None:
    """Each weight to what it will be in 8 bits, still in float32; biases so that channels keep their mean on `photos`.

    BadRun where the photos are too few. (Nagel et al. 2019, arXiv 1906.04721, section 4.2, with real photos.)
    """
    if len(photos) < FEWEST_PHOTOS:
        raise BadRun(
            f"8 bits are calibrated on photos the network was trained on: {len(photos)} of them can be read, and it "
            f"takes {FEWEST_PHOTOS}. Name their folders with --data, or export in float16"
        )
    means = _mean_inputs(model, photos)
    tensors = {tensor.name: tensor for tensor in model.graph.initializer}
    moved: dict[str, np.ndarray] = {}
    for name, tensor in tensors.items():
        values = numpy_helper.to_array(tensor)
        if tensor.data_type == TensorProto.FLOAT and values.ndim > 1 and values.size >= FEWEST_WORTH_SHORTENING:
            steps, scale = rows_in_8_bits(values, name)
            rounded = steps.astype(np.float32) * scale.astype(np.float32)
            moved[name] = values.astype(np.float64) - rounded
            tensor.CopyFrom(numpy_helper.from_array(rounded, name))
    for node in model.graph.node:
        if len(node.input) == 3 and node.input[0] in means and node.input[1] in moved:
            bias = tensors[node.input[2]]
            lost = _mean_output(node, moved[node.input[1]], means[node.input[0]])
            corrected = numpy_helper.to_array(bias) + lost
            bias.CopyFrom(numpy_helper.from_array(corrected.astype(np.float32), bias.name))


def _mean_inputs(model: onnx.ModelProto, photos: Photos) -> dict[str, Float64[np.ndarray, " c"]]:
    """Of each layer that has a bias, by the name of its input: every channel's mean over photos and places."""
    wanted = {INPUT_NAME}  # ONNX Runtime wants to be asked for something
    wanted.update(
        node.input[0] for node in model.graph.node if node.op_type in ("Conv", "Gemm") and len(node.input) == 3
    )
    watched = onnx.ModelProto()
    watched.CopyFrom(model)
    del watched.graph.output[:]
    watched.graph.output.extend(helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in sorted(wanted))
    session = ort.InferenceSession(watched.SerializeToString(), providers=["CPUExecutionProvider"])
    sums: dict[str, Float64[np.ndarray, " c"]] = {}
    for start in range(0, len(photos), BATCH):
        batch = photos[start : start + BATCH]
        for name, values in zip(sorted(wanted), session.run(None, {INPUT_NAME: batch}), strict=True):
            sums[name] = sums.get(name, 0) + _channel_means(np.asarray(values)) * len(batch)
    return {name: total / len(photos) for name, total in sums.items()}


def _channel_means(values: Float32[np.ndarray, "n c ..."]) -> Float64[np.ndarray, " c"]:
    return values.mean(axis=(0, *range(2, values.ndim)), dtype=np.float64)


def _mean_output(
    node: onnx.NodeProto, weights: Float64[np.ndarray, "rows columns ..."], means: Float64[np.ndarray, " c"]
) -> Float64[np.ndarray, " o"]:
    """What a layer with these weights gives, before its bias, where its inputs are their means everywhere."""
    options = {attribute.name: attribute.i for attribute in node.attribute}
    if node.op_type == "Gemm":
        return (weights if options.get("transB") else weights.T) @ means
    groups = options.get("group", 1)
    kernels = weights.sum(axis=tuple(range(2, weights.ndim)))
    per_group = kernels.reshape(groups, -1, kernels.shape[1])
    return np.einsum("goi,gi->go", per_group, means.reshape(groups, -1)).reshape(-1)
