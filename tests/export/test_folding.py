"""Batch norms folded into convolutions, checked by ONNX Runtime on both graphs."""

from collections.abc import Sequence

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

from familiar.export.folding import fold_batch_norms

STATISTICS = ("gain", "shift", "mean", "variance")
RNG = np.random.default_rng(0)
CONSTANTS = {
    "weight": RNG.normal(size=(4, 3, 3, 3)),
    "bias": RNG.normal(size=4),
    "gain": RNG.normal(size=4),
    "shift": RNG.normal(size=4),
    "mean": RNG.normal(size=4),
    "variance": RNG.uniform(0.1, 3, 4),
}
IMAGES = RNG.normal(size=(2, 3, 8, 8)).astype(np.float32)


def model_of(nodes: Sequence[onnx.NodeProto]) -> onnx.ModelProto:
    tensors = [numpy_helper.from_array(values.astype(np.float32), name) for name, values in CONSTANTS.items()]
    images, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in ("images", "y"))
    graph = helper.make_graph(list(nodes), "graph", [images], [y], tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)


def layer(source: str, output: str, *constants: str, epsilon: float = 1e-2) -> list[onnx.NodeProto]:
    convolution = helper.make_node("Conv", [source, *constants], [f"{output}-before"])
    norm = helper.make_node("BatchNormalization", [f"{output}-before", *STATISTICS], [output], epsilon=epsilon)
    return [convolution, norm]


def run(model: onnx.ModelProto) -> np.ndarray:
    (y,) = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"]).run(
        None, {"images": IMAGES}
    )
    return np.asarray(y)


def operators(model: onnx.ModelProto) -> list[str]:
    return [node.op_type for node in model.graph.node]


@pytest.mark.parametrize("constants", [("weight",), ("weight", "bias")])
def test_folded_convolution_computes_what_both_computed(constants: tuple[str, ...]) -> None:
    model = model_of(layer("images", "y", *constants))
    before = run(model)
    fold_batch_norms(model)
    assert operators(model) == ["Conv"]
    assert len(model.graph.initializer) == 2
    np.testing.assert_allclose(run(model), before, atol=1e-5)


def test_folded_weights_equal_the_formula() -> None:
    model = model_of(layer("images", "y", "weight", "bias", epsilon=0.5))
    fold_batch_norms(model)
    weight, bias = (numpy_helper.to_array(tensor) for tensor in model.graph.initializer)
    c = CONSTANTS
    for channel in range(4):
        factor = c["gain"][channel] / (c["variance"][channel] + 0.5) ** 0.5
        np.testing.assert_allclose(weight[channel], c["weight"][channel] * factor, rtol=1e-6)
        expected = (c["bias"][channel] - c["mean"][channel]) * factor + c["shift"][channel]
        np.testing.assert_allclose(bias[channel], expected, rtol=1e-5)


def test_weights_of_several_views_stay_stored_once() -> None:
    smaller = helper.make_node("MaxPool", ["images"], ["smaller"], kernel_shape=[2, 2], strides=[2, 2])
    means = [helper.make_node("GlobalAveragePool", [name], [f"{name}-mean"]) for name in ("a", "b")]
    total = helper.make_node("Add", ["a-mean", "b-mean"], ["y"])
    model = model_of([smaller, *layer("images", "a", "weight"), *layer("smaller", "b", "weight"), *means, total])
    before = run(model)
    fold_batch_norms(model)
    assert operators(model).count("BatchNormalization") == 0
    assert len(model.graph.initializer) == 2
    np.testing.assert_allclose(run(model), before, atol=1e-5)


@pytest.mark.parametrize(("gain", "epsilon"), [("shift", 1e-2), ("gain", 2.0)])
def test_two_norms_of_one_weight_get_a_weight_each(gain: str, epsilon: float) -> None:
    second = layer("images", "b", "weight", epsilon=epsilon)
    second[1].input[1] = gain
    model = model_of([*layer("images", "a", "weight"), *second, helper.make_node("Add", ["a", "b"], ["y"])])
    before = run(model)
    fold_batch_norms(model)
    np.testing.assert_allclose(run(model), before, atol=1e-5)


def test_leaves_convolution_alone_whose_output_has_another_use() -> None:
    model = model_of([*layer("images", "a", "weight"), helper.make_node("Add", ["a", "a-before"], ["y"])])
    before = run(model)
    fold_batch_norms(model)
    assert operators(model) == ["Conv", "BatchNormalization", "Add"]
    np.testing.assert_array_equal(run(model), before)
