"""Networks for phones: the same embeddings, by operators that ONNX Runtime's checker gives to one processor."""

import logging
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.tools.mobile_helpers import usability_checker
from onnxruntime.tools.onnx_model_utils import ModelProtoWithShapeInfo, optimize_model

from familiar.core.errors import BadBundle
from familiar.embedding.bundle import load_bundle, network_bytes
from familiar.embedding.embedder import Embedder
from familiar.embedding.zoo import shipped_bundles
from familiar.export.phone import fix_batch_size, serialize_for_phones

pytestmark = pytest.mark.slow

MOST_BYTES = {"pet-mobile": 3_500_000, "pet-nano": 560_000, "person-mobile": 3_700_000, "person-nano": 320_000}


@pytest.mark.parametrize("name", shipped_bundles())
def test_shipped_bundle_runs_whole_on_a_phones_processor(name: str, tmp_path: Path):
    output = write_for_phones(name, 1, tmp_path)
    assert output.stat().st_size <= MOST_BYTES[name]
    optimized = tmp_path / "optimized.onnx"
    optimize_model(output, optimized, use_external_initializers=False)
    model = ModelProtoWithShapeInfo(optimized).model_with_shape_info
    config = "coreml_supported_mlprogram_ops.md"
    for partitions in (
        usability_checker.check_nnapi_partitions(model, True),
        usability_checker.check_coreml_partitions(model, True, config),
    ):
        assert partitions.num_nodes == partitions.num_supported_nodes
        assert partitions.num_partitions == 1
    assert usability_checker.analyze_model(output, skip_optimize=False, logger=logging.getLogger("unread"))

    before, after = Embedder(name, threads=1), Embedder(output, threads=1)
    side = before.metadata.preprocessing.size_px
    crops = np.random.default_rng(0).integers(0, 256, (3, side, side, 3), np.uint8)
    crops[1] //= 8
    np.testing.assert_allclose(after.run(crops), before.run(crops), atol=1e-5)
    assert after.metadata.space == before.metadata.space
    assert load_bundle(output).file_id != load_bundle(name).file_id


def test_bundle_of_batches_of_three_takes_any_number_of_crops(tmp_path: Path):
    output = write_for_phones("person-nano", 3, tmp_path)
    crops = np.random.default_rng(0).integers(0, 256, (7, 112, 112, 3), np.uint8)
    expected = Embedder("person-nano", threads=1).run(crops)
    for count in (1, 3, 7):
        rows = Embedder(output, threads=2).run(crops[:count])
        np.testing.assert_allclose(rows, expected[:count], atol=1e-5)


VALUES = np.random.default_rng(0).normal(scale=4, size=(2, 3, 6, 4)).astype(np.float32)
AXES = np.array([1, 3])


@pytest.mark.parametrize(
    ("operator", "constants", "attributes", "absent"),
    [
        ("Clip", [np.float32(-1)], {}, "Clip"),
        ("Clip", [np.float32(-1), np.float32(2)], {}, "Max"),
        ("HardSigmoid", [], {"alpha": 1 / 6}, "HardSigmoid"),
        ("HardSigmoid", [], {}, "HardSigmoid"),
        ("HardSigmoid", [], {"alpha": 0.25, "beta": 0.1}, "HardSigmoid"),
        ("HardSwish", [], {}, "HardSwish"),
        ("LpNormalization", [], {"axis": 1}, "LpNormalization"),
        ("ReduceL2", [AXES], {}, "ReduceL2"),
        ("ReduceL2", [AXES], {"keepdims": 0}, "ReduceL2"),
        ("ReduceSum", [AXES], {}, "ReduceSum"),
        ("ReduceSum", [np.array([-1])], {"keepdims": 0}, "ReduceSum"),
    ],
)
@pytest.mark.parametrize("values", [VALUES, VALUES * 1e-6, VALUES * 1e6], ids=["usual", "tiny", "huge"])
def test_operator_is_replaced_by_what_computes_the_same(operator, constants, attributes, absent, values):
    names = [f"constant{number}" for number in range(len(constants))]
    node = helper.make_node(operator, ["x", *names], ["y"], **attributes)
    model = network([node], dict(zip(names, constants, strict=True)))
    changed = fix_batch_size(model, len(values))
    assert absent not in operators(changed)
    expected = run(model, values)
    np.testing.assert_allclose(run(changed, values), expected, rtol=1e-5, atol=1e-6 * np.abs(expected).max())


