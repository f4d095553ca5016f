import numpy as np
import onnx
import onnxruntime as ort
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from familiar.core.errors import ParityFailed
from familiar.export.onnx import onnx_bytes
from familiar.export.parity import embed_with_export, embed_with_source, require_parity
from familiar.export.precision import (
    MIN_ELEMENTS_TO_COMPRESS,
    store_weights_as_float16,
    store_weights_as_int4,
    store_weights_as_int8,
    to_float16,
)
from familiar.export.rounding import quantize_rows
from familiar.models.catalog import network_spec


def model_of(node, shape, **tensors):
    """Build the smallest possible model: one node from "x", of this shape, to "y"."""
    graph = helper.make_graph(
        [node],
        "one",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [None] * len(shape))],
        [numpy_helper.from_array(values, name) for name, values in tensors.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)


def product_with(weights):
    """y = x W."""
    return model_of(helper.make_node("MatMul", ["x", "w"], ["y"]), ["n", len(weights)], w=weights)


def run(model, x):
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, {"x": x})[0]


@given(st.integers(0, 2**32 - 1), st.floats(1e-3, 1e3))
def test_halved_weights_compute_with_nearest_float16(seed, scale):
    generator = np.random.default_rng(seed)
    weights = (generator.standard_normal((8, 5)) * scale).astype(np.float32)
    x = generator.standard_normal((3, 8)).astype(np.float32)
    model = product_with(weights)
    store_weights_as_float16(model)
    onnx.checker.check_model(model)
    expected = x @ weights.astype(np.float16).astype(np.float32)
    np.testing.assert_allclose(run(model, x), expected, rtol=1e-5, atol=1e-5 * scale)
    assert [tensor.data_type for tensor in model.graph.initializer] == [TensorProto.FLOAT16]


def test_small_and_integer_tensors_are_unchanged():
    for shorten in (store_weights_as_float16, store_weights_as_int8):
        few = product_with(np.ones((MIN_ELEMENTS_TO_COMPRESS - 1, 1), np.float32))
        before = few.SerializeToString()
        shorten(few)
        assert few.SerializeToString() == before
        enough = product_with(np.ones((MIN_ELEMENTS_TO_COMPRESS, 1), np.float32))
        shorten(enough)
        assert few.graph.node != enough.graph.node
    for shorten, kind in ((store_weights_as_float16, TensorProto.FLOAT16), (store_weights_as_int8, TensorProto.INT8)):
        whole = product_with(np.ones((8, 8), np.float32))
        whole.graph.initializer.append(numpy_helper.from_array(np.arange(100).reshape(10, 10), "shape"))
        shorten(whole)
        weights, shape, *_ = whole.graph.initializer
        assert (weights.data_type, shape.data_type, shape.name) == (kind, TensorProto.INT64, "shape")


@pytest.mark.parametrize("value", [65_520.0, -1e6, np.inf, np.nan])
def test_rejects_weight_beyond_float16(value):
    weights = np.ones((8, 8), np.float32)
    weights[3, 4] = value
    with pytest.raises(ParityFailed, match=r"the weight w reaches .* nothing was written\. Export it in float32"):
        store_weights_as_float16(product_with(weights))


def test_accepts_largest_float16_weight():
    weights = np.full((8, 8), 65_504.0, np.float32)
    model = product_with(weights)
    store_weights_as_float16(model)
    assert np.array_equal(run(model, np.eye(8, dtype=np.float32)), weights)


