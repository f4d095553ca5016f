"""A network with a fixed batch size, of operators that phones' processors have.

ONNX Runtime gives a network to Core ML or NNAPI if all shapes are known and all operators supported; otherwise it
computes in pieces, which is slower than the CPU alone. What the network computes and how its weights are stored stays.
"""

from collections.abc import Callable
from dataclasses import replace
from math import floor, prod
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper, shape_inference

from familiar.core.errors import BadBundle, ParityFailed
from familiar.embedding.bundle import BundleMetadata, serialize_bundle
from familiar.export.parity import embed_with_export
from familiar.export.quantize import drop_unused

MAX_DIFFERENCE = 1e-5  # of a component of an embedding
_COMPARED_BATCHES = 4
_ELEMENTWISE = frozenset({"Add", "Sub", "Mul", "Div"})  # which broadcast their inputs


def serialize_for_phones(model: bytes, metadata: BundleMetadata, batch_size: int, path: Path | str) -> bytes:
    """Make the content of a bundle with a fixed batch size.

    Its embeddings are of the same space, and the same within 1e-5, which is compared on noise.

    Args:
        model: a bundle's serialized network, of any batch size.
        metadata: the bundle's.
        batch_size: crops per call, at least 1.
        path: names the network in errors.

    Raises:
        BadBundle: the network cannot be changed (`fix_batch_size`).
        ParityFailed: the changed network computes something else.
    """
    try:
        fixed = fix_batch_size(model, batch_size)
    except BadBundle as error:
        raise BadBundle(f"{path}: {error}") from error
    side = metadata.preprocessing.size_px
    noise = np.random.default_rng(0).integers(0, 256, (_COMPARED_BATCHES, batch_size, side, side, 3), np.uint8)
    difference = np.abs(embed_with_export(model, noise) - embed_with_export(fixed, noise)).max()
    if not difference <= MAX_DIFFERENCE:
        raise ParityFailed(f"{path}: with a fixed batch size its embeddings differ by {difference:.1e}")
    if metadata.precision == "int4-weights":
        metadata = replace(metadata, precision="int8-weights")
    return serialize_bundle(fixed, metadata)


def fix_batch_size(model: bytes, size: int) -> bytes:
    """Change a network of any batch size to one of a fixed batch size, of operators that phones' processors have.

    Args:
        model: a serialized network with one input and one output.
        size: crops per call, at least 1.

    Returns:
        The serialized network. Its weights are stored as they were; those of 4 bits in 8.

    Raises:
        BadBundle: it computes in 8 bits, or the shape of a value depends on what it computes.
    """
    network = onnx.load_from_string(model)
    for value in (*network.graph.input, *network.graph.output):
        value.type.tensor_type.shape.dim[0].dim_value = size
    del network.graph.value_info[:]
    if any(node.op_type == "QuantizeLinear" for node in network.graph.node):
        raise BadBundle(
            "a network that computes in 8 bits has operators that phones' processors lack: export the run with "
            "--precision float16 or int8-weights"
        )
    _Rewriting(network).run()
    drop_unused(network.graph)
    onnx.checker.check_model(network, full_check=True)
    return network.SerializeToString(deterministic=True)


