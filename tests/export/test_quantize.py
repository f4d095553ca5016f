from collections import Counter

import numpy as np
import onnx
import onnxruntime as ort
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper
from torch import nn

from familiar.core.errors import BadRun
from familiar.export import quantize
from familiar.export.onnx import INPUT_NAME, OUTPUT_NAME, onnx_bytes
from familiar.export.precision import MIN_ELEMENTS_TO_COMPRESS
from familiar.export.quantize import (
    MIN_MIXED_COSINE,
    quantize_all,
    quantize_mixed,
    quantize_weights,
    smallest_sufficient,
)
from familiar.export.rounding import quantize_rows
from familiar.models.catalog import network_spec

pytestmark = pytest.mark.slow

SIZE_PX, DIM, PHOTOS = 32, 16, 40
LAYERS = ("Conv", "Gemm", "MatMul")


def drawn(count, size_px=SIZE_PX, seed=0):
    """Draw photos with patches, so that they still differ after a few strides."""
    patches = np.random.default_rng(seed).standard_normal((count, 3, size_px // 8, size_px // 8))
    return np.ascontiguousarray(patches.repeat(8, 2).repeat(8, 3), np.float32)


@pytest.fixture(scope="module")
def photos():
    return drawn(PHOTOS)


@pytest.fixture(scope="module")
def source():
    """A network with the statistics of such photos, so that embeddings of different photos differ."""
    torch.manual_seed(0)
    network = network_spec("nano").build(SIZE_PX, DIM, 0.0)
    norms = [module for module in network.modules() if isinstance(module, nn.BatchNorm2d)]
    for norm in norms:
        norm.momentum = None
        nn.init.normal_(norm.bias, std=0.3)
    with torch.no_grad():
        for seed in range(3):
            network.train()(torch.from_numpy(drawn(32, seed=seed)))
    return onnx_bytes(network, SIZE_PX)


@pytest.fixture(scope="module")
def int8(source, photos):
    return quantize_all(source, photos)


def embed(model, photos, optimized=None, kernels=True):
    """Embed photos. Without `kernels`, 8-bit layers compute in float32 with rounded weights and activations."""
    options = ort.SessionOptions()
    options.log_severity_level = 3
    if not kernels:
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    if optimized:
        options.optimized_model_filepath = str(optimized)
    session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    return np.asarray(session.run([OUTPUT_NAME], {INPUT_NAME: photos})[0])


def cosines(a, b):
    return np.einsum("ij,ij->i", a.astype(np.float64), b.astype(np.float64))


def graph_of(model):
    return onnx.load_from_string(model).graph


def tensors_of(model):
    return {tensor.name: numpy_helper.to_array(tensor) for tensor in graph_of(model).initializer}


def layers_of(model):
    return [node for node in graph_of(model).node if node.op_type in LAYERS]


def layers_in_8_bits(model):
    """Return the numbers of the layers that compute in 8 bits."""
    made_by = {name: node.op_type for node in graph_of(model).node for name in node.output}
    layers = enumerate(layers_of(model))
    return [number for number, node in layers if made_by[node.input[1]] == "DequantizeLinear"]


def assert_numbers_take_8_bits(model):
    """Check that all but vectors, which are float16, scales and small tensors are stored in 8 bits."""
    graph = graph_of(model)
    scales = {node.input[1] for node in graph.node if node.op_type in ("QuantizeLinear", "DequantizeLinear")}
    for tensor in graph.initializer:
        values = numpy_helper.to_array(tensor)
        if tensor.name in scales or values.size < MIN_ELEMENTS_TO_COMPRESS:
            continue
        scale_of_weights = tensor.name.endswith("s")
        dtype = TensorProto.INT8 if values.ndim > 1 and not scale_of_weights else TensorProto.FLOAT16
        assert tensor.data_type == dtype, (tensor.name, values.shape)


def test_source_separates_photos(source, photos):
    """Otherwise the comparisons below would be meaningless."""
    embeddings = embed(source, photos)
    assert np.quantile(embeddings @ embeddings.T, 0.5) < 0.9


def test_every_layer_computes_in_8_bits(source, int8):
    graph, whole = graph_of(int8), layers_of(source)
    made_by = {name: node for node in graph.node for name in node.output}
    read_by = {name: [node for node in graph.node if name in node.input] for name in made_by}
    layers = layers_of(int8)
    assert [node.op_type for node in layers] == [node.op_type for node in whole]
    assert len(layers) > 20
    for layer in layers:
        values, weights = (made_by[name] for name in layer.input[:2])
        assert values.op_type == weights.op_type == "DequantizeLinear"
        assert made_by[values.input[0]].op_type == "QuantizeLinear"
        after = read_by[layer.output[0]]
        assert [node.op_type for node in after] == ["QuantizeLinear"] or not after, layer.output
    assert_numbers_take_8_bits(int8)
    assert len(int8) < 0.31 * len(source)


def test_steps_and_scales_match_quantize_rows(source, int8):
    """ONNX Runtime finds the same steps in weights that are multiples of them."""
    source_tensors, tensors = tensors_of(source), tensors_of(int8)
    made_by = {name: node for node in graph_of(int8).node for name in node.output}
    for layer, before in zip(layers_of(int8), layers_of(source), strict=True):
        steps, scale = (tensors[name] for name in made_by[layer.input[1]].input)
        expected, expected_scale = quantize_rows(source_tensors[before.input[1]])
        np.testing.assert_array_equal(steps, expected)
        np.testing.assert_allclose(scale, expected_scale.ravel(), rtol=1e-6)


def test_int8_embeddings_are_close_to_source(source, int8, photos):
    unseen = drawn(64, seed=9)
    for seen in (photos, unseen):
        actual = embed(int8, seen, kernels=False)
        np.testing.assert_allclose(np.linalg.norm(actual, axis=1), 1, atol=1e-5)
        assert 0.97 < cosines(actual, embed(source, seen)).mean() < 0.99999
        # Without VNNI, a processor's 8-bit kernels overflow (docs/explanation/export.md): .92 where this was measured.
        assert 0.85 < cosines(embed(int8, seen), embed(source, seen)).mean() < 0.99999


def test_compaction_does_not_change_embeddings(source, photos, monkeypatch):
    """Except for biases, which are float16: with float32 biases the result is ONNX Runtime's, to the bit."""
    monkeypatch.setattr(quantize, "store_weights_as_int8", lambda *_, **__: None)
    compact = quantize_all(source, photos)
    monkeypatch.setattr(quantize, "_shrink", lambda _: None)
    whole = quantize_all(source, photos)
    assert len(compact) < 0.8 * len(whole)
    np.testing.assert_array_equal(embed(compact, photos), embed(whole, photos))


def test_channel_with_tiny_weights_keeps_its_bias(photos):
    """As in squeeze-and-excite: the bias in steps of input times weight is close to the end of int32."""
    model = onnx.load_from_string(small_network(channels=MIN_ELEMENTS_TO_COMPRESS))
    tensors = {tensor.name: tensor for tensor in model.graph.initializer}
    weights, bias = (np.array(numpy_helper.to_array(tensors[name])) for name in ("w1", "b1"))
    weights[:6] *= 1e-6
    bias[:6] = 3.0032434  # larger in float16 by two in ten thousand
    tensors["w1"].CopyFrom(numpy_helper.from_array(weights, "w1"))
    tensors["b1"].CopyFrom(numpy_helper.from_array(bias, "b1"))
    source = model.SerializeToString()
    quantized = quantize_all(source, photos)
    assert cosines(embed(quantized, photos), embed(source, photos)).min() > 0.999


def test_onnx_runtime_uses_integer_kernels(source, int8, photos, tmp_path):
    embed(int8, photos, tmp_path / "optimized.onnx")
    op_types = Counter(node.op_type for node in onnx.load(tmp_path / "optimized.onnx").graph.node)
    convolutions = Counter(node.op_type for node in layers_of(source))["Conv"]
    assert (op_types["QLinearConv"], op_types["Conv"], op_types["FusedConv"]) == (convolutions, 0, 0)


def test_model_contains_no_names_or_metadata(int8):
    model = onnx.load_from_string(int8)
    assert not model.metadata_props
    assert not model.graph.value_info
    assert not any(node.name or node.doc_string for node in model.graph.node)


def test_weight_only_model_is_close_to_source(source, photos):
    model = quantize_weights(source, photos)
    assert not {"QuantizeLinear", "DequantizeLinear"} & {node.op_type for node in graph_of(model).node}
    assert_numbers_take_8_bits(model)
    assert 0.25 * len(source) < len(model) < 0.3 * len(source)
    actual = embed(model, photos)
    np.testing.assert_allclose(np.linalg.norm(actual, axis=1), 1, atol=1e-5)
    assert 0.99 < cosines(actual, embed(source, photos)).mean() < 0.999999


def test_bias_correction_reduces_rounding_error(source, photos, monkeypatch):
    bright = photos + 3
    exact, corrected = embed(source, bright), embed(quantize_weights(source, bright), bright)
    monkeypatch.setattr(quantize, "round_weights", lambda *_: None)
    plain = embed(quantize_weights(source, bright), bright)
    assert 1 - cosines(corrected, exact).mean() < 0.9 * (1 - cosines(plain, exact).mean())


@pytest.mark.exhaustive
@pytest.mark.parametrize("shorten", [quantize_all, quantize_weights])
def test_quantization_is_deterministic_for_same_photos(source, photos, shorten, caplog):
    model = shorten(source, photos)
    assert not caplog.records, "ONNX Runtime's warnings are not passed on to the user"
    assert shorten(source, photos) == model
    assert shorten(source, drawn(PHOTOS, seed=1)) != model


@pytest.mark.parametrize("shorten", [quantize_all, quantize_mixed, quantize_weights])
def test_rejects_too_few_photos(shorten, photos):
    with pytest.raises(BadRun, match=r"8 bits are calibrated on photos .* 31 of them can be read"):
        shorten(small_network(), photos[:31])


def small_network(reach=1.0, dim=8, channels=12):
    """Five layers, of which the second gets channels of a much larger range, with small weights."""
    generator = np.random.default_rng(0)
    far = np.where(np.arange(channels) < 3, reach, 1).astype(np.float32).reshape(-1, 1, 1, 1)

    def numbers(*shape):
        return (generator.standard_normal(shape) / np.sqrt(shape[1])).astype(np.float32)

    weights = [
        numbers(channels, 3, 1, 1) * far,
        numbers(channels, channels, 1, 1) / far.reshape(1, -1, 1, 1),
        numbers(channels, channels, 1, 1),
        numbers(channels, channels, 1, 1),
        numbers(dim, channels),
    ]
    nodes, tensors, last = [], [], INPUT_NAME
    for number, values in enumerate(weights[:-1]):
        nodes.append(helper.make_node("Conv", [last, f"w{number}", f"b{number}"], [f"sum{number}"]))
        nodes.append(helper.make_node("Relu", [f"sum{number}"], [f"out{number}"]))
        bias = np.abs(generator.standard_normal(channels)).astype(np.float32) * (far.ravel() if number == 0 else 1)
        tensors += [numpy_helper.from_array(values, f"w{number}")]
        tensors += [numpy_helper.from_array(bias.astype(np.float32), f"b{number}")]
        last = f"out{number}"
    nodes += [
        helper.make_node("GlobalAveragePool", [last], ["mean"]),
        helper.make_node("Flatten", ["mean"], ["flat"]),
        helper.make_node("Gemm", ["flat", "w", "b"], ["long"], transB=1),
        helper.make_node("LpNormalization", ["long"], [OUTPUT_NAME]),
    ]
    tensors += [
        numpy_helper.from_array(weights[-1], "w"),
        numpy_helper.from_array(np.zeros(dim, np.float32), "b"),
    ]
    graph = helper.make_graph(
        nodes,
        "small",
        [helper.make_tensor_value_info(INPUT_NAME, TensorProto.FLOAT, ["n", 3, SIZE_PX, SIZE_PX])],
        [helper.make_tensor_value_info(OUTPUT_NAME, TensorProto.FLOAT, ["n", dim])],
        tensors,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    onnx.checker.check_model(model)
    return model.SerializeToString()


def test_mixed_keeps_damaging_layers_in_float(photos):
    source = small_network(reach=300)
    exact = embed(source, photos)
    assert cosines(embed(quantize_all(source, photos), photos), exact).mean() < MIN_MIXED_COSINE
    mixed = quantize_mixed(source, photos)
    assert cosines(embed(mixed, photos), exact).mean() >= MIN_MIXED_COSINE
    assert layers_in_8_bits(mixed) == [2, 3, 4]
    assert_numbers_take_8_bits(mixed)


def test_mixed_quantizes_all_layers_when_harmless(photos):
    source = small_network()
    mixed = quantize_mixed(source, photos)
    assert layers_in_8_bits(mixed) == [0, 1, 2, 3, 4]
    assert cosines(embed(mixed, photos), embed(source, photos)).mean() >= MIN_MIXED_COSINE


@pytest.mark.one_case
@pytest.mark.parametrize("min_cosine", [0.999, 0.9999, 2.0])
def test_mixed_keeps_fewest_layers_in_float(photos, monkeypatch, min_cosine):
    """The least sensitive layers are in 8 bits; if the cosine cannot be reached, all but one are in float32."""
    source = small_network(reach=30)
    exact = embed(source, photos)
    with quantize._quantizer(source, photos) as quantizer:
        assert len(quantizer.layers) == 5
        damage = [1 - cosines(embed(quantizer.quantized([name]), photos), exact).mean() for name in quantizer.layers]
        least_first = np.argsort(damage)
        names = [quantizer.layers[number] for number in least_first]
        reached = [cosines(embed(quantizer.quantized(names[:count]), photos), exact).mean() for count in range(1, 6)]
    most = max([count for count, cosine in enumerate(reached, 1) if cosine >= min_cosine], default=1)
    monkeypatch.setattr(quantize, "MIN_MIXED_COSINE", min_cosine)
    assert layers_in_8_bits(quantize_mixed(source, photos)) == sorted(least_first[:most])


@given(st.integers(0, 60), st.integers(0, 60))
def test_fewest_returns_minimum_in_logarithmic_calls(most, needed):
    counts = []

    def enough(count):
        counts.append(count)
        return count >= needed

    assert smallest_sufficient(most, enough) == min(most, needed)
    assert most not in counts
    assert len(counts) <= most.bit_length()


@pytest.mark.exhaustive
def test_mixed_network_is_accurate_and_deterministic(source, photos):
    mixed = quantize_mixed(source, photos)
    layers = layers_in_8_bits(mixed)
    assert 0 < len(layers) <= len(layers_of(source))
    assert cosines(embed(mixed, photos), embed(source, photos)).mean() >= MIN_MIXED_COSINE
    assert_numbers_take_8_bits(mixed)
    assert quantize_mixed(source, photos) == mixed
