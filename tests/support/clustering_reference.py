"""Slow reference implementation of clustering: full matrices, sets and loops."""

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

    clusters = {frozenset([row]) for row in range(count) if seeds[row] < 0}
    clusters |= {frozenset(np.flatnonzero(seeds == seed).tolist()) for seed in seeds if seed >= 0}
    level = 1.0
    while True:
        while True:
            most_similar: dict[frozenset[int], tuple[float, frozenset[int]]] = {}
            for first in clusters:
                options = [
                    (penalized_cosine(first, second), second)
                    for second in clusters
                    if first != second and may_merge(first, second)
                ]
                near = [option for option in options if option[0] >= level]
                if near:
                    most_similar[first] = max(near, key=lambda option: option[0])
            merged = {first | second for first, (_, second) in most_similar.items() if most_similar[second][1] == first}
            if not merged:
                break
            clusters = {each for each in clusters if not any(each < whole for whole in merged)} | merged
        if level <= threshold:
            return clusters
        level = max(level - STEP, threshold)
