"""Slow reference implementation of clustering: full matrices, sets and loops."""

import numpy as np

from familiar.neighbors.constraints import Constraints


def reference_clusters(
    embeddings: np.ndarray, threshold: float, constraints: Constraints | None = None
) -> set[frozenset[int]]:
    """Cluster distinct rows, each a neighbor of all others: merge the closest two that may, until the threshold."""
    rows = embeddings.astype(np.float64)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    similarity = rows @ rows.T
    count = len(rows)
    seeds = np.full(count, -1) if constraints is None else constraints.seeds
    locked = set() if constraints is None else set(np.flatnonzero(constraints.locked[seeds] & (seeds >= 0)))
    cannot_link = [] if constraints is None else [frozenset(pair) for pair in constraints.cannot_link.tolist()]

    def mean_similarity(first: frozenset[int], second: frozenset[int]) -> float:
        return float(similarity[np.ix_(sorted(first), sorted(second))].mean())

    def penalized_cosine(first: frozenset[int], second: frozenset[int]) -> float:
        within = mean_similarity(first, first) * mean_similarity(second, second)
        cosine = mean_similarity(first, second) / np.sqrt(within)
        doublings = np.log2(min(len(first), len(second), 16))
        return cosine - 0.15 * doublings * max(cosine, 0) * (1 - cosine)

    def may_merge(first: frozenset[int], second: frozenset[int]) -> bool:
        union = first | second
        return not (first & locked and second & locked) and not any(pair <= union for pair in cannot_link)

    clusters = {frozenset([row]) for row in range(count) if seeds[row] < 0}
    clusters |= {frozenset(np.flatnonzero(seeds == seed).tolist()) for seed in seeds if seed >= 0}
    while True:
        pairs = [
            (first, second) for first in clusters for second in clusters if first != second and may_merge(first, second)
        ]
        if not pairs:
            break
        first, second = max(pairs, key=lambda pair: penalized_cosine(*pair))
        if penalized_cosine(first, second) < threshold:
            break
        clusters = (clusters - {first, second}) | {first | second}
    return clusters
