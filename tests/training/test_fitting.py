import logging
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import torch
from torch.nn import BatchNorm2d

from familiar.core.errors import BadDataset, BadRun, FamiliarError
from familiar.datasets.folders import DataSpec
from familiar.loading import crops as crop_cache
from familiar.loading.cache import CropCache
from familiar.training import fitting as fit_module
from familiar.training import loop, tracking
from familiar.training.fitting import fit, torch_threads_for
from familiar.training.network import build_network
from familiar.training.run import RunFolder
from familiar.training.step_log import read_steps
from familiar.training.validation import ValidationScores
from support.tiers import small_and_exhaustive
from support.tiny_run import TINY, Interrupted, history, save_photos, stop_after

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def finished(tmp_path_factory, cats):
    """A run of three epochs: (its folder, the result, the reported steps, the reported epochs)."""
    torch.set_num_threads(1)  # a module's fixtures come before each test's
    run, steps, epochs = RunFolder(tmp_path_factory.mktemp("runs") / "finished"), [], []
    result = fit(TINY, cats, run.path, on_step=steps.append, on_epoch=epochs.append)
    return run, result, steps, epochs


def test_run_folder_contains_exactly_the_artifacts(finished, cats):
    run, result, *_ = finished
    assert {path.name for path in run.path.iterdir()} == {
        *("recipe.json", "data.json", "split.json", "history.csv", "steps.csv", "curves.png"),
        *("best.safetensors", "last.safetensors", "state.pt", "embedder.safetensors"),
    }
    assert run.recipe() == TINY.with_settings(["input.normalization=imagenet"])
    assert run.data_spec() == cats
    assert result.run == run.path
    assert (result.epochs, result.stopped, result.skipped_photos) == (3, "finished", 0)


def test_history_has_one_row_per_epoch(finished):
    run, result, _, epochs = finished
    rows = history(run, without=())
    assert [row["epoch"] for row in rows] == ["1", "2", "3"]
    assert [float(row["loss"]) for row in rows] == [record.loss for record in epochs]
    assert [bool(row["validation_accuracy"]) for row in rows] == [False, True, True], (
        "every second epoch, and the last one"
    )
    assert all(float(row["photos_per_second"]) > 0 < float(row["gradient_norm"]) for row in rows)
    assert [float(row["margin"]) for row in rows] == [0.0, 0.2, 0.2]
    assert float(rows[-1]["lr"]) == pytest.approx(TINY.optimizer.final_lr)
    best = max((row for row in rows if row["validation_accuracy"]), key=lambda row: float(row["validation_accuracy"]))
    assert result.best_epoch == int(best["epoch"])
    assert result.best_score == float(best["validation_accuracy"])


def test_reports_every_step(finished):
    run, _, steps, _ = finished
    photos = sum(root["photos"] for root in run.data()["train"].values())
    assert photos == 8 * 4
    assert [(progress.record.epoch, progress.step) for progress in steps] == [
        (epoch, step) for epoch in (1, 2, 3) for step in (1, 2)
    ]
    assert {(progress.epochs, progress.steps) for progress in steps} == {(3, 2)}
    assert all(progress.record.lr > 0 for progress in steps), "a step at a rate of 0 would be wasted"
    assert steps[-1].seconds_left == pytest.approx(0.0)
    photos_left = [progress.seconds_left * progress.photos_per_second for progress in steps]
    assert photos_left == pytest.approx([80, 64, 48, 32, 16, 0])


def test_records_every_step_and_mean_recall_of_each_epoch(finished):
    """Shuffled batches of 16 photos of eight cats have positives by chance."""
    run, _, steps, epochs = finished
    records = read_steps(run.steps_csv, 99)
    assert records == [progress.record for progress in steps]
    assert [(record.step, record.epoch) for record in records] == [(1, 1), (2, 1), (3, 2), (4, 2), (5, 3), (6, 3)]
    means = [np.mean([step.batch_recall_at_1 for step in records if step.epoch == epoch]) for epoch in (1, 2, 3)]
    assert [epoch.batch_recall_at_1 for epoch in epochs] == pytest.approx(means)
    losses = [np.mean([step.loss for step in records if step.epoch == epoch]) for epoch in (1, 2, 3)]
    assert [epoch.loss for epoch in epochs] == pytest.approx(losses)
    assert 0 < np.mean(means) < 1