@pytest.mark.exhaustive
def test_float16_and_8_bit_networks_stay_close_to_source():
    torch.manual_seed(0)
    network = network_spec("simple_v2").build(48, 16, 0.0, blocks=4).eval()
    for norm in network.modules():
        if isinstance(norm, torch.nn.BatchNorm2d):
            norm.running_mean.normal_(std=0.1)
            norm.running_var.uniform_(0.5, 2)
            norm.bias.data.normal_(std=0.1)
    crops = [torch.randn(4, 3, 48, 48), torch.randn(3, 3, 48, 48)]
    whole = onnx_bytes(network, 48)
    half = to_float16(whole)
    assert len(half) < 0.51 * len(whole)
    exact, source, halved = (
        embed_with_export(whole, crops),
        embed_with_source(network, crops),
        embed_with_export(half, crops),
    )
    parity = require_parity(source, halved, "float16")
    assert 0 < parity.max_difference < 1e-2
    assert not np.array_equal(exact, halved)
    with pytest.raises(ParityFailed):
        require_parity(source, halved + 1e-3, "float32")
    with pytest.raises(ParityFailed):
        require_parity(source, np.roll(halved, 1, axis=0), "float16")
    quarter = onnx.load_from_string(whole)
    store_weights_as_int8(quarter)
    assert len(quarter.SerializeToString()) < 0.27 * len(whole)
    eight = embed_with_export(quarter.SerializeToString(), crops)
    assert 0.99 < require_parity(source, eight, "int8-weights").min_cosine < 0.99999


def layers(generator):
    """Return (a model of one layer, its weights and bias) for each kind of layer."""

    def numbers(*shape):
        return generator.standard_normal(shape).astype(np.float32)

    convolution = helper.make_node("Conv", ["x", "w", "b"], ["y"], kernel_shape=[3, 3], pads=[1, 1, 1, 1])
    depthwise = helper.make_node("Conv", ["x", "w", "b"], ["y"], kernel_shape=[3, 3], strides=[2, 2], group=20)
    transposed = helper.make_node("Gemm", ["x", "w", "b"], ["y"], transB=1)
    return {
        "convolution": (convolution, ["n", 4, 6, 6], numbers(20, 4, 3, 3), numbers(20)),
        "depthwise": (depthwise, ["n", 20, 7, 7], numbers(20, 1, 3, 3), numbers(20)),
        "gemm": (helper.make_node("Gemm", ["x", "w", "b"], ["y"]), ["n", 6], numbers(6, 18), numbers(18)),
        "gemm transposed": (transposed, ["n", 6], numbers(18, 6), numbers(18)),
        "product": (helper.make_node("MatMul", ["x", "w"], ["y"]), ["n", 6], numbers(6, 18), None),
    }


@pytest.mark.parametrize("kind", ["convolution", "depthwise", "gemm", "gemm transposed", "product"])
def test_8_bit_weights_compute_as_steps_times_scale(kind):
    generator = np.random.default_rng(0)
    node, shape, weights, bias = layers(generator)[kind]
    tensors = {"w": weights} | ({} if bias is None else {"b": bias})
    model = model_of(node, shape, **tensors)
    store_weights_as_int8(model)
    onnx.checker.check_model(model)
    steps, scale = quantize_rows(weights)
    multiplied = {"w": steps.astype(np.float32) * scale.astype(np.float32)}
    assert np.abs(multiplied["w"] - weights).max() > 1e-3
    if bias is not None:
        multiplied["b"] = bias.astype(np.float16).astype(np.float32)
    x = generator.standard_normal((3, *shape[1:])).astype(np.float32)
    np.testing.assert_array_equal(run(model, x), run(model_of(node, shape, **multiplied), x))
    stored = {tensor.name: tensor.data_type for tensor in model.graph.initializer}
    weight_types = {"wq": TensorProto.INT8, "ws": TensorProto.FLOAT16}
    assert stored == weight_types | ({} if bias is None else {"bh": TensorProto.FLOAT16})


