import numpy as np
import pytest
import torch

from familiar.core.errors import CannotWrite
from familiar.loading.blends import NO_LABEL
from familiar.training import step_log
from familiar.training.step_log import StepLog, StepRecord, batch_recall_at_1, read_steps

RECORDS = [
    StepRecord(step=1, epoch=1, loss=0.1 + 0.2, batch_recall_at_1=1 / 3, lr=1e-3),
    StepRecord(step=2, epoch=1, loss=2.0, batch_recall_at_1=None, lr=2e-3),
    StepRecord(step=3, epoch=2, loss=1.5, batch_recall_at_1=0.0, lr=3e-3),
]


def write(path, records, steps=0):
    with StepLog(path, steps) as log:
        for record in records:
            log.add(record)
        log.save()


def angles(*degrees):
    radians = torch.deg2rad(torch.tensor(degrees))
    return torch.stack([radians.cos(), radians.sin()], 1)


def recall(embeddings, labels, rows=None):
    rows = range(len(labels)) if rows is None else rows
    as_integers = (torch.tensor(list(numbers), dtype=torch.int64) for numbers in (labels, rows))
    return batch_recall_at_1(embeddings, *as_integers).item()


# Recall@1 within a batch


def test_recall_is_share_of_photos_with_positive_as_nearest():
    """At 0, 10 and 24 degrees: the nearest of the first and the last is the second, whose nearest is the first."""
    assert recall(angles(0.0, 10.0, 24.0), [0, 0, 0]) == 1
    assert recall(angles(0.0, 10.0, 24.0), [0, 0, 1]) == 1, "the last has no positive, so it is no query"
    assert recall(angles(0.0, 10.0, 24.0), [0, 1, 1]) == 1 / 2
    assert recall(angles(0.0, 10.0, 24.0), [0, 1, 0]) == 0


def test_recall_is_nan_without_positives():
    assert np.isnan(recall(angles(0.0, 10.0, 24.0), [0, 1, 2]))
    assert np.isnan(recall(angles(0.0, 10.0), [0, 0], rows=[7, 7])), "the same photo twice"
    assert np.isnan(recall(angles(0.0, 10.0), [NO_LABEL, NO_LABEL]))
    assert np.isnan(recall(torch.zeros(0, 2), []))


def test_recall_ignores_length_of_embeddings():
    embeddings = angles(0.0, 10.0, 24.0) * torch.tensor([[1.0], [100.0], [1e-3]])
    assert recall(embeddings, [0, 1, 1]) == 1 / 2


def test_repeated_photo_is_not_its_own_positive():
    """The photo at 0 degrees is there twice; its nearest other photo, at 10 degrees, shows another identity."""
    embeddings = angles(0.0, 0.0, 10.0, 30.0)
    assert recall(embeddings, [0, 0, 1, 0], rows=[5, 5, 6, 7]) == 0
    assert recall(embeddings, [0, 0, 1, 0], rows=[4, 5, 6, 7]) == 2 / 3


@pytest.mark.parametrize("rows_at_a_time", [1024, 7])
def test_recall_equals_slow_reference(monkeypatch, rows_at_a_time):
    monkeypatch.setattr(step_log, "_ROWS_AT_A_TIME", rows_at_a_time)
    generator = torch.Generator().manual_seed(0)
    embeddings = torch.randn(60, 4, generator=generator)
    labels = torch.randint(NO_LABEL, 8, (60,), generator=generator)
    rows = torch.randint(0, 50, (60,), generator=generator)
    labels = torch.where(labels == NO_LABEL, NO_LABEL, rows % 8)  # a photo has a single identity
    unit = (embeddings / embeddings.norm(dim=1, keepdim=True)).numpy()
    hits = []
    for query in range(60):
        others = [i for i in range(60) if rows[i] != rows[query] and labels[i] != NO_LABEL]
        if labels[query] != NO_LABEL and any(labels[i] == labels[query] for i in others):
            nearest = max(others, key=lambda other, query=query: unit[query] @ unit[other])
            hits.append(bool(labels[nearest] == labels[query]))
    assert batch_recall_at_1(embeddings, labels, rows).item() == pytest.approx(np.mean(hits))
    assert 0 < np.mean(hits) < 1


# The file


def test_reads_back_what_was_written(tmp_path):
    path = tmp_path / "steps.csv"
    write(path, RECORDS)
    assert read_steps(path, 3) == RECORDS
    assert path.read_text().splitlines()[:3] == [
        "step,epoch,loss,batch_recall_at_1,lr",
        "1,1,0.30000000000000004,0.3333333333333333,0.001",
        "2,1,2.0,,0.002",
    ]


def test_rows_can_be_read_while_training(tmp_path):
    with StepLog(tmp_path / "steps.csv", 0) as log:
        assert read_steps(tmp_path / "steps.csv", 9) == []
        log.add(RECORDS[0])
        assert read_steps(tmp_path / "steps.csv", 9) == RECORDS[:1]


@pytest.mark.parametrize("saved", [0, 1, 2, 3])
def test_removes_rows_of_repeated_steps(tmp_path, saved):
    path = tmp_path / "steps.csv"
    write(path, RECORDS)
    assert read_steps(path, saved) == RECORDS[:saved]
    write(path, RECORDS[saved:], saved)
    assert read_steps(path, 3) == RECORDS


@pytest.mark.parametrize(
    "damage", [b"3,2,1", b"3,2,1.5,0.0,0.003", b"\0\0\0\0\n", b"3,2,1.5\n", b"\xff,2,1.5,0.0,0.003\n"]
)
def test_removes_damaged_last_row(tmp_path, damage):
    path = tmp_path / "steps.csv"
    write(path, RECORDS[:2])
    path.write_bytes(path.read_bytes() + damage)
    assert read_steps(path, 2) == RECORDS[:2]
    write(path, RECORDS[2:], steps=2)
    assert read_steps(path, 3) == RECORDS


@pytest.mark.parametrize("content", [b"", b"step,epo", b"step,epoch,loss\n1,1,0.5\n"])
def test_replaces_file_of_another_version(tmp_path, content):
    (tmp_path / "steps.csv").write_bytes(content)
    write(tmp_path / "steps.csv", RECORDS[2:], steps=1)
    assert read_steps(tmp_path / "steps.csv", 3) == RECORDS[2:]


def test_refusal_of_the_system_names_the_file(tmp_path):
    with pytest.raises(CannotWrite, match=r"steps\.csv: cannot be written"), StepLog(tmp_path / "no" / "steps.csv", 0):
        pytest.fail("opened")
