import csv
from dataclasses import fields, replace

import numpy as np
import pytest
from PIL import Image

from familiar.training.history import EpochRecord, draw_curves, write_history
from support.epoch_records import FIRST, SECOND


def test_writes_one_row_per_epoch_and_blanks_for_none(tmp_path):
    write_history(tmp_path / "history.csv", [FIRST, SECOND])
    with (tmp_path / "history.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == [field.name for field in fields(EpochRecord)]
    assert rows[0]["validation_accuracy"] == rows[1]["validation_recall_at_1"] == ""
    assert [float(row["loss"]) for row in rows] == [FIRST.loss, SECOND.loss], "no digit is lost"
    assert [int(row["epoch"]) for row in rows] == [1, 2]


def test_empty_history_is_only_a_header(tmp_path):
    write_history(tmp_path / "history.csv", [])
    assert (tmp_path / "history.csv").read_text().startswith("epoch,loss,lr,")
    assert (tmp_path / "history.csv").read_text().count("\n") == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    "records",
    [
        [FIRST],  # never validated
        [FIRST, SECOND],
        [replace(FIRST, backbone_lr=0.0, margin=0.0)],  # no rate to show on a logarithmic axis
    ],
)
def test_curves_are_saved_as_png(tmp_path, records):
    draw_curves(tmp_path / "curves.png", records)
    with Image.open(tmp_path / "curves.png") as picture:
        assert picture.format == "PNG"
        assert picture.size == (1100, 660)
        assert picture.convert("L").getextrema() == (0, 255)


@pytest.mark.slow
def test_curves_show_gamma_beside_margin(tmp_path):
    def purple_pixels(records):
        draw_curves(tmp_path / "curves.png", records)
        with Image.open(tmp_path / "curves.png") as picture:
            rgb = np.asarray(picture.convert("RGB")).astype(int)
        return (abs(rgb - (148, 103, 189)).max(-1) < 8).sum()  # tab:purple

    records = [replace(FIRST, gamma=64.0), replace(SECOND, gamma=96.0)]
    assert purple_pixels(records) > 100
    assert purple_pixels([replace(record, gamma=None) for record in records]) == 0
