import csv
from dataclasses import asdict, fields, replace

import pytest
from PIL import Image

from familiar.core.errors import FamiliarError
from familiar.training import history
from familiar.training.fit import fit
from familiar.training.history import (
    EpochRecord,
    TensorBoard,
    draw_curves,
    require_tensorboard,
    write_history,
)
from familiar.training.run import RunFolder
from tiny import TINY, Interrupted, stop_after

FIRST = EpochRecord(1, 3.5, 5e-4, 5e-5, 0.1, 2.0, None, None, None, None, 120.0, 1.5)
SECOND = EpochRecord(2, 0.1 + 0.2, 4e-4, 4e-5, 0.2, 1.0, 0.75, 0.8, None, 0.1, 130.0, 1.4)


def test_one_row_an_epoch_with_blanks_where_nothing_was_measured(tmp_path):
    write_history(tmp_path / "history.csv", [FIRST, SECOND])
    with (tmp_path / "history.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == [field.name for field in fields(EpochRecord)]
    assert rows[0]["validation_accuracy"] == rows[1]["validation_recall_at_1"] == ""
    assert [float(row["loss"]) for row in rows] == [FIRST.loss, SECOND.loss], "no digit is lost"
    assert [int(row["epoch"]) for row in rows] == [1, 2]


def test_a_history_of_nothing_is_a_header(tmp_path):
    write_history(tmp_path / "history.csv", [])
    assert (tmp_path / "history.csv").read_text().startswith("epoch,loss,lr,")
    assert (tmp_path / "history.csv").read_text().count("\n") == 1


@pytest.mark.parametrize(
    "records",
    [
        [FIRST],  # never validated
        [FIRST, SECOND],
        [replace(FIRST, backbone_lr=0.0, margin_rad=0.0)],  # no rate to show on a logarithmic axis
    ],
)
def test_the_curves_are_a_picture(tmp_path, records):
    draw_curves(tmp_path / "curves.png", records)
    with Image.open(tmp_path / "curves.png") as picture:
        assert picture.format == "PNG"
        assert picture.size == (1100, 660)
        assert picture.convert("L").getextrema() == (0, 255)


# TensorBoard


def shown(run):
    """What TensorBoard shows: (epoch, value) by name."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(run.tensorboard)).Reload()
    return {
        name: [(event.step, event.value) for event in events.Scalars(name)]
        for name in events.Tags()["scalars"]
    }


def as_shown(records):
    """The same of the records themselves; TensorBoard keeps 32 bits."""
    wanted = {}
    for record in records:
        for name, value in asdict(record).items():
            if name != "epoch" and value is not None:
                wanted.setdefault(name, []).append((record.epoch, pytest.approx(value, rel=1e-6)))
    return wanted


def test_tensorboard_shows_the_records(tmp_path):
    run = RunFolder(tmp_path)
    with TensorBoard(run, 0, wanted=True) as board:
        board.add(FIRST)
        assert shown(run) == as_shown([FIRST]), "while it is trained, not only when it is over"
        board.add(SECOND)
    assert shown(run) == as_shown([FIRST, SECOND])
    assert [path.name for path in tmp_path.iterdir()] == ["tensorboard"]


def test_nothing_is_written_where_it_is_not_wanted(tmp_path):
    with TensorBoard(RunFolder(tmp_path), 0, wanted=False) as board:
        board.add(FIRST)
    assert not list(tmp_path.iterdir())


def test_what_a_killed_run_wrote_too_much_is_not_shown_twice(tmp_path):
    """It was killed in epoch 2, whose record was out already, and does that epoch anew."""
    run = RunFolder(tmp_path)
    board = TensorBoard(run, 0, wanted=True)
    board.add(FIRST)
    board.add(replace(SECOND, loss=99.0))
    with TensorBoard(run, 1, wanted=True) as resumed:
        resumed.add(SECOND)
    board.__exit__()
    assert shown(run) == as_shown([FIRST, SECOND])


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


def test_without_the_package_one_line_says_so(monkeypatch):
    require_tensorboard()
    monkeypatch.setattr(history, "find_spec", lambda _: None)
    with pytest.raises(FamiliarError, match=r"^TensorBoard is not installed: pip install tensorboard$"):
        require_tensorboard()
