"""Small ONNX networks as others export them."""

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

SIZE_PX, DIM = 32, 8


@dataclass
class Network:
    """A convolution, its positive part, the mean of 4 x 4 regions and a projection; `build` makes ONNX of it."""

    batch: int | str = "n"
    size_px: int | str = SIZE_PX
    layout: str = "NCHW"
    element_type: int = TensorProto.FLOAT
    opset: int = 18
    unit: bool = False
    more_inputs: list[str] = field(default_factory=list)
    initializers_as_inputs: bool = False
    reshape: bool = False
    second_output: bool = False

    def build(self) -> onnx.ModelProto:
        rng = np.random.default_rng(0)
        dtype = np.float16 if self.element_type == TensorProto.FLOAT16 else np.float32
        weights = {
            "kernel": rng.normal(size=(6, 3, 3, 3)),
            "project": rng.normal(size=(6 * 16, DIM)) / 10,
            "bias": rng.normal(size=DIM) / 10,
        }
        constants = [numpy_helper.from_array(values.astype(dtype), name) for name, values in weights.items()]
        first = "image" if self.layout == "NCHW" else "planes"
        nodes = [] if first == "image" else [helper.make_node("Transpose", ["image"], ["planes"], perm=[0, 3, 1, 2])]
        nodes += [
            helper.make_node("Conv", [first, "kernel"], ["maps"], pads=[1, 1, 1, 1]),
            helper.make_node("Relu", ["maps"], ["lit"]),
            helper.make_node("AveragePool", ["lit"], ["means"], kernel_shape=[8, 8], strides=[8, 8]),
        ]
        if self.reshape:  # with the batch size as a constant, as some exporters write it
            constants.append(numpy_helper.from_array(np.array([self.batch, 6 * 16]), "shape"))
            nodes.append(helper.make_node("Reshape", ["means", "shape"], ["flat"]))
        else:
            nodes.append(helper.make_node("Flatten", ["means"], ["flat"]))
        nodes.append(helper.make_node("Gemm", ["flat", "project", "bias"], ["raw"]))
        last = "raw"
        if self.unit:
            nodes.append(helper.make_node("LpNormalization", ["raw"], ["unit"], axis=1))
            last = "unit"
        side = self.size_px
        shape = [self.batch, 3, side, side] if self.layout == "NCHW" else [self.batch, side, side, 3]
        value = helper.make_tensor_value_info
        inputs = [value("image", self.element_type, shape)]
        inputs += [value(name, TensorProto.FLOAT, [1]) for name in self.more_inputs]
        if self.initializers_as_inputs:
            inputs += [value(each.name, each.data_type, each.dims) for each in constants]
        outputs = [value(last, self.element_type, [self.batch, DIM])]
        if self.second_output:
            outputs.insert(0, value("means", self.element_type, [self.batch, 6, 4, 4]))
        graph = helper.make_graph(nodes, "network", inputs, outputs, constants)
        ir_version = 3 if self.initializers_as_inputs else 8
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=ir_version)

    def save(self, path: Path) -> Path:
        onnx.save(self.build(), path)
        return path