@pytest.mark.usefixtures("without_curves")
def test_resumed_run_has_every_step_once(tmp_path, finished, cats):
    """The run is interrupted in the second step of epoch 2, which is repeated."""
    run = RunFolder(tmp_path / "run")

    def stop(progress):
        if (progress.record.epoch, progress.step) == (2, 2):
            raise Interrupted

    with pytest.raises(Interrupted):
        fit(TINY, cats, run.path, on_step=stop)
    assert [step.step for step in read_steps(run.steps_csv, 99)] == [1, 2, 3, 4]
    fit(TINY, cats, run.path, resume=True)
    assert run.steps_csv.read_bytes() == finished[0].steps_csv.read_bytes()
    fit(TINY, cats, run.path, resume=True)
    assert run.steps_csv.read_bytes() == finished[0].steps_csv.read_bytes(), "a finished run adds nothing"


def test_embedder_is_network_of_best_epoch(finished):
    run, result, *_ = finished
    best, embedder = (safetensors.torch.load_file(path) for path in (run.best, run.embedder))
    assert {key for key in best if key.startswith("network.")} == embedder.keys()
    assert all(torch.equal(embedder[key], best[key]) for key in embedder)
    assert {key.split(".")[0] for key in best} == {"network", "objective"}
    centers = "objective.batch_loss.centers"
    assert best[centers].shape == (8, 16)
    last = safetensors.torch.load_file(run.last)
    assert (result.best_epoch == 3) == torch.equal(last[centers], best[centers])


@pytest.mark.exhaustive
@pytest.mark.usefixtures("without_curves")
def test_training_is_deterministic(finished, tmp_path, cats):
    again = RunFolder(tmp_path)
    fit(TINY, cats, again.path)
    assert again.embedder.read_bytes() == finished[0].embedder.read_bytes()
    assert history(again) == history(finished[0])


@pytest.mark.usefixtures("without_curves")
@pytest.mark.parametrize(("epoch", "workers"), small_and_exhaustive((2, 0), (1, 0)))
def test_resumed_run_equals_uninterrupted_run(finished, tmp_path, epoch, workers, cats):
    run = RunFolder(tmp_path)
    with pytest.raises(Interrupted):
        fit(TINY, cats, run.path, workers=workers, on_epoch=stop_after(epoch))
    assert len(history(run)) == epoch
    assert not run.embedder.exists()
    torch.manual_seed(99)  # the process that resumes may have drawn random numbers before
    reported = []
    result = fit(TINY, cats, run.path, resume=True, on_epoch=reported.append)
    assert [record.epoch for record in reported] == list(range(epoch + 1, 4))
    unbroken, expected, *_ = finished
    assert history(run) == history(unbroken)
    assert run.embedder.read_bytes() == unbroken.embedder.read_bytes()
    assert run.last.read_bytes() == unbroken.last.read_bytes()
    assert (result.best_epoch, result.best_score, result.epochs) == (
        *(expected.best_epoch, expected.best_score),
        3,
    )


@pytest.mark.usefixtures("without_curves")
def test_final_network_keeps_its_share_of_the_initial_one(finished, tmp_path, cats):
    """Also when it is interrupted: the initial weights are not those that it resumes from."""
    run, recipe = RunFolder(tmp_path), TINY.with_settings(["model.initial_share=0.25"])
    with pytest.raises(Interrupted):
        fit(recipe, cats, run.path, on_epoch=stop_after(1))
    fit(recipe, cats, run.path, resume=True)
    initial, best, final = (safetensors.torch.load_file(path) for path in (run.initial, run.best, run.embedder))
    trained = safetensors.torch.load_file(finished[0].embedder)
    for key, tensor in final.items():
        assert torch.equal(best[key], trained[key]), "training itself is the same"
        if tensor.is_floating_point():
            torch.testing.assert_close(tensor, 0.25 * initial[key] + 0.75 * best[key])


