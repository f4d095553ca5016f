"""Merging in rounds: sums stay sums, nothing that may merge is left, and what must not never does."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from familiar.core.vectors import normalize
from familiar.metrics.clustering import contingency
from familiar.neighbors.rounds import CannotLinks, Clusters, Rounds, pair_keys, pair_sides, size_penalized_cosine


def all_pairs(count: int) -> np.ndarray:
    return pair_keys(*np.triu_indices(count, 1))


def draw(count: int, dim: int, seed: int) -> np.ndarray:
    generator = np.random.default_rng(seed)
    centers = generator.normal(size=(max(1, count // 4), dim))
    return normalize(
        (centers[generator.integers(0, len(centers), count)] + generator.normal(size=(count, dim))).astype(np.float32)
    )


@given(st.integers(1, 40), st.integers(2, 6), st.floats(-1, 1), st.integers(0, 1000))
def test_sums_stay_sums_and_no_pair_is_left(count: int, dim: int, threshold: float, seed: int):
    rows = draw(count, dim, seed)
    clusters = Clusters.from_rows(rows.copy())
    Rounds(clusters, all_pairs(count)).merge_down_to(threshold)
    existing = np.flatnonzero(clusters.sizes)
    assert set(clusters.cluster().tolist()) == set(existing.tolist())
    assert len(clusters) == len(existing)
    sums = np.array([rows[clusters.cluster() == number].sum(axis=0) for number in existing])
    np.testing.assert_array_equal(clusters.sizes[existing], np.bincount(clusters.cluster(), minlength=count)[existing])
    np.testing.assert_allclose(clusters.directions[existing] * clusters.lengths[existing, None], sums, atol=1e-4)
    lengths = np.linalg.norm(sums, axis=1)
    cosine = (sums @ sums.T) / np.maximum(np.outer(lengths, lengths), 1e-12)
    sizes = clusters.sizes[existing]
    smaller = np.minimum.outer(sizes, sizes)
    similarity = size_penalized_cosine(cosine.reshape(-1), smaller.reshape(-1)).reshape(cosine.shape)
    different = ~np.eye(len(existing), dtype=bool)
    assert (similarity[different] < threshold + 1e-4).all() or lengths.min() < 1e-3  # a sum of zero has no direction


def test_agrees_with_the_true_individuals():
    generator = np.random.default_rng(0)
    centers = normalize(generator.normal(size=(8, 32)).astype(np.float32))
    true = generator.integers(0, 8, 60)
    clusters = Clusters.from_rows(normalize(centers[true] + 0.1 * generator.normal(size=(60, 32)).astype(np.float32)))
    Rounds(clusters, all_pairs(60)).merge_down_to(0.6)
    assert contingency(true, clusters.cluster()).pairwise().f == 1.0


def test_the_most_similar_pair_merges_first_and_its_mean_decides():
    angles = np.radians([0, 10, 24])
    rows = np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)
    for threshold, expected in ((0.9, [0, 0, 0]), (0.95, [0, 0, 2])):  # the mean of 0 and 10 is 19 degrees from 24
        clusters = Clusters.from_rows(rows.copy())
        Rounds(clusters, all_pairs(3)).merge_down_to(threshold)
        assert clusters.cluster().tolist() == expected


def test_equal_rows_share_a_cluster_and_ties_end():
    rows = np.tile(np.eye(1, 4, dtype=np.float32), (50, 1))
    clusters = Clusters.from_rows(rows.copy())
    Rounds(clusters, all_pairs(50)).merge_down_to(0.999)
    assert len(clusters) == 1
    assert clusters.lengths[clusters.cluster()[0]] == pytest.approx(50, rel=1e-5)


def test_rows_that_start_together_have_their_mean():
    rows = np.eye(3, dtype=np.float32)
    clusters = Clusters.from_rows(rows, np.array([1, 0, 1]))
    assert clusters.sizes.tolist() == [1, 2]
    np.testing.assert_allclose(clusters.directions, [[0, 1, 0], [0.5**0.5, 0, 0.5**0.5]], atol=1e-6)
    np.testing.assert_allclose(clusters.lengths, [1, 2**0.5], atol=1e-6)


def test_nothing_to_merge():
    clusters = Clusters.from_rows(np.eye(3, dtype=np.float32))
    Rounds(clusters, pair_keys(*np.empty((2, 0), np.int32))).merge_down_to(0.5)
    assert clusters.cluster().tolist() == [0, 1, 2]


def test_what_is_forgotten_below_the_floor_never_merges():
    rows = normalize(np.array([[1, 0.1], [1, -0.1], [0.2, 1]], np.float32))
    for floor, count in ((-1.0, 1), (0.5, 2)):
        clusters = Clusters.from_rows(rows.copy())
        Rounds(clusters, all_pairs(3), floor=floor).merge_down_to(0.1)
        assert len(clusters) == count


def test_clusters_that_cannot_be_linked_follow_those_that_they_became_part_of():
    became = np.arange(6, dtype=np.int32)
    links = CannotLinks(np.array([True, *[False] * 4, True]), np.array([[1, 2], [3, 2]]))

    def mergeable(number: int) -> list[int]:
        others = np.array([each for each in range(6) if each != number and became[each] == each], np.int32)
        pairs = pair_keys(others, np.full_like(others, number))
        return others[links.allow(pairs)].tolist()

    assert mergeable(2) == [0, 4, 5]
    assert 5 not in mergeable(0)
    became[[3, 0]] = 4, 1
    links.merge(np.array([4, 1], np.int32), np.array([3, 0], np.int32))
    assert mergeable(2) == [5]
    assert mergeable(1) == [4]


@given(st.lists(st.tuples(st.integers(0, 2**31 - 1), st.integers(0, 2**31 - 1)), max_size=30))
def test_pairs_are_ordered_and_distinct(pairs: list[tuple[int, int]]):
    columns = np.array(pairs, np.int32).reshape(-1, 2)
    sides = pair_sides(pair_keys(columns[:, 0], columns[:, 1]))
    expected = sorted({(min(pair), max(pair)) for pair in pairs if pair[0] != pair[1]})
    assert list(zip(*(each.tolist() for each in sides), strict=True)) == expected
