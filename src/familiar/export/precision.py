"""Weights in fewer bytes than they were trained in."""

from typing import Literal

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from familiar.core.errors import ParityFailed

Precision = Literal["float32", "float16"]

# The node that casts back costs up to thirty bytes, so that fewer numbers than this stay as they are.
FEWEST_WORTH_HALVING = 16


def halve_weights(model: onnx.ModelProto) -> None:
    """Store the weights as float16, each with a cast back to float32 in front of whatever uses it.

    ONNX Runtime casts once, when it opens the file, so that it computes in float32 and as fast as before. The
    largest relative error of a weight is 2^-11, or 2^-25 in absolute terms below 6e-5. ParityFailed where a weight is
    beyond float16's 65504.
    """
    graph = model.graph
    casts: list[onnx.NodeProto] = []
    for tensor in graph.initializer:
        values = numpy_helper.to_array(tensor)
        if tensor.data_type != TensorProto.FLOAT or values.size < FEWEST_WORTH_HALVING:
            continue
        with np.errstate(over="ignore"):  # it is looked for below
            halved = values.astype(np.float16)
        if not np.isfinite(halved).all():
            raise ParityFailed(
                f"the weight {tensor.name} reaches {np.abs(values).max():.3g}, and float16 ends at 65504; "
                "nothing was written. Export it in float32"
            )
        name = tensor.name
        tensor.CopyFrom(numpy_helper.from_array(halved, f"{name}h"))
        casts.append(helper.make_node("Cast", [tensor.name], [name], to=TensorProto.FLOAT))
    nodes = [*casts, *graph.node]
    del graph.node[:]
    graph.node.extend(nodes)
