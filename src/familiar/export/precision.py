"""Weights in fewer bytes than they were trained in; it computes in float32 all the same."""

from collections.abc import Collection
from typing import Literal, get_args

import onnx
from onnx import TensorProto, helper, numpy_helper

from familiar.export.rounding import as_float16, rows_in_8_bits

Precision = Literal["float32", "float16", "int8-weights", "mixed", "int8"]
PRECISIONS: tuple[Precision, ...] = get_args(Precision)  # the most faithful first

# The node that casts back costs up to thirty bytes, so that fewer numbers than this stay as they are.
FEWEST_WORTH_SHORTENING = 16


def in_float16(model: bytes) -> bytes:
    """The serialized model with its weights as float16. ParityFailed where they do not fit into it."""
    halved = onnx.load_from_string(model)
    halve_weights(halved)
    onnx.checker.check_model(halved)
    return halved.SerializeToString(deterministic=True)


def halve_weights(model: onnx.ModelProto) -> None:
    """Store the weights as float16, each with a cast back to float32 in front of whatever uses it.

    ONNX Runtime casts once, when it opens the file, so that it computes in float32 and as fast as before. The
    largest relative error of a weight is 2^-11, or 2^-25 in absolute terms below 6e-5. ParityFailed where a weight is
    beyond float16's 65504.
    """
    _shorten(model, eight_bits=False)


def weights_in_8_bits(model: onnx.ModelProto, kept: Collection[str] = ()) -> None:
    """Store each weight as one byte times the scale of its row, in front of whatever uses it; vectors as float16.

    A row is what makes one output channel. ONNX Runtime multiplies once, when it opens the file. The largest error of
    a weight is a step, a 127th of the largest weight in its row (`rounding`). Tensors named in `kept` stay as they are.
    ParityFailed where a number is beyond what can be written.
    """
    _shorten(model, eight_bits=True, kept=kept)


def _shorten(model: onnx.ModelProto, *, eight_bits: bool, kept: Collection[str] = ()) -> None:
    graph = model.graph
    before: list[onnx.NodeProto] = []
    scales: list[onnx.TensorProto] = []
    for tensor in graph.initializer:
        values = numpy_helper.to_array(tensor)
        if tensor.data_type != TensorProto.FLOAT or values.size < FEWEST_WORTH_SHORTENING or tensor.name in kept:
            continue
        name = tensor.name
        # Names are hexadecimal numbers, so that no letter from g on is among them.
        if eight_bits and values.ndim > 1:
            steps, scale = rows_in_8_bits(values, name)
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
    graph.initializer.extend(scales)
    nodes = [*before, *graph.node]
    del graph.node[:]
    graph.node.extend(nodes)
