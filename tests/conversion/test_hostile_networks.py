"""Networks of strangers: they read no other file, and what needs endless memory or time harms nobody."""

import itertools
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from familiar.conversion import importing, trial
from familiar.conversion.trial import try_network
from familiar.core.errors import BadNetwork
from support.foreign_network import SIZE_PX, Network

linux_only = pytest.mark.skipif(sys.platform != "linux", reason="memory is limited as Linux does")


def save_with_weights_in(location: str, folder: Path) -> Path:
    """Save a network whose projection is said to be in a file."""
    model = Network().build()
    tensor = next(each for each in model.graph.initializer if each.name == "project")
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in {"location": location, "length": str(len(tensor.raw_data))}.items():
        tensor.external_data.add(key=key, value=value)
    tensor.ClearField("raw_data")
    folder.mkdir(exist_ok=True)
    path = folder / "network.onnx"
    path.write_bytes(model.SerializeToString())
    return path


def save_with_nodes(nodes: list[onnx.NodeProto], constants: dict[str, np.ndarray], path: Path) -> Path:
    """Save a network to whose raw vector the result of nodes is added: the scalar `more`."""
    model = Network().build()
    model.graph.initializer.extend(numpy_helper.from_array(values, name) for name, values in constants.items())
    model.graph.node.extend([*nodes, helper.make_node("Add", ["raw", "more"], ["sum"])])
    model.graph.output[0].name = "sum"
    onnx.save(model, path)
    return path


def import_it(path: Path) -> Any:
    options: dict[str, Any] = {"mean": (0.5,) * 3, "std": (0.5,) * 3, "license": "none"}
    return importing.import_network(path, path.with_name("bundle.onnx"), **options)


@pytest.mark.parametrize(
    "location",
    [
        "../secret.bin",
        "/etc/hostname",
        "sub/../../secret.bin",
        "..\\secret.bin",
        "C:secret.bin",
        "",
        ".",
        "a//b",
        "*/_ORT_MEM_ADDR_/*",
        "secret\x00.bin",
        "\\\\server\\share\\secret.bin",
    ],
)
def test_weights_outside_of_the_folder_are_refused_before_anything_opens_them(location: str, tmp_path: Path) -> None:
    (tmp_path / "secret.bin").write_bytes(bytes(4 * 96 * 8))
    path = save_with_weights_in(location, tmp_path / "network")
    with pytest.raises(BadNetwork, match="is not the name of a file beside it"):
        import_it(path)


def test_links_out_of_the_folder_are_refused(tmp_path: Path) -> None:
    (tmp_path / "secret.bin").write_bytes(bytes(4 * 96 * 8))
    path = save_with_weights_in("weights.bin", tmp_path / "network")
    (path.parent / "weights.bin").symlink_to(tmp_path / "secret.bin")
    with pytest.raises(BadNetwork, match="are a link to another file; copy that file here"):
        import_it(path)
    path = save_with_weights_in("folder/secret.bin", tmp_path / "network")
    (path.parent / "folder").symlink_to(tmp_path)
    with pytest.raises(BadNetwork, match="are a link to another file"):
        import_it(path)


def test_folders_and_special_files_are_refused(tmp_path: Path) -> None:
    path = save_with_weights_in("weights.bin", tmp_path / "network")
    with pytest.raises(BadNetwork, match=r"weights\.bin, which is not beside it"):
        import_it(path)
    (path.parent / "weights.bin").mkdir()
    with pytest.raises(BadNetwork, match=r"weights\.bin, which is not beside it"):
        import_it(path)
    (path.parent / "weights.bin").rmdir()
    os.mkfifo(path.parent / "weights.bin")  # reading it would wait forever
    with pytest.raises(BadNetwork, match=r"weights\.bin, which is not beside it"):
        import_it(path)


def test_weights_in_a_subfolder_are_taken_along(tmp_path: Path) -> None:
    path = save_with_weights_in("data/weights.bin", tmp_path / "network")
    (path.parent / "data").mkdir()
    weights = np.random.default_rng(0).normal(size=(96, 8)).astype(np.float32)
    (path.parent / "data" / "weights.bin").write_bytes(weights.tobytes())
    assert import_it(path).metadata.embedding_dim == 8


def test_a_network_that_was_a_link_itself_is_read(tmp_path: Path) -> None:
    path = Network().save(tmp_path / "blob")
    (tmp_path / "network.onnx").symlink_to(path)
    assert import_it(tmp_path / "network.onnx").metadata.embedding_dim == 8


# Memory and time


