import dataclasses
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from familiar.core.blockwise import similarities, unit_rows
from familiar.core.errors import NothingToMeasure
from familiar.core.vectors import normalize
from familiar.metrics.retrieval import rank_queries
from familiar.metrics.triplets import all_triplets, sampled_triplets


def photos(identities=6, per=3, dim=5, noise=0.6, seed=0):
    """Draw unit rows around one direction per identity, and their labels, shuffled."""
    rng = np.random.default_rng(seed)
    labels = rng.permutation(np.repeat(np.arange(identities), per))
    rows = rng.normal(size=(identities, dim))[labels] + noise * rng.normal(size=(len(labels), dim))
    return normalize(rows.astype(np.float32)), labels


def slow_triplets(embeddings, labels):
    """List (anchor, whether violated, margin) of every triplet."""
    rows = unit_rows(embeddings)
    exact, scores = rows @ rows.T, similarities(rows, rows)
    indices = range(len(labels))
    return [
        (a, scores[a, n] >= scores[a, p], exact[a, p] - exact[a, n])
        for a in indices
        for p in indices
        for n in indices
        if a != p and labels[a] == labels[p] != labels[n]
    ]


def test_all_triplets_equals_worked_example():
    # On a half circle at 0, 30 and 90 degrees: A B A. A to A is 0, and both are closer to B.
    rows = np.array([[1, 0], [np.sqrt(3) / 2, 1 / 2], [0, 1]], np.float32)
    result = all_triplets(rows, np.array([4, 8, 4]))
    assert (result.count, result.violation_rate) == (2, 1.0)
    assert result.average_margin == pytest.approx(-(np.sqrt(3) / 2 + 1 / 2) / 2)
    assert result.identity.tolist() == [4, 4]


@pytest.mark.slow
@given(
    seed=st.integers(0, 10_000),
    per=st.lists(st.integers(1, 8), min_size=2, max_size=6),
    coarse=st.booleans(),
    block_rows=st.sampled_from([None, 1, 3]),
)
def test_matches_slow_reference_for_any_block_size(seed, per, coarse, block_rows):
    embeddings, labels = photos(len(per), 1, seed=seed)
    labels = np.random.default_rng(seed).permutation(np.repeat(10 * labels, per))
    noise = np.random.default_rng(seed).normal(size=(len(labels), 5))
    embeddings = normalize((np.eye(100, 5)[labels] + 0.7 * noise).astype(np.float32))
    if coarse:  # few directions, so that many similarities tie
        embeddings = normalize(np.round(embeddings) + np.float32(0.25))
    expected = slow_triplets(embeddings, labels)
    if not expected:
        with pytest.raises(NothingToMeasure):
            all_triplets(embeddings, labels)
        return
    result = all_triplets(embeddings, labels, block_rows=block_rows)
    anchors, violated, margins = (np.array(column) for column in zip(*expected, strict=True))
    distinct_anchors = np.unique(anchors)
    assert result.identity.tolist() == labels[distinct_anchors].tolist()
    assert result.triplets.tolist() == np.bincount(anchors)[distinct_anchors].tolist()
    assert result.violations.tolist() == np.bincount(anchors, violated)[distinct_anchors].tolist()
    assert result.margins == pytest.approx(np.bincount(anchors, margins)[distinct_anchors], abs=1e-9)
    assert result.count == len(expected)
    assert result.violation_rate == pytest.approx(violated.mean(), abs=1e-12)
    assert result.average_margin == pytest.approx(margins.mean(), abs=1e-9)


def test_many_positives_match_slow_reference():
    embeddings, labels = photos(identities=2, per=40, noise=1.5)
    expected = slow_triplets(embeddings, labels)
    assert all_triplets(embeddings, labels).violations.sum() == sum(violated for _, violated, _ in expected)


