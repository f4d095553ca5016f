import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from familiar.core.vectors import normalize
from familiar.neighbors.clustering import cluster
from familiar.neighbors.constraints import Constraints
from familiar.neighbors.domains import (
    AGAIN,
    IN_DOMAIN,
    MIN_ROWS,
    SHARE,
    cluster_by_domain,
    extend_domains,
    is_domain,
    whiten_by_domain,
)
from familiar.neighbors.whitening import whiten_to_domain
from support.property_tests import expensive

DIM = 64


def individual(rng: np.random.Generator, photos: int, noise: float = 0.7) -> np.ndarray:
    """Photos around one direction, as alike as those of one individual."""
    middle = normalize(rng.normal(size=(1, DIM)).astype(np.float32))
    return normalize(middle + noise * normalize(rng.normal(size=(photos, DIM)).astype(np.float32)))


def corner(rng: np.random.Generator, individuals: int, photos: int) -> tuple[np.ndarray, np.ndarray]:
    """Many individuals around one direction that says only what they are; and who each row is."""
    shared = normalize(rng.normal(size=(1, DIM)).astype(np.float32))
    own = normalize(rng.normal(size=(individuals, DIM)).astype(np.float32))
    who = np.repeat(np.arange(individuals), photos)
    noise = normalize(rng.normal(size=(len(who), DIM)).astype(np.float32))
    return normalize(shared + 0.6 * own[who] + 0.2 * noise), who


def same_partition(left: np.ndarray, right: np.ndarray) -> bool:
    pairs = np.stack([left, right], axis=1)
    return len(np.unique(pairs, axis=0)) == len(np.unique(left)) == len(np.unique(right))


@pytest.mark.parametrize("photos", [MIN_ROWS, 120, 400])
def test_photos_of_one_individual_are_not_a_kind(photos):
    assert not is_domain(individual(np.random.default_rng(photos), photos))


@pytest.mark.slow
@pytest.mark.parametrize(("individuals", "photos"), [(10, 5), (20, 8), (60, 10)])
def test_many_individuals_around_one_direction_are_a_kind(individuals, photos):
    rows, _ = corner(np.random.default_rng(individuals), individuals, photos)
    assert len(np.unique(cluster(rows, 0.6))) == 1, "an embedder that never learned them takes them for one"
    assert is_domain(rows)


def test_fewer_than_min_rows_are_not_a_kind():
    rows, _ = corner(np.random.default_rng(0), 13, 3)
    assert len(rows) == MIN_ROWS - 1
    assert not is_domain(rows)


def test_equal_rows_are_not_a_kind():
    assert not is_domain(np.tile(individual(np.random.default_rng(0), 1), (80, 1)))


def test_kind_is_split_and_other_clusters_are_unchanged():
    rng = np.random.default_rng(1)
    foreign, who = corner(rng, 20, 6)
    home = np.concatenate([individual(rng, 5, 0.5) for _ in range(15)])
    groups, kinds = cluster_by_domain(np.concatenate([foreign, home]), 0.6)
    assert set(kinds[: len(foreign)].tolist()) == {1}
    assert set(kinds[len(foreign) :].tolist()) == {IN_DOMAIN}
    assert same_partition(groups[: len(foreign)], who)
    assert same_partition(groups[len(foreign) :], cluster(home, 0.6))


def test_without_kinds_matches_group():
    rng = np.random.default_rng(2)
    rows = np.concatenate([individual(rng, size) for size in (1, 2, 3, 50, 90)])
    groups, kinds = cluster_by_domain(rows, 0.5)
    assert not kinds.any()
    assert same_partition(groups, cluster(rows, 0.5))


def test_views_adapt_each_kind_and_keep_other_rows():
    rng = np.random.default_rng(3)
    first, second, home = corner(rng, 9, 5)[0], corner(rng, 8, 6)[0], individual(rng, 4)
    kinds = np.repeat([2, 5, IN_DOMAIN], [len(first), len(second), len(home)])
    seen = whiten_by_domain(np.concatenate([first, second, home]), kinds)
    np.testing.assert_array_equal(seen, np.concatenate([whiten_to_domain(first), whiten_to_domain(second), home]))


def test_rows_near_a_kind_join_it_and_distant_rows_do_not():
    rng = np.random.default_rng(4)
    rows, _ = corner(rng, 20, 6)
    far = individual(rng, 5)
    kinds = np.concatenate([np.full(len(rows), 3), np.zeros(6, np.int64)])
    kinds[7] = IN_DOMAIN
    middle = normalize(rows.mean(axis=0, keepdims=True))
    found = extend_domains(np.concatenate([rows, middle, far]), kinds)
    assert found[len(rows)] == 3, "the very middle of a kind"
    assert not found[len(rows) + 1 :].any()
    assert (found[: len(rows)] == 3).mean() > 0.99
    assert (kinds[7], kinds[len(rows)]) == (IN_DOMAIN, IN_DOMAIN), "what was given stays as it was"


