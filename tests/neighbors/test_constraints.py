"""What is known before rows are grouped: alone, and against a slow and obvious grouping that keeps to it."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from familiar.core.vectors import normalize
from familiar.neighbors.clustering import cluster, prepare_linkage
from familiar.neighbors.constraints import Conflicts, Constraints, no_constraints
from support.clustering_reference import groups_of


def known(seeds: list[int], settled: tuple[bool, ...] = (), apart: tuple[tuple[int, int], ...] = ()):
    settled = settled or (False,) * (max(seeds, default=-1) + 1)
    pairs = np.array(apart, np.int64).reshape(-1, 2)
    return Constraints(np.array(seeds, np.int64), np.array(settled, bool), pairs)


def degrees(*angles: float) -> np.ndarray:
    radians = np.deg2rad(np.array(angles))
    return np.stack([np.cos(radians), np.sin(radians)], axis=1).astype(np.float32)


def partition(groups: np.ndarray) -> set[frozenset[int]]:
    return {frozenset(np.flatnonzero(groups == one).tolist()) for one in np.unique(groups)}


def anything_known(count: int, rng: np.random.Generator) -> Constraints:
    """Seeds of a few rows each, half of them settled, and pairs that are apart but in no seed."""
    most = max(1, count // 4)
    seeds = np.maximum(-1, rng.integers(-most, most, count))
    pairs = rng.integers(0, count, (rng.integers(0, count + 1), 2))
    together = (pairs[:, 0] == pairs[:, 1]) | ((seeds[pairs] >= 0).all(1) & np.equal(*seeds[pairs].T))
    return Constraints(seeds, rng.random(most) < 0.5, pairs[~together])


def scattered(count: int, rng: np.random.Generator) -> np.ndarray:
    return normalize((rng.normal(size=(count, 3)) + np.eye(3)[0]).astype(np.float32))


def on_a_grid(count: int, rng: np.random.Generator) -> np.ndarray:
    """Many rows are equal, and many similarities."""
    return normalize(np.round(scattered(count, rng)) + np.float32([0, 0, 0.25]))


def assert_holds(constraints: Constraints, groups: np.ndarray) -> None:
    for one, other in combinations(range(len(groups)), 2):
        seeds = constraints.seeds[[one, other]]
        if seeds[0] == seeds[1] >= 0:
            assert groups[one] == groups[other]
        elif seeds.min() >= 0 and constraints.locked[seeds].all():
            assert groups[one] != groups[other]
    for one, other in constraints.cannot_link:
        assert groups[one] != groups[other]


cases = given(st.integers(0, 10**6), st.integers(1, 24), st.floats(-1, 1))


@pytest.mark.slow
@cases
def test_matches_slow_reference(seed, count, threshold):
    rng = np.random.default_rng(seed)
    rows, constraints = scattered(count, rng), anything_known(count, rng)
    found = partition(cluster(rows, threshold, count, constraints))
    assert found == groups_of(rows, threshold, constraints)


@pytest.mark.slow
@cases
def test_constraints_hold_at_every_threshold(seed, count, threshold):
    rng = np.random.default_rng(seed)
    rows, constraints = on_a_grid(count, rng), anything_known(count, rng)
    neighbors = int(rng.integers(1, count + 1))
    for groups in prepare_linkage(rows, neighbors, constraints).groups_at([threshold, -1.0, 1.0]):
        assert_holds(constraints, groups)


@pytest.mark.slow
@cases
def test_constraints_hold_with_approximate_neighbors(seed, count, threshold):
    rng = np.random.default_rng(seed)
    rows, constraints = scattered(count, rng), anything_known(count, rng)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("familiar.neighbors.clustering.MANY", 0)
        patch.setattr("familiar.neighbors.knn_graph.EXACT_SCORES", 0)
        assert_holds(constraints, cluster(rows, threshold, constraints=constraints))


@pytest.mark.slow
@cases
def test_clusters_are_invariant_to_row_order(seed, count, threshold):
    """Of equal rows, which one it is may change where nothing that is known tells them apart."""
    rng = np.random.default_rng(seed)
    rows = on_a_grid(count, rng) if seed % 2 else scattered(count, rng)
    constraints, order = anything_known(count, rng), rng.permutation(count)
    place = np.argsort(order)
    shuffled = Constraints(constraints.seeds[order], constraints.locked, place[constraints.cannot_link][:, ::-1])
    _, vector = np.unique(rows, axis=0, return_inverse=True)
    neighbors = int(rng.integers(1, count + 1))

    def vectors_of_groups(groups: np.ndarray) -> list[list[tuple[int, int]]]:
        who = list(zip(vector.reshape(-1).tolist(), constraints.seeds.tolist(), strict=True))
        return sorted(sorted(who[row] for row in rows_of_one) for rows_of_one in partition(groups))

    found = cluster(rows, threshold, neighbors, constraints)
    again = cluster(rows[order], threshold, neighbors, shuffled)[place]
    assert vectors_of_groups(found) == vectors_of_groups(again)


def test_seed_rows_form_a_cluster_that_grows_from_its_mean():
    rows = degrees(0, 60, 30, 170)
    assert cluster(rows, 0.95).tolist() == [0, 1, 2, 3]
    assert cluster(rows, 0.95, constraints=known([0, 0, -1, -1])).tolist() == [0, 0, 0, 1]


def test_settled_seeds_never_merge_but_accept_other_rows():
    rows = degrees(0, 1, 2, 3, 100)
    seeds = [0, -1, 1, 2, -1]
    assert cluster(rows, 0.9, constraints=known(seeds)).tolist() == [0, 0, 0, 0, 1]
    assert cluster(rows, 0.9, constraints=known(seeds, (True, True, False))).tolist() == [0, 0, 1, 1, 2]


def test_apart_rows_join_other_clusters():
    rows = degrees(0, 1, 10, 350)
    assert cluster(rows, 0.95, constraints=known([-1] * 4, apart=((0, 1),))).tolist() == [0, 1, 1, 0]


def test_apart_holds_across_an_intermediate_row():
    rows = degrees(0, 5, 12)  # 5 is nearest to both, and with 0 first
    constraints = known([-1] * 3, apart=((2, 0),))
    assert cluster(rows, 0.9, constraints=constraints).tolist() == [0, 0, 1]


def test_apart_from_a_seed_row_applies_to_the_whole_seed():
    rows = degrees(0, 5, 6, 90)
    constraints = known([0, 0, -1, -1], apart=((0, 2),))
    assert cluster(rows, 0.0, constraints=constraints).tolist() == [0, 0, 1, 1]


def test_equal_rows_obey_constraints():
    rows = np.repeat(degrees(0, 90), [4, 1], axis=0)
    apart = known([-1] * 5, apart=((0, 1),))
    assert partition(cluster(rows, 0.5, constraints=apart)) == {
        frozenset({0, 2, 3}),
        frozenset({1}),
        frozenset({4}),
    }
    settled = known([0, 1, -1, -1, -1], (True, True))
    assert cluster(rows, 0.5, constraints=settled).tolist() == [0, 1, 0, 0, 2]
    every = known([-1] * 5, apart=tuple(combinations(range(5), 2)))
    assert cluster(rows, -1.0, constraints=every).tolist() == [0, 1, 2, 3, 4]


def test_equal_rows_with_different_constraints_are_separate_items():
    """Rows 0 and 1 are equal, and so are 2 and 3; but the way they are apart from 4 or 5 makes each one its own."""
    vectors = np.array([0, 0, 1, 1, 2, 3])
    constraints = known([-1] * 6, apart=((0, 2), (2, 4), (1, 3), (3, 5)))
    assert constraints.items(vectors).tolist()[4:] == [4, 5]
    swapped = known([-1] * 6, apart=((1, 2), (2, 4), (0, 3), (3, 5)))
    assert swapped.items(vectors).tolist() == constraints.items(vectors)[[1, 0, 2, 3, 4, 5]].tolist()


def test_equal_rows_with_equal_constraints_share_an_item():
    vectors = np.zeros(7, np.int64)
    constraints = known([0, 0, 1, -1, -1, -1, 0], apart=((5, 2), (1, 2)))
    items = constraints.items(vectors)
    assert partition(items) == {frozenset({0, 1, 6}), frozenset({2}), frozenset({3, 4}), frozenset({5})}


def test_settled_seeds_do_not_search_for_neighbors():
    rows = degrees(0, 4, 50, 53)  # 0 and 4 are each other's nearest
    joined = [0, 0, 1, 1]
    assert cluster(rows, 0.3, 1, known([-1, -1, 0, 0])).tolist() == joined
    start = prepare_linkage(rows, 1, known([0, -1, 1, 1], (True, False)))
    searched = start.rows[start.links.searched]
    np.testing.assert_allclose(np.sort(np.rad2deg(np.arctan2(searched[:, 1], searched[:, 0]))), [4, 50, 53], atol=1e-4)
    assert cluster(rows, 0.99, 1, known([0, -1, 1, 1], (True, True))).tolist() == joined


@pytest.mark.parametrize("threshold", [-1.0, 0.5, 1.0])
def test_seed_with_all_rows_gives_a_single_cluster(threshold):
    rows = degrees(0, 180, 90, 270, 90)  # whose mean has no direction
    assert cluster(rows, threshold, constraints=known([0] * 5, (True,))).tolist() == [0] * 5


def test_accepts_all_settled_rows_and_empty_input():
    rows = degrees(0, 0, 1)
    assert cluster(rows, -1.0, constraints=known([1, 0, 1], (True, True))).tolist() == [0, 1, 0]
    assert cluster(rows[:0], 0.5, constraints=known([])).tolist() == []
    assert cluster(rows[:1], 0.5, constraints=known([0], (True,))).tolist() == [0]


def test_empty_constraints_match_no_constraints():
    rows = scattered(60, np.random.default_rng(0))
    np.testing.assert_array_equal(cluster(rows, 0.8, constraints=no_constraints(60)), cluster(rows, 0.8))


def test_conflicts_follow_merged_clusters():
    conflicts = Conflicts(6, np.array([0, 5]), np.array([[1, 2], [3, 2]]))
    every = np.arange(6)
    assert conflicts.without(2, every).tolist() == [0, 2, 4, 5]
    conflicts.merge(4, 3)
    conflicts.merge(1, 0)
    assert conflicts.without(2, every).tolist() == [0, 2, 3, 5]
    assert 5 not in conflicts.without(1, every)
    assert 1 not in conflicts.without(5, every)


@pytest.mark.parametrize(
    ("seeds", "settled", "apart", "message"),
    [
        ([0, 1], (True,), (), "seeds"),
        ([-2, 0], (True,), (), "seeds"),
        ([-1, -1], (), ((0, 2),), "among 2"),
        ([-1, -1], (), ((-1, 0),), "among 2"),
        ([-1, -1], (), ((1, 1),), "rows 1 and 1"),
        ([0, -1, 0], (False,), ((1, 0), (2, 0)), "rows 2 and 0"),
    ],
)
def test_rejects_invalid_constraints(seeds, settled, apart, message):
    with pytest.raises(ValueError, match=message):
        known(seeds, settled, apart)


def test_rejects_constraints_for_a_different_row_count():
    with pytest.raises(ValueError, match="3 rows, not of 2"):
        cluster(degrees(0, 1), 0.5, constraints=no_constraints(3))
