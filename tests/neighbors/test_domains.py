import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from familiar.core.vectors import normalize
from familiar.neighbors.clustering import cluster
from familiar.neighbors.constraints import Constraints
from familiar.neighbors.domains import (
    IN_DOMAIN,
    MIN_DOMAIN_ROWS,
    MIN_RECLUSTERED_SHARE,
    RECLUSTER_THRESHOLDS,
    cluster_by_domain,
    extend_domains,
    is_domain,
    whiten_by_domain,
)
from familiar.neighbors.whitening import whiten_to_domain
from support.property_tests import expensive

DIM = 64


def individual(rng: np.random.Generator, photos: int, noise: float = 0.7) -> np.ndarray:
    """Draw photos around one direction, as similar as those of one individual."""
    center = normalize(rng.normal(size=(1, DIM)).astype(np.float32))
    return normalize(center + noise * normalize(rng.normal(size=(photos, DIM)).astype(np.float32)))


def domain(rng: np.random.Generator, individuals: int, photos: int) -> tuple[np.ndarray, np.ndarray]:
    """Draw many individuals around one direction that they share; return the rows and their identities."""
    shared = normalize(rng.normal(size=(1, DIM)).astype(np.float32))
    directions = normalize(rng.normal(size=(individuals, DIM)).astype(np.float32))
    identities = np.repeat(np.arange(individuals), photos)
    noise = normalize(rng.normal(size=(len(identities), DIM)).astype(np.float32))
    return normalize(shared + 0.6 * directions[identities] + 0.2 * noise), identities


def same_partition(left: np.ndarray, right: np.ndarray) -> bool:
    pairs = np.stack([left, right], axis=1)
    return len(np.unique(pairs, axis=0)) == len(np.unique(left)) == len(np.unique(right))


@pytest.mark.parametrize("photos", [MIN_DOMAIN_ROWS, 120, 400])
def test_photos_of_one_individual_are_not_a_domain(photos):
    assert not is_domain(individual(np.random.default_rng(photos), photos))


@pytest.mark.slow
@pytest.mark.parametrize(("individuals", "photos"), [(10, 5), (20, 8), (60, 10)])
def test_many_individuals_around_one_direction_are_a_domain(individuals, photos):
    rows, _ = domain(np.random.default_rng(individuals), individuals, photos)
    assert len(np.unique(cluster(rows, 0.6))) == 1, "an embedder that was not trained on them takes them for one"
    assert is_domain(rows)


def test_fewer_than_min_rows_are_not_a_domain():
    rows, _ = domain(np.random.default_rng(0), 13, 3)
    assert len(rows) == MIN_DOMAIN_ROWS - 1
    assert not is_domain(rows)


def test_equal_rows_are_not_a_domain():
    assert not is_domain(np.tile(individual(np.random.default_rng(0), 1), (80, 1)))


def test_new_domain_is_split_and_other_clusters_are_unchanged():
    rng = np.random.default_rng(1)
    outside, identities = domain(rng, 20, 6)
    inside = np.concatenate([individual(rng, 5, 0.5) for _ in range(15)])
    clusters, domains = cluster_by_domain(np.concatenate([outside, inside]), 0.6)
    assert set(domains[: len(outside)].tolist()) == {1}
    assert set(domains[len(outside) :].tolist()) == {IN_DOMAIN}
    assert same_partition(clusters[: len(outside)], identities)
    assert same_partition(clusters[len(outside) :], cluster(inside, 0.6))


def test_without_domains_matches_plain_clustering():
    rng = np.random.default_rng(2)
    rows = np.concatenate([individual(rng, size) for size in (1, 2, 3, 50, 90)])
    clusters, domains = cluster_by_domain(rows, 0.5)
    assert not domains.any()
    assert same_partition(clusters, cluster(rows, 0.5))


def test_each_domain_is_whitened_and_other_rows_are_unchanged():
    rng = np.random.default_rng(3)
    first, second, inside = domain(rng, 9, 5)[0], domain(rng, 8, 6)[0], individual(rng, 4)
    domains = np.repeat([2, 5, IN_DOMAIN], [len(first), len(second), len(inside)])
    whitened = whiten_by_domain(np.concatenate([first, second, inside]), domains)
    expected = np.concatenate([whiten_to_domain(first), whiten_to_domain(second), inside])
    np.testing.assert_array_equal(whitened, expected)