class _Rewriting:
    """Replaces nodes of one network, in place."""

    def __init__(self, network: onnx.ModelProto) -> None:
        inferred = shape_inference.infer_shapes(network, strict_mode=True, data_prop=True).graph
        self._shapes = {
            value.name: [dim.dim_value for dim in value.type.tensor_type.shape.dim]
            for value in (*inferred.value_info, *inferred.input, *inferred.output)
        }
        self._graph = network.graph
        self._constants = {tensor.name: tensor for tensor in self._graph.initializer}
        self._nodes: list[onnx.NodeProto] = []
        self._expanded: dict[str, str] = {}  # what is read in place of what `Expand` returned

    def run(self) -> None:
        rewrites: dict[str, Callable[[onnx.NodeProto], None]] = {
            "Clip": self._clip,
            "DequantizeLinear": self._dequantize,
            "Expand": self._expand,
            "HardSigmoid": self._hard_sigmoid,
            "HardSwish": self._hard_swish,
            "LpNormalization": self._normalize,
            "ReduceL2": self._norm,
            "ReduceSum": self._sum,
            "Resize": self._resize,
        }
        for node in self._graph.node:
            node.input[:] = [self._expanded.get(name, name) for name in node.input]
            rewrites.get(node.op_type, self._nodes.append)(node)
        del self._graph.node[:]
        self._graph.node.extend(self._nodes)

    def _add(self, operator: str, inputs: list[str], output: str, **attributes: Any) -> str:
        self._nodes.append(helper.make_node(operator, inputs, [output], **attributes))
        return output

    def _constant(self, values: np.ndarray, name: str) -> str:
        self._constants[name] = numpy_helper.from_array(values, name)
        self._graph.initializer.append(self._constants[name])
        return name

    def _number(self, value: float, name: str) -> str:
        return self._constant(np.array(value, np.float32), name)

    def _shape(self, name: str) -> list[int]:
        shape = self._shapes.get(name, [])
        if not shape or not all(shape):
            raise BadBundle(f"the shape of its value {name!r} depends on what it computes, which phones cannot have")
        return shape

    def _clip(self, node: onnx.NodeProto) -> None:
        """NNAPI has no clip with a lower bound alone."""
        if len(node.input) == 2 or not node.input[2]:
            self._add("Max", list(node.input[:2]), node.output[0])
        else:
            self._nodes.append(node)

    def _dequantize(self, node: onnx.NodeProto) -> None:
        """Write as products that ONNX Runtime computes when it opens the file, as those of `int8-weights`."""
        steps, scale, (output,) = self._constants[node.input[0]], node.input[1], node.output
        shape = np.array([-1, *[1] * (len(steps.dims) - 1)])
        integers = self._constant(numpy_helper.to_array(steps).astype(np.int8), f"{output}_steps")
        numbers = self._add("Cast", [integers], f"{output}_numbers", to=TensorProto.FLOAT)
        rows = self._add("Reshape", [scale, self._constant(shape, f"{output}_rows")], f"{output}_scale")
        self._add("Mul", [numbers, rows], output)

    def _expand(self, node: onnx.NodeProto) -> None:
        (output,) = node.output
        users = [user for user in self._graph.node if output in user.input]
        others = [name for user in users for name in user.input if name != output]
        broadcasts = all(user.op_type in _ELEMENTWISE for user in users)
        if broadcasts and others and all(self._shapes.get(name) == self._shape(output) for name in others):
            self._expanded[output] = node.input[0]
        else:
            self._nodes.append(node)

    def _hard_sigmoid(self, node: onnx.NodeProto) -> None:
        """As a clip between 0 and 1 / alpha, which is ReLU6 with the usual alpha of 1 / 6."""
        slope, shift = (float(_attribute(node, *default)) for default in (("alpha", 0.2), ("beta", 0.5)))
        self._clipped_line(node.input[0], node.output[0], slope, shift)

    def _hard_swish(self, node: onnx.NodeProto) -> None:
        (value,), (output,) = node.input, node.output
        self._add("Mul", [value, self._clipped_line(value, f"{output}_gate", 1 / 6, 0.5)], output)

    def _clipped_line(self, value: str, output: str, slope: float, shift: float) -> str:
        most = round(1 / slope, 5)  # slopes are float32
        shifted = self._add("Add", [value, self._number(shift * most, f"{output}_shift")], f"{output}_shifted")
        bounds = [self._number(0, f"{output}_least"), self._number(most, f"{output}_most")]
        clipped = self._add("Clip", [shifted, *bounds], f"{output}_clipped")
        return self._add("Mul", [clipped, self._number(1 / most, f"{output}_slope")], output)

    def _normalize(self, node: onnx.NodeProto) -> None:
        (value,), (output,) = node.input, node.output
        axes = self._constant(np.array([_attribute(node, "axis", -1)]), f"{output}_axes")
        norm = self._norm_over(value, axes, f"{output}_norm", keepdims=1)
        self._add("Div", [value, norm], output)

    def _norm(self, node: onnx.NodeProto) -> None:
        self._norm_over(node.input[0], node.input[1], node.output[0], _attribute(node, "keepdims", 1))

    def _norm_over(self, value: str, axes: str, output: str, keepdims: int) -> str:
        self._shapes[f"{output}_squares"] = self._shape(value)
        squares = self._add("Mul", [value, value], f"{output}_squares")
        return self._add("Sqrt", [self._sum_over(squares, axes, f"{output}_sum", keepdims)], output)

    def _sum(self, node: onnx.NodeProto) -> None:
        self._sum_over(node.input[0], node.input[1], node.output[0], _attribute(node, "keepdims", 1))

    def _sum_over(self, value: str, axes: str, output: str, keepdims: int) -> str:
        """NNAPI has means, and no sums."""
        shape = self._shape(value)
        count = prod(shape[axis] for axis in numpy_helper.to_array(self._constants[axes]).tolist())
        mean = self._add("ReduceMean", [value, axes], f"{output}_mean", keepdims=keepdims)
        return self._add("Mul", [mean, self._number(count, f"{output}_count")], output)

    def _resize(self, node: onnx.NodeProto) -> None:
        """By constant factors instead of a size that is computed."""
        before, after = self._shape(node.input[0]), self._shape(node.output[0])
        factors = np.array([new / old for old, new in zip(before, after, strict=True)], np.float32)
        assert [floor(length * factor) for length, factor in zip(before, factors, strict=True)] == after
        no_region = self._constant(np.empty(0, np.float32), f"{node.output[0]}_region")  # omitted, it counts as unknown
        node.input[:] = [node.input[0], no_region, self._constant(factors, f"{node.output[0]}_factors")]
        self._nodes.append(node)


def _attribute(node: onnx.NodeProto, name: str, default: Any) -> Any:
    return next((helper.get_attribute_value(each) for each in node.attribute if each.name == name), default)
