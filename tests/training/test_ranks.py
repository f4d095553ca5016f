"""Several processes train what one process trains. As a script, this file is the program of each of them."""

import errno
import os
import signal
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import SyncBatchNorm
from torch.nn.modules.batchnorm import _BatchNorm

from familiar.core.errors import BadRecipe, FailedOnMain, TrainingFailed
from familiar.datasets.folders import DataSpec
from familiar.loading.crops import read_table
from familiar.loading.sampler import IdentityBatches, ShuffledBatches
from familiar.models.catalog import network_spec
from familiar.models.network import EmbeddingNetwork
from familiar.models.weights import initialize_batch_norm
from familiar.training import fitting, loop
from familiar.training import ranks as ranks_module
from familiar.training import state as state_module
from familiar.training.center_shards import sharded_centers
from familiar.training.checkpoint import load_state
from familiar.training.data import prepare_data
from familiar.training.fitting import fit
from familiar.training.network import initial_network
from familiar.training.ranks import Ranks, join_ranks
from familiar.training.run import RunFolder
from familiar.training.sampling import RankBatches
from familiar.training.state import TrainingState, start_centers_at_means, synchronize_batch_norms
from support.tiers import small_and_exhaustive
from support.tiny_run import TINY, history

pytestmark = pytest.mark.slow

# Dropout would draw other numbers on each rank, and on CPUs the batch norms of each would see its own photos only.
BASE = TINY.with_settings(
    [
        "model.dropout=0",
        "model.frozen_statistics=true",
        "model.head=average_bias",
        "optimizer.lr=1e-3",
        "optimizer.backbone_lr=1e-3",
        "split.test=0",
    ]
)
BY_IDENTITY = ("sampler.identities=5", "sampler.photos=3")
RECIPES = {
    "classifier": BASE,
    "layers after the map": BASE.with_settings(["model.name=timm:mobilenetv3_small_050"]),
    "center loss": BASE.with_settings(["loss.center_weight=0.1", "loss.start=means"]),
    "sharded": BASE.with_settings(
        ["loss.name=partial_fc", "loss.rate=0.6", "loss.label_smoothing=0.1", "sampler.name=identities", *BY_IDENTITY]
    ),
    "sharded prefixes": BASE.with_settings(
        ["loss.name=partial_fc", "loss.prefixes=8,16", "loss.prefix_weights=0.5,1", "loss.start=means"]
    ),
    "triplets": BASE.with_settings(["loss.name=semi_hard", *BY_IDENTITY]),
    "circle": BASE.with_settings(["loss.name=circle", "loss.gamma=8", *BY_IDENTITY]),
    "offline": BASE.with_settings(["loss.name=batch_all", "mining.mode=offline", "mining.every_steps=1"]),
    "in chunks": BASE.with_settings(
        [
            "loss.name=semi_hard",
            *BY_IDENTITY,
            "sampler.chunk_size=4",
        ]
    ),
}
STEPS_PER_EPOCH = 2
SHARDED = BASE.with_settings(["loss.name=partial_fc", "loss.rate=0.6", "budget.epochs=3", "validation.every_epochs=1"])


def measure_statistics(network: EmbeddingNetwork, _: object = None) -> None:
    """Give the frozen batch norms useful statistics: with those of a new network all embeddings are the same."""
    initialize_batch_norm(network.trunk, [torch.randn(64, 3, 32, 32)])


def train_in_float64(photos: Path, runs: Path, epochs: str, *names: str) -> None:
    """Train by recipes; rank 0 saves losses and weights."""
    with join_ranks() as ranks:
        for name in names:
            recipe = RECIPES[name].with_settings([f"budget.epochs={epochs}", f"validation.every_epochs={epochs}"])
            torch.manual_seed(recipe.seed)
            network, recipe = initial_network(recipe)
            table = read_table(DataSpec((str(photos),)).read(), recipe.input.preprocessing())
            data = prepare_data(recipe, table)
            measure_statistics(network)
            run = RunFolder(runs / name)
            run.path.mkdir(parents=True, exist_ok=True)
            state = TrainingState(recipe, network.double(), data, run, torch.device("cpu"), ranks=ranks)
            if getattr(recipe.loss, "start", "random") == "means":
                start_centers_at_means(state)
            losses: list[float] = []
            loop.train(state, [lambda step, losses=losses: losses.append(step.record.loss)])
            tensors = {key: value.numpy() for key, value in network.state_dict().items()}
            parts = ranks.gather({key: value.numpy() for key, value in state.objective.state_dict().items()})
            for key in parts[0]:
                is_sharded = key in sharded_centers(state.objective) and ranks.size > 1
                tensors[f"loss {key}"] = np.concatenate([part[key] for part in parts]) if is_sharded else parts[0][key]
            if ranks.is_main:
                np.savez(runs / f"{name}.npz", losses=losses, **tensors)