@pytest.mark.usefixtures("without_curves")
def test_resuming_finished_run_only_restores_embedder(finished, tmp_path, cats):
    shutil.copytree(finished[0].path, tmp_path / "run")
    run = RunFolder(tmp_path / "run")
    run.embedder.unlink()
    result = fit(TINY, cats, run.path, resume=True)
    assert (result.epochs, result.stopped) == (3, "finished")
    assert run.embedder.read_bytes() == finished[0].embedder.read_bytes()


def test_rejects_existing_run_and_keeps_its_files(finished, cats):
    run = finished[0]
    before = {path: path.read_bytes() for path in run.path.iterdir()}
    with pytest.raises(BadRun, match="holds a run already; continue it with --resume"):
        fit(TINY, cats, run.path)
    assert {path: path.read_bytes() for path in run.path.iterdir()} == before


@pytest.mark.parametrize("damaged", ["state.pt", "recipe.json", "data.json"])
def test_resume_rejects_damaged_run(finished, tmp_path, damaged, cats):
    shutil.copytree(finished[0].path, tmp_path / "run")
    (tmp_path / "run" / damaged).write_bytes(b"damaged")
    with pytest.raises(BadRun, match=damaged.replace(".", r"\.")):
        fit(TINY, cats, tmp_path / "run", resume=True)


def test_resume_rejects_incompatible_state(finished, tmp_path, cats):
    shutil.copytree(finished[0].path, tmp_path / "run")
    torch.save({"network": {}}, tmp_path / "run" / "state.pt")
    with pytest.raises(BadRun, match=r"state\.pt"):
        fit(TINY, cats, tmp_path / "run", resume=True)


@pytest.mark.exhaustive
@pytest.mark.usefixtures("without_curves")
def test_skips_unreadable_photos_and_rejects_added_on_resume(tmp_path, caplog):
    data = save_photos(tmp_path / "cats")
    (tmp_path / "cats" / "cat 0" / "9.jpg").write_bytes(b"no photo")
    (tmp_path / "cats" / "cat 3" / "2.png").write_bytes((tmp_path / "cats" / "cat 3" / "1.png").read_bytes()[:99])
    run = RunFolder(tmp_path / "run")
    with caplog.at_level(logging.WARNING), pytest.raises(Interrupted):
        fit(TINY, data, run.path, on_epoch=stop_after(1))
    assert sum("skipped" in message for message in caplog.messages) == 2
    assert "cat 0" in caplog.text
    (tmp_path / "cats" / "cat 0" / "9.jpg").write_bytes(b"still no photo")  # unreadable photos do not count as contents
    result = fit(TINY, data, run.path, resume=True)
    assert result.skipped_photos == 2

    shutil.copy(tmp_path / "cats" / "cat 1" / "1.png", tmp_path / "cats" / "cat 2" / "new.png")
    with pytest.raises(BadRun, match="files were added, removed or changed"):
        fit(TINY, data, run.path, resume=True)


