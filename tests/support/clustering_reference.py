"""Slow reference implementation of clustering: full matrices, sets and loops."""

import itertools
from collections.abc import Iterable, Sequence

import numpy as np

from familiar.neighbors.constraints import Constraints
from familiar.neighbors.rounds import STEP


def reference_clusters(
    embeddings: np.ndarray, threshold: float, constraints: Constraints | None = None
) -> set[frozenset[int]]:
    """Cluster distinct rows, each a neighbor of all others: merge any two that are each other's most similar ones."""
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

    def near(level: float, pairs: Iterable[Sequence[frozenset[int]]]) -> dict[frozenset[frozenset[int]], float]:
        """Compare pairs that may merge; those as similar as the level."""
        compared = {
            frozenset(pair): penalized_cosine(*pair) for pair in pairs if pair[0] != pair[1] and may_merge(*pair)
        }
        return {pair: similarity for pair, similarity in compared.items() if similarity >= level}

    def clusters_in(pairs: Iterable[frozenset[frozenset[int]]]) -> set[frozenset[int]]:
        return set().union(*pairs)

    clusters = {frozenset([row]) for row in range(count) if seeds[row] < 0}
    clusters |= {frozenset(np.flatnonzero(seeds == seed).tolist()) for seed in seeds if seed >= 0}
    level = 1.0
    while True:
        while pairs := near(level, itertools.combinations(clusters, 2)):
            while pairs:
                most_similar = {
                    each: max((pair for pair in pairs if each in pair), key=pairs.__getitem__)
                    for each in clusters_in(pairs)
                }
                merged = {
                    pair: frozenset().union(*pair) for pair in pairs if all(most_similar[each] == pair for each in pair)
                }
                became = {each: whole for pair, whole in merged.items() for each in pair}
                clusters = {became.get(each, each) for each in clusters}
                pairs = near(level, [[became.get(each, each) for each in pair] for pair in pairs])
        if level <= threshold:
            return clusters
        level = max(level - STEP, threshold)