def fit_sharded(photos: Path, run: Path, killed_rank: str = "-1", after_epoch: str = "0") -> None:
    """Start or resume a run; one of the ranks is killed once an epoch is saved."""
    save = loop.save_checkpoint

    def save_and_die(state: TrainingState) -> None:
        save(state)
        if state.epoch == int(after_epoch):
            state.ranks.wait()  # for rank 0, which writes the state
            if state.ranks.rank == int(killed_rank):
                os.kill(os.getpid(), signal.SIGKILL)

    loop.save_checkpoint = save_and_die
    fitting.estimate_batch_norm_statistics = measure_statistics
    fit(SHARDED, str(photos), run, resume=RunFolder(run).recipe_json.exists())


def fit_until_disk_is_full(photos: Path, run: Path, epoch: str) -> None:
    """Start or resume a run, whose state cannot be written after an epoch."""
    save = state_module.save_state

    def save_until_full(path: Path, content: dict[str, Any]) -> None:
        if len(content["records"]) == int(epoch):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        save(path, content)

    state_module.save_state = save_until_full
    fitting.estimate_batch_norm_statistics = measure_statistics
    fit(SHARDED, str(photos), run, resume=RunFolder(run).recipe_json.exists())


def fit_with_batch_norms(photos: Path, run: Path) -> None:
    """Train with batch norms in training mode, in chunks."""
    settings = ["loss.name=semi_hard", *BY_IDENTITY, "sampler.chunk_size=5", "split.test=0"]
    fit(TINY.with_settings(settings), str(photos), run)


def fit_until(photos: Path, run: Path, step: str) -> None:
    """Start or resume a run with dropout and batch norms; rank 0 ends at a step."""

    def end(progress: loop.StepProgress) -> None:
        if progress.record.step == int(step):
            os.kill(os.getpid(), signal.SIGKILL)

    settings = ["loss.name=partial_fc", "loss.rate=0.6", "sampler.batch_size=8", "sampler.chunk_size=4"]
    resume = RunFolder(run).recipe_json.exists()
    fit(TINY.with_settings(settings), str(photos), run, resume=resume, save_every_steps=2, on_step=end)


def start(processes: int, *arguments: object) -> "subprocess.CompletedProcess[str]":
    launcher = ["-m", "torch.distributed.run", "--nproc-per-node", str(processes), "--standalone"]
    return subprocess.run(
        [sys.executable, *(launcher if processes > 1 else []), __file__, *map(str, arguments)],
        env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )


def succeed(processes: int, *arguments: object) -> None:
    done = start(processes, *arguments)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]


@pytest.fixture(scope="module")
def photos(cats: DataSpec) -> Path:
    return Path(cats.sources[0])


@pytest.mark.usefixtures("without_curves")
@pytest.mark.parametrize(
    ("processes", "epochs", "names"),
    small_and_exhaustive((2, 2, ("sharded", "triplets", "in chunks")), (4, 2, RECIPES)),
)
def test_processes_compute_what_one_computes(
    processes: int, epochs: int, names: Iterable[str], photos: Path, tmp_path: Path
):
    train_in_float64(photos, tmp_path / "one", str(epochs), *names)
    succeed(processes, "float64", photos, tmp_path / "several", epochs, *names)
    for name in names:
        with (
            np.load(tmp_path / "one" / f"{name}.npz") as expected,
            np.load(tmp_path / "several" / f"{name}.npz") as actual,
        ):
            assert expected["losses"].size >= epochs * STEPS_PER_EPOCH, name
            assert actual.keys() == expected.keys()
            for key, values in expected.items():
                np.testing.assert_allclose(actual[key], values, rtol=1e-10, atol=1e-10, err_msg=f"{name}: {key}")


