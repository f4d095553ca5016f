from dataclasses import replace

import numpy as np
import pytest
import safetensors.torch
import torch

from familiar.core.errors import TrainingFailed
from familiar.loading.augment.settings import NO_AUGMENTATION
from familiar.loading.crops import read_table
from familiar.loading.dataset import FaceDataset
from familiar.losses import ArcFace, circle_loss
from familiar.metrics.pairs import sample_pairs
from familiar.training import loop
from familiar.training import step as step_module
from familiar.training.checkpoint import load_state, load_weights
from familiar.training.data import prepare_data
from familiar.training.fitting import fit
from familiar.training.loss_catalog import CLASSIFIERS, LOSSES
from familiar.training.network import build_network
from familiar.training.objective import Objective, validation_loss
from familiar.training.run import RunFolder
from familiar.training.schedule import statistics_momentum
from familiar.training.step_log import read_steps
from familiar.training.validation import ValidationScores, embed_dataset, validate
from support.tiers import small_and_exhaustive
from support.tiny_run import TINY, Interrupted, history, save_photos, stop_after

pytestmark = pytest.mark.slow


def corrupt_losses(from_epoch, monkeypatch, corrupt):
    """Apply `corrupt` to every loss from an epoch on (counted from 1; two steps each)."""
    forward, calls = ArcFace.forward, []

    def corrupted_forward(self, embeddings, labels):
        calls.append(1)
        loss = forward(self, embeddings, labels)
        return corrupt(self, loss) if len(calls) > 2 * (from_epoch - 1) else loss

    monkeypatch.setattr(ArcFace, "forward", corrupted_forward)


def nan_loss(_objective, loss):
    return loss * float("nan")


def nan_gradient(objective, loss):
    """A finite loss whose gradient is 0 * inf."""
    return loss + (0.0 * objective.centers.sum()).sqrt()


@pytest.mark.exhaustive
@pytest.mark.usefixtures("without_curves")
@pytest.mark.parametrize("corrupt", small_and_exhaustive(nan_gradient, nan_loss))
def test_non_finite_loss_keeps_last_good_checkpoint(tmp_path, monkeypatch, corrupt, cats):
    run = RunFolder(tmp_path)
    corrupt_losses(3, monkeypatch, corrupt)
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
@pytest.mark.parametrize("behind", [0, 1])
def test_non_finite_gradient_in_last_step_is_not_saved(tmp_path, monkeypatch, cats, behind):
    """No later loss of the epoch would reveal it, and the epoch is not validated."""
    monkeypatch.setattr(loop, "STEPS_BEHIND", {"cpu": behind})
    calls = []

    def corrupt_last_step(objective, loss):
        calls.append(1)
        return nan_gradient(objective, loss) if len(calls) == 2 else loss

    corrupt_losses(1, monkeypatch, corrupt_last_step)
    with pytest.raises(TrainingFailed, match="epoch 1, step 2"):
        fit(TINY, cats, tmp_path)
    assert not RunFolder(tmp_path).state.exists()
    assert [step.step for step in read_steps(RunFolder(tmp_path).steps_csv, 2)] == [1, 2], "the step that failed too"


@pytest.mark.usefixtures("without_curves")
def test_non_finite_loss_is_noticed_before_a_checkpoint_within_the_epoch(tmp_path, monkeypatch, cats):
    """Figures are read a step later, as on a GPU."""
    monkeypatch.setattr(loop, "STEPS_BEHIND", {"cpu": 1})
    corrupt_losses(2, monkeypatch, nan_loss)
    with pytest.raises(TrainingFailed, match="epoch 2, step 1;"):
        fit(TINY, cats, tmp_path, save_every_steps=1)
    state = load_state(RunFolder(tmp_path).state)
    assert (len(state["records"]), state["figures"]["losses"]) == (1, [])


@pytest.mark.usefixtures("without_curves")
def test_figures_read_a_step_later_are_the_same(tmp_path, monkeypatch, cats):
    fit(TINY, cats, tmp_path / "at once")
    monkeypatch.setattr(loop, "STEPS_BEHIND", {"cpu": 1})
    fit(TINY, cats, tmp_path / "later")
    at_once, later = (RunFolder(tmp_path / name) for name in ("at once", "later"))
    assert history(later) == history(at_once)
    for name in ("steps_csv", "last", "embedder"):
        assert getattr(later, name).read_bytes() == getattr(at_once, name).read_bytes()


