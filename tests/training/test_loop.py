import csv
import logging
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import torch
from PIL import Image

from familiar.core.errors import BadDataset, BadRun, TrainingFailed
from familiar.datasets.folders import DataSpec, open_photo
from familiar.training import loop
from familiar.training.checkpoint import load_state, load_weights
from familiar.training.fold import make_fold
from familiar.training.loop import fit
from familiar.training.network import build_network
from familiar.training.recipe import Recipe
from familiar.training.run import RunFolder
from familiar.training.schedule import statistics_momentum
from familiar.training.validation import Validation, embed_dataset, validate, validation_pairs

TINY = Recipe(name="tiny").with_settings(
    [
        "model.name=mobilenetv3_small_050",
        "model.initial_weights=none",
        "model.embedding_dim=16",
        "model.dropout=0.2",
        "input.size_px=32",
        "input.resize_px=32",
        "sampler.batch_size=16",
        "sampler.workers=0",
        "loss.scale=16",
        "loss.margin_rad=0.2",
        "optimizer.lr=3e-3",
        "optimizer.backbone_lr=3e-3",
        "optimizer.warmup_epochs=1",
        "budget.epochs=3",
        "validation.every_epochs=2",
    ]
)
TIMINGS = ("photos_per_second", "seconds")


class Interrupted(Exception):
    """What a user's Ctrl-C is to a run."""


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def without_curves(monkeypatch):
    """Drawing takes longer than training here."""
    monkeypatch.setattr(loop, "draw_curves", lambda *_: None)


@pytest.fixture
def without_steps(monkeypatch):
    """Epochs that pass without anything being computed, for what follows from their validations."""
    monkeypatch.setattr(loop, "draw_curves", lambda *_: None)
    monkeypatch.setattr(loop.Trainer, "_one_step", lambda *_: (1.0, 1.0))
    monkeypatch.setattr(loop, "embed_dataset", lambda *_, **__: None)


def save_photos(root, source="synthetic:cats:12x4"):
    """Drawn pets as a user's folder of files, which are faster to read than to draw."""
    table = DataSpec((source,)).read()
    for photo, label in zip(table.photos, table.labels, strict=True):
        folder = root / f"cat {label}"
        folder.mkdir(parents=True, exist_ok=True)
        rgb_u8 = open_photo(photo, min_side_px=32).rgb_u8
        Image.fromarray(rgb_u8).save(folder / f"{photo.index}.png")
    return DataSpec((str(root),))


@pytest.fixture(scope="module")
def cats(tmp_path_factory):
    return save_photos(tmp_path_factory.mktemp("photos") / "cats")


@pytest.fixture(scope="module")
def finished(tmp_path_factory, cats):
    """A run of three epochs: (its folder, the result, the steps and epochs told)."""
    torch.set_num_threads(1)
    run, steps, epochs = RunFolder(tmp_path_factory.mktemp("runs") / "finished"), [], []
    result = fit(TINY, cats, run.path, on_step=steps.append, on_epoch=epochs.append)
    return run, result, steps, epochs


def history(run, without=TIMINGS):
    with run.history_csv.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    return [{name: value for name, value in row.items() if name not in without} for row in rows]


def stop_after(epoch):
    def on_epoch(record):
        if record.epoch == epoch:
            raise Interrupted

    return on_epoch


def test_every_artifact_is_there_and_nothing_else(finished, cats):
    run, result, *_ = finished
    assert {path.name for path in run.path.iterdir()} == {
        *("recipe.json", "data.json", "split.json", "history.csv", "curves.png"),
        *("best.safetensors", "last.safetensors", "state.pt", "embedder.safetensors"),
    }
    assert run.recipe() == TINY.with_settings(["input.normalisation=imagenet"])
    assert run.data_spec() == cats
    assert result.run == run.path
    assert (result.epochs, result.stopped, result.skipped_photos) == (3, "finished", 0)


def test_the_history_has_a_row_an_epoch(finished):
    run, result, _, epochs = finished
    rows = history(run, without=())
    assert [row["epoch"] for row in rows] == ["1", "2", "3"]
    assert [float(row["loss"]) for row in rows] == [record.loss for record in epochs]
    assert [bool(row["validation_accuracy"]) for row in rows] == [False, True, True], (
        "every second, and the last"
    )
    assert all(float(row["photos_per_second"]) > 0 < float(row["gradient_norm"]) for row in rows)
    assert [float(row["margin_rad"]) for row in rows] == [0.0, 0.2, 0.2]
    assert float(rows[-1]["lr"]) == pytest.approx(TINY.optimizer.final_lr)
    best = max(
        (row for row in rows if row["validation_accuracy"]), key=lambda row: float(row["validation_accuracy"])
    )
    assert result.best_epoch == int(best["epoch"])
    assert result.best_accuracy == float(best["validation_accuracy"])


