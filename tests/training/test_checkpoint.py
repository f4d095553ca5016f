import os
import re

import pytest
import safetensors.torch
import torch
from torch import nn

from familiar.core.errors import BadRun, CannotWrite
from familiar.training.checkpoint import load_state, load_weights, mix_weights, save_state, save_weights


def network(seed=0, width=4):
    torch.manual_seed(seed)
    network = nn.Sequential(nn.Conv2d(3, width, 3), nn.BatchNorm2d(width))
    network[1].running_mean += 3
    return network


def same_tensors(first, second):
    a, b = first.state_dict(), second.state_dict()
    return a.keys() == b.keys() and all(torch.equal(a[key], b[key]) for key in a)


def test_weights_round_trip_by_name(tmp_path):
    path, objective = tmp_path / "w.safetensors", nn.Linear(2, 3)
    save_weights(path, network=network(), objective=objective)
    assert {key.split(".")[0] for key in safetensors.torch.load_file(path)} == {"network", "objective"}
    loaded, loaded_objective = network(seed=1), nn.Linear(2, 3)
    load_weights(path, network=loaded, objective=loaded_objective)
    assert same_tensors(loaded, network())
    assert same_tensors(loaded_objective, objective)
    without_objective = network(seed=2)
    load_weights(path, network=without_objective)
    assert same_tensors(without_objective, network())


def test_weights_round_trip_in_channels_last(tmp_path):
    path = tmp_path / "w.safetensors"
    save_weights(path, network=network().to(memory_format=torch.channels_last))
    loaded = network(seed=1)
    load_weights(path, network=loaded)
    assert same_tensors(loaded, network())
    save_weights(tmp_path / "v.safetensors", network=network())
    assert path.read_bytes() == (tmp_path / "v.safetensors").read_bytes()


@pytest.mark.parametrize("content", [b"", b"garbage", b"\xff" * 64, (10**6).to_bytes(8, "little") + b"{}"])
def test_rejects_damaged_weights(tmp_path, content):
    path = tmp_path / "w.safetensors"
    path.write_bytes(content)
    with pytest.raises(BadRun, match=re.escape(f"{path}: cannot read weights")):
        load_weights(path, network=network())


def test_rejects_truncated_weights(tmp_path):
    path = tmp_path / "w.safetensors"
    save_weights(path, network=network())
    whole = path.read_bytes()
    for length in range(0, len(whole), 37):
        path.write_bytes(whole[:length])
        with pytest.raises(BadRun):
            load_weights(path, network=network())


def test_rejects_missing_weights(tmp_path):
    with pytest.raises(BadRun, match=r"gone\.safetensors: cannot read weights"):
        load_weights(tmp_path / "gone.safetensors", network=network())


def test_rejects_weights_of_another_network(tmp_path):
    path = tmp_path / "w.safetensors"
    save_weights(path, network=network(width=5))
    with pytest.raises(BadRun, match="belong to another network"):
        load_weights(path, network=network())
    with pytest.raises(BadRun, match="belong to another network"):
        load_weights(path, objective=nn.Linear(2, 3))


def test_state_round_trips(tmp_path):
    optimizer = torch.optim.AdamW(network().parameters())
    state = {
        "optimizer": optimizer.state_dict(),
        "records": [{"epoch": 1, "loss": 0.1, "accuracy": None}],
        "name": "Köter",
        "tensor": torch.arange(4),
    }
    save_state(tmp_path / "state.pt", state)
    loaded = load_state(tmp_path / "state.pt")
    assert torch.equal(loaded.pop("tensor"), state.pop("tensor"))
    assert loaded == state


@pytest.mark.parametrize("content", [b"", b"garbage", b"PK\x03\x04", b"\x80\x04."])
def test_rejects_damaged_state(tmp_path, content):
    path = tmp_path / "state.pt"
    path.write_bytes(content)
    with pytest.raises(BadRun, match=re.escape(f"{path}: cannot resume from this file")):
        load_state(path)


def test_rejects_truncated_state(tmp_path):
    path = tmp_path / "state.pt"
    save_state(path, {"tensor": torch.arange(100)})
    whole = path.read_bytes()
    for length in range(0, len(whole), 101):
        path.write_bytes(whole[:length])
        with pytest.raises(BadRun):
            load_state(path)


def test_rejects_missing_state(tmp_path):
    with pytest.raises(BadRun, match=r"nothing to resume: state\.pt is missing"):
        load_state(tmp_path / "state.pt")


class _Malicious:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


def test_load_state_executes_no_code(tmp_path):
    trap = tmp_path / "executed"
    torch.save({"network": _Malicious(trap)}, tmp_path / "state.pt")
    with pytest.raises(BadRun):
        load_state(tmp_path / "state.pt")
    assert not trap.exists()


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_crash_while_saving_keeps_previous_file(tmp_path, monkeypatch, step):
    weights, state = tmp_path / "w.safetensors", tmp_path / "state.pt"
    save_weights(weights, network=network())
    save_state(state, {"epoch": 1})
    before = weights.read_bytes(), state.read_bytes()

    def crash(*_args, **_kwargs):
        raise OSError("the disk is full")

    monkeypatch.setattr("os.fsync" if step == "fsync" else "pathlib.Path.replace", crash)
    with pytest.raises(CannotWrite, match="full"):
        save_weights(weights, network=network(seed=1))
    with pytest.raises(CannotWrite, match="full"):
        save_state(state, {"epoch": 2})
    assert (weights.read_bytes(), state.read_bytes()) == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["state.pt", "w.safetensors"]


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_mixed_weights_are_between_saved_and_own(tmp_path, share):
    torch.manual_seed(0)
    saved, trained = (nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)) for _ in range(2))
    trained(torch.randn(5, 3))
    save_weights(tmp_path / "saved.safetensors", network=saved)
    before = {key: tensor.clone() for key, tensor in trained.state_dict().items()}
    mix_weights(trained, tmp_path / "saved.safetensors", "network", share)
    for key, tensor in trained.state_dict().items():
        expected = share * saved.state_dict()[key] + (1 - share) * before[key]
        torch.testing.assert_close(tensor, expected if tensor.is_floating_point() else before[key])
    assert int(trained[1].num_batches_tracked) == 1
