from dataclasses import asdict, replace

import pytest

from familiar.core.errors import FamiliarError
from familiar.training import tensorboard as tensorboard_module
from familiar.training.fitting import fit
from familiar.training.run import RunFolder
from familiar.training.step_log import read_steps
from familiar.training.tensorboard import TensorBoard, require_tensorboard
from support.epoch_records import FIRST, SECOND
from support.tiny_run import TINY, Interrupted, stop_after

pytestmark = pytest.mark.slow


def read_events(run):
    """Return what TensorBoard shows: (epoch, value) by name."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(run.tensorboard)).Reload()
    return {name: [(event.step, event.value) for event in events.Scalars(name)] for name in events.Tags()["scalars"]}


def expected_events(records):
    """Return what TensorBoard should show for these records; it stores 32 bits."""
    events = {}
    for record in records:
        for name, value in asdict(record).items():
            if name != "epoch" and value is not None:
                events.setdefault(name, []).append((record.epoch, pytest.approx(value, rel=1e-6)))
    return events


def test_events_are_readable_during_and_after_training(tmp_path):
    run = RunFolder(tmp_path)
    with TensorBoard(run.tensorboard, []) as board:
        board.add(FIRST)
        assert read_events(run) == expected_events([FIRST]), "during training, not only at its end"
        board.add(SECOND)
    assert read_events(run) == expected_events([FIRST, SECOND])
    assert [path.name for path in tmp_path.iterdir()] == ["tensorboard"]


def test_resume_replaces_records_of_repeated_epoch(tmp_path):
    """The run was killed in epoch 2, after its record was written, and repeats that epoch."""
    run = RunFolder(tmp_path)
    board = TensorBoard(run.tensorboard, [])
    board.add(FIRST)
    board.add(replace(SECOND, loss=99.0))
    with TensorBoard(run.tensorboard, [FIRST]) as resumed:
        resumed.add(SECOND)
    board.__exit__()
    assert read_events(run) == expected_events([FIRST, SECOND])


@pytest.mark.exhaustive
@pytest.mark.usefixtures("without_curves")
def test_resumed_run_shows_every_epoch_once(tmp_path, cats):
    run, records = RunFolder(tmp_path / "run"), []
    with pytest.raises(Interrupted):
        fit(TINY, cats, run.path, tensorboard=True, on_epoch=stop_after(2))
    fit(TINY, cats, run.path, tensorboard=True, resume=True, on_epoch=records.append)
    events = read_events(run)
    assert [epoch for epoch, _ in events["loss"]] == [1, 2, 3]
    assert [epoch for epoch, _ in events["validation_accuracy"]] == [2, 3]
    last = expected_events(records)
    assert all(events[name][-1:] == last[name] for name in last)
    steps = {"step/loss", "step/lr", "step/batch_recall_at_1"}
    assert events.keys() == last.keys() | steps
    assert all([step for step, _ in events[name]] == [1, 2, 3, 4, 5, 6] for name in steps)
    assert events["step/loss"] == [
        (record.step, pytest.approx(record.loss, rel=1e-6)) for record in read_steps(run.steps_csv, 99)
    ]
    fit(TINY, cats, run.path, tensorboard=True, resume=True)
    assert read_events(run) == events, "a finished run adds nothing"


@pytest.mark.exhaustive
@pytest.mark.usefixtures("without_curves")
def test_resume_with_tensorboard_shows_earlier_epochs(tmp_path, cats):
    run = RunFolder(tmp_path / "run")
    with pytest.raises(Interrupted):
        fit(TINY, cats, run.path, on_epoch=stop_after(2))
    assert not run.tensorboard.exists()
    fit(TINY, cats, run.path, tensorboard=True, resume=True)
    events = read_events(run)
    assert [epoch for epoch, _ in events["loss"]] == [1, 2, 3]
    assert [step for step, _ in events["step/loss"]] == [1, 2, 3, 4, 5, 6]


def test_rejects_missing_package(monkeypatch):
    require_tensorboard()
    monkeypatch.setattr(tensorboard_module, "find_spec", lambda _: None)
    with pytest.raises(FamiliarError, match=r"^TensorBoard is not installed: pip install [^ ]+$"):
        require_tensorboard()
