"""The input of a bundle's graph: crops as pixels, which nodes of the graph standardize."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from familiar.conversion.graph import Layout, free_name
from familiar.photos.preprocessing import Preprocessing

PIXELS_NAME = "crops"


def take_pixels(model: onnx.ModelProto, preprocessing: Preprocessing, layout: Layout = "NCHW") -> None:
    """Change a network of standardized images to one of crops, uint8 "n s s 3" in RGB.

    Args:
        model: has one input, float32 or float16; changed in place.
        preprocessing: how the network's input was made of crops.
        layout: order of the axes of the network's input; "NCHW" is channels first.
    """
    (old,) = model.graph.input
    element_type = old.type.tensor_type.elem_type
    to_float = np.float16 if element_type == TensorProto.FLOAT16 else np.float32
    taken = {name for node in model.graph.node for name in (*node.input, *node.output)}
    taken |= {tensor.name for tensor in model.graph.initializer} | {output.name for output in model.graph.output}
    nodes: list[onnx.NodeProto] = []
    last = free_name(PIXELS_NAME, taken)
    size_px = preprocessing.size_px
    pixels = helper.make_tensor_value_info(last, TensorProto.UINT8, ["n", size_px, size_px, 3])

    def add(operator: str, values: Sequence[np.ndarray] = (), **attributes: Any) -> None:
        nonlocal last
        names = [free_name(f"{PIXELS_NAME}_{operator}_{number}", taken) for number in range(len(values))]
        model.graph.initializer.extend(map(numpy_helper.from_array, values, names))
        output = free_name(f"{PIXELS_NAME}_{operator}", taken)
        nodes.append(helper.make_node(operator, [last, *names], [output], **attributes))
        last = output

    if preprocessing.color_order == "BGR":
        add("Gather", [np.array([2, 1, 0])], axis=3)
    if layout == "NCHW":
        add("Transpose", perm=[0, 3, 1, 2])  # while a pixel is one byte
    add("Cast", to=TensorProto.FLOAT)
    # (x / 255 - mean) / std, as one product and one sum.
    shape = (1, 3, 1, 1) if layout == "NCHW" else (1, 1, 1, 3)
    mean, std = (np.array(values, np.float64).reshape(shape) for values in (preprocessing.mean, preprocessing.std))
    scale, shift = 1 / (255 * std), -mean / std
    if not np.allclose(scale, 1):
        add("Mul", [scale.astype(np.float32)])
    if shift.any():
        add("Add", [shift.astype(np.float32)])
    if to_float is np.float16:
        add("Cast", to=TensorProto.FLOAT16)
    nodes[-1].output[0] = old.name
    model.graph.input[0].CopyFrom(pixels)
    for node in reversed(nodes):
        model.graph.node.insert(0, node)