def test_on_gpus_batch_norms_are_those_of_torch_for_all_ranks():
    """With the activations of timm's; in evaluation mode nothing changes."""
    network, images = network_spec("mobilenetv3_small_050").build(32, 8, 0.0).eval(), torch.randn(4, 3, 32, 32)
    before, expected = network.state_dict(), network(images)
    synchronize_batch_norms(network, torch.device("cuda"), Ranks(0, 2))
    norms = [module for module in network.modules() if isinstance(module, _BatchNorm)]
    assert norms
    assert all(isinstance(norm, SyncBatchNorm) for norm in norms)
    assert network.state_dict().keys() == before.keys()
    assert torch.equal(network(images), expected)


def test_on_cpus_batch_norms_of_each_process_see_its_own_photos(photos: Path, tmp_path: Path):
    """Rank 0 says so; its statistics are those of the run."""
    done = start(2, "batch norms", photos, tmp_path)
    assert done.returncode == 0, done.stderr[-4000:]
    assert done.stderr.count("on CPUs each process normalizes its own photos") == 1
    assert [row["epoch"] for row in history(RunFolder(tmp_path))] == ["1", "2", "3"]
    assert all(tensor.isfinite().all() for tensor in safetensors.torch.load_file(RunFolder(tmp_path).last).values())


@pytest.mark.exhaustive
def test_run_whose_ranks_are_killed_resumes_with_another_number_of_ranks(photos: Path, tmp_path: Path):
    expected, run = RunFolder(tmp_path / "uninterrupted"), RunFolder(tmp_path / "killed")
    succeed(1, "fit", photos, expected.path)
    for processes, killed_rank, epoch in ((2, 1, 1), (3, 0, 2)):
        assert start(processes, "fit", photos, run.path, killed_rank, epoch).returncode != 0
        content = load_state(run.state)
        assert len(content["records"]) == epoch
        centers, moments = content["objective"]["batch_loss.centers"], content["optimizer"][1]["state"][0]
        assert centers.shape == moments["exp_avg"].shape == moments["exp_avg_sq"].shape
    succeed(1, "fit", photos, run.path)
    assert load_state(run.state)["objective"]["batch_loss.centers"].shape == centers.shape, "those of all ranks"
    for actual, desired in zip(history(run), history(expected), strict=True):
        for name in ("loss", "validation_auc"):
            assert float(actual[name]) == pytest.approx(float(desired[name]), rel=1e-3), name
    actual, desired = (safetensors.torch.load_file(each.last) for each in (run, expected))
    torch.testing.assert_close(
        actual["objective.batch_loss.centers"], desired["objective.batch_loss.centers"], rtol=0, atol=1e-3
    )


@pytest.mark.exhaustive
def test_run_whose_ranks_are_killed_resumes_identically_with_as_many(photos: Path, tmp_path: Path):
    """Within the second epoch."""
    expected, run = RunFolder(tmp_path / "uninterrupted"), RunFolder(tmp_path / "killed")
    succeed(2, "fit until", photos, expected.path, 0)
    assert start(2, "fit until", photos, run.path, 7).returncode != 0
    assert len(load_state(run.state)["figures"]["losses"]) == 2
    succeed(2, "fit until", photos, run.path, 0)
    for name in ("last", "best", "embedder", "steps_csv"):
        assert getattr(run, name).read_bytes() == getattr(expected, name).read_bytes(), name
    actual, desired = (load_state(each.state) for each in (run, expected))
    for part in ("objective", "optimizer"):
        torch.testing.assert_close(actual[part], desired[part], rtol=0, atol=0)


@pytest.mark.exhaustive
def test_run_whose_disk_is_full_keeps_its_last_epoch(photos: Path, tmp_path: Path):
    run = RunFolder(tmp_path / "run")
    done = start(2, "fit until disk is full", photos, run.path, 2)
    assert done.returncode != 0
    assert f"No space left on device: '{run.state}'" in done.stderr
    assert len(load_state(run.state)["records"]) == 1
    succeed(2, "fit", photos, run.path)
    assert len(history(run)) == 3


