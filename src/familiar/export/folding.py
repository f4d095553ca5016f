"""Batch norms folded into the convolutions before them, which then have a bias."""

from collections import Counter
from collections.abc import Sequence

import numpy as np
import onnx
from onnx import numpy_helper

DEFAULT_EPSILON = 1e-5  # of ONNX's BatchNormalization


def fold_batch_norms(model: onnx.ModelProto) -> None:
    """Fold each batch norm into the convolution before it, if nothing else takes the convolution's output, in place.

    torch's exporter does so only where each weight is used once; a network of several views uses its weights for each
    size of view.

    Args:
        model: in evaluation mode, so that batch norms have constants for statistics.
    """
    graph = model.graph
    tensors = {tensor.name: tensor for tensor in graph.initializer}
    producers = {name: node for node in graph.node for name in node.output}
    uses = Counter(name for node in graph.node for name in node.input)
    folded: dict[str, onnx.TensorProto] = {}
    removed: list[onnx.NodeProto] = []
    for norm in (node for node in graph.node if node.op_type == "BatchNormalization"):
        convolution = producers.get(norm.input[0])
        if convolution is None or convolution.op_type != "Conv" or uses[norm.input[0]] > 1:
            continue
        constants = [*convolution.input[1:], *norm.input[1:]]
        if any(name not in tensors for name in constants):
            continue
        eps = next((attribute.f for attribute in norm.attribute if attribute.name == "epsilon"), DEFAULT_EPSILON)
        names = ["+".join((*constants, str(eps), part)) for part in ("weight", "bias")]  # the same for all views
        if names[0] not in folded:
            for name, values in zip(names, _folded([tensors[name] for name in constants], eps), strict=True):
                folded[name] = numpy_helper.from_array(values, name)
        convolution.input[1:] = names
        convolution.output[0] = norm.output[0]
        removed.append(norm)
    for norm in removed:
        graph.node.remove(norm)
    used = {name for node in graph.node for name in node.input}
    remaining = [tensor for tensor in graph.initializer if tensor.name in used]
    del graph.initializer[:]
    graph.initializer.extend([*remaining, *folded.values()])


def _folded(constants: Sequence[onnx.TensorProto], eps: float) -> tuple[np.ndarray, np.ndarray]:
    """Return weight and bias of a convolution, as float32, that does what it and the batch norm do."""
    weight, *biases, gain, shift, mean, variance = (
        numpy_helper.to_array(each).astype(np.float64) for each in constants
    )
    factor = gain / np.sqrt(variance + eps)
    bias = shift + (sum(biases) - mean) * factor
    weight = weight * factor.reshape(-1, *(1,) * (weight.ndim - 1))
    return weight.astype(np.float32), bias.astype(np.float32)
