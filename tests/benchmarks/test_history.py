"""Tests of a run's history and of the distribution of its embeddings."""

from pathlib import Path

import numpy as np
import pytest
from papers.history import History, read_history
from papers.spread import spread

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


def test_spread_equals_closed_form_for_four_equal_axes() -> None:
    """Eight points along and against four axes, of lengths 1 and 3: all pairs are orthogonal or opposite."""
    axes = np.concatenate([np.eye(4), -3 * np.eye(4)]).astype(np.float32)
    result = spread(np.pad(axes, ((0, 0), (0, 2))), np.arange(8))
    assert (result.norm_mean, result.norm_std) == (2, 1)
    assert result.effective_dimension == pytest.approx(4)
    assert result.stranger_similarity == pytest.approx(-8 / 56)
    assert result.variances[:5] == pytest.approx([0.25] * 4 + [0], abs=1e-12)


def test_spread_of_collapsed_embeddings_has_dimension_one() -> None:
    """All photos on one point except for a wobble along one axis; positives do not count as negatives."""
    wobble = 1e-3 * np.array([-1, 1, -1, 1])
    raw = np.stack([np.ones(4), wobble, np.zeros(4)], axis=1).astype(np.float32)
    result = spread(raw, np.array([0, 0, 1, 1]))
    assert result.stranger_similarity == pytest.approx(1, abs=1e-5)
    assert result.effective_dimension == pytest.approx(1, abs=1e-3)
    assert spread(raw, np.array([0, 1, 0, 1])).stranger_similarity < result.stranger_similarity
