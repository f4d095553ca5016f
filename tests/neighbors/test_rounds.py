"""Merging in rounds: sums stay sums, nothing that may merge is left, and it agrees with one merge at a time."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from familiar.core.vectors import normalize
from familiar.metrics.clustering import contingency
from familiar.neighbors import rounds
from familiar.neighbors.clustering import cluster, size_penalized_cosine
from familiar.neighbors.rounds import Clusters, Pairs, merge_in_rounds


def all_pairs(count: int) -> Pairs:
    first, second = np.triu_indices(count, 1)
    return Pairs.distinct(first.astype(np.int32), second.astype(np.int32))


def draw(count: int, dim: int, seed: int) -> np.ndarray:
    generator = np.random.default_rng(seed)
    centers = generator.normal(size=(max(1, count // 4), dim))
    return normalize(
        (centers[generator.integers(0, len(centers), count)] + generator.normal(size=(count, dim))).astype(np.float32)
    )


@pytest.fixture
def nothing_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rounds, "MARGIN", 3.0)


@pytest.mark.usefixtures("nothing_is_forgotten")
@given(st.integers(1, 40), st.integers(2, 6), st.floats(-1, 1), st.integers(0, 1000))
def test_sums_stay_sums_and_no_pair_is_left(count: int, dim: int, threshold: float, seed: int):
    rows = draw(count, dim, seed)
    clusters = Clusters.from_rows(rows.copy())
    merge_in_rounds(clusters, all_pairs(count), threshold)
    existing = np.flatnonzero(clusters.sizes)
    assert set(clusters.cluster.tolist()) == set(existing.tolist())
    assert len(clusters) == len(existing)
    sums = np.array([rows[clusters.cluster == number].sum(axis=0) for number in existing])
    np.testing.assert_array_equal(clusters.sizes[existing], np.bincount(clusters.cluster, minlength=count)[existing])
    np.testing.assert_allclose(clusters.directions[existing] * clusters.lengths[existing, None], sums, atol=1e-4)
    lengths = np.linalg.norm(sums, axis=1)
    cosine = (sums @ sums.T) / np.maximum(np.outer(lengths, lengths), 1e-12)
    sizes = clusters.sizes[existing]
    smaller = np.minimum.outer(sizes, sizes)
    similarity = size_penalized_cosine(cosine.reshape(-1), smaller.reshape(-1)).reshape(cosine.shape)
    different = ~np.eye(len(existing), dtype=bool)
    assert (similarity[different] < threshold + 1e-4).all() or lengths.min() < 1e-3  # a sum of zero has no direction


@given(st.integers(0, 1000))
def test_agrees_with_one_merge_at_a_time(seed: int):
    generator = np.random.default_rng(seed)
    centers = normalize(generator.normal(size=(8, 32)).astype(np.float32))
    true = generator.integers(0, 8, 60)
    rows = normalize(centers[true] + 0.1 * generator.normal(size=(60, 32)).astype(np.float32))
    clusters = Clusters.from_rows(rows.copy())
    merge_in_rounds(clusters, all_pairs(60), 0.6)
    assert contingency(cluster(rows, 0.6), clusters.cluster.astype(np.int64)).pairwise().f == 1.0


def test_a_row_joins_the_most_similar_cluster_even_if_that_has_a_nearer_one():
    """The chain 2 -> 1 -> 0 ends in the pair of which each is the most similar of the other."""
    angles = np.radians([0, 10, 24])
    rows = np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)
    clusters = Clusters.from_rows(rows.copy())
    merge_in_rounds(clusters, all_pairs(3), 0.9)
    assert clusters.cluster.tolist() == [0, 0, 0]
    farther = Clusters.from_rows(rows.copy())
    merge_in_rounds(farther, all_pairs(3), 0.975)  # 1 and 0 merge first; their mean is 19 degrees from 2
    assert farther.cluster.tolist() == [0, 0, 2]


def test_equal_rows_share_a_cluster_and_ties_end():
    rows = np.tile(np.eye(1, 4, dtype=np.float32), (50, 1))
    clusters = Clusters.from_rows(rows.copy())
    merge_in_rounds(clusters, all_pairs(50), 0.999)
    assert len(clusters) == 1
    assert clusters.lengths[clusters.cluster[0]] == pytest.approx(50, rel=1e-5)


def test_nothing_to_merge():
    clusters = Clusters.from_rows(np.eye(3, dtype=np.float32))
    merge_in_rounds(clusters, Pairs.distinct(np.empty(0, np.int32), np.empty(0, np.int32)), 0.5)
    assert clusters.cluster.tolist() == [0, 1, 2]


@given(st.lists(st.tuples(st.integers(0, 2**31 - 1), st.integers(0, 2**31 - 1)), max_size=30))
def test_pairs_are_ordered_and_distinct(pairs: list[tuple[int, int]]):
    columns = np.array(pairs, np.int32).reshape(-1, 2)
    distinct = Pairs.distinct(columns[:, 0], columns[:, 1])
    expected = sorted({(min(pair), max(pair)) for pair in pairs if pair[0] != pair[1]})
    assert list(zip(distinct.first.tolist(), distinct.second.tolist(), strict=True)) == expected