def doubling(times: int) -> tuple[list[onnx.NodeProto], dict[str, np.ndarray]]:
    """Concatenate a tensor with itself again and again."""
    names = [f"twice_{number}" for number in range(times + 1)]
    nodes = [
        helper.make_node("Concat", [before, before], [after], axis=0) for before, after in itertools.pairwise(names)
    ]
    return [*nodes, helper.make_node("ReduceMax", [names[-1]], ["more"], keepdims=0)], {
        names[0]: np.zeros(1024, np.float32)
    }


BOMBS: dict[str, tuple[list[onnx.NodeProto], dict[str, np.ndarray]]] = {
    "of a known shape": (
        [
            helper.make_node("ConstantOfShape", ["shape"], ["large"]),
            helper.make_node("ReduceMax", ["large"], ["more"], keepdims=0),
        ],
        {"shape": np.array([2**20, 2**20])},
    ),
    "doubled": doubling(40),
    "repeated": (
        [
            helper.make_node("Tile", ["start", "times"], ["large"]),
            helper.make_node("ReduceMax", ["large"], ["more"], keepdims=0),
        ],
        {"start": np.zeros(1, np.float32), "times": np.array([2**38])},
    ),
}


@pytest.mark.parametrize("name", BOMBS)
def test_tensors_larger_than_any_embedders_are_refused_by_their_shapes(name: str, tmp_path: Path) -> None:
    path = save_with_nodes(*BOMBS[name], tmp_path / "network.onnx")
    with pytest.raises(BadNetwork, match=r"its tensor .* has .* numbers, far more than an embedder needs"):
        import_it(path)


def hidden_bomb(path: Path) -> Path:
    """Save a network whose size nobody knows before it runs: how often a tensor is repeated depends on the photo."""
    nodes = [
        helper.make_node("ReduceMax", ["image"], ["highest"], keepdims=0),
        helper.make_node("Mul", ["highest", "none"], ["zero"]),
        helper.make_node("Add", ["zero", "many"], ["times"]),
        helper.make_node("Cast", ["times"], ["count"], to=TensorProto.INT64),
        helper.make_node("Unsqueeze", ["count", "axis"], ["counts"]),
        helper.make_node("Expand", ["start", "counts"], ["large"]),
        helper.make_node("Exp", ["large"], ["larger"]),
        helper.make_node("ReduceMax", ["larger"], ["more"], keepdims=0),
    ]
    constants = {
        "none": np.zeros((), np.float32),
        "many": np.array(2**34, np.float32),
        "axis": np.array([0]),
        "start": np.zeros(1, np.float32),
    }
    return save_with_nodes(nodes, constants, path)


@linux_only
@pytest.mark.slow
def test_memory_is_bounded_where_no_shape_tells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial, "MEMORY_BYTES", 2 * 2**30)
    path = hidden_bomb(tmp_path / "network.onnx")
    with pytest.raises(BadNetwork, match=r"cannot be run with .* of memory|ONNX Runtime cannot run it"):
        try_network(path)


@pytest.mark.slow
def test_a_network_that_takes_too_long_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial, "SECONDS", 0)  # over before the process is looked at, however late that is
    with pytest.raises(BadNetwork, match=r"did not give a vector within 0 seconds"):
        try_network(Network().save(tmp_path / "network.onnx"))


@pytest.mark.slow
def test_trial_passes_sound_networks_and_reports_refusals(tmp_path: Path) -> None:
    try_network(Network().save(tmp_path / "network.onnx"))
    try_network(Network(batch=2, element_type=TensorProto.FLOAT16).save(tmp_path / "half.onnx"))
    try_network(Network(size_px="side").save(tmp_path / "any size.onnx"), size_px=SIZE_PX)
    (tmp_path / "no network.onnx").write_bytes(b"no network")
    with pytest.raises(BadNetwork, match=r"no network\.onnx: is no complete ONNX network"):
        try_network(tmp_path / "no network.onnx")


@linux_only
@pytest.mark.slow
def test_a_crash_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial, "MEMORY_BYTES", 2**20)  # so little that nothing can be imported any more
    with pytest.raises(BadNetwork, match=r"cannot be \w+ with|ONNX Runtime cannot run it"):
        try_network(Network().save(tmp_path / "network.onnx"))


@pytest.mark.slow
def test_trial_takes_no_module_from_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "onnx.py").write_text("raise SystemExit(0)")
    (tmp_path / "no network.onnx").write_bytes(b"no network")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", ["", *sys.path])
    with pytest.raises(BadNetwork, match="is no complete ONNX network"):
        try_network(Path("no network.onnx"))


def test_a_frozen_program_does_not_start_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "frozen", True, raising=False)
    monkeypatch.setattr(trial.subprocess, "run", lambda *_, **__: pytest.fail("started a process"))
    try_network(Network().save(tmp_path / "network.onnx"))