@pytest.mark.parametrize("data", ["synthetic:cats:1x9", "synthetic:cats:3x4", "synthetic:cats:12x1"])
def test_rejects_too_few_photos_without_creating_run(tmp_path, data):
    with pytest.raises(BadDataset):
        fit(TINY, DataSpec((data,)), tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.exhaustive
@pytest.mark.one_case
@pytest.mark.usefixtures("without_curves")
@pytest.mark.parametrize(("workers", "cached"), [(1, False), (0, True)])
def test_workers_and_cache_do_not_change_result(finished, tmp_path, cats, workers, cached):
    cache = CropCache(tmp_path / "cache") if cached else None
    run = RunFolder(tmp_path / "run")
    fit(TINY, cats, run.path, workers=workers, cache=cache)
    assert history(run) == history(finished[0])
    assert run.embedder.read_bytes() == finished[0].embedder.read_bytes()


@pytest.mark.exhaustive
@pytest.mark.usefixtures("without_steps")
def test_cached_photos_are_decoded_once(tmp_path, monkeypatch, cats):
    decoded = []
    decode = crop_cache.crop_of
    monkeypatch.setattr(crop_cache, "crop_of", lambda *photo: decoded.append(photo) or decode(*photo))
    monkeypatch.setattr(loop, "validate_epoch", lambda _state, record, _is_last: record)
    monkeypatch.setattr(fit_module, "load_weights", lambda *_, **__: None)
    cache, reported = CropCache(tmp_path / "cache"), []
    fit(TINY, cats, tmp_path / "first", cache=cache, on_photo=lambda *counts: reported.append(counts))
    assert len(decoded) == 48
    assert reported == [(done, 48) for done in range(1, 49)]
    fit(TINY, cats, tmp_path / "second", cache=cache)
    assert len(decoded) == 48


@pytest.mark.one_case
@pytest.mark.usefixtures("without_curves")
@pytest.mark.parametrize("where", ["on_photo", "on_step"])
def test_interruption_before_first_epoch_does_not_change_result(finished, tmp_path, cats, where):
    run = RunFolder(tmp_path / "run")

    def interrupt(*_):
        raise Interrupted

    with pytest.raises(Interrupted):
        fit(TINY, cats, run.path, **{where: interrupt})
    # While photos are read there is no run yet, and the empty folder is removed.
    assert run.path.exists() == (where == "on_step")
    torch.manual_seed(99)
    fit(TINY, cats, run.path, resume=where == "on_step")
    assert history(run) == history(finished[0])
    for name in ("best", "last", "embedder"):
        assert getattr(run, name).read_bytes() == getattr(finished[0], name).read_bytes()


@pytest.mark.parametrize("exists", [False, True])
def test_resume_rejects_folder_without_run(tmp_path, cats, exists):
    run = RunFolder(tmp_path / "run")
    if exists:
        run.path.mkdir()
        (run.path / "notes.txt").touch()
    with pytest.raises(BadRun, match="holds no run to resume"):
        fit(TINY, cats, run.path, resume=True)
    assert [path.name for path in tmp_path.rglob("*")] == (["run", "notes.txt"] if exists else [])


@pytest.mark.one_case
@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("optimizer.lr=1e-3", "optimizer.lr was 0.003, is 0.001"),
        ("seed=1", "seed was 0, is 1"),
        ("model.embedding_dim=8", "model.embedding_dim was 16, is 8"),
        ("input.normalization=symmetric", "input.normalization was imagenet, is symmetric"),
    ],
)
def test_resume_rejects_changed_recipe(finished, setting, message, cats):
    before = {path: path.read_bytes() for path in finished[0].path.iterdir()}
    with pytest.raises(BadRun, match="started with another recipe") as caught:
        fit(TINY.with_settings([setting]), cats, finished[0].path, resume=True)
    assert str(caught.value).endswith(f": {message}")
    assert {path: path.read_bytes() for path in finished[0].path.iterdir()} == before


@pytest.mark.exhaustive
def test_resume_rejects_changed_photos(finished, tmp_path, cats):
    with pytest.raises(BadRun, match="started with other photos"):
        fit(TINY, DataSpec(("synthetic:cats:13x4",)), finished[0].path, resume=True)
    shutil.copytree(cats.sources[0], tmp_path / "cats")
    changed = tmp_path / "cats" / "cat 3" / "2.png"
    shutil.copy(tmp_path / "cats" / "cat 4" / "2.png", changed.with_name("other"))
    size = max(changed.stat().st_size, changed.with_name("other").stat().st_size)
    for path in (changed, changed.with_name("other")):
        path.write_bytes(path.read_bytes().ljust(size, b"\0"))
    run = RunFolder(tmp_path / "run")
    data = DataSpec((str(tmp_path / "cats"),))
    with pytest.raises(Interrupted):
        fit(TINY, data, run.path, on_epoch=stop_after(1))
    changed.with_name("other").replace(changed)
    assert changed.stat().st_size == size
    with pytest.raises(BadRun, match="started with other photos: files were added, removed or changed since"):
        fit(TINY, data, run.path, resume=True)