def test_the_steps_are_told(finished):
    run, _, steps, _ = finished
    photos = sum(root["photos"] for root in run.data()["train"].values())
    assert photos == 8 * 4
    assert [(at.epoch, at.step) for at in steps] == [(epoch, step) for epoch in (1, 2, 3) for step in (1, 2)]
    assert {(at.epochs, at.steps) for at in steps} == {(3, 2)}
    assert all(at.lr > 0 for at in steps), "a step at a rate of nothing is lost"
    assert steps[-1].seconds_left == pytest.approx(0.0)
    left = [at.seconds_left * at.photos_per_second for at in steps]
    assert left == pytest.approx([80, 64, 48, 32, 16, 0])


def test_the_embedder_is_the_network_of_the_best_epoch(finished):
    run, result, *_ = finished
    best, embedder = (safetensors.torch.load_file(path) for path in (run.best, run.embedder))
    assert {key for key in best if key.startswith("network.")} == embedder.keys()
    assert all(torch.equal(embedder[key], best[key]) for key in embedder)
    assert {key.split(".")[0] for key in best} == {"network", "objective"}
    assert best["objective.centres"].shape == (8, 16)
    last = safetensors.torch.load_file(run.last)
    assert (result.best_epoch == 3) == torch.equal(last["objective.centres"], best["objective.centres"])


@pytest.mark.usefixtures("without_curves")
def test_the_same_recipe_and_photos_give_the_same_network(finished, tmp_path, cats):
    again = RunFolder(tmp_path)
    fit(TINY, cats, again.path)
    assert again.embedder.read_bytes() == finished[0].embedder.read_bytes()
    assert history(again) == history(finished[0])


@pytest.mark.usefixtures("without_curves")
@pytest.mark.parametrize(("epoch", "workers"), [(1, 0), (2, 0), (1, 1)])
def test_a_resumed_run_ends_as_an_unbroken_one(finished, tmp_path, epoch, workers, cats):
    recipe = TINY.with_settings([f"sampler.workers={workers}"])
    run = RunFolder(tmp_path)
    with pytest.raises(Interrupted):
        fit(recipe, cats, run.path, on_epoch=stop_after(epoch))
    assert len(history(run)) == epoch
    assert not run.embedder.exists()
    torch.manual_seed(99)  # whatever was drawn before in the process that resumes
    told = []
    result = fit(recipe, cats, run.path, resume=True, on_epoch=told.append)
    assert [record.epoch for record in told] == list(range(epoch + 1, 4))
    unbroken, expected, *_ = finished
    assert history(run) == history(unbroken)
    assert run.embedder.read_bytes() == unbroken.embedder.read_bytes()
    assert run.last.read_bytes() == unbroken.last.read_bytes()
    assert (result.best_epoch, result.best_accuracy, result.epochs) == (
        *(expected.best_epoch, expected.best_accuracy),
        3,
    )


@pytest.mark.usefixtures("without_curves")
def test_dropout_and_augmentation_do_not_depend_on_the_workers(finished, tmp_path, cats):
    run = RunFolder(tmp_path)
    fit(TINY.with_settings(["sampler.workers=1"]), cats, run.path)
    assert history(run) == history(finished[0])


@pytest.mark.usefixtures("without_curves")
def test_resuming_a_finished_run_trains_no_further(finished, tmp_path, cats):
    shutil.copytree(finished[0].path, tmp_path / "run")
    run = RunFolder(tmp_path / "run")
    run.embedder.unlink()
    result = fit(TINY, cats, run.path, resume=True)
    assert (result.epochs, result.stopped) == (3, "finished")
    assert run.embedder.read_bytes() == finished[0].embedder.read_bytes()


def test_a_run_is_not_written_over(finished, cats):
    run = finished[0]
    before = {path: path.read_bytes() for path in run.path.iterdir()}
    with pytest.raises(BadRun, match="holds a run already; continue it with --resume"):
        fit(TINY, cats, run.path)
    assert {path: path.read_bytes() for path in run.path.iterdir()} == before


def test_nothing_to_resume(tmp_path, cats):
    with pytest.raises(BadRun, match="no run of ours"):
        fit(TINY, cats, tmp_path / "none", resume=True)
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize("setting", ["optimizer.lr=1e-3", "seed=1", "model.embedding_dim=8"])
def test_resuming_with_another_recipe(finished, setting, cats):
    with pytest.raises(BadRun, match="begun with another recipe"):
        fit(TINY.with_settings([setting]), cats, finished[0].path, resume=True)


