from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.cluster import AgglomerativeClustering

from familiar.core.vectors import normalize
from familiar.neighbors.clustering import (
    THRESHOLDS,
    cluster,
    clusters_at,
    fit_threshold,
    nearest_rows,
)
from support.clustering_reference import reference_clusters


def individuals(sizes: list[int], noise: float, seed: int = 0, dim: int = 16) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    labels = np.repeat(np.arange(len(sizes)), sizes)
    centers = normalize(rng.normal(size=(len(sizes), dim)).astype(np.float32))
    scatter = rng.normal(size=(len(labels), dim)).astype(np.float32) * np.float32(noise / np.sqrt(dim))
    return normalize(centers[labels] + scatter), labels


def partition(clusters: np.ndarray) -> set[frozenset[int]]:
    return {frozenset(np.flatnonzero(clusters == number).tolist()) for number in np.unique(clusters)}


def degrees(*angles: float) -> np.ndarray:
    radians = np.deg2rad(np.array(angles))
    return np.stack([np.cos(radians), np.sin(radians)], axis=1).astype(np.float32)


def test_pairs_join_only_above_the_threshold():
    rows = degrees(0, 30, 170)
    assert cluster(rows, 0.85).tolist() == [0, 0, 1]  # cos 30 = .866
    assert cluster(rows, 0.88).tolist() == [0, 1, 2]


def test_cluster_similarity_is_the_cosine_of_means():
    rows = degrees(-20, 20, 80)  # 40 apart first, then the mean at 0 is 80 from the last: cos 80 = .174
    assert cluster(rows, np.cos(np.deg2rad(79))).tolist() == [
        0,
        0,
        1,
    ]  # not the nearest row: cos 60 = .5
    assert cluster(rows, np.cos(np.deg2rad(81))).tolist() == [0, 0, 0]


def test_two_clusters_need_more_similarity_than_two_rows():
    rows = degrees(-5, 5, 50, 60)  # pairs of 10 apart, then their means are 55 apart: cos 55 = .574
    required = 0.574 - 0.15 * 0.574 * (1 - 0.574)  # clusters of two: one doubling
    assert cluster(rows, required - 0.01).tolist() == [0, 0, 0, 0]
    assert cluster(rows, required + 0.01).tolist() == [0, 0, 1, 1]
    assert cluster(degrees(0, 55), 0.56).tolist() == [0, 0]


def test_clusters_join_with_row_similarity_below_threshold():
    axes = np.eye(11, dtype=np.float32)
    shared, individual = axes[0], axes[3:]
    rows = normalize(shared + individual + np.repeat(np.float32(0.3) * axes[1:3], 4, axis=0))
    within, between = float(rows[0] @ rows[1]), float(rows[0] @ rows[4])
    assert between < within - 0.01
    means = between / ((1 + 3 * within) / 4)  # over the mean similarity within four, each with itself
    assert cluster(rows, within - 0.01).tolist() == [0] * 8
    assert means > within
    assert cluster(rows, within + 0.01).tolist() == list(range(8))


def test_clusters_are_numbered_by_first_appearance():
    assert cluster(degrees(90, 0, 91, 180, 1), 0.9).tolist() == [0, 1, 0, 2, 1]


@pytest.mark.slow
@pytest.mark.parametrize("threshold", [-1.0, 0.0, 0.3, 0.6, 0.8, 1.0])
@pytest.mark.parametrize("seed", range(4))
def test_matches_slow_reference(threshold, seed):
    rows, _ = individuals([1, 1, 3, 7, 12], noise=1.0, seed=seed)
    assert partition(cluster(rows, threshold, neighbors=len(rows))) == reference_clusters(rows, threshold)


@pytest.mark.parametrize("threshold", [0.3, 0.5, 0.7])
def test_matches_single_linkage_for_pairs(threshold):
    """With at most two photos per individual, far from all others, every linkage gives the same clusters."""
    rows, _ = individuals([1, 2] * 6, noise=0.3, dim=64)
    linkage = AgglomerativeClustering(None, metric="cosine", linkage="single", distance_threshold=1 - threshold)
    assert partition(cluster(rows, threshold)) == partition(linkage.fit_predict(rows))


def test_finds_individuals_of_any_size():
    rows, labels = individuals([1, 2, 5, 40, 400], noise=0.5)
    assert partition(cluster(rows, 0.7)) == partition(labels)


@pytest.mark.slow
def test_large_collections_use_ivf_and_24_neighbors(monkeypatch):
    rows, labels = individuals([1, 2, 5, 40, 400], noise=0.5)
    monkeypatch.setattr("familiar.neighbors.clustering.LARGE_ROWS", 100)
    monkeypatch.setattr("familiar.neighbors.clustering.MAX_EXACT_SIMILARITIES", 0)
    assert partition(cluster(rows, 0.7)) == partition(labels)


