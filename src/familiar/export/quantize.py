"""Static quantization to 8 bits with ONNX Runtime: ranges from calibration photos, sensitive layers left in float32.

Asymmetric for activations and symmetric per output channel for weights, as quantize and dequantize nodes in front of
ordinary operators (QDQ), which any ONNX runtime reads.
"""

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
from jaxtyping import Float32
from onnx import numpy_helper
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

from familiar.export.bias_correction import BATCH_SIZE, Photos, round_weights
from familiar.export.onnx import INPUT_NAME, strip_metadata
from familiar.export.precision import store_weights_as_int4, store_weights_as_int8

# Mean cosine between embeddings of the calibration photos and the source's that `mixed` has to reach.
MIN_MIXED_COSINE = 0.98
# ONNX Runtime's mark on a graph that has been preprocessed for quantization: there is nothing left to fold.
PREPROCESSED_MARK = ("onnx.quant.pre_process", "onnxruntime.quant")


def quantize_weights(model: bytes, photos: Photos) -> bytes:
    """Quantize all weights to 8 bits; it computes in float32. BadRun if there are too few photos to calibrate."""
    rounded = onnx.load_from_string(model)
    round_weights(rounded, photos)
    store_weights_as_int8(rounded)
    onnx.checker.check_model(rounded)
    return rounded.SerializeToString(deterministic=True)


def quantize_weights_to_4_bits(model: bytes, photos: Photos) -> bytes:
    """Quantize matrices to 4 bits and kernels to 8; it computes in float32. BadRun if there are too few photos."""
    rounded = onnx.load_from_string(model)
    store_weights_as_int4(rounded, round_weights(rounded, photos, four_bits=True))
    onnx.checker.check_model(rounded)
    return rounded.SerializeToString(deterministic=True)


def quantize_all(model: bytes, photos: Photos) -> bytes:
    """Quantize all layers to 8 bits. BadRun if there are too few photos to calibrate."""
    with _quantizer(model, photos) as quantizer:
        return quantizer.quantized()


def quantize_mixed(model: bytes, photos: Photos) -> bytes:
    """Quantize to 8 bits all layers but the most sensitive, which compute in float32; their weights have 8 bits too.

    Sensitive is a layer that lowers the cosine most if only it is quantized. As few layers are left in float32 as are
    needed for a mean cosine of .98 between embeddings of the calibration photos and the source's.

    Raises:
        BadRun: there are too few photos to calibrate.
    """
    with _quantizer(model, photos) as quantizer:
        layers = quantizer.layers
        damage = {layer: 1 - quantizer.cosine(quantizer.quantized([layer])) for layer in layers}
        worst_first = sorted(layers, key=lambda layer: -damage[layer])

        def with_float_layers(count: int) -> bytes:
            return quantizer.quantized(worst_first[count:])

        def enough(count: int) -> bool:
            return quantizer.cosine(with_float_layers(count)) >= MIN_MIXED_COSINE

        return with_float_layers(smallest_sufficient(len(layers) - 1, enough))


def smallest_sufficient(most: int, enough: Callable[[int], bool]) -> int:
    """Find the smallest count up to `most` that is enough, by bisection; `most` itself is assumed to be enough.

    `enough` must be monotonic: more is never worse.

    >>> smallest_sufficient(10, lambda count: count * count >= 20)
    5
    """
    low, high = 0, most
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle + 1, high)
    return high


@contextmanager
def _quantizer(model: bytes, photos: Photos) -> Iterator["_Quantizer"]:
    with tempfile.TemporaryDirectory() as folder:
        yield _Quantizer(model, photos, Path(folder))