def test_resuming_with_other_photos(finished):
    with pytest.raises(BadRun, match="begun with other photos"):
        fit(TINY, DataSpec(("synthetic:cats:13x4",)), finished[0].path, resume=True)


@pytest.mark.parametrize("spoilt", ["state.pt", "recipe.json", "data.json"])
def test_resuming_a_damaged_run(finished, tmp_path, spoilt, cats):
    shutil.copytree(finished[0].path, tmp_path / "run")
    (tmp_path / "run" / spoilt).write_bytes(b"spoilt")
    with pytest.raises(BadRun, match=spoilt.replace(".", r"\.")):
        fit(TINY, cats, tmp_path / "run", resume=True)


def test_resuming_a_state_of_another_version(finished, tmp_path, cats):
    shutil.copytree(finished[0].path, tmp_path / "run")
    torch.save({"network": {}}, tmp_path / "run" / "state.pt")
    with pytest.raises(BadRun, match=r"state\.pt"):
        fit(TINY, cats, tmp_path / "run", resume=True)


@pytest.mark.usefixtures("without_curves")
def test_a_folder_of_photos_with_unreadable_ones(tmp_path, caplog):
    data = save_photos(tmp_path / "cats")
    (tmp_path / "cats" / "cat 0" / "9.jpg").write_bytes(b"no photo")
    (tmp_path / "cats" / "cat 3" / "2.png").write_bytes(
        (tmp_path / "cats" / "cat 3" / "1.png").read_bytes()[:99]
    )
    run = RunFolder(tmp_path / "run")
    with caplog.at_level(logging.WARNING), pytest.raises(Interrupted):
        fit(TINY, data, run.path, on_epoch=stop_after(1))
    assert sum("skipped" in message for message in caplog.messages) == 2
    assert "cat 0" in caplog.text
    (tmp_path / "cats" / "cat 0" / "9.jpg").write_bytes(b"still no photo")  # never counted, so never missed
    result = fit(TINY, data, run.path, resume=True)
    assert result.skipped_photos == 2

    shutil.copy(tmp_path / "cats" / "cat 1" / "1.png", tmp_path / "cats" / "cat 2" / "new.png")
    with pytest.raises(BadRun, match="files were added, removed or changed"):
        fit(TINY, data, run.path, resume=True)