@pytest.mark.parametrize("exact", [True, False])
def test_nearest_rows_match_a_full_matrix(exact, monkeypatch):
    rows, _ = individuals([1, 2, 5, 40], noise=0.9)
    monkeypatch.setattr("familiar.neighbors.clustering.MAX_EXACT_SIMILARITIES", 10**9 if exact else 0)
    queries, nearest = nearest_rows(rows, 4, np.array([3, 40, 7]))
    assert sorted(queries.tolist()) == [3, 7, 40]
    similarity = rows @ rows.T
    for query, neighbors in zip(queries, nearest, strict=True):
        expected = [row for row in np.argsort(-similarity[query]).tolist() if row != query][:4]
        assert [row for row in neighbors.tolist() if row != query] == expected


def test_clusters_join_only_through_neighbors():
    rows = degrees(0, 1, 60, 61)
    assert cluster(rows, 0.4, neighbors=1).tolist() == [0, 0, 1, 1]
    assert cluster(rows, 0.4, neighbors=2).tolist() == [0, 0, 0, 0]


@pytest.mark.slow
@given(st.integers(0, 10**6), st.floats(-1, 1), st.integers(1, 40), st.booleans())
def test_clusters_are_invariant_to_row_order(seed, threshold, neighbors, ties):
    rng = np.random.default_rng(seed)
    rows, _ = individuals(rng.integers(1, 12, 5).tolist(), noise=1.0, seed=seed, dim=4)
    if ties:  # on a grid: many equal rows and equal similarities
        rows = normalize(np.round(rows * 2) + np.array([4, 0, 0, 0], np.float32))
    order = rng.permutation(len(rows))
    unpermuted = np.empty(len(rows), np.int64)
    unpermuted[order] = cluster(rows[order], threshold, neighbors)
    clusters = cluster(rows, threshold, neighbors)
    assert partition(unpermuted) == partition(clusters)
    _, same = np.unique(rows, axis=0, return_inverse=True)
    assert len(np.unique(np.stack([same.reshape(-1), clusters]), axis=1).T) == same.max() + 1


def test_result_is_deterministic():
    rows, _ = individuals([10] * 20, noise=1.0)
    np.testing.assert_array_equal(cluster(rows, 0.5), cluster(rows, 0.5))


def test_accepts_no_rows_and_a_single_row():
    assert cluster(np.empty((0, 4), np.float32), 0.5).tolist() == []
    assert cluster(degrees(10), 0.5).tolist() == [0]


@pytest.mark.parametrize("threshold", [-1.0, 0.5, 1.0])
def test_equal_rows_share_a_cluster(threshold):
    rows = np.concatenate([np.tile(degrees(0), (50, 1)), np.tile(degrees(180), (50, 1))])
    rows[::2] = np.where(rows[::2] == 0, np.float32(-0.0), rows[::2])  # -0 is 0
    assert cluster(rows, threshold).tolist() == ([0] * 50 + ([0] if threshold == -1 else [1]) * 50)


def test_opposite_rows_are_separate_above_minus_one():
    assert cluster(degrees(0, 180), -0.99).tolist() == [0, 1]


def test_rows_with_zero_mean_join_at_threshold_minus_one():
    assert cluster(degrees(0, 180, 90, 270), -1.0).tolist() == [0, 0, 0, 0]


@pytest.mark.parametrize("threshold", [-1.01, 1.01, float("nan")])
def test_rejects_threshold_outside_minus_one_to_one(threshold):
    with pytest.raises(ValueError, match="threshold"):
        cluster(degrees(0, 1), threshold)


@pytest.mark.parametrize("bad", [0.0, float("nan"), 2.0])
def test_rejects_non_unit_rows(bad):
    rows = degrees(0, 1)
    rows[1] = bad
    with pytest.raises(ValueError, match="row 1"):
        cluster(rows, 0.5)


def test_rejects_zero_neighbors():
    with pytest.raises(ValueError, match="neighbor"):
        cluster(degrees(0, 1), 0.5, neighbors=0)


def test_fit_threshold_returns_the_middle_of_the_best():
    rows = degrees(0, 30, 170)  # two merge below cos 30 = .866, all three only near -.9
    threshold, score = fit_threshold(
        rows, lambda clusters: float(clusters.max() == 1), thresholds=(0.95, 0.2, 0.4, 0.6)
    )
    assert (threshold, score) == (0.4, 1.0)
    with pytest.raises(ValueError, match="thresholds"):
        fit_threshold(rows, lambda _: 0.0, thresholds=())


@pytest.mark.slow
def test_clusters_at_a_lower_threshold_consist_of_those_at_a_higher_one():
    rows, _ = individuals([3, 9, 20], noise=0.9)
    thresholds = (0.2, 0.7, 0.4, *THRESHOLDS)
    partitions = clusters_at(rows, thresholds)
    for threshold, clusters in zip(thresholds, partitions, strict=True):
        assert threshold != max(thresholds) or partition(clusters) == partition(cluster(rows, threshold))
    for coarse, fine in pairwise(partitions[3:]):
        assert all(any(part <= whole for whole in partition(coarse)) for part in partition(fine))
    assert clusters_at(rows, []) == []
