import re

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from torch import nn

from familiar.core.errors import TrainingFailed, UnreadablePhoto
from familiar.core.vectors import normalize
from familiar.datasets.folders import DataSpec
from familiar.loading.batches import PhotoBatches
from familiar.loading.crops import read_table
from familiar.loading.dataset import FaceDataset, sequential_batches
from familiar.metrics.pairs import sample_pairs
from familiar.photos.preprocessing import Preprocessing
from familiar.training.validation import embed_dataset, validate, validation_loss_rows
from support.tiny_run import save_photos

LABELS = np.repeat(np.arange(6), 4)


def noisy_identities(noise, seed=0, labels=LABELS):
    rng = np.random.default_rng(seed)
    centers = rng.normal(size=(labels.max() + 1, 16))
    return normalize((centers[labels] + noise * rng.normal(size=(len(labels), 16))).astype(np.float32))


def test_pairs_are_deterministic_and_half_are_same():
    first, again = (sample_pairs(LABELS, 40, seed=3) for _ in range(2))
    other = sample_pairs(LABELS, 40, seed=4)
    for name in ("left", "right", "same"):
        assert np.array_equal(getattr(first, name), getattr(again, name))
    assert not np.array_equal(first.left, other.left)
    assert first.same.sum() == 20
    assert np.array_equal(LABELS[first.left] == LABELS[first.right], first.same)


def test_takes_all_pairs_when_fewer_than_requested():
    pairs = sample_pairs(LABELS, 5000, seed=0)
    assert len(pairs.left) == 24 * 23 // 2
    assert len({*zip(pairs.left.tolist(), pairs.right.tolist(), strict=True)}) == 24 * 23 // 2


def test_perfect_embeddings_score_one():
    result = validate(noisy_identities(0.0), LABELS, sample_pairs(LABELS, 100, 0))
    assert (result.accuracy, result.auc, result.recall_at_1) == (1.0, 1.0, 1.0)
    assert not result.collapsed


def test_random_embeddings_score_at_chance():
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(100), 5)
    embeddings = normalize(rng.normal(size=(500, 64)).astype(np.float32))
    result = validate(embeddings, labels, sample_pairs(labels, 2000, 0))
    assert result.auc == pytest.approx(0.5, abs=0.05)
    assert 0.5 <= result.accuracy < 0.56
    assert result.recall_at_1 < 0.05
    assert result.mean_negative_similarity == pytest.approx(0.0, abs=0.01)


@pytest.mark.slow
@given(noise=st.floats(0.2, 2), count=st.integers(10, 300), seed=st.integers(0, 999))
def test_figures_match_slow_reference(noise, count, seed):
    embeddings = noisy_identities(noise, seed)
    pairs = sample_pairs(LABELS, count, seed)
    result = validate(embeddings, LABELS, pairs)
    wide = embeddings.astype(np.float64)
    scores = np.float32([wide[i] @ wide[j] for i, j in zip(pairs.left, pairs.right, strict=True)])
    same, different = scores[pairs.same], scores[~pairs.same]
    assume(np.abs(np.subtract.outer(same, different)).min() > 1e-6)  # else rounding decides which is greater
    auc = np.mean([(s > d) + 0.5 * (s == d) for s in same for d in different])
    accuracy = max(((same >= threshold).mean() + (different < threshold).mean()) / 2 for threshold in (*scores, np.inf))
    assert result.auc == pytest.approx(auc, abs=1e-6)
    assert result.accuracy == pytest.approx(accuracy, abs=1e-9)
    assert result.mean_negative_similarity == pytest.approx(different.mean(), abs=1e-6)
    hits = [
        LABELS[max((other for other in range(24) if other != row), key=lambda other: wide[row] @ wide[other])]
        == LABELS[row]
        for row in range(24)
    ]
    assert result.recall_at_1 == pytest.approx(np.mean(hits), abs=1e-9)


def test_accuracy_balances_same_and_different_pairs():
    """All pairs: 36 positive, 240 negative."""
    random = normalize(np.random.default_rng(0).normal(size=(24, 16)).astype(np.float32))
    assert validate(random, LABELS, sample_pairs(LABELS, 5000, 0)).accuracy < 0.65 < 240 / 276


def test_reports_collapse_of_near_identical_embeddings():
    embeddings = normalize(np.tile(np.float32([3, 4, 0]), (24, 1)) + 1e-3 * noisy_identities(1)[:, :3])
    result = validate(embeddings, LABELS, sample_pairs(LABELS, 60, 0))
    assert result.collapsed
    assert result.mean_negative_similarity > 0.999


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 0.0])
def test_rejects_zero_or_non_finite_embeddings(bad):
    embeddings = noisy_identities(1.0)
    embeddings[7] = bad
    with pytest.raises(TrainingFailed, match=r"optimizer\.lr"):
        validate(embeddings, LABELS, sample_pairs(LABELS, 60, 0))


class MeanColor(nn.Module):
    """Embeds a photo as its mean color; adds 1 in training mode."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1))

    def forward(self, images):
        return self.weight * images.mean((2, 3)) + self.training


@pytest.mark.slow
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("batch_size", [1, 5, 128])
def test_embeds_dataset_in_order_and_evaluation_mode(batch_size, training):
    table = DataSpec(("synthetic:cats:4x2",)).read()
    read = read_table(table, Preprocessing(size_px=32, resize_px=32))
    photos = FaceDataset(read.table, read.crops)
    network = MeanColor().train(training)
    with torch.enable_grad():
        embeddings = embed_dataset(network, photos, batch_size=batch_size)
        assert torch.is_grad_enabled()
    ((images, *_),) = PhotoBatches(photos, sequential_batches(range(8), 8), torch.device("cpu"))
    expected = images.numpy().mean((2, 3))
    np.testing.assert_allclose(embeddings, expected, rtol=1e-5, atol=1e-6)
    assert network.training is training


@pytest.mark.slow
def test_error_names_missing_photo(tmp_path):
    read = read_table(save_photos(tmp_path / "cats").read(), Preprocessing(size_px=32, resize_px=32))
    read.table.photos[7].unlink()
    with pytest.raises(UnreadablePhoto, match=re.escape(str(read.table.photos[7]))):
        embed_dataset(MeanColor(), FaceDataset(read.table, read.crops))


@given(st.lists(st.integers(0, 90), min_size=1, max_size=900), st.integers(0, 5))
def test_validation_loss_rows_limit_identities_and_photos(labels, seed):
    _, labels = np.unique(labels, return_inverse=True)
    rows = validation_loss_rows(labels, seed)
    assert len(set(rows.tolist())) == len(rows)
    counts = np.bincount(labels[rows], minlength=labels.max() + 1)
    assert counts.max() <= 8
    assert (counts > 0).sum() == min(64, labels.max() + 1)
    taken = counts > 0
    assert np.array_equal(counts[taken], np.minimum(np.bincount(labels), 8)[taken])
    if not taken.all():
        assert np.minimum(np.bincount(labels), 8)[~taken].max() <= counts[taken].min(), "many photos first"
    assert np.array_equal(rows, validation_loss_rows(labels, seed)), "the same at every validation"
