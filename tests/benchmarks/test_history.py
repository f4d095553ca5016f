"""Tests of a run's history."""

from pathlib import Path

from papers.history import History, read_history

from familiar.training.history import EpochRecord, write_history
from familiar.training.run import RunFolder


def record(epoch: int, auc: float | None) -> EpochRecord:
    """Create a record of 128 photos per second for half a second."""
    return EpochRecord(
        epoch=epoch,
        loss=0.1,
        lr=0.05,
        backbone_lr=0.05,
        margin=None,
        gamma=None,
        active_triplets=None,
        gradient_norm=1.0,
        validation_accuracy=None,
        validation_auc=auc,
        validation_recall_at_1=None,
        validation_loss=None,
        stranger_similarity=None,
        photos_per_second=128.0,
        seconds=0.5,
    )


def test_read_history_counts_photos_and_skips_unknown_values(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    write_history(run.history_csv, [record(1, None), record(2, 0.7), record(3, 0.8)])
    history = read_history(run)
    assert (history.photos, history.seconds) == (192, 1.5)
    assert history.known("validation_auc") == [(128, 0.7), (192, 0.8)]
    assert history.known("margin") == []


def test_run_without_epochs_has_empty_history(tmp_path: Path) -> None:
    history = read_history(RunFolder(tmp_path))
    assert history == History(())
    assert (history.photos, history.seconds, history.known("loss")) == (0, 0, [])