def test_lost_connection_says_how_to_continue(photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """torchrun ends the other ranks of a machine; those of other machines lose the connection."""
    recipe, cpu = BASE.with_settings(["budget.epochs=1"]), torch.device("cpu")
    network, recipe = initial_network(recipe)
    data = prepare_data(recipe, read_table(DataSpec((str(photos),)).read(), recipe.input.preprocessing()))
    state = TrainingState(recipe, network, data, RunFolder(tmp_path), cpu)
    state.ranks = Ranks(1, 2)

    def lose(*_: object) -> None:
        raise RuntimeError("[gloo/transport/tcp/pair.cc:547] Connection closed by peer [127.0.0.1]:1234")

    monkeypatch.setattr(loop, "take_step", lose)
    with pytest.raises(TrainingFailed, match=r"rank 1: another process .* has ended.*Continue with --resume"):
        loop.train(state)


def share_of(rank: int, items: list[int], size: int) -> list[int]:
    return list(Ranks(rank, size).share(items))


@given(st.lists(st.integers(), max_size=30), st.integers(1, 8))
def test_shares_are_the_whole_in_order(items: list[int], size: int):
    shares = [share_of(rank, items, size) for rank in range(size)]
    assert [item for share in shares for item in share] == items
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


def test_whole_identities_go_to_a_rank():
    labels = np.repeat(np.arange(6), 4)
    sampler = IdentityBatches(labels, identities=5, photos=3)
    parts = [list(RankBatches(sampler, labels, Ranks(rank, 2))) for rank in range(2)]
    assert [first + second for first, second in zip(*parts, strict=True)] == list(sampler)
    for batch in parts[0] + parts[1]:
        assert set(np.unique(labels[[key.row for key in batch]], return_counts=True)[1]) == {3}


@pytest.mark.parametrize(
    ("sampler", "setting"),
    [
        (IdentityBatches(np.repeat(np.arange(6), 4), identities=2, photos=3), r"sampler\.identities: batches of 2"),
        (ShuffledBatches(8, 2), r"sampler\.batch_size: batches of 2"),
    ],
)
def test_batches_too_small_to_be_divided_are_refused(sampler: IdentityBatches | ShuffledBatches, setting: str):
    with pytest.raises(BadRecipe, match=setting + " cannot be divided among 3 processes"):
        RankBatches(sampler, np.zeros(8, np.int64), Ranks(0, 3))


def test_more_processes_than_gpus_are_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(ranks_module, "started_by_torchrun", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    for name, value in {"WORLD_SIZE": "3", "LOCAL_RANK": "2"}.items():
        monkeypatch.setenv(name, value)
    refused = pytest.raises(
        TrainingFailed, match=r"more processes than this machine has GPUs \(2\).*--nproc-per-node 2"
    )
    with refused, join_ranks():
        pass


def test_one_process_sends_nothing():
    """No process group exists, so anything sent would raise."""
    ranks = Ranks()
    layer = torch.nn.Linear(2, 2)
    assert ranks.on_main(lambda: 3) == 3
    assert ranks.gather("a") == ["a"]
    ranks.check_same("a", "photos")
    ranks.average_gradients(layer.parameters())
    ranks.wait()
    with ranks.first_on_machine():
        pass
    assert layer.weight.grad is None


def test_only_rank_0_reports_a_joint_error():
    error = TrainingFailed("the loss is nan")
    assert Ranks(0, 2).joint(error) is error
    assert isinstance(Ranks(1, 2).joint(error), FailedOnMain)


if __name__ == "__main__":
    torch.set_num_threads(1)
    task, *arguments = sys.argv[1:]
    tasks = {
        "float64": train_in_float64,
        "fit": fit_sharded,
        "fit until": fit_until,
        "fit until disk is full": fit_until_disk_is_full,
        "batch norms": fit_with_batch_norms,
    }
    tasks[task](*map(Path, arguments[:2]), *arguments[2:])