@pytest.mark.exhaustive
@pytest.mark.usefixtures("without_steps")
def test_resume_after_patience_does_not_train(tmp_path, monkeypatch, cats):
    monkeypatch.setattr(loop, "validate", lambda *_: ValidationScores(0.7, 0.7, 0.5, 0.1))
    recipe = TINY.with_settings(["budget.patience=1", "budget.epochs=9", "validation.every_epochs=1"])
    first = fit(recipe, cats, tmp_path)
    monkeypatch.setattr(loop, "take_step", lambda *_: pytest.fail("trained"))
    again = fit(recipe, cats, tmp_path, resume=True)
    assert first.stopped == again.stopped == "patience"
    assert (again.epochs, again.best_epoch, again.best_score) == (2, 1, 0.7)


@pytest.mark.exhaustive
def test_rejects_second_run_in_same_folder(finished, tmp_path, cats):
    """The second attempt fails and does not change the first run."""
    run = RunFolder(tmp_path / "run")

    def start_another(_):
        before = {path: path.read_bytes() for path in run.path.iterdir()}
        for resume in (True, False):
            with pytest.raises(BadRun) as caught:
                fit(TINY, cats, run.path, resume=resume)
            messages.append(str(caught.value))
        assert {path: path.read_bytes() for path in run.path.iterdir()} == before
        raise Interrupted

    messages = []
    with pytest.raises(Interrupted):
        fit(TINY, cats, run.path, on_step=start_another)
    assert messages[0].startswith(f"{run.path}: another process is training in this folder")
    assert messages[1].startswith(f"{run.path}: holds a run already")
    fit(TINY, cats, run.path, resume=True)
    assert run.embedder.read_bytes() == finished[0].embedder.read_bytes()


def test_rejects_file_as_run_folder(tmp_path, cats):
    (tmp_path / "run").write_text("a file")
    with pytest.raises(BadRun, match="run: cannot be used as a run's folder"):
        fit(TINY, cats, tmp_path / "run")
    assert (tmp_path / "run").read_text() == "a file"


@pytest.mark.parametrize("resume", [True, False])
def test_rejects_missing_tracker_before_starting(tmp_path, monkeypatch, cats, resume):
    find_spec = tracking.find_spec
    monkeypatch.setattr(tracking, "find_spec", lambda name: None if name == "tensorboard" else find_spec(name))
    with pytest.raises(FamiliarError, match=r"^--track tensorboard needs accelerate: pip install [^ ]+$"):
        fit(TINY, cats, tmp_path / "run", track="tensorboard", resume=resume)
    assert not list(tmp_path.iterdir())


@pytest.mark.one_case
@pytest.mark.parametrize(
    ("device", "cores", "workers"), [("cpu", 4, 0), ("cuda", 1, 1), ("cuda", 4, 3), ("cuda", 64, 8)]
)
def test_default_workers_depend_on_device_and_cores(tmp_path, monkeypatch, cats, device, cores, workers):
    class WorkersError(Exception):
        """Carries the number of workers."""

    def report_workers(_recipe, _network, _data, _run, _device, workers, *_):
        raise WorkersError(workers)

    monkeypatch.setattr(fit_module, "available_cores", lambda: cores)
    monkeypatch.setattr(fit_module, "TrainingState", report_workers)
    monkeypatch.setattr(torch.nn.Module, "to", lambda self, **_: self)
    with pytest.raises(WorkersError) as caught:
        fit(TINY, cats, tmp_path, device=torch.device(device))
    assert caught.value.args == (workers,)


@pytest.mark.usefixtures("without_curves")
def test_training_starts_from_initial_weights(tmp_path, monkeypatch, cats):
    """With a learning rate of 0, the trunk keeps them, except for batch norm statistics."""
    timm = pytest.importorskip("timm")
    torch.manual_seed(5)
    trunk = timm.create_model("mobilenetv3_small_050", num_classes=0)
    torch.save(trunk.state_dict(), tmp_path / "trunk.pth")
    monkeypatch.chdir(tmp_path)
    recipe = replace(TINY, model=replace(TINY.model, initial_weights="trunk.pth")).with_settings(
        ["optimizer.backbone_lr=0", "budget.epochs=1"]
    )
    fit(recipe, cats, Path("run"))
    trained = safetensors.torch.load_file(tmp_path / "run" / "embedder.safetensors")
    for name, parameter in trunk.named_parameters():
        assert torch.equal(trained[f"network.trunk.backbone.{name}"], parameter)