@pytest.mark.parametrize(("rows", "columns"), [(3, 9), (4, 6), (1, 8)])  # an odd and an even number of weights
def test_4_bit_weights_compute_as_steps_times_scale(rows, columns):
    generator = np.random.default_rng(0)
    steps = generator.integers(-8, 8, (rows, columns, 1, 1)).astype(np.int8)
    steps.flat[:2] = -8, 7
    scale = generator.uniform(0.01, 1, (rows, 1, 1, 1)).astype(np.float16)
    kernels = generator.standard_normal((rows, 1, 3, 3)).astype(np.float32)
    bias = generator.standard_normal(rows).astype(np.float32)
    pointwise = helper.make_node("Conv", ["x", "w"], ["z"])
    depthwise = helper.make_node("Conv", ["z", "k", "b"], ["y"], group=rows, pads=[1, 1, 1, 1])

    def model_with(weights):
        model = model_of(pointwise, ["n", columns, 4, 4], w=weights, k=kernels, b=bias)
        model.graph.node.append(depthwise)
        return model

    quantized = model_with(generator.standard_normal((rows, columns, 1, 1)).astype(np.float32))
    store_weights_as_int4(quantized, {"w": (steps, scale)})
    onnx.checker.check_model(quantized)
    types = {tensor.name: tensor.data_type for tensor in quantized.graph.initializer}
    assert types["wq"] == TensorProto.INT4
    stored = next(tensor for tensor in quantized.graph.initializer if tensor.name == "wq")
    assert len(stored.raw_data) == (rows * columns + 1) // 2
    np.testing.assert_array_equal(numpy_helper.to_array(stored).astype(np.int8), steps)
    expected = model_with(steps.astype(np.float32) * scale.astype(np.float32))
    store_weights_as_int8(expected, excluded={"w"})
    x = generator.standard_normal((2, columns, 4, 4)).astype(np.float32)
    np.testing.assert_allclose(run(quantized, x), run(expected, x), rtol=1e-5, atol=1e-4)


def test_without_matrices_4_bit_weights_are_8_bit_weights():
    node, shape, weights, bias = layers(np.random.default_rng(0))["convolution"]
    four, eight = (model_of(node, shape, w=weights, b=bias) for _ in range(2))
    store_weights_as_int4(four, {})
    store_weights_as_int8(eight)
    assert four == eight


def test_named_tensors_are_unchanged():
    generator = np.random.default_rng(0)
    node, shape, weights, bias = layers(generator)["convolution"]
    for excluded, types in (
        ({"w"}, {"w": TensorProto.FLOAT, "bh": TensorProto.FLOAT16}),
        ({"b"}, {"wq": TensorProto.INT8, "ws": TensorProto.FLOAT16, "b": TensorProto.FLOAT}),
    ):
        model = model_of(node, shape, w=weights, b=bias)
        store_weights_as_int8(model, excluded)
        onnx.checker.check_model(model)
        assert {tensor.name: tensor.data_type for tensor in model.graph.initializer} == types
    model = model_of(node, shape, w=weights, b=bias)
    store_weights_as_int8(model, {"w", "b"})
    assert model == model_of(node, shape, w=weights, b=bias)


@pytest.mark.parametrize("shorten", [store_weights_as_float16, store_weights_as_int8])
def test_tensor_names_are_unique(shorten):
    """Also with so many that hexadecimal numbers use all their letters."""
    names = [f"{number:x}" for number in range(0xE0, 0x130)]
    nodes = [
        helper.make_node("MatMul", [before, name], [f"{name}0" if name != names[-1] else "y"])
        for before, name in zip(["x", *(f"{name}0" for name in names)], names, strict=False)
    ]
    identity = np.eye(4, dtype=np.float32)
    model = model_of(nodes[0], ["n", 4], **dict.fromkeys(names, identity))
    model.graph.node.extend(nodes[1:])
    shorten(model)
    onnx.checker.check_model(model, full_check=True)
    names = [tensor.name for tensor in model.graph.initializer]
    names += [name for node in model.graph.node for name in node.output]
    assert len(set(names)) == len(names)
    x = np.arange(8, dtype=np.float32).reshape(2, 4)
    np.testing.assert_allclose(run(model, x), x, rtol=0.1)


@pytest.mark.parametrize("value", [65_520.0, np.nan])
def test_8_bit_weights_reject_values_beyond_float16(value):
    node, shape, weights, bias = layers(np.random.default_rng(0))["convolution"]
    for name, spoilt in (("w", weights), ("b", bias)):
        before = spoilt.flat[3]
        spoilt.flat[3] = value
        with pytest.raises(ParityFailed, match=f"the weight {name} reaches .* nothing was written"):
            store_weights_as_int8(model_of(node, shape, w=weights, b=bias))
        spoilt.flat[3] = before