def test_given_ranked_queries_are_reused(monkeypatch):
    embeddings, labels = photos()
    expected = dataclasses.asdict(all_triplets(embeddings, labels))
    ranked = rank_queries(embeddings, labels)
    monkeypatch.setattr("familiar.metrics.triplets.rank_queries", None)
    result = dataclasses.asdict(all_triplets(embeddings, labels, ranked))
    assert {name: values.tolist() for name, values in result.items()} == {
        name: values.tolist() for name, values in expected.items()
    }


def test_full_sample_contains_every_triplet_once():
    embeddings, labels = photos(identities=4, per=3)
    every = all_triplets(embeddings, labels)
    result = sampled_triplets(embeddings, labels, count=10**6)
    assert result.count == every.count == 12 * 2 * 9
    assert result.violation_rate == every.violation_rate
    assert result.average_margin == pytest.approx(every.average_margin, abs=1e-7)  # of rounded similarities


@pytest.mark.slow
def test_every_triplet_is_drawn_equally_often():
    # 5 photos of one identity, 2 of another and 1 of a third: 5 x 4 x 3 + 2 x 1 x 6 triplets. Each identity
    # lies at its own distance from the others, so that a margin tells the identities of a triplet.
    labels = np.array([0, 1, 0, 0, 2, 0, 1, 0])
    rows = normalize(np.array([[1, 0.1, 0], [0, 1, 0.3], [0, 0, 1]], np.float32)[labels])
    drawn: Counter[float] = Counter()
    for seed in range(600):
        result = sampled_triplets(rows, labels, count=12, seed=seed)
        assert result.count == 12
        drawn.update(np.round(result.margins, 3).tolist())
    scores = rows @ rows.T
    expected: Counter[float] = Counter()
    for anchor, negative, times in [(0, 1, 5 * 4 * 2), (0, 4, 5 * 4), (1, 0, 2 * 5), (1, 4, 2)]:
        expected[round(float(1 - scores[anchor, negative]), 3)] += times
    assert set(drawn) == set(expected)
    for margin, times in expected.items():
        share = times / 72
        assert drawn[margin] / 7200 == pytest.approx(share, abs=4 * np.sqrt(share / 7200))


def test_sample_is_deterministic_by_seed_and_near_all_triplets():
    embeddings, labels = photos(identities=30, per=5, noise=1.2)
    first, again, other = (sampled_triplets(embeddings, labels, 4000, seed) for seed in (1, 1, 2))
    assert first.margins.tolist() == again.margins.tolist()
    assert first.margins.tolist() != other.margins.tolist()
    every = all_triplets(embeddings, labels)
    assert first.violation_rate == pytest.approx(every.violation_rate, abs=0.03)
    assert first.average_margin == pytest.approx(every.average_margin, abs=0.03)


@pytest.mark.parametrize("measure", [all_triplets, sampled_triplets])
def test_collapsed_embeddings_violate_every_triplet(measure):
    embeddings = np.tile(normalize(np.array([[0.3, -0.2, 0.7]], np.float32)), (40, 1))
    result = measure(embeddings, np.arange(40) // 2)
    assert result.violation_rate == 1.0
    assert result.average_margin == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize("measure", [all_triplets, sampled_triplets])
def test_opposite_identities_have_the_largest_margin(measure):
    result = measure(np.array([[1, 0], [-1, 0], [1, 0]], np.float32), np.array([3, 5, 3]))
    assert (result.count, result.violation_rate) == (2, 0.0)
    assert result.average_margin == pytest.approx(2.0, abs=1e-12)


@pytest.mark.parametrize("measure", [all_triplets, sampled_triplets])
@pytest.mark.parametrize("labels", [[0, 0, 0], [0, 1, 2], []])
def test_rejects_labels_without_triplets(measure, labels):
    with pytest.raises(NothingToMeasure):
        measure(np.eye(3, dtype=np.float32)[: len(labels)], np.array(labels, np.int64))


@pytest.mark.parametrize("measure", [all_triplets, sampled_triplets])
def test_rejects_non_unit_rows(measure):
    with pytest.raises(ValueError, match="not unit vectors"):
        measure(np.ones((4, 3), np.float32), np.array([0, 0, 1, 1]))