@pytest.mark.parametrize(("workers", "threads"), [(0, 4), (1, 3), (3, 1), (9, 1)])
def test_threads_and_workers_share_the_cores(monkeypatch, workers, threads):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(fit_module, "available_cores", lambda: 4)
    torch.set_num_threads(4)
    with torch_threads_for(workers):
        assert torch.get_num_threads() == threads
    assert torch.get_num_threads() == 4
    monkeypatch.setenv("OMP_NUM_THREADS", "4")
    with torch_threads_for(workers):
        assert torch.get_num_threads() == 4


@pytest.mark.exhaustive
@pytest.mark.parametrize("loss", small_and_exhaustive("arcface", "softmax"))
@pytest.mark.usefixtures("without_curves")
def test_compiled_steps_match_plain_steps(tmp_path, monkeypatch, cats, loss):
    """A compiler that changes nothing gives the same bits. It is used once batch norm momenta are constant."""
    recipe = TINY.with_settings([f"loss.name={loss}", "budget.epochs=7", "validation.every_epochs=7"])
    compiled_functions, momenta, steps = [], [], []

    def fake_compile(embed, *, dynamic):
        assert not dynamic
        compiled_functions.append(embed)

        def step(images):
            network = getattr(embed, "__self__", embed)
            momenta.extend(part.momentum for part in network.modules() if isinstance(part, BatchNorm2d))
            return embed(images)

        return step

    monkeypatch.setattr(fit_module, "require_compiler", lambda: None)
    monkeypatch.setattr(torch, "compile", fake_compile)
    for name in ("plain", "compiled"):
        fit(recipe, cats, tmp_path / name, compiled=name == "compiled", on_step=steps.append)
    assert len(compiled_functions) == 1
    norms = len([part for part in build_network(recipe).modules() if isinstance(part, BatchNorm2d)])
    assert momenta == [0.1] * norms * (len(steps) // 2 - 9)
    whole, again = (RunFolder(tmp_path / name).last.read_bytes() for name in ("plain", "compiled"))
    assert whole == again


def test_rejects_missing_compiler_before_starting(tmp_path, monkeypatch, cats):
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setattr(fit_module.shutil, "which", lambda _: None)
    with pytest.raises(
        FamiliarError, match=r"needs a C\+\+ compiler, but none of g\+\+, clang\+\+, cl was found;.* without --compile"
    ):
        fit(TINY, cats, tmp_path / "run", compiled=True)
    assert not (tmp_path / "run").exists()


COMPILED = """
import sys
from pathlib import Path
from torch._dynamo.utils import counters
from familiar.datasets.folders import DataSpec
from familiar.training.fitting import fit
from familiar.training.recipe import Recipe

if __name__ == "__main__":
    recipe = Recipe.from_json(Path("recipe.json").read_text())
    for compiled in (False, True):
        fit(recipe, DataSpec((sys.argv[1],)), Path(str(compiled)), compiled=compiled)
    print(counters["stats"]["unique_graphs"])
"""


@pytest.mark.exhaustive
@pytest.mark.skipif(not any(map(shutil.which, fit_module.COMPILERS)), reason="needs a C++ compiler")
def test_compiled_training_matches_plain_losses(tmp_path, cats):
    """Runs in another process, without the runtime type checks of the tests, which cannot be compiled."""
    recipe = TINY.with_settings(["model.dropout=0", "budget.epochs=7", "validation.every_epochs=7"])
    (tmp_path / "recipe.json").write_text(recipe.to_json())
    (tmp_path / "twice.py").write_text(COMPILED)
    command = [sys.executable, "twice.py", *cats.sources]
    output = subprocess.run(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True, check=True).stdout
    assert output.split()[-1] == "1", "compiled once, and not again in every step"
    plain, compiled = (history(RunFolder(tmp_path / name)) for name in ("False", "True"))
    for plain_row, compiled_row in zip(plain, compiled, strict=True):
        assert float(plain_row["loss"]) == pytest.approx(float(compiled_row["loss"]), rel=1e-3)