class _Quantizer:
    """Quantizer of one model, calibrated on photos; each tensor's range is computed once and cached in `folder`."""

    def __init__(self, model: bytes, photos: Photos, folder: Path) -> None:
        self._model = onnx.load_from_string(model)
        round_weights(self._model, photos)  # ONNX Runtime finds the same steps: all weights are multiples of them
        for number, node in enumerate(self._model.graph.node):
            node.name = str(number)
        self._photos = photos
        self._folder = folder
        self._source = _embed(model, photos)

    @property
    def layers(self) -> list[str]:
        """Names of the convolutions and matrix products with weights, in order from the input."""
        constants = {tensor.name for tensor in self._model.graph.initializer}
        return [
            node.name
            for node in self._model.graph.node
            if node.op_type in ("Conv", "Gemm", "MatMul") and node.input[1] in constants
        ]

    def cosine(self, quantized: bytes) -> float:
        """Compute the mean cosine between a quantized model's embeddings of the calibration photos and the source's."""
        return float(np.einsum("ij,ij->i", _embed(quantized, self._photos), self._source).mean())

    def quantized(self, only: Sequence[str] = ()) -> bytes:
        """Quantize the layers in `only`; by default all that can be quantized."""
        output = self._folder / "quantized.onnx"
        model = onnx.ModelProto()
        model.CopyFrom(self._model)
        model.metadata_props.add(key=PREPROCESSED_MARK[0], value=PREPROCESSED_MARK[1])
        quantize_static(
            model,
            output,
            _Batches(self._photos),
            quant_format=QuantFormat.QDQ,
            per_channel=True,
            activation_type=QuantType.QUInt8,
            weight_type=QuantType.QInt8,
            nodes_to_quantize=list(only),
            calibration_cache_path=self._folder / "ranges.json",
        )
        quantized = onnx.load(output)
        _shrink(quantized)
        onnx.checker.check_model(quantized)
        return quantized.SerializeToString(deterministic=True)


class _Batches(CalibrationDataReader):
    def __init__(self, photos: Photos) -> None:
        self._batches = iter([photos[start : start + BATCH_SIZE] for start in range(0, len(photos), BATCH_SIZE)])

    def get_next(self) -> dict[str, Photos] | None:  # pyright: ignore[reportIncompatibleMethodOverride]
        batch = next(self._batches, None)
        return None if batch is None else {INPUT_NAME: batch}


def _embed(model: bytes, photos: Photos) -> Float32[np.ndarray, "n d"]:
    options = ort.SessionOptions()
    options.log_severity_level = 3
    session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    batches = (photos[start : start + BATCH_SIZE] for start in range(0, len(photos), BATCH_SIZE))
    outputs = [session.run(None, {INPUT_NAME: batch})[0] for batch in batches]
    return np.concatenate([np.asarray(embeddings) for embeddings in outputs])


def _shrink(model: onnx.ModelProto) -> None:
    """Make a quantized model smaller: drop zero points that are zero, and store biases as float16.

    ONNX Runtime derives them when it opens the file. Weights that are still float32 are stored in 8 bits, except the
    scales, which are too small for float16.
    """
    graph = model.graph
    numbers = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    producers = {node.output[0]: node for node in graph.node}
    for node in graph.node:
        if node.op_type == "Conv" and len(node.input) == 3 and node.input[2] in producers:
            _bias_as_float(graph, node, producers[node.input[2]], numbers)
    # The default zero point is zero, of any type when dequantizing, and of uint8 when quantizing.
    default_dtypes = {"DequantizeLinear": (np.int8, np.int32, np.uint8), "QuantizeLinear": (np.uint8,)}
    for node in graph.node:
        if node.op_type in default_dtypes and len(node.input) == 3:
            zero_point = numbers[node.input[2]]
            if zero_point.dtype in default_dtypes[node.op_type] and not zero_point.any():
                del node.input[2]
    drop_unused(graph)
    strip_metadata(model)
    scales = {node.input[1] for node in graph.node if node.op_type in ("QuantizeLinear", "DequantizeLinear")}
    store_weights_as_int8(model, excluded=scales)


def _bias_as_float(
    graph: onnx.GraphProto, layer: onnx.NodeProto, dequantize: onnx.NodeProto, numbers: dict[str, np.ndarray]
) -> None:
    if dequantize.op_type != "DequantizeLinear" or dequantize.input[0] not in numbers:
        return
    steps = numbers[dequantize.input[0]]
    # For a channel with weights near 0 the steps come close to the end of int32, and float16 rounding would overflow.
    if np.abs(steps.astype(np.int64)).max() > 2**30:
        return
    bias = steps * numbers[dequantize.input[1]]
    graph.initializer.append(numpy_helper.from_array(bias.astype(np.float32), f"{layer.input[2]}_float"))
    layer.input[2] = f"{layer.input[2]}_float"


def drop_unused(graph: onnx.GraphProto) -> None:
    """Remove nodes and tensors that nothing reads."""
    outputs = {output.name for output in graph.output}
    while True:
        read = {name for node in graph.node for name in node.input} | outputs
        used = [node for node in graph.node if read.intersection(node.output)]
        if len(used) == len(graph.node):
            break
        del graph.node[:]
        graph.node.extend(used)
    tensors = [tensor for tensor in graph.initializer if tensor.name in read]
    del graph.initializer[:]
    graph.initializer.extend(tensors)