@pytest.mark.usefixtures("without_curves")
def test_early_failure_does_not_mention_checkpoint(tmp_path, monkeypatch, cats):
    corrupt_losses(1, monkeypatch, nan_loss)
    with pytest.raises(TrainingFailed) as caught:
        fit(TINY, cats, tmp_path)
    assert "best" not in str(caught.value)


@pytest.mark.usefixtures("without_curves")
def test_excessive_learning_rate_raises_training_failed(tmp_path, cats):
    recipe = TINY.with_settings(["optimizer.lr=10", "optimizer.backbone_lr=10", "budget.epochs=6"])
    with pytest.raises(TrainingFailed):
        fit(recipe, cats, tmp_path)


def scores(accuracy=0.7, negative_similarity=0.1):
    return ValidationScores(accuracy=accuracy, auc=0.7, recall_at_1=0.5, mean_negative_similarity=negative_similarity)


@pytest.mark.usefixtures("without_steps")
@pytest.mark.parametrize(("patience", "epochs"), small_and_exhaustive((2, 3), (1, 2), (0, 5)))
def test_patience_stops_run_without_improvement(tmp_path, monkeypatch, patience, epochs, cats):
    monkeypatch.setattr(loop, "validate", lambda *_: scores())
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


@pytest.mark.exhaustive
@pytest.mark.usefixtures("without_steps")
def test_patience_counts_validations_not_epochs(tmp_path, monkeypatch, cats):
    accuracies = iter([0.6, 0.7, 0.65, 0.9])
    monkeypatch.setattr(loop, "validate", lambda *_: scores(next(accuracies)))
    recipe = TINY.with_settings(["budget.patience=1", "budget.epochs=20", "sampler.batch_size=32"])
    result = fit(recipe, cats, tmp_path)
    assert (result.epochs, result.best_epoch, result.best_score) == (6, 4, 0.7)


@pytest.mark.usefixtures("without_curves")
def test_time_budget_stops_run_within_an_epoch_and_validates(tmp_path, cats):
    result = fit(TINY.with_settings(["budget.seconds=1e-6"]), cats, tmp_path)
    assert (result.epochs, result.best_epoch, result.stopped) == (1, 1, "time")
    assert history(RunFolder(tmp_path))[0]["validation_accuracy"]
    assert len(read_steps(RunFolder(tmp_path).steps_csv, 99)) == 1, "of two steps"


@pytest.mark.usefixtures("without_curves")
def test_time_left_is_no_more_than_the_time_budget(tmp_path, cats):
    steps = []
    fit(TINY.with_settings(["budget.epochs=100000", "budget.seconds=0.5"]), cats, tmp_path, on_step=steps.append)
    assert all(0 <= progress.seconds_left <= 0.5 for progress in steps)


@pytest.mark.usefixtures("without_steps")
def test_collapse_raises_training_failed_and_keeps_best(tmp_path, monkeypatch, cats):
    validations = iter([scores(0.7), scores(0.9, negative_similarity=0.9995), scores(0.9, negative_similarity=0.9999)])
    monkeypatch.setattr(loop, "validate", lambda *_: next(validations))
    recipe = TINY.with_settings(["budget.epochs=5", "validation.every_epochs=1", "sampler.batch_size=32"])
    with pytest.raises(TrainingFailed, match=r"collapsed to one point.*lower optimizer\.lr"):
        fit(recipe, cats, tmp_path)
    state = load_state(RunFolder(tmp_path).state)
    assert (state["best_epoch"], state["best_score"]) == (1, 0.7)


@pytest.mark.one_case
@pytest.mark.usefixtures("without_steps")
@pytest.mark.parametrize("budget", ["budget.epochs=1", "budget.seconds=1e-6"])
def test_collapse_in_last_epoch_raises_training_failed(tmp_path, monkeypatch, budget, cats):
    monkeypatch.setattr(loop, "validate", lambda *_: scores(negative_similarity=0.9999))
    with pytest.raises(TrainingFailed, match="collapsed to one point"):
        fit(TINY.with_settings([budget]), cats, tmp_path)


