"""A network that computes in 8 bits: ranges from calibration photos, sensitive layers kept higher (ONNX Runtime).

Static quantization, asymmetric for what flows and symmetric per output channel for weights, as quantize and dequantize
nodes in front of ordinary operators, which any ONNX runtime reads.
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

from familiar.export.bias_correction import BATCH, Photos, round_weights
from familiar.export.onnx import INPUT_NAME, strip
from familiar.export.precision import weights_in_8_bits

# Of the embeddings of calibration photos, on average: `mixed` keeps as many layers higher as this takes.
COSINE_OF_MIXED = 0.98
PREPARED = (
    "onnx.quant.pre_process",
    "onnxruntime.quant",
)  # its mark on a graph that has nothing left to be folded


def in_8_bit_weights(model: bytes, photos: Photos) -> bytes:
    """All weights in 8 bits; it computes in float32. BadRun where there are too few photos to calibrate by."""
    rounded = onnx.load_from_string(model)
    round_weights(rounded, photos)
    weights_in_8_bits(rounded)
    onnx.checker.check_model(rounded)
    return rounded.SerializeToString(deterministic=True)


def in_8_bits(model: bytes, photos: Photos) -> bytes:
    """All layers in 8 bits. BadRun where there are too few photos to calibrate by."""
    with _quantizer(model, photos) as quantizer:
        return quantizer.quantized()


def in_mixed_precision(model: bytes, photos: Photos) -> bytes:
    """As few layers as possible in float32, those that do most damage alone; their weights take 8 bits all the same.

    As many as it takes for a mean cosine of .98 between embeddings of the calibration photos and the source's.
    """
    with _quantizer(model, photos) as quantizer:
        layers = quantizer.layers
        damage = {layer: 1 - quantizer.cosine(quantizer.quantized([layer])) for layer in layers}
        worst_first = sorted(layers, key=lambda layer: -damage[layer])

        def kept_higher(count: int) -> bytes:
            return quantizer.quantized(worst_first[count:])

        def enough(count: int) -> bool:
            return quantizer.cosine(kept_higher(count)) >= COSINE_OF_MIXED

        return kept_higher(fewest(len(layers) - 1, enough))


def fewest(most: int, enough: Callable[[int], bool]) -> int:
    """The smallest count up to `most` that is enough, where more is never worse; `most` is not asked.

    >>> fewest(10, lambda count: count * count >= 20)
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
    """One model and the photos it is calibrated by; each tensor's range is found once and kept in `folder`."""

    def __init__(self, model: bytes, photos: Photos, folder: Path) -> None:
        self._model = onnx.load_from_string(model)
        round_weights(self._model, photos)  # ONNX Runtime finds the same steps, since these are whole numbers of them
        for number, node in enumerate(self._model.graph.node):
            node.name = str(number)
        self._photos = photos
        self._folder = folder
        self._source = _embed(model, photos)

    @property
    def layers(self) -> list[str]:
        """The convolutions and products with weights, from the input on."""
        constants = {tensor.name for tensor in self._model.graph.initializer}
        return [
            node.name
            for node in self._model.graph.node
            if node.op_type in ("Conv", "Gemm", "MatMul") and node.input[1] in constants
        ]

    def cosine(self, quantized: bytes) -> float:
        """Mean over the calibration photos, between its embeddings and the source's."""
        return float(np.einsum("ij,ij->i", _embed(quantized, self._photos), self._source).mean())

    def quantized(self, only: Sequence[str] = ()) -> bytes:
        """With `only` these layers in 8 bits, else with all that can be."""
        written = self._folder / "quantized.onnx"
        model = onnx.ModelProto()
        model.CopyFrom(self._model)
        model.metadata_props.add(key=PREPARED[0], value=PREPARED[1])
        quantize_static(
            model,
            written,
            _Batches(self._photos),
            quant_format=QuantFormat.QDQ,
            per_channel=True,
            activation_type=QuantType.QUInt8,
            weight_type=QuantType.QInt8,
            nodes_to_quantize=list(only),
            calibration_cache_path=self._folder / "ranges.json",
        )
        quantized = onnx.load(written)
        _compact(quantized)
        onnx.checker.check_model(quantized)
        return quantized.SerializeToString(deterministic=True)


class _Batches(CalibrationDataReader):
    def __init__(self, photos: Photos) -> None:
        self._batches = iter([photos[start : start + BATCH] for start in range(0, len(photos), BATCH)])

    def get_next(self) -> dict[str, Photos] | None:  # pyright: ignore[reportIncompatibleMethodOverride]
        batch = next(self._batches, None)
        return None if batch is None else {INPUT_NAME: batch}


def _embed(model: bytes, photos: Photos) -> Float32[np.ndarray, "n d"]:
    options = ort.SessionOptions()
    options.log_severity_level = 3
    session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    found = [
        session.run(None, {INPUT_NAME: photos[start : start + BATCH]})[0] for start in range(0, len(photos), BATCH)
    ]
    return np.concatenate([np.asarray(embeddings) for embeddings in found])


def _compact(model: onnx.ModelProto) -> None:
    """Without zero points that are zero, and biases as float16: ONNX Runtime works out the rest when it opens the file.

    What is left in float32 takes 8 bits, but for the scales, which are too small for float16.
    """
    graph = model.graph
    numbers = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    made_by = {node.output[0]: node for node in graph.node}
    for node in graph.node:
        if node.op_type == "Conv" and len(node.input) == 3 and node.input[2] in made_by:
            _bias_as_float(graph, node, made_by[node.input[2]], numbers)
    for node in graph.node:
        # Without one it is zero: of what is dequantized any type, of what is quantized uint8.
        kinds = {"DequantizeLinear": (np.int8, np.int32, np.uint8), "QuantizeLinear": (np.uint8,)}
        if node.op_type in kinds and len(node.input) == 3:
            zero_point = numbers[node.input[2]]
            if zero_point.dtype in kinds[node.op_type] and not zero_point.any():
                del node.input[2]
    _drop_unused(graph)
    strip(model)
    scales = {node.input[1] for node in graph.node if node.op_type in ("QuantizeLinear", "DequantizeLinear")}
    weights_in_8_bits(model, kept=scales)


def _bias_as_float(
    graph: onnx.GraphProto, layer: onnx.NodeProto, dequantize: onnx.NodeProto, numbers: dict[str, np.ndarray]
) -> None:
    if dequantize.op_type != "DequantizeLinear" or dequantize.input[0] not in numbers:
        return
    steps = numbers[dequantize.input[0]]
    # Of a channel with next to no weights they reach to the end of int32, and from float16 they would come back beyond.
    if np.abs(steps.astype(np.int64)).max() > 2**30:
        return
    bias = steps * numbers[dequantize.input[1]]
    graph.initializer.append(numpy_helper.from_array(bias.astype(np.float32), f"{layer.input[2]}_float"))
    layer.input[2] = f"{layer.input[2]}_float"


def _drop_unused(graph: onnx.GraphProto) -> None:
    """Nodes nobody reads, and tensors nobody reads."""
    outputs = {output.name for output in graph.output}
    while True:
        read = {name for node in graph.node for name in node.input} | outputs
        kept = [node for node in graph.node if read.intersection(node.output)]
        if len(kept) == len(graph.node):
            break
        del graph.node[:]
        graph.node.extend(kept)
    tensors = [tensor for tensor in graph.initializer if tensor.name in read]
    del graph.initializer[:]
    graph.initializer.extend(tensors)
