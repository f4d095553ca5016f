"""Bias correction: weights rounded to 8 or 4 bits, and biases that compensate for the rounding.

Rounding shifts the mean output of a channel, and later layers amplify the shift: the embeddings of a MobileNetV3 whose
weights are each rounded to the nearest have a mean cosine of .95 to its own. With kernels that preserve their sum it is
.985, and with corrected biases .998.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
from jaxtyping import Float32, Float64
from numpy.lib.stride_tricks import sliding_window_view
from onnx import TensorProto, helper, numpy_helper

from familiar.core.errors import BadRun
from familiar.export.gptq import round_matrix
from familiar.export.onnx import INPUT_NAME
from familiar.export.precision import MIN_ELEMENTS_TO_COMPRESS, RoundedMatrix
from familiar.export.rounding import quantize_rows

MIN_MATRIX_COLUMNS = 8  # with fewer, rounding errors of one weight cannot be made up for by others
MIN_KERNEL_TAPS = 16  # likewise
MAX_POSITIONS = 256  # of a photo's map, whose channels' products are computed: neighbors are much alike
MIN_PHOTOS = 32  # fewer show neither the mean output of a channel nor its range
BATCH_SIZE = 32
STATISTICS_BATCH_SIZE = 8  # the inputs of all layers are in memory at once, in large networks 160 MB a photo

Photos = Float32[np.ndarray, "n 3 s s"]


def round_weights(
    model: onnx.ModelProto, photos: Photos, *, four_bits: bool = False, min_size: int = 0
) -> dict[str, RoundedMatrix]:
    """Round weights to their values in few bits, still stored as float32, and correct biases, in place.

    Biases are corrected so that each channel's mean on `photos` stays the same (Nagel et al. 2019, arXiv 1906.04721,
    section 4.2, with real photos).

    Args:
        model: is changed.
        photos: standardized.
        four_bits: round the matrices of layers with a bias, those of 1x1 convolutions, and the depthwise kernels of 4 x
            4 and more to 4 bits (`gptq`) instead of 8. Smaller kernels have 8 bits all the same: their weights are
            few, and each of them counts.
        min_size: matrices and kernels with fewer weights have 8 bits all the same.

    Returns:
        The matrices and kernels that were rounded to 4 bits, by name.

    Raises:
        BadRun: there are too few photos.
    """
    if len(photos) < MIN_PHOTOS:
        raise BadRun(
            f"8 bits are calibrated on photos the network was trained on: {len(photos)} of them can be read, and at "
            f"least {MIN_PHOTOS} are needed. Give their folders with --data, or export in float16"
        )
    means, moments = _input_statistics(model, photos, _layers_of_4_bits(model, min_size) if four_bits else {})
    tensors = {tensor.name: tensor for tensor in model.graph.initializer}
    rounding_errors: dict[str, np.ndarray] = {}
    matrices: dict[str, RoundedMatrix] = {}
    for name, tensor in tensors.items():
        values = numpy_helper.to_array(tensor)
        if tensor.data_type == TensorProto.FLOAT and values.ndim > 1 and values.size >= MIN_ELEMENTS_TO_COMPRESS:
            if name in moments:
                steps, scale = matrices[name] = _round_to_4_bits(values, moments[name], name)
            else:
                steps, scale = quantize_rows(values, name)
            rounded = steps.astype(np.float32) * scale.astype(np.float32)
            rounding_errors[name] = values.astype(np.float64) - rounded
            tensor.CopyFrom(numpy_helper.from_array(rounded, name))
    shifts: dict[str, list[Float64[np.ndarray, " o"]]] = {}  # a layer that looks at several views has one for each
    for node in model.graph.node:
        if len(node.input) == 3 and node.input[0] in means and node.input[1] in rounding_errors:
            shift = _mean_output(node, rounding_errors[node.input[1]], means[node.input[0]])
            shifts.setdefault(node.input[2], []).append(shift)
    for name, rows in shifts.items():
        corrected = numpy_helper.to_array(tensors[name]) + np.mean(rows, axis=0)
        tensors[name].CopyFrom(numpy_helper.from_array(corrected.astype(np.float32), name))
    return matrices


def _round_to_4_bits(
    values: Float32[np.ndarray, "o ..."], moments: Float64[np.ndarray, "*channels c c"], name: str
) -> RoundedMatrix:
    """Round a matrix, or depthwise kernels, each of which has inputs of its own."""
    rows = values.reshape(len(values), -1)
    if moments.ndim == 2:
        steps, scale = round_matrix(rows, moments, name)
    else:
        kernels = (round_matrix(row[None], each, name) for row, each in zip(rows, moments, strict=True))
        steps, scale = map(np.concatenate, zip(*kernels, strict=True))
    return steps.reshape(values.shape), scale.reshape(-1, *(1,) * (values.ndim - 1))


def _layers_of_4_bits(model: onnx.ModelProto, min_size: int) -> dict[str, list[onnx.NodeProto]]:
    """Return all layers with a matrix that has a row per output, or with large depthwise kernels, by their weights."""
    shapes = {
        tensor.name: tuple(tensor.dims) for tensor in model.graph.initializer if tensor.data_type == TensorProto.FLOAT
    }
    layers: dict[str, list[onnx.NodeProto]] = {}
    for node in model.graph.node:
        if len(node.input) != 3 or node.input[1] not in shapes:
            continue
        shape = shapes[node.input[1]]
        if np.prod(shape) < min_size:
            continue
        options = _options(node)
        pointwise = node.op_type == "Conv" and shape[2:] == (1, 1) and options.get("group", 1) == 1
        transposed = node.op_type == "Gemm" and options.get("transB", 0) == 1
        padded_by_pixels = options.get("auto_pad", b"NOTSET") == b"NOTSET"
        plain = (
            node.op_type == "Conv"
            and len(shape) == 4
            and padded_by_pixels
            and set(options.get("dilations", [1])) == {1}
        )
        depthwise = plain and shape[1] == 1 and options.get("group") == shape[0]
        if ((pointwise or transposed) and shape[1] >= MIN_MATRIX_COLUMNS) or (
            depthwise and np.prod(shape[2:]) >= MIN_KERNEL_TAPS
        ):
            layers.setdefault(node.input[1], []).append(node)
    return layers


def _options(node: onnx.NodeProto) -> dict[str, Any]:
    """Return a node's attributes by name."""
    return {attribute.name: helper.get_attribute_value(attribute) for attribute in node.attribute}


