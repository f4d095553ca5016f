import numpy as np
import onnx
import onnxruntime as ort
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from familiar.core.errors import ParityFailed
from familiar.export.onnx import onnx_bytes
from familiar.export.parity import embed_with_both, require_parity
from familiar.export.precision import FEWEST_WORTH_HALVING, halve_weights
from familiar.models.catalog import network_spec


def product_with(weights):
    """y = x W, as small as a model can be."""
    inputs, outputs = weights.shape
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        "product",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", inputs])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", outputs])],
        [numpy_helper.from_array(weights, "w")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)


def run(model, x):
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, {"x": x})[0]


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 2**32 - 1), st.floats(1e-3, 1e3))
def test_it_computes_with_the_nearest_float16_in_float32(seed, scale):
    generator = np.random.default_rng(seed)
    weights = (generator.standard_normal((8, 5)) * scale).astype(np.float32)
    x = generator.standard_normal((3, 8)).astype(np.float32)
    model = product_with(weights)
    halve_weights(model)
    onnx.checker.check_model(model)
    wanted = x @ weights.astype(np.float16).astype(np.float32)
    np.testing.assert_allclose(run(model, x), wanted, rtol=1e-5, atol=1e-5 * scale)
    assert [tensor.data_type for tensor in model.graph.initializer] == [TensorProto.FLOAT16]


def test_a_few_numbers_and_whole_numbers_stay_as_they_are():
    few = product_with(np.ones((FEWEST_WORTH_HALVING - 1, 1), np.float32))
    before = few.SerializeToString()
    halve_weights(few)
    assert few.SerializeToString() == before
    whole = product_with(np.ones((8, 8), np.float32))
    whole.graph.initializer.append(numpy_helper.from_array(np.arange(100), "shape"))
    halve_weights(whole)
    assert [tensor.data_type for tensor in whole.graph.initializer] == [
        TensorProto.FLOAT16,
        TensorProto.INT64,
    ]


@pytest.mark.parametrize("value", [65_520.0, -1e6, np.inf, np.nan])
def test_a_weight_beyond_float16_is_refused(value):
    weights = np.ones((8, 8), np.float32)
    weights[3, 4] = value
    with pytest.raises(
        ParityFailed, match=r"the weight w reaches .* nothing was written\. Export it in float32"
    ):
        halve_weights(product_with(weights))


def test_the_largest_weight_that_fits_is_kept():
    weights = np.full((8, 8), 65_504.0, np.float32)
    model = product_with(weights)
    halve_weights(model)
    assert np.array_equal(run(model, np.eye(8, dtype=np.float32)), weights)


def test_a_network_at_half_the_bytes_computes_the_same():
    torch.manual_seed(0)
    network = network_spec("simple_v2").build(48, 16, 0.0, blocks=4).eval()
    for norm in network.modules():
        if isinstance(norm, torch.nn.BatchNorm2d):
            norm.running_mean.normal_(std=0.1)
            norm.running_var.uniform_(0.5, 2)
            norm.bias.data.normal_(std=0.1)
    crops = [torch.randn(4, 3, 48, 48), torch.randn(3, 3, 48, 48)]
    whole, half = (onnx_bytes(network, 48, precision) for precision in ("float32", "float16"))
    assert len(half) < 0.51 * len(whole)
    _, exact = embed_with_both(network, whole, crops)
    source, halved = embed_with_both(network, half, crops)
    parity = require_parity(source, halved, "float16")
    assert 0 < parity.max_difference < 1e-2
    assert not np.array_equal(exact, halved)
    with pytest.raises(ParityFailed):
        require_parity(source, halved + 1e-3, "float32")
    with pytest.raises(ParityFailed):
        require_parity(source, np.roll(halved, 1, axis=0), "float16")