@pytest.mark.parametrize("data", ["synthetic:cats:1x9", "synthetic:cats:3x4", "synthetic:cats:12x1"])
def test_too_few_photos_leave_nothing_behind(tmp_path, data):
    with pytest.raises(BadDataset):
        fit(TINY, DataSpec((data,)), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def spoil_from(epoch, monkeypatch, spoil):
    """Have `spoil` change every loss from this epoch on (counted from 1; two steps each)."""
    forward, calls = loop.ArcFace.forward, []

    def spoilt(self, embeddings, labels):
        calls.append(1)
        loss = forward(self, embeddings, labels)
        return spoil(self, loss) if len(calls) > 2 * (epoch - 1) else loss

    monkeypatch.setattr(loop.ArcFace, "forward", spoilt)


def nan_loss(_objective, loss):
    return loss * float("nan")


def nan_gradient(objective, loss):
    """A finite loss whose gradient is 0 * inf."""
    return loss + (0.0 * objective.centres.sum()).sqrt()


@pytest.mark.usefixtures("without_curves")
@pytest.mark.parametrize("spoil", [nan_loss, nan_gradient])
def test_a_loss_that_is_not_finite_keeps_the_last_good_checkpoint(tmp_path, monkeypatch, spoil, cats):
    run = RunFolder(tmp_path)
    spoil_from(3, monkeypatch, spoil)
    with pytest.raises(TrainingFailed, match=r"epoch 3, step 1; lower optimizer\.lr.*best\.safetensors"):
        fit(TINY, cats, run.path)
    assert len(history(run)) == 2
    for path in (run.best, run.last):
        assert all(tensor.isfinite().all() for tensor in safetensors.torch.load_file(path).values())
    assert len(load_state(run.state)["records"]) == 2
    monkeypatch.undo()
    monkeypatch.setattr(loop, "draw_curves", lambda *_: None)
    assert fit(TINY, cats, run.path, resume=True).epochs == 3


@pytest.mark.usefixtures("without_curves")
def test_a_gradient_lost_in_the_last_step_of_an_epoch_is_not_saved(tmp_path, monkeypatch, cats):
    """No later loss of that epoch would show it, and the epoch is not validated."""
    calls = []

    def last_step(objective, loss):
        calls.append(1)
        return nan_gradient(objective, loss) if len(calls) == 2 else loss

    spoil_from(1, monkeypatch, last_step)
    with pytest.raises(TrainingFailed, match="epoch 1, step 2"):
        fit(TINY, cats, tmp_path)
    assert not RunFolder(tmp_path).state.exists()


@pytest.mark.usefixtures("without_curves")
def test_a_failure_before_any_checkpoint_promises_none(tmp_path, monkeypatch, cats):
    spoil_from(1, monkeypatch, nan_loss)
    with pytest.raises(TrainingFailed) as caught:
        fit(TINY, cats, tmp_path)
    assert "best" not in str(caught.value)


@pytest.mark.usefixtures("without_curves")
def test_an_absurd_rate_is_a_failed_training(tmp_path, cats):
    recipe = TINY.with_settings(["optimizer.lr=10", "optimizer.backbone_lr=10", "budget.epochs=6"])
    with pytest.raises(TrainingFailed):
        fit(recipe, cats, tmp_path)


def found(accuracy=0.7, strangers=0.1):
    return Validation(accuracy=accuracy, auc=0.7, recall_at_1=0.5, stranger_similarity=strangers)


@pytest.mark.usefixtures("without_steps")
@pytest.mark.parametrize(("patience", "epochs"), [(1, 2), (2, 3), (0, 5)])
def test_patience_ends_a_run_that_gets_no_better(tmp_path, monkeypatch, patience, epochs, cats):
    monkeypatch.setattr(loop, "validate", lambda *_: found())
    recipe = TINY.with_settings(
        [
            f"budget.patience={patience}",
            "budget.epochs=5",
            "validation.every_epochs=1",
            "sampler.batch_size=32",
        ]
    )
    result = fit(recipe, cats, tmp_path)
    assert (result.epochs, result.best_epoch) == (epochs, 1)
    assert result.stopped == ("patience" if patience else "finished")
    assert RunFolder(tmp_path).embedder.exists()


@pytest.mark.usefixtures("without_steps")
def test_patience_counts_validations_not_epochs(tmp_path, monkeypatch, cats):
    scores = iter([0.6, 0.7, 0.65, 0.9])
    monkeypatch.setattr(loop, "validate", lambda *_: found(next(scores)))
    recipe = TINY.with_settings(["budget.patience=1", "budget.epochs=20", "sampler.batch_size=32"])
    result = fit(recipe, cats, tmp_path)
    assert (result.epochs, result.best_epoch, result.best_accuracy) == (6, 4, 0.7)


@pytest.mark.usefixtures("without_curves")
def test_the_time_budget_ends_a_run_with_a_validated_epoch(tmp_path, cats):
    result = fit(TINY.with_settings(["budget.seconds=1e-6"]), cats, tmp_path)
    assert (result.epochs, result.best_epoch, result.stopped) == (1, 1, "time")
    assert history(RunFolder(tmp_path))[0]["validation_accuracy"]


@pytest.mark.usefixtures("without_steps")
def test_a_collapse_is_a_failed_training(tmp_path, monkeypatch, cats):
    scores = iter([found(0.7), found(0.9, strangers=0.9995), found(0.9, strangers=0.9999)])
    monkeypatch.setattr(loop, "validate", lambda *_: next(scores))
    recipe = TINY.with_settings(["budget.epochs=5", "validation.every_epochs=1", "sampler.batch_size=32"])
    with pytest.raises(TrainingFailed, match=r"fell on one point.*lower optimizer\.lr"):
        fit(recipe, cats, tmp_path)
    state = load_state(RunFolder(tmp_path).state)
    assert (state["best_epoch"], state["best_accuracy"]) == (1, 0.7)


@pytest.mark.usefixtures("without_steps")
@pytest.mark.parametrize("budget", ["budget.epochs=1", "budget.seconds=1e-6"])
def test_a_run_that_ends_collapsed_is_a_failed_training(tmp_path, monkeypatch, budget, cats):
    monkeypatch.setattr(loop, "validate", lambda *_: found(strangers=0.9999))
    with pytest.raises(TrainingFailed, match="fell on one point"):
        fit(TINY.with_settings([budget]), cats, tmp_path)


@pytest.mark.usefixtures("without_curves")
def test_a_few_steps_are_enough_to_validate_by(tmp_path, cats):
    """Batch norms' averages must have caught up with the features after two steps, not after forty."""
    epochs = []
    fit(TINY.with_settings(["validation.every_epochs=1"]), cats, tmp_path, on_epoch=epochs.append)
    assert all(record.stranger_similarity < 0.9 for record in epochs)


@pytest.mark.usefixtures("without_curves")
def test_the_averages_of_batch_norms_warm_up_once_a_run(tmp_path, monkeypatch, cats):
    taken = []

    def momentum(steps_taken):
        taken.append(steps_taken)
        return statistics_momentum(steps_taken)

    monkeypatch.setattr(loop, "statistics_momentum", momentum)
    with pytest.raises(Interrupted):
        fit(TINY, cats, tmp_path, on_epoch=stop_after(2))
    fit(TINY, cats, tmp_path, resume=True)
    assert sorted(set(taken)) == list(range(6))
    assert taken == sorted(taken)


@pytest.mark.usefixtures("without_steps")
def test_every_epoch_sees_all_photos_in_another_order_and_changed_otherwise(tmp_path, monkeypatch, cats):
    seen = []

    def look(_trainer, images, labels):
        seen.append((images.mean((1, 2, 3)).tolist(), labels.tolist()))
        return 1.0, 1.0

    monkeypatch.setattr(loop.Trainer, "_one_step", look)
    monkeypatch.setattr(loop, "validate", lambda *_: found())
    fit(TINY.with_settings(["budget.epochs=2"]), cats, tmp_path)
    first, second = ([*seen[step][1], *seen[step + 1][1]] for step in (0, 2))
    assert sorted(first) == sorted(second) == sorted([*range(8)] * 4)
    assert first != second
    bright, again = ({*seen[step][0], *seen[step + 1][0]} for step in (0, 2))
    assert len(bright & again) < 16


@pytest.mark.usefixtures("without_curves")
def test_it_learns(tmp_path):
    """From worse than chance to knowing its eight cats, in evaluation mode too."""
    data = save_photos(tmp_path / "cats", "synthetic:cats:12x6:difficulty=0")
    recipe = TINY.with_settings(
        [
            *("budget.epochs=12", "validation.every_epochs=12", "model.dropout=0"),
            *("loss.margin_rad=0", "loss.label_smoothing=0"),
            *("augmentation.rotate_p=0", "augmentation.affine_p=0", "augmentation.jitter_p=0"),
        ]
    )
    run, losses = RunFolder(tmp_path / "run"), []
    fit(recipe, data, run.path, on_epoch=lambda record: losses.append(record.loss))
    assert losses[0] > np.log(8) > 1.0 > np.mean(losses[-2:])
    network = build_network(recipe)
    load_weights(run.embedder, network=network)
    photos = make_fold(run.recipe(), data.read()).train
    photos.augmentation = None
    labels = photos.table.labels
    known = validate(embed_dataset(network, photos), labels, validation_pairs(labels, 1000, 0))
    assert known.recall_at_1 > 0.25  # by chance 5 in 47
    assert known.auc > 0.55


@pytest.mark.usefixtures("without_curves")
def test_batches_by_identity(tmp_path, cats):
    recipe = TINY.with_settings(
        ["sampler.name=identities", "sampler.identities=4", "sampler.photos=3", "budget.epochs=1"]
    )
    steps = []
    fit(recipe, cats, tmp_path, on_step=steps.append)
    assert [at.steps for at in steps] == [2, 2]


@pytest.mark.usefixtures("without_curves")
def test_weights_from_a_file_are_where_it_starts(tmp_path, monkeypatch, cats):
    """A trunk at a rate of nothing keeps them, statistics aside."""
    timm = pytest.importorskip("timm")
    torch.manual_seed(5)
    trunk = timm.create_model("mobilenetv3_small_050", num_classes=0)
    torch.save(trunk.state_dict(), tmp_path / "trunk.pth")
    monkeypatch.chdir(tmp_path)
    recipe = replace(TINY, model=replace(TINY.model, initial_weights="trunk.pth")).with_settings(
        ["optimizer.backbone_lr=0", "budget.epochs=1"]
    )
    fit(recipe, cats, Path("run"))
    kept = safetensors.torch.load_file(tmp_path / "run" / "embedder.safetensors")
    for name, parameter in trunk.named_parameters():
        assert torch.equal(kept[f"network.trunk.backbone.{name}"], parameter)


@pytest.mark.parametrize(("workers", "threads"), [(0, 4), (1, 3), (3, 1), (9, 1)])
def test_threads_and_workers_share_the_cores(monkeypatch, workers, threads):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr("os.cpu_count", lambda: 4)
    torch.set_num_threads(4)
    with loop.threads_beside(workers):
        assert torch.get_num_threads() == threads
    assert torch.get_num_threads() == 4
    monkeypatch.setenv("OMP_NUM_THREADS", "4")
    with loop.threads_beside(workers):
        assert torch.get_num_threads() == 4