def _input_statistics(
    model: onnx.ModelProto, photos: Photos, layers: Mapping[str, Sequence[onnx.NodeProto]]
) -> tuple[dict[str, Float64[np.ndarray, " _"]], dict[str, Float64[np.ndarray, "..."]]]:
    """Compute statistics of the inputs of layers with a bias, over photos and positions.

    Args:
        model: is not changed.
        photos: standardized.
        layers: those that get 4 bits, by the name of their weights.

    Returns:
        The mean of each channel, by the input's name. And by the weights' name: the mean product of each pair of
        channels, for a matrix; for depthwise kernels, in each channel, that of each pair of positions below a kernel.
    """
    outputs = {INPUT_NAME}  # ONNX Runtime needs at least one output
    outputs.update(
        node.input[0] for node in model.graph.node if node.op_type in ("Conv", "Gemm") and len(node.input) == 3
    )
    instrumented = onnx.ModelProto()
    instrumented.CopyFrom(model)
    del instrumented.graph.output[:]
    instrumented.graph.output.extend(
        helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in sorted(outputs)
    )
    session = ort.InferenceSession(instrumented.SerializeToString(), providers=["CPUExecutionProvider"])
    sums: dict[str, Float64[np.ndarray, " c"]] = {}
    products: dict[str, Float64[np.ndarray, "..."]] = {}
    shapes = {tensor.name: tuple(tensor.dims) for tensor in model.graph.initializer}
    for start in range(0, len(photos), STATISTICS_BATCH_SIZE):
        batch = photos[start : start + STATISTICS_BATCH_SIZE]
        values = dict(zip(sorted(outputs), session.run(None, {INPUT_NAME: batch}), strict=True))
        for name, each in values.items():
            sums[name] = sums.get(name, 0) + _channel_means(np.asarray(each)) * len(batch)
        for name, nodes in layers.items():
            for node in nodes:
                inputs, (_, columns, *kernel) = np.asarray(values[node.input[0]]), shapes[name]
                each = _tap_products(inputs, node, kernel) if columns == 1 else _channel_products(inputs)
                products[name] = products.get(name, 0) + each * len(batch)
    means = {name: total / len(photos) for name, total in sums.items()}
    return means, {name: total / (len(photos) * len(layers[name])) for name, total in products.items()}


def _channel_products(values: Float32[np.ndarray, "n c ..."]) -> Float64[np.ndarray, "c c"]:
    rows = values.reshape(*values.shape[:2], -1)
    rows = rows[:, :, :: max(1, rows.shape[2] // MAX_POSITIONS)]
    flat = rows.transpose(0, 2, 1).reshape(-1, rows.shape[1])
    return (flat.T @ flat).astype(np.float64) / len(flat)


def _tap_products(
    values: Float32[np.ndarray, "n c h w"], node: onnx.NodeProto, kernel: Sequence[int]
) -> Float64[np.ndarray, "c t t"]:
    options = _options(node)
    top, left, bottom, right = options.get("pads", (0, 0, 0, 0))
    down, across = options.get("strides", (1, 1))
    padded = np.pad(values, ((0, 0), (0, 0), (top, bottom), (left, right)))
    windows = sliding_window_view(padded, kernel, axis=(2, 3))[:, :, ::down, ::across]  # n c h w k k
    height, width = windows.shape[2:4]
    positions = np.arange(0, height * width, max(1, height * width // MAX_POSITIONS))
    chosen = windows[:, :, positions // width, positions % width]  # only these are copied: all would be k * k maps
    taps = chosen.swapaxes(0, 1).reshape(values.shape[1], -1, math.prod(kernel))
    return (taps.transpose(0, 2, 1) @ taps).astype(np.float64) / taps.shape[1]


def _channel_means(values: Float32[np.ndarray, "n c ..."]) -> Float64[np.ndarray, " c"]:
    return values.mean(axis=(0, *range(2, values.ndim)), dtype=np.float64)


def _mean_output(
    node: onnx.NodeProto, weights: Float64[np.ndarray, "rows columns ..."], means: Float64[np.ndarray, " c"]
) -> Float64[np.ndarray, " o"]:
    """Compute the output of a layer with these weights, before its bias, for inputs that equal their channel's mean."""
    options = _options(node)
    if node.op_type == "Gemm":
        return (weights if options.get("transB") else weights.T) @ means
    groups = options.get("group", 1)
    kernels = weights.sum(axis=tuple(range(2, weights.ndim)))
    per_group = kernels.reshape(groups, -1, kernels.shape[1])
    return np.einsum("goi,gi->go", per_group, means.reshape(groups, -1)).reshape(-1)
