"""Out-of-domain clusters: many individuals that the embedder maps to one small region, as if they were one.

An embedder spreads what it was trained on all over the sphere and maps everything else to a few small regions: all
cats to one, all gray portraits to another. There even photos of different individuals are similar, so clustering makes
one cluster of the whole region. Such a cluster splits again once what its members share is removed
(`whiten_to_domain`); the photos of one individual do not. Each of these regions is a
domain, numbered from 1; domain 0, `IN_DOMAIN`, is the one that the embedder was trained on.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float32, Float64, Int64

from familiar.core.blockwise import blocks, unit_rows
from familiar.neighbors.clustering import cluster, prepare_linkage
from familiar.neighbors.constraints import Constraints, restrict_constraints
from familiar.neighbors.knn_graph import SearchedRows
from familiar.neighbors.labels import relabel_by_first_appearance
from familiar.neighbors.whitening import whiten_to_domain

IN_DOMAIN = 0
# Chosen on a mixed album of cats, ORL and LFW with one embedder, and checked on single individuals of 12 to 530
# photos (docs/explanation/clustering.md).
DOMAIN_THRESHOLD = 0.25
"""Clustering threshold for whitened rows."""
COARSE_MARGIN = 0.15
"""Domains are searched for among clusters at a threshold lower by this: half a domain is harder to recognize."""
MIN_DOMAIN_ROWS = 40
"""A smaller cluster is taken for an individual."""
MIN_RECLUSTERED_SHARE = 0.4
"""Share of a domain's rows that cluster again, with two others or more, once they are whitened."""
MIN_CLUSTERS = 8
"""Number of such clusters: with fewer individuals, whitening removes what distinguishes them."""
RECLUSTER_THRESHOLDS = (0.30, 0.45)
"""Threshold for clustering whitened rows again: of up to 100 rows, and of very many."""
_ROUNDING = 1e-4  # of float32 products
_THRESHOLD_PER_DOUBLING = 0.05  # in between: among more photos of one individual, more are similar by chance


def is_domain(embeddings: Float32[np.ndarray, "n d"]) -> bool:
    """Decide whether a cluster shows many individuals rather than one.

    It does if two in five of its rows or more cluster again after whitening, in eight clusters of three rows or more.

    Args:
        embeddings: unit rows of one cluster.

    Raises:
        ValueError: rows that are not unit vectors.
    """
    if len(embeddings) < MIN_DOMAIN_ROWS:
        return False
    lowest, highest = RECLUSTER_THRESHOLDS
    threshold = min(highest, lowest + _THRESHOLD_PER_DOUBLING * max(0.0, math.log2(len(embeddings) / 100)))
    whitened = whiten_to_domain(embeddings)
    if not _has_pairs(whitened, threshold - _ROUNDING):
        return False
    sizes = np.bincount(cluster(whitened, threshold))
    reclustered = sizes[sizes > 2]
    return bool(len(reclustered) >= MIN_CLUSTERS and reclustered.sum() >= MIN_RECLUSTERED_SHARE * len(embeddings))


def _has_pairs(rows: Float32[np.ndarray, "n d"], threshold: float) -> bool:
    """Decide quickly whether eight clusters are possible: each begins with two rows as similar as the threshold."""
    count = 0
    for part in blocks(len(rows), len(rows), None):
        similarity = rows[part] @ rows.T
        similarity[np.arange(len(similarity)), np.arange(len(rows))[part]] = -1.0
        count += np.count_nonzero(similarity.max(axis=1) >= threshold)
        if count >= 2 * MIN_CLUSTERS:
            return True
    return False


def whiten_by_domain(
    embeddings: Float32[np.ndarray, "n d"], domains: Int64[np.ndarray, " n"]
) -> Float32[np.ndarray, "n d"]:
    """Whiten the rows of each domain separately; rows in `IN_DOMAIN` are unchanged.

    Do not compare rows of different domains.
    """
    whitened = embeddings.copy()
    for domain in np.unique(domains[domains != IN_DOMAIN]):
        whitened[domains == domain] = whiten_to_domain(embeddings[domains == domain])
    return whitened


@dataclass(frozen=True, eq=False)
class DomainCentroid:
    """The mean of a domain's rows, and the lowest similarity of one of them with it."""

    domain: int
    centroid: Float64[np.ndarray, " d"]
    min_similarity: float


def domain_centroids(embeddings: Float32[np.ndarray, "n d"], domains: Int64[np.ndarray, " n"]) -> list[DomainCentroid]:
    """Compute the centroid of every domain but `IN_DOMAIN`, in ascending order."""
    centroids: list[DomainCentroid] = []
    for domain in np.unique(domains[domains != IN_DOMAIN]).tolist():
        rows = unit_rows(embeddings[domains == domain])
        mean = rows.mean(axis=0)
        centroids.append(DomainCentroid(domain, mean, float((rows @ mean).min())))
    return centroids