@pytest.mark.exhaustive
@pytest.mark.usefixtures("without_curves")
def test_batch_norm_statistics_adapt_within_few_steps(tmp_path, cats):
    """Running statistics must match the features after two steps, not after forty."""
    epochs = []
    fit(TINY.with_settings(["validation.every_epochs=1"]), cats, tmp_path, on_epoch=epochs.append)
    assert all(record.stranger_similarity < 0.9 for record in epochs)


@pytest.mark.exhaustive
@pytest.mark.usefixtures("without_curves")
def test_batch_norm_warmup_continues_after_resume(tmp_path, monkeypatch, cats):
    taken = []

    def momentum(steps_taken):
        taken.append(steps_taken)
        return statistics_momentum(steps_taken)

    monkeypatch.setattr(step_module, "statistics_momentum", momentum)
    with pytest.raises(Interrupted):
        fit(TINY, cats, tmp_path, on_epoch=stop_after(2))
    fit(TINY, cats, tmp_path, resume=True)
    assert sorted(set(taken)) == list(range(6))
    assert taken == sorted(taken)


@pytest.mark.usefixtures("without_steps")
def test_epochs_differ_in_order_and_augmentation(tmp_path, monkeypatch, cats):
    batches = []

    take_step = loop.take_step

    def record_batch(state, batch, step):
        batches.append((batch.images.mean((1, 2, 3)).tolist(), batch.labels.tolist()))
        return take_step(state, batch, step)

    monkeypatch.setattr(loop, "take_step", record_batch)
    monkeypatch.setattr(loop, "validate", lambda *_: scores())
    fit(TINY.with_settings(["budget.epochs=2"]), cats, tmp_path)
    first, second = ([*batches[step][1], *batches[step + 1][1]] for step in (0, 2))
    assert sorted(first) == sorted(second) == sorted([*range(8)] * 4)
    assert first != second
    brightness, later_brightness = ({*batches[step][0], *batches[step + 1][0]} for step in (0, 2))
    assert len(brightness & later_brightness) < 16


@pytest.mark.usefixtures("without_curves")
def test_training_learns_identities(tmp_path):
    """The loss falls from worse than chance, and recall is above chance in evaluation mode."""
    data = save_photos(tmp_path / "cats", "synthetic:cats:12x6:difficulty=0")
    recipe = replace(TINY, augmentation=NO_AUGMENTATION).with_settings(
        [
            *("budget.epochs=12", "validation.every_epochs=12", "model.dropout=0"),
            *("loss.margin_rad=0", "loss.label_smoothing=0"),
        ]
    )
    run, losses = RunFolder(tmp_path / "run"), []
    fit(recipe, data, run.path, on_epoch=lambda record: losses.append(record.loss))
    assert losses[0] > np.log(8) > 1.0 > np.mean(losses[-2:])
    network = build_network(recipe)
    load_weights(run.embedder, network=network)
    photos = prepare_data(run.recipe(), read_table(data.read(), run.recipe().input.preprocessing())).train
    photos.augmentation = None
    labels = photos.table.labels
    learned = validate(embed_dataset(network, photos), labels, sample_pairs(labels, 1000, 0))
    assert learned.recall_at_1 > 0.25  # by chance: 5 in 47
    assert learned.auc > 0.55


@pytest.mark.usefixtures("without_curves")
def test_identity_sampler_sets_steps_per_epoch(tmp_path, cats):
    recipe = TINY.with_settings(
        ["sampler.name=identities", "sampler.identities=4", "sampler.photos=3", "budget.epochs=1"]
    )
    steps = []
    fit(recipe, cats, tmp_path, on_step=steps.append)
    assert [progress.steps for progress in steps] == [2, 2]