def test_rows_near_a_domain_join_it_and_distant_rows_do_not():
    rng = np.random.default_rng(4)
    rows, _ = domain(rng, 20, 6)
    far = individual(rng, 5)
    domains = np.concatenate([np.full(len(rows), 3), np.zeros(6, np.int64)])
    domains[7] = IN_DOMAIN
    centroid = normalize(rows.mean(axis=0, keepdims=True))
    extended = extend_domains(np.concatenate([rows, centroid, far]), domains)
    assert extended[len(rows)] == 3, "the centroid itself"
    assert not extended[len(rows) + 1 :].any()
    assert (extended[: len(rows)] == 3).mean() > 0.99
    assert (domains[7], domains[len(rows)]) == (IN_DOMAIN, IN_DOMAIN), "the argument is not changed"


def test_row_joins_the_nearer_of_two_domains():
    rng = np.random.default_rng(5)
    first, second = domain(rng, 10, 5)[0], domain(rng, 10, 5)[0]
    # Domains so wide that a row may lie within both.
    between = normalize(first.mean(axis=0, keepdims=True) + 0.9 * second.mean(axis=0, keepdims=True))
    rows = np.concatenate([first, -first[:2], second, -second[:2], between])
    domains = np.repeat([1, 2, IN_DOMAIN], [len(first) + 2, len(second) + 2, 1])
    assert extend_domains(rows, domains)[-1] == 1


def test_few_rows_of_a_known_domain_are_clustered_in_it():
    rng = np.random.default_rng(6)
    rows, _ = domain(rng, 12, 4)
    few = np.arange(8)  # two individuals: too few to detect a domain
    known = np.ones(len(few), np.int64)
    whitened = whiten_by_domain(rows, np.ones(len(rows), np.int64))
    clusters, domains = cluster_by_domain(rows[few], 0.6, known, whitened[few])
    assert same_partition(clusters, np.repeat([0, 1], 4))
    assert (domains == 1).all()


def test_constraints_hold_when_clustering_by_domain():
    rng = np.random.default_rng(7)
    rows, identities = domain(rng, 20, 6)
    pairs = np.array([[0, 1], [12, 13]])  # two rows of one individual each
    constraints = Constraints(np.full(len(rows), -1), np.zeros(0, np.bool_), pairs)
    clusters, domains = cluster_by_domain(rows, 0.6, constraints=constraints)
    assert domains.mean() > 0.95
    assert clusters[0] != clusters[1]
    assert clusters[12] != clusters[13]
    seeds = np.full(len(rows), -1)
    seeds[[3, 100]] = 0  # two individuals that the user put together
    constraints = Constraints(seeds, np.ones(1, np.bool_), np.empty((0, 2), np.int64))
    clusters, domains = cluster_by_domain(rows, 0.6, constraints=constraints)
    assert clusters[3] == clusters[100]
    assert not domains.any(), "a cluster with a seed never becomes a domain"
    assert identities[3] != identities[100]


def test_accepts_no_rows_and_a_single_row():
    for count in (0, 1):
        clusters, domains = cluster_by_domain(individual(np.random.default_rng(0), 1)[:count], 0.5)
        assert clusters.tolist() == domains.tolist() == [0] * count


def test_rejects_non_unit_rows():
    with pytest.raises(ValueError, match="not unit vectors"):
        cluster_by_domain(np.ones((50, DIM), np.float32), 0.5)


@pytest.mark.slow
@expensive()
@given(st.integers(0, 10_000), st.integers(8, 16), st.integers(4, 6), st.integers(0, 6))
def test_clusters_lie_within_one_domain_in_any_row_order(seed, individuals, photos, others):
    rng = np.random.default_rng(seed)
    rows = np.concatenate([domain(rng, individuals, photos)[0], *(individual(rng, 3) for _ in range(others))])
    clusters, domains = cluster_by_domain(rows, 0.6)
    assert all(len(np.unique(domains[clusters == number])) == 1 for number in np.unique(clusters))
    order = rng.permutation(len(rows))
    permuted, permuted_domains = cluster_by_domain(rows[order], 0.6)
    assert same_partition(permuted, clusters[order])
    assert same_partition(permuted_domains, domains[order])


@pytest.mark.slow
def test_800_correlated_photos_of_one_individual_are_not_a_domain():
    """Among very many photos of one individual some are similar by chance."""
    rng = np.random.default_rng(8)
    center = normalize(rng.normal(size=(1, DIM)).astype(np.float32))
    days = 0.35 * normalize(rng.normal(size=(160, DIM)).astype(np.float32))
    rows = normalize(
        center + np.repeat(days, 5, axis=0) + 0.6 * normalize(rng.normal(size=(800, DIM)).astype(np.float32))
    )
    sizes = np.bincount(cluster(whiten_to_domain(rows), RECLUSTER_THRESHOLDS[0]))
    assert sizes[sizes > 2].sum() >= MIN_RECLUSTERED_SHARE * len(rows), "at the lowest threshold it would be a domain"
    assert not is_domain(rows)
