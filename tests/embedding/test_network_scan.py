"""What `scan_network` sees in networks made with onnx, and what is refused in bundles."""

from collections.abc import Callable
from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

from familiar.core.errors import BadBundle
from familiar.core.protobuf import encode_field
from familiar.embedding import network_scan
from familiar.embedding.bundle import load_bundle, network_bytes, serialize_bundle
from familiar.embedding.network_scan import MAX_DEPTH, check_network, scan_network
from familiar.embedding.zoo import shipped_bundles
from support.foreign_network import Network

Change = Callable[[onnx.ModelProto], object]


def external_tensor(location: str = "secret.bin") -> TensorProto:
    tensor = TensorProto(name="kernel", data_type=TensorProto.FLOAT, dims=[1], data_location=TensorProto.EXTERNAL)
    tensor.external_data.add(key="location", value=location)
    return tensor


def graph(*nodes: onnx.NodeProto, **more: list[onnx.TensorProto]) -> onnx.GraphProto:
    return helper.make_graph(list(nodes), "inner", [], [], **more)


def nested(depth: int) -> onnx.NodeProto:
    node = helper.make_node("Relu", ["x"], ["y"])
    for _ in range(depth):
        node = helper.make_node("If", ["x"], ["y"], then_branch=graph(node))
    return node


IN_OTHER_FILES: dict[str, Change] = {
    "an initializer": lambda model: model.graph.initializer.append(external_tensor()),
    "a constant": lambda model: model.graph.node.append(
        helper.make_node("Constant", [], ["c"], value=external_tensor())
    ),
    "tensors of an attribute": lambda model: model.graph.node.append(
        helper.make_node("Custom", [], ["c"], values=[external_tensor()])
    ),
    "an initializer of an inner graph": lambda model: model.graph.node.append(
        helper.make_node("If", ["x"], ["y"], then_branch=graph(nested(1), initializer=[external_tensor()]))
    ),
    "a sparse initializer": lambda model: model.graph.sparse_initializer.append(
        onnx.SparseTensorProto(values=external_tensor(), dims=[1])
    ),
    "the indices of a sparse constant": lambda model: model.graph.node.append(
        helper.make_node(
            "Constant", [], ["c"], sparse_value=onnx.SparseTensorProto(indices=external_tensor(), dims=[1])
        )
    ),
}
REFUSED: dict[str, tuple[Change, str]] = {
    "Loop": (
        lambda model: model.graph.node.append(helper.make_node("Loop", ["n"], ["y"], body=graph())),
        r"repeat a part of it without a bound \(Loop\)",
    ),
    "Scan in a branch": (
        lambda model: model.graph.node.append(
            helper.make_node(
                "If", ["x"], ["y"], else_branch=graph(helper.make_node("Scan", ["x"], ["y"], body=graph()))
            )
        ),
        r"repeat a part of it without a bound \(Scan\)",
    ),
    "EPContext": (
        lambda model: model.graph.node.append(helper.make_node("EPContext", [], ["y"], domain="com.microsoft")),
        r"open other files \(EPContext\)",
    ),
    "functions": (
        lambda model: model.functions.append(helper.make_function("own", "twice", ["x"], ["y"], [nested(0)], [])),
        "defines operators of its own",
    ),
    "training": (lambda model: model.training_info.append(onnx.TrainingInfoProto()), "defines operators of its own"),
    "depth": (lambda model: model.graph.node.append(nested(MAX_DEPTH)), "nests more than 8 graphs"),
}


def changed(change: Change) -> bytes:
    model = Network().build()
    change(model)
    return model.SerializeToString()


def test_sees_operators_of_all_graphs() -> None:
    scan = scan_network(changed(lambda model: model.graph.node.append(nested(2))))
    assert scan.operators == {("", name) for name in ("Conv", "Relu", "AveragePool", "Flatten", "Gemm", "If")}
    assert scan.nodes == 5 + 3
    assert not scan.external
    assert not scan.functions
    check_network(scan)


@pytest.mark.parametrize("name", IN_OTHER_FILES)
def test_sees_weights_in_other_files(name: str) -> None:
    scan = scan_network(changed(IN_OTHER_FILES[name]))
    assert scan.external
    assert scan.locations == {"secret.bin"}


def test_sees_locations_that_protobuf_would_cut_to_32_bits() -> None:
    tensor = TensorProto(name="kernel").SerializeToString() + b"\x70" + b"\x81\x80\x80\x80\x10"  # 2^32 + 1
    assert TensorProto.FromString(tensor).data_location == TensorProto.EXTERNAL
    assert scan_network(encode_field(7, encode_field(5, tensor))).external


@pytest.mark.parametrize("name", REFUSED)
def test_refuses(name: str) -> None:
    change, message = REFUSED[name]
    with pytest.raises(ValueError, match=message):
        check_network(scan_network(changed(change)))


def test_refuses_more_than_can_be_looked_through(monkeypatch: pytest.MonkeyPatch) -> None:
    def copies(model: onnx.ModelProto) -> None:
        model.graph.node.extend([helper.make_node("Relu", ["x"], ["y"])] * 300)

    monkeypatch.setattr(network_scan, "MAX_NODES", 100)
    with pytest.raises(ValueError, match="305 operators, more than 100"):
        check_network(scan_network(changed(copies)))
    monkeypatch.setattr(network_scan, "MAX_FIELDS", 500)
    with pytest.raises(ValueError, match="more than 500 parts"):
        scan_network(changed(copies))


def test_refuses_a_bundle_that_refers_to_other_files(mean_color_bundle: Path, tmp_path: Path) -> None:
    """Its checksums are right: whoever makes a bundle makes them too."""
    bundle = load_bundle(mean_color_bundle)
    path = tmp_path / "bundle.onnx"
    for change, message in (*REFUSED.values(), (IN_OTHER_FILES["a constant"], "its weights are in other files")):
        model = onnx.load_from_string(network_bytes(bundle))
        change(model)
        path.write_bytes(serialize_bundle(model.SerializeToString(), bundle.metadata))
        with pytest.raises(BadBundle, match=message):
            load_bundle(path)


def test_shipped_bundles_pass() -> None:
    for path in shipped_bundles().values():
        assert load_bundle(path).path == path