def assign_domain(
    embeddings: Float32[np.ndarray, "n d"], centroids: Sequence[DomainCentroid]
) -> Int64[np.ndarray, " n"]:
    """Assign each row to the nearest domain centroid that it is at least `min_similarity` to, else to `IN_DOMAIN`."""
    domains = np.full(len(embeddings), IN_DOMAIN, np.int64)
    highest = np.full(len(embeddings), -2.0)
    rows = unit_rows(embeddings)
    for centroid in centroids:
        similarity = rows @ centroid.centroid
        nearer = (similarity >= centroid.min_similarity) & (similarity > highest)
        domains[nearer] = centroid.domain
        highest[nearer] = similarity[nearer]
    return domains


def extend_domains(embeddings: Float32[np.ndarray, "n d"], domains: Int64[np.ndarray, " n"]) -> Int64[np.ndarray, " n"]:
    """Return the domains with those rows of `IN_DOMAIN` added that are as close to a centroid as its furthest row."""
    extended, in_domain = domains.copy(), domains == IN_DOMAIN
    if not in_domain.all():
        extended[in_domain] = assign_domain(embeddings[in_domain], domain_centroids(embeddings, domains))
    return extended


def cluster_by_domain(
    embeddings: Float32[np.ndarray, "n d"],
    threshold: float,
    domains: Int64[np.ndarray, " n"] | None = None,
    whitened: Float32[np.ndarray, "n d"] | None = None,
    constraints: Constraints | None = None,
    searched: SearchedRows | None = None,
) -> tuple[Int64[np.ndarray, " n"], Int64[np.ndarray, " n"]]:
    """Cluster unit vectors as `clustering.cluster` does, each domain on its own, and detect new domains.

    Rows in `IN_DOMAIN` are clustered at `threshold`. If they would be one cluster at 0.15 less, and that cluster
    `is_domain`, they become a domain and are clustered again after whitening. Rows in a cluster with a seed never
    become a domain.

    Args:
        embeddings: unit rows.
        threshold: similarity in [-1, 1].
        domains: the domains known so far, numbered from 1, and `IN_DOMAIN` for all other rows; None: none are known.
        whitened: the rows as `whiten_by_domain` makes them among the whole collection; None: among these rows.
        constraints: as for `cluster`.
        searched: neighbors of rows in the main domain, known from clustering them under other constraints.

    Returns:
        The cluster and the domain of each row. A cluster lies within one domain.

    Raises:
        ValueError: as `cluster`.
    """
    domains = np.zeros(len(embeddings), np.int64) if domains is None else domains
    whitened = whiten_by_domain(embeddings, domains) if whitened is None else whitened
    clusters, coarse = np.zeros((2, len(embeddings)), np.int64)
    for domain in np.unique(domains):
        rows = np.flatnonzero(domains == domain)
        in_domain = domain == IN_DOMAIN
        thresholds = [threshold, max(-1.0, threshold - COARSE_MARGIN)] if in_domain else [DOMAIN_THRESHOLD]
        linkage = prepare_linkage(
            whitened[rows],
            constraints=restrict_constraints(constraints, rows),
            searched=searched if in_domain else None,
        )
        partitions = linkage.clusters_at(thresholds)
        clusters[rows], coarse[rows] = clusters.max(initial=-1) + 1 + partitions[0], partitions[-1]
    updated = _add_domains(embeddings, clusters, coarse, domains, constraints)
    changed = np.unique(updated[updated != domains])
    whitened = whiten_by_domain(embeddings, updated) if len(changed) else whitened
    for domain in changed:
        rows = np.flatnonzero(updated == domain)
        partition = cluster(whitened[rows], DOMAIN_THRESHOLD, constraints=restrict_constraints(constraints, rows))
        clusters[rows] = clusters.max(initial=-1) + 1 + partition
    return relabel_by_first_appearance(clusters), updated


def _add_domains(
    embeddings: Float32[np.ndarray, "n d"],
    clusters: Int64[np.ndarray, " n"],
    coarse: Int64[np.ndarray, " n"],
    domains: Int64[np.ndarray, " n"],
    constraints: Constraints | None,
) -> Int64[np.ndarray, " n"]:
    """Return the domains with the coarse clusters added that are domains, and with the rows near their centroids.

    Rows in a cluster with a seed keep their domain.
    """
    seeded = np.zeros(len(clusters), np.bool_) if constraints is None else constraints.seeds >= 0
    free = (domains == IN_DOMAIN) & ~np.isin(clusters, clusters[seeded])
    updated = domains.copy()
    numbers, sizes = np.unique(coarse[free], return_counts=True)
    for number in numbers[sizes >= MIN_DOMAIN_ROWS]:
        rows = np.flatnonzero(free & (coarse == number))
        if is_domain(embeddings[rows]):
            updated[rows] = updated.max() + 1
    return np.where(free, extend_domains(embeddings, updated), updated)