def test_row_joins_the_nearer_of_two_kinds():
    rng = np.random.default_rng(5)
    first, second = corner(rng, 10, 5)[0], corner(rng, 10, 5)[0]
    # Kinds so wide that a row may lie within both.
    wide = normalize(first.mean(axis=0, keepdims=True) + 0.9 * second.mean(axis=0, keepdims=True))
    rows = np.concatenate([first, -first[:2], second, -second[:2], wide])
    kinds = np.repeat([1, 2, IN_DOMAIN], [len(first) + 2, len(second) + 2, 1])
    assert extend_domains(rows, kinds)[-1] == 1


def test_known_kinds_are_clustered_as_kinds_with_few_rows():
    rng = np.random.default_rng(6)
    rows, _ = corner(rng, 12, 4)
    few = np.arange(8)  # two individuals: nothing in them would tell that they are of a kind
    known = np.ones(len(few), np.int64)
    everyone = whiten_by_domain(rows, np.ones(len(rows), np.int64))
    groups, kinds = cluster_by_domain(rows[few], 0.6, known, everyone[few])
    assert same_partition(groups, np.repeat([0, 1], 4))
    assert (kinds == 1).all()


def test_constraints_hold_when_clustering_by_kind():
    rng = np.random.default_rng(7)
    rows, who = corner(rng, 20, 6)
    apart = np.array([[0, 1], [12, 13]])  # two rows of one individual each
    groups, kinds = cluster_by_domain(
        rows, 0.6, constraints=Constraints(np.full(len(rows), -1), np.zeros(0, np.bool_), apart)
    )
    assert kinds.mean() > 0.95
    assert groups[0] != groups[1]
    assert groups[12] != groups[13]
    seeds = np.full(len(rows), -1)
    seeds[[3, 100]] = 0  # of two individuals, by the user's word
    held, kinds = cluster_by_domain(
        rows, 0.6, constraints=Constraints(seeds, np.ones(1, np.bool_), np.empty((0, 2), np.int64))
    )
    assert held[3] == held[100]
    assert not kinds.any(), "a group that the user holds together is never taken for a kind"
    assert who[3] != who[100]


def test_accepts_no_rows_and_a_single_row():
    for count in (0, 1):
        groups, kinds = cluster_by_domain(individual(np.random.default_rng(0), 1)[:count], 0.5)
        assert groups.tolist() == kinds.tolist() == [0] * count


def test_rejects_non_unit_rows():
    with pytest.raises(ValueError, match="not unit vectors"):
        cluster_by_domain(np.ones((50, DIM), np.float32), 0.5)


@pytest.mark.slow
@expensive()
@given(st.integers(0, 10_000), st.integers(8, 16), st.integers(4, 6), st.integers(0, 6))
def test_clusters_have_a_single_kind_in_any_row_order(seed, individuals, photos, strangers):
    rng = np.random.default_rng(seed)
    rows = np.concatenate([corner(rng, individuals, photos)[0], *(individual(rng, 3) for _ in range(strangers))])
    groups, kinds = cluster_by_domain(rows, 0.6)
    assert all(len(np.unique(kinds[groups == number])) == 1 for number in np.unique(groups))
    order = rng.permutation(len(rows))
    turned, turned_kinds = cluster_by_domain(rows[order], 0.6)
    assert same_partition(turned, groups[order])
    assert same_partition(turned_kinds, kinds[order])


@pytest.mark.slow
def test_800_correlated_photos_of_one_individual_are_not_a_kind():
    """An individual photographed so often that some photos are alike by chance is no kind either."""
    rng = np.random.default_rng(8)
    middle = normalize(rng.normal(size=(1, DIM)).astype(np.float32))
    days = 0.35 * normalize(rng.normal(size=(160, DIM)).astype(np.float32))
    rows = normalize(
        middle + np.repeat(days, 5, axis=0) + 0.6 * normalize(rng.normal(size=(800, DIM)).astype(np.float32))
    )
    sizes = np.bincount(cluster(whiten_to_domain(rows), AGAIN[0]))
    assert sizes[sizes > 2].sum() >= SHARE * len(rows), "at the plain threshold it would be taken for one"
    assert not is_domain(rows)