@pytest.mark.parametrize("scale", [1.5, 0.5])
def test_resize_to_a_computed_size_has_constant_factors(scale):
    size = np.array([int(6 * scale), int(4 * scale)])
    nodes = [
        helper.make_node("Shape", ["x"], ["shape"], end=2),
        helper.make_node("Concat", ["shape", "size"], ["whole"], axis=0),
        helper.make_node("Resize", ["x", "", "", "whole"], ["y"], mode="linear"),
    ]
    model = network(nodes, {"size": size})
    changed = fix_batch_size(model, 2)
    assert operators(changed) == ["Resize"]
    np.testing.assert_allclose(run(changed, VALUES), run(model, VALUES), atol=1e-6)


@pytest.mark.parametrize(
    ("operator", "inputs", "is_needed"),
    [("Add", ["wide", "x"], False), ("Add", ["wide", "mean"], True), ("Relu", ["wide"], True)],
)
def test_expansion_stays_unless_another_input_has_its_shape(operator, inputs, is_needed):
    nodes = [
        helper.make_node("ReduceMean", ["x", "axes"], ["mean"]),
        helper.make_node("Expand", ["mean", "shape"], ["wide"]),
        helper.make_node(operator, inputs, ["y"]),
    ]
    model = network(nodes, {"axes": np.array([3]), "shape": np.array([1, 1, 1, VALUES.shape[3]])})
    changed = fix_batch_size(model, 2)
    assert ("Expand" in operators(changed)) is is_needed
    np.testing.assert_array_equal(run(changed, VALUES), run(model, VALUES))


def test_network_that_computes_in_8_bits_is_refused():
    constants = {"scale": np.float32(0.1), "zero": np.uint8(0)}
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "scale", "zero"], ["bytes"]),
        helper.make_node("DequantizeLinear", ["bytes", "scale", "zero"], ["y"]),
    ]
    with pytest.raises(BadBundle, match="export the run with --precision float16 or int8-weights"):
        fix_batch_size(network(nodes, constants), 1)


def test_shape_that_depends_on_values_is_refused():
    nodes = [
        helper.make_node("NonZero", ["x"], ["places"]),
        helper.make_node("Cast", ["places"], ["numbers"], to=TensorProto.FLOAT),
        helper.make_node("ReduceSum", ["numbers", "axes"], ["y"]),
    ]
    with pytest.raises(BadBundle, match="'numbers' depends on what it computes"):
        fix_batch_size(network(nodes, {"axes": np.array([1])}), VALUES.ndim)


def write_for_phones(name: str, batch_size: int, folder: Path) -> Path:
    bundle = load_bundle(name)
    output = folder / "phone.onnx"
    output.write_bytes(serialize_for_phones(network_bytes(bundle), bundle.metadata, batch_size, name))
    return output


def network(nodes: list[onnx.NodeProto], constants: dict[str, np.ndarray]) -> bytes:
    taken = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", *VALUES.shape[1:]])
    returned = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    tensors = [numpy_helper.from_array(np.asarray(values), name) for name, values in constants.items()]
    graph = helper.make_graph(nodes, "graph", [taken], [returned], tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    return onnx.shape_inference.infer_shapes(model).SerializeToString()


def operators(model: bytes) -> list[str]:
    return [node.op_type for node in onnx.load_from_string(model).graph.node]


def run(model: bytes, values: np.ndarray) -> np.ndarray:
    (result,) = ort.InferenceSession(model, providers=["CPUExecutionProvider"]).run(None, {"x": values})
    return np.asarray(result)
