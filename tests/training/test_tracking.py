"""Trackers through accelerate: TensorBoard's files, and what the others are told."""

import sys
from dataclasses import asdict, replace
from types import SimpleNamespace

import pytest
from accelerate.utils import LoggerType

from familiar.core.errors import FamiliarError
from familiar.training import tracking
from familiar.training.fitting import fit
from familiar.training.run import RunFolder
from familiar.training.step_log import StepRecord, read_steps
from familiar.training.tracking import open_tracker, require_tracker
from support.epoch_records import FIRST, SECOND
from support.tiny_run import TINY, Interrupted, stop_after

pytestmark = pytest.mark.slow

STEPS = [
    StepRecord(step=step, epoch=(step + 1) // 2, loss=4.0 / step, batch_recall_at_1=None, lr=1e-3)
    for step in (1, 2, 3, 4)
]


def read_events(run):
    """Return what TensorBoard shows: (step, value) by name."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(run.tensorboard)).Reload()
    return {name: [(event.step, event.value) for event in events.Scalars(name)] for name in events.Tags()["scalars"]}


def expected_events(*records_and_steps):
    """Return what TensorBoard should show for these records; it stores 32 bits."""
    events = {}
    for record, step in records_and_steps:
        for name, value in asdict(record).items():
            if value is not None:
                events.setdefault(name, []).append((step, pytest.approx(value, rel=1e-6)))
    return events


def epoch_events(run):
    return {name: values for name, values in read_events(run).items() if not name.startswith("step/")}


def test_events_are_readable_during_and_after_training(tmp_path):
    run = RunFolder(tmp_path)
    with open_tracker("tensorboard", run, TINY, [], []) as tracker:
        for step in STEPS[:2]:
            tracker.add_step(step)
        tracker.add(FIRST)
        assert epoch_events(run) == expected_events((FIRST, 2)), "during training, not only at its end"
        for step in STEPS[2:]:
            tracker.add_step(step)
        tracker.add(SECOND)
    assert epoch_events(run) == expected_events((FIRST, 2), (SECOND, 4))
    assert [path.name for path in tmp_path.iterdir()] == ["tensorboard"]


def test_resume_replaces_records_of_repeated_epoch(tmp_path):
    """The run was killed in epoch 2, after its record was written, and repeats that epoch."""
    run = RunFolder(tmp_path)
    with open_tracker("tensorboard", run, TINY, [FIRST], STEPS) as tracker:
        tracker.add(replace(SECOND, loss=99.0))
    with open_tracker("tensorboard", run, TINY, [FIRST], STEPS[:2]) as resumed:
        for step in STEPS[2:]:
            resumed.add_step(step)
        resumed.add(SECOND)
    assert epoch_events(run) == expected_events((FIRST, 2), (SECOND, 4))
    assert [step for step, _ in read_events(run)["step/loss"]] == [1, 2, 3, 4]


@pytest.mark.exhaustive
@pytest.mark.usefixtures("without_curves")
def test_resumed_run_shows_every_epoch_once(tmp_path, cats):
    run, records = RunFolder(tmp_path / "run"), []
    with pytest.raises(Interrupted):
        fit(TINY, cats, run.path, track="tensorboard", on_epoch=stop_after(2))
    fit(TINY, cats, run.path, track="tensorboard", resume=True, on_epoch=records.append)
    events = read_events(run)
    assert [step for step, _ in events["loss"]] == [2, 4, 6]
    assert [step for step, _ in events["validation_accuracy"]] == [4, 6]
    last = expected_events((records[-1], 6))
    assert all(events[name][-1:] == last[name] for name in last)
    steps = {"step/loss", "step/lr", "step/batch_recall_at_1"}
    assert events.keys() == last.keys() | steps
    assert events["step/loss"] == [
        (record.step, pytest.approx(record.loss, rel=1e-6)) for record in read_steps(run.steps_csv, 99)
    ]


def test_other_trackers_hear_settings_steps_and_epochs(tmp_path, monkeypatch):
    """A double of wandb, as accelerate calls it."""
    heard = []

    class Run(SimpleNamespace):
        def log(self, values, step=None, **_):
            heard.append((step, values))

        def finish(self):
            heard.append("finished")

    config = SimpleNamespace(update=lambda values, **_: heard.append(values))
    wandb = SimpleNamespace(init=lambda **options: heard.append(options) or Run(), config=config, __spec__=object())
    monkeypatch.setitem(sys.modules, "wandb", wandb)
    monkeypatch.setattr("accelerate.tracking._available_trackers", [LoggerType("wandb")])
    with open_tracker("wandb", RunFolder(tmp_path / "cats"), TINY, [FIRST], STEPS[:2]) as tracker:
        tracker.add_step(STEPS[2])
    options, settings, *figures, last = heard
    assert (options["project"], options["name"]) == ("familiar", "cats")
    assert settings["optimizer.lr"] == TINY.optimizer.lr
    assert [step for step, _ in figures] == [1, 2, 2, 3]
    assert figures[2][1]["loss"] == FIRST.loss
    assert last == "finished"


def test_rejects_missing_packages_and_unknown_names(monkeypatch):
    require_tracker("tensorboard")
    with pytest.raises(FamiliarError, match="no tracker is named 'paper'; there are tensorboard, wandb, mlflow"):
        require_tracker("paper")
    monkeypatch.setattr(tracking, "find_spec", lambda name: name == "accelerate" or None)
    with pytest.raises(FamiliarError, match=r"needs accelerate: pip install 'familiar-faces\[track\]'"):
        require_tracker("tensorboard")
    with pytest.raises(FamiliarError, match="--track mlflow needs mlflow: pip install mlflow"):
        require_tracker("mlflow")
