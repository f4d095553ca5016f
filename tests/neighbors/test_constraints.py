"""Constraints on their own, and clustering under constraints against a slow reference."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from familiar.core.vectors import normalize
from familiar.neighbors.clustering import cluster, clusters_at, distinct_items
from familiar.neighbors.constraints import Constraints, no_constraints
from support.clustering_reference import reference_clusters


def constrain(seeds: list[int], locked: tuple[bool, ...] = (), pairs: tuple[tuple[int, int], ...] = ()) -> Constraints:
    locked = locked or (False,) * (max(seeds, default=-1) + 1)
    cannot_link = np.array(pairs, np.int64).reshape(-1, 2)
    return Constraints(np.array(seeds, np.int64), np.array(locked, bool), cannot_link)


def degrees(*angles: float) -> np.ndarray:
    radians = np.deg2rad(np.array(angles))
    return np.stack([np.cos(radians), np.sin(radians)], axis=1).astype(np.float32)


def partition(clusters: np.ndarray) -> set[frozenset[int]]:
    return {frozenset(np.flatnonzero(clusters == number).tolist()) for number in np.unique(clusters)}


def random_constraints(count: int, rng: np.random.Generator) -> Constraints:
    """Draw seeds of a few rows each, half of them locked, and cannot-link pairs that are in no common seed."""
    seed_count = max(1, count // 4)
    seeds = np.maximum(-1, rng.integers(-seed_count, seed_count, count))
    pairs = rng.integers(0, count, (rng.integers(0, count + 1), 2))
    together = (pairs[:, 0] == pairs[:, 1]) | ((seeds[pairs] >= 0).all(1) & np.equal(*seeds[pairs].T))
    return Constraints(seeds, rng.random(seed_count) < 0.5, pairs[~together])


def scattered(count: int, rng: np.random.Generator) -> np.ndarray:
    return normalize((rng.normal(size=(count, 3)) + np.eye(3)[0]).astype(np.float32))


def on_a_grid(count: int, rng: np.random.Generator) -> np.ndarray:
    """Draw rows of which many are equal, and many similarities."""
    return normalize(np.round(scattered(count, rng)) + np.float32([0, 0, 0.25]))


def assert_satisfied(constraints: Constraints, clusters: np.ndarray) -> None:
    for first, second in combinations(range(len(clusters)), 2):
        seeds = constraints.seeds[[first, second]]
        if seeds[0] == seeds[1] >= 0:
            assert clusters[first] == clusters[second]
        elif seeds.min() >= 0 and constraints.locked[seeds].all():
            assert clusters[first] != clusters[second]
    for first, second in constraints.cannot_link:
        assert clusters[first] != clusters[second]


cases = given(st.integers(0, 10**6), st.integers(1, 24), st.floats(-1, 1))


@pytest.mark.slow
@cases
def test_matches_slow_reference(seed, count, threshold):
    rng = np.random.default_rng(seed)
    rows, constraints = scattered(count, rng), random_constraints(count, rng)
    clusters = partition(cluster(rows, threshold, count, constraints))
    assert clusters == reference_clusters(rows, threshold, constraints)


@pytest.mark.slow
@cases
def test_constraints_hold_at_every_threshold(seed, count, threshold):
    rng = np.random.default_rng(seed)
    rows, constraints = on_a_grid(count, rng), random_constraints(count, rng)
    neighbors = int(rng.integers(1, count + 1))
    for clusters in clusters_at(rows, [threshold, -1.0, 1.0], neighbors, constraints):
        assert_satisfied(constraints, clusters)


@pytest.mark.slow
@cases
def test_constraints_hold_with_approximate_neighbors(seed, count, threshold):
    rng = np.random.default_rng(seed)
    rows, constraints = scattered(count, rng), random_constraints(count, rng)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("familiar.neighbors.clustering.LARGE_ROWS", 0)
        patch.setattr("familiar.neighbors.clustering.MAX_EXACT_SIMILARITIES", 0)
        assert_satisfied(constraints, cluster(rows, threshold, constraints=constraints))


@pytest.mark.slow
@cases
def test_clusters_are_invariant_to_row_order(seed, count, threshold):
    rng = np.random.default_rng(seed)
    rows = scattered(count, rng)
    constraints, order = random_constraints(count, rng), rng.permutation(count)
    position = np.argsort(order)
    shuffled = Constraints(constraints.seeds[order], constraints.locked, position[constraints.cannot_link][:, ::-1])
    _, vector = np.unique(rows, axis=0, return_inverse=True)
    neighbors = int(rng.integers(1, count + 1))

    def vectors_and_seeds(clusters: np.ndarray) -> list[list[tuple[int, int]]]:
        keys = list(zip(vector.reshape(-1).tolist(), constraints.seeds.tolist(), strict=True))
        return sorted(sorted(keys[row] for row in members) for members in partition(clusters))

    clusters = cluster(rows, threshold, neighbors, constraints)
    again = cluster(rows[order], threshold, neighbors, shuffled)[position]
    assert vectors_and_seeds(clusters) == vectors_and_seeds(again)


def test_seed_rows_form_a_cluster_that_grows_from_its_mean():
    rows = degrees(0, 60, 30, 170)
    assert cluster(rows, 0.95).tolist() == [0, 1, 2, 3]
    assert cluster(rows, 0.95, constraints=constrain([0, 0, -1, -1])).tolist() == [0, 0, 0, 1]


def test_locked_seeds_never_merge_but_accept_other_rows():
    rows = degrees(0, 1, 2, 3, 100)
    seeds = [0, -1, 1, 2, -1]
    assert cluster(rows, 0.9, constraints=constrain(seeds)).tolist() == [0, 0, 0, 0, 1]
    assert cluster(rows, 0.9, constraints=constrain(seeds, (True, True, False))).tolist() == [0, 0, 1, 1, 2]


def test_cannot_link_rows_join_other_clusters():
    rows = degrees(0, 1, 10, 350)
    assert cluster(rows, 0.95, constraints=constrain([-1] * 4, pairs=((0, 1),))).tolist() == [0, 1, 1, 0]


def test_cannot_link_holds_across_an_intermediate_row():
    rows = degrees(0, 5, 12)  # 5 is nearest to both, and with 0 first
    constraints = constrain([-1] * 3, pairs=((2, 0),))
    assert cluster(rows, 0.9, constraints=constraints).tolist() == [0, 0, 1]


def test_cannot_link_with_a_seed_row_applies_to_the_whole_seed():
    rows = degrees(0, 5, 6, 90)
    constraints = constrain([0, 0, -1, -1], pairs=((0, 2),))
    assert cluster(rows, 0.0, constraints=constraints).tolist() == [0, 0, 1, 1]


def test_equal_rows_obey_constraints():
    rows = np.repeat(degrees(0, 90), [4, 1], axis=0)
    separated = constrain([-1] * 5, pairs=((0, 1),))
    assert partition(cluster(rows, 0.5, constraints=separated)) == {
        frozenset({0, 2, 3}),
        frozenset({1}),
        frozenset({4}),
    }
    locked = constrain([0, 1, -1, -1, -1], (True, True))
    assert cluster(rows, 0.5, constraints=locked).tolist() == [0, 1, 0, 0, 2]
    all_pairs = constrain([-1] * 5, pairs=tuple(combinations(range(5), 2)))
    assert cluster(rows, -1.0, constraints=all_pairs).tolist() == [0, 1, 2, 3, 4]


def test_only_equal_rows_without_constraints_share_an_item():
    constraints = constrain([0, 0, 1, -1, -1, -1, 0], pairs=((5, 2), (1, 2)))
    rows, items = distinct_items(np.repeat(degrees(10), 7, axis=0), constraints)
    assert partition(items) == {frozenset({3, 4}), *(frozenset({row}) for row in (0, 1, 2, 5, 6))}
    assert items[rows].tolist() == list(range(6))


def test_locked_seeds_do_not_search_for_neighbors():
    rows = degrees(0, 4, 50, 53)  # 0 and 4 are each other's nearest
    joined = [0, 0, 1, 1]
    assert cluster(rows, 0.3, 1, constrain([-1, -1, 0, 0])).tolist() == joined
    assert cluster(rows, 0.3, 1, constrain([0, -1, 1, 1], (True, True))).tolist() == joined
    assert cluster(rows, 0.99, 1, constrain([0, -1, 1, 1], (True, True))).tolist() == joined


@pytest.mark.parametrize("threshold", [-1.0, 0.5, 1.0])
def test_seed_with_all_rows_gives_a_single_cluster(threshold):
    rows = degrees(0, 180, 90, 270, 90)  # their mean is zero
    assert cluster(rows, threshold, constraints=constrain([0] * 5, (True,))).tolist() == [0] * 5


def test_accepts_all_locked_rows_and_empty_input():
    rows = degrees(0, 0, 1)
    assert cluster(rows, -1.0, constraints=constrain([1, 0, 1], (True, True))).tolist() == [0, 1, 0]
    assert cluster(rows[:0], 0.5, constraints=constrain([])).tolist() == []
    assert cluster(rows[:1], 0.5, constraints=constrain([0], (True,))).tolist() == [0]


def test_empty_constraints_match_no_constraints():
    rows = scattered(60, np.random.default_rng(0))
    np.testing.assert_array_equal(cluster(rows, 0.8, constraints=no_constraints(60)), cluster(rows, 0.8))


@pytest.mark.parametrize(
    ("seeds", "locked", "pairs", "message"),
    [
        ([0, 1], (True,), (), "seeds must be numbers from -1 to 0"),
        ([-2, 0], (True,), (), "seeds"),
        ([-1, -1], (), ((0, 2),), "rows from 0 to 1"),
        ([-1, -1], (), ((-1, 0),), "rows from 0 to 1"),
        ([-1, -1], (), ((1, 1),), "rows 1 and 1"),
        ([0, -1, 0], (False,), ((1, 0), (2, 0)), "rows 2 and 0"),
    ],
)
def test_rejects_invalid_constraints(seeds, locked, pairs, message):
    with pytest.raises(ValueError, match=message):
        constrain(seeds, locked, pairs)


def test_rejects_constraints_for_a_different_row_count():
    with pytest.raises(ValueError, match="3 rows, not for 2"):
        cluster(degrees(0, 1), 0.5, constraints=no_constraints(3))
