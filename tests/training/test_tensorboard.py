from dataclasses import asdict, replace

import pytest

from familiar.core.errors import FamiliarError
from familiar.training import tensorboard as module
from familiar.training.fit import fit
from familiar.training.history import EpochRecord
from familiar.training.run import RunFolder
from familiar.training.tensorboard import TensorBoard, require_tensorboard
from support.tiny_run import TINY, Interrupted, stop_after

pytestmark = pytest.mark.slow

FIRST = EpochRecord(1, 3.5, 5e-4, 5e-5, 0.1, None, None, 2.0, None, None, None, None, None, 120.0, 1.5)
SECOND = EpochRecord(2, 0.1 + 0.2, 4e-4, 4e-5, 0.2, 64.0, 0.5, 1.0, 0.75, 0.8, None, 0.45, 0.1, 130.0, 1.4)


def shown(run):
    """What TensorBoard shows: (epoch, value) by name."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(run.tensorboard)).Reload()
    return {name: [(event.step, event.value) for event in events.Scalars(name)] for name in events.Tags()["scalars"]}


def as_shown(records):
    """The same of the records themselves; TensorBoard keeps 32 bits."""
    wanted = {}
    for record in records:
        for name, value in asdict(record).items():
            if name != "epoch" and value is not None:
                wanted.setdefault(name, []).append((record.epoch, pytest.approx(value, rel=1e-6)))
    return wanted


def test_shows_records_during_and_after_training(tmp_path):
    run = RunFolder(tmp_path)
    with TensorBoard(run.tensorboard, []) as board:
        board.add(FIRST)
        assert shown(run) == as_shown([FIRST]), "while it is trained, not only when it is over"
        board.add(SECOND)
    assert shown(run) == as_shown([FIRST, SECOND])
    assert [path.name for path in tmp_path.iterdir()] == ["tensorboard"]


def test_resume_replaces_records_of_repeated_epoch(tmp_path):
    """It was killed in epoch 2, whose record was out already, and does that epoch anew."""
    run = RunFolder(tmp_path)
    board = TensorBoard(run.tensorboard, [])
    board.add(FIRST)
    board.add(replace(SECOND, loss=99.0))
    with TensorBoard(run.tensorboard, [FIRST]) as resumed:
        resumed.add(SECOND)
    board.__exit__()
    assert shown(run) == as_shown([FIRST, SECOND])


@pytest.mark.exhaustive
@pytest.mark.usefixtures("without_curves")
def test_a_resumed_run_shows_every_epoch_once(tmp_path, cats):
    run, records = RunFolder(tmp_path / "run"), []
    with pytest.raises(Interrupted):
        fit(TINY, cats, run.path, tensorboard=True, on_epoch=stop_after(2))
    fit(TINY, cats, run.path, tensorboard=True, resume=True, on_epoch=records.append)
    found = shown(run)
    assert [epoch for epoch, _ in found["loss"]] == [1, 2, 3]
    assert [epoch for epoch, _ in found["validation_accuracy"]] == [2, 3]
    last = as_shown(records)
    assert all(found[name][-1:] == last[name] for name in last)
    assert found.keys() == last.keys()
    fit(TINY, cats, run.path, tensorboard=True, resume=True)
    assert shown(run) == found, "a finished run has nothing to add"


@pytest.mark.exhaustive
@pytest.mark.usefixtures("without_curves")
def test_resume_with_tensorboard_shows_earlier_epochs(tmp_path, cats):
    run = RunFolder(tmp_path / "run")
    with pytest.raises(Interrupted):
        fit(TINY, cats, run.path, on_epoch=stop_after(2))
    assert not run.tensorboard.exists()
    fit(TINY, cats, run.path, tensorboard=True, resume=True)
    assert [epoch for epoch, _ in shown(run)["loss"]] == [1, 2, 3]


def test_rejects_missing_package(monkeypatch):
    require_tensorboard()
    monkeypatch.setattr(module, "find_spec", lambda _: None)
    with pytest.raises(FamiliarError, match=r"^TensorBoard is not installed: pip install [^ ]+$"):
        require_tensorboard()