@pytest.mark.exhaustive
@pytest.mark.usefixtures("without_steps")
@pytest.mark.parametrize(
    ("best_by", "best_epoch", "best_score"),
    small_and_exhaustive(("auc", 3, 0.9), ("accuracy", 2, 0.7), ("recall_at_1", 1, 0.5)),
)
def test_best_by_selects_best_epoch(tmp_path, monkeypatch, cats, best_by, best_epoch, best_score):
    figures = iter([(0.6, 0.7, 0.5), (0.7, 0.8, 0.4), (0.65, 0.9, 0.3)])
    monkeypatch.setattr(loop, "validate", lambda *_: ValidationScores(*next(figures), mean_negative_similarity=0.1))
    recipe = TINY.with_settings(
        [
            "budget.epochs=3",
            "validation.every_epochs=1",
            f"validation.best_by={best_by}",
            "sampler.batch_size=32",
        ]
    )
    result = fit(recipe, cats, tmp_path)
    assert (result.best_epoch, result.best_score) == (best_epoch, best_score)


@pytest.mark.usefixtures("without_steps")
@pytest.mark.parametrize(("seconds", "drawn"), [(0.0, [1, 2, 3, 3]), (1e9, [3])])
def test_curves_are_drawn_at_intervals_and_at_the_end(tmp_path, monkeypatch, cats, seconds, drawn):
    epochs = []
    monkeypatch.setattr(loop, "CURVES_SECONDS", seconds)
    monkeypatch.setattr(loop, "draw_curves", lambda _, records: epochs.append(len(records)))
    monkeypatch.setattr(loop, "validate", lambda *_: ValidationScores(0.6, 0.7, 0.5, mean_negative_similarity=0.1))
    fit(TINY, cats, tmp_path)
    assert epochs == drawn


@pytest.mark.usefixtures("without_steps")
def test_curves_are_drawn_when_training_stops_early(tmp_path, monkeypatch, cats):
    epochs = []
    monkeypatch.setattr(loop, "draw_curves", lambda _, records: epochs.append(len(records)))
    with pytest.raises(Interrupted):
        fit(TINY, cats, tmp_path, on_epoch=stop_after(1))
    assert epochs == [1]


@pytest.mark.exhaustive
@pytest.mark.usefixtures("without_curves")
def test_validation_loss_covers_all_validation_triplets(tmp_path, cats):
    """For any miner, and with the hyper-parameters of epoch 0."""
    recipe = TINY.with_settings(
        [
            *(
                "loss.name=circle_triplets",
                "loss.margin=0.2 + 0.1 every 1 to 1",
                "loss.gamma=64 + 32 every 1",
            ),
            *("sampler.identities=6", "sampler.photos=4", "validation.every_epochs=1", "budget.epochs=2"),
        ]
    )
    run = RunFolder(tmp_path)
    fit(recipe, cats, tmp_path)
    network = build_network(recipe)
    load_weights(run.last, network=network)
    table = cats.read().select_identities(run.split().validation)
    photos = FaceDataset(table, read_table(table, run.recipe().input.preprocessing()).crops)
    embeddings = torch.from_numpy(embed_dataset(network, photos))
    triplets = [
        (a, p, n)
        for a, anchor_label in enumerate(table.labels)
        for p, positive_label in enumerate(table.labels)
        for n, negative_label in enumerate(table.labels)
        if a != p and anchor_label == positive_label != negative_label
    ]
    columns = (embeddings[list(rows)] for rows in zip(*triplets, strict=True))
    expected = circle_loss(*columns, margin=0.2, gamma=64.0).item()
    assert float(history(run)[-1]["validation_loss"]) == pytest.approx(expected, rel=1e-5)


def test_only_classifiers_have_no_validation_loss():
    for name, loss in LOSSES.items():
        assert (validation_loss(loss()) is None) == (name in CLASSIFIERS)


@pytest.mark.exhaustive
@pytest.mark.usefixtures("without_curves")
def test_softmax_trains_on_unnormalized_embeddings(tmp_path, cats, monkeypatch):
    lengths = []
    original = Objective.forward

    def record_lengths(objective, embeddings, labels, rows):
        lengths.append(embeddings.detach().norm(dim=1))
        return original(objective, embeddings, labels, rows)

    monkeypatch.setattr(Objective, "forward", record_lengths)
    recipe = TINY.with_settings(["loss.name=softmax", "budget.epochs=1"])
    fit(recipe, cats, tmp_path / "raw")
    assert torch.cat(lengths).std() > 0.1
    lengths.clear()
    fit(recipe.with_settings(["loss.raw_embeddings=false"]), cats, tmp_path / "unit")
    torch.testing.assert_close(torch.cat(lengths), torch.ones(sum(map(len, lengths))))
