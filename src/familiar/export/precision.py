"""Weights stored in fewer bytes than they were trained in; the model still computes in float32."""

from collections.abc import Collection, Mapping, Sequence
from typing import Literal, get_args

import numpy as np
import onnx
from jaxtyping import Float16, Int8
from onnx import TensorProto, helper, numpy_helper

from familiar.export.rounding import as_float16, quantize_rows

Precision = Literal["float32", "float16", "int8-weights", "int4-weights", "mixed", "int8"]
PRECISIONS: tuple[Precision, ...] = get_args(Precision)  # in the order in which they are tried for a size

RoundedMatrix = tuple[Int8[np.ndarray, "o ..."], Float16[np.ndarray, "o ..."]]  # its integers, the scale of each row
INT4_OPSET, INT4_IR_VERSION = 21, 10  # the first that have tensors of 4 bits

# The node that casts back costs up to thirty bytes, so tensors with fewer elements are not compressed.
MIN_ELEMENTS_TO_COMPRESS = 16


def to_float16(model: bytes) -> bytes:
    """Return the serialized model with its weights as float16; ParityFailed if they are beyond its range."""
    halved = onnx.load_from_string(model)
    store_weights_as_float16(halved)
    onnx.checker.check_model(halved)
    return halved.SerializeToString(deterministic=True)


def store_weights_as_float16(model: onnx.ModelProto) -> None:
    """Store the weights as float16, each with a cast back to float32 before it is used, in place.

    ONNX Runtime casts once, when it opens the file, so that it computes in float32 and as fast as before. The
    largest relative error of a weight is 2^-11; below 6e-5 the largest absolute error is 2^-25.

    Raises:
        ParityFailed: a weight is beyond float16's 65504.
    """
    _compress_weights(model, eight_bits=False)


def store_weights_as_int8(model: onnx.ModelProto, excluded: Collection[str] = ()) -> None:
    """Store each weight as one byte times the scale of its row, multiplied before it is used, in place.

    A row is the weights of one output channel; vectors are stored as float16. ONNX Runtime multiplies once, when it
    opens the file. The largest error of a weight is a step, a 127th of the largest weight in its row (`rounding`).

    Args:
        model: is changed.
        excluded: names of tensors that stay as they are.

    Raises:
        ParityFailed: a number is beyond float16's 65504.
    """
    _compress_weights(model, eight_bits=True, excluded=excluded)


def store_weights_as_int4(model: onnx.ModelProto, matrices: Mapping[str, RoundedMatrix]) -> None:
    """Store matrices as 4 bits per weight times the scale of the row, and all other weights in 8 bits, in place.

    It computes in float32. With `core.onnx_runtime.session_options`, ONNX Runtime multiplies once, when it opens the
    file; otherwise it multiplies in every call.

    Args:
        model: is changed; its version of ONNX becomes the first that has tensors of 4 bits.
        matrices: the integers, in [-8, 7], and the scale of each row, by name (`gptq.round_matrix`).

    Raises:
        ParityFailed: a number is beyond float16's 65504.
    """
    store_weights_as_int8(model, excluded=matrices)
    before: list[onnx.NodeProto] = []
    scales: list[onnx.TensorProto] = []
    for tensor in model.graph.initializer:
        if tensor.name not in matrices:
            continue
        name = tensor.name
        steps, scale = matrices[name]
        tensor.CopyFrom(
            TensorProto(name=f"{name}q", data_type=TensorProto.INT4, dims=steps.shape, raw_data=_pack_4_bits(steps))
        )
        scales.append(numpy_helper.from_array(scale.reshape(-1), f"{name}s"))
        before += [
            helper.make_node("Cast", [f"{name}s"], [f"{name}k"], to=TensorProto.FLOAT),
            helper.make_node("DequantizeLinear", [f"{name}q", f"{name}k"], [name], axis=0),
        ]
    _insert_before(model.graph, before, scales)
    if matrices:
        model.ir_version = max(model.ir_version, INT4_IR_VERSION)
        for opset in model.opset_import:
            if not opset.domain:
                opset.version = max(opset.version, INT4_OPSET)


def _pack_4_bits(steps: Int8[np.ndarray, "o ..."]) -> bytes:
    """Pack two numbers into each byte, the first into the lower half, as ONNX stores them."""
    halves = np.append(steps.reshape(-1), np.zeros(steps.size % 2, np.int8)).astype(np.uint8) & 0xF
    return (halves[::2] | halves[1::2] << 4).tobytes()


def _compress_weights(model: onnx.ModelProto, *, eight_bits: bool, excluded: Collection[str] = ()) -> None:
    graph = model.graph
    before: list[onnx.NodeProto] = []
    scales: list[onnx.TensorProto] = []
    for tensor in graph.initializer:
        values = numpy_helper.to_array(tensor)
        if tensor.data_type != TensorProto.FLOAT or values.size < MIN_ELEMENTS_TO_COMPRESS or tensor.name in excluded:
            continue
        name = tensor.name
        # Names are hexadecimal numbers, so suffixes from the letter g on cannot collide.
        if eight_bits and values.ndim > 1:
            steps, scale = quantize_rows(values, name)
            tensor.CopyFrom(numpy_helper.from_array(steps, f"{name}q"))
            scales.append(numpy_helper.from_array(scale, f"{name}s"))
            before += [
                helper.make_node("Cast", [f"{name}q"], [f"{name}i"], to=TensorProto.FLOAT),
                helper.make_node("Cast", [f"{name}s"], [f"{name}k"], to=TensorProto.FLOAT),
                helper.make_node("Mul", [f"{name}i", f"{name}k"], [name]),
            ]
        else:
            tensor.CopyFrom(numpy_helper.from_array(as_float16(values, name), f"{name}h"))
            before.append(helper.make_node("Cast", [f"{name}h"], [name], to=TensorProto.FLOAT))
    _insert_before(graph, before, scales)


def _insert_before(
    graph: onnx.GraphProto, before: Sequence[onnx.NodeProto], tensors: Sequence[onnx.TensorProto]
) -> None:
    graph.initializer.extend(tensors)
    nodes = [*before, *graph.node]
    del graph.node[:]
    graph.node.extend(nodes)
