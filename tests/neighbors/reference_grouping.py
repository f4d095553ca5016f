"""Grouping as slow and obvious as it can be: full matrices, sets and loops."""

import numpy as np


def groups_of(embeddings: np.ndarray, threshold: float, scales, voices: int) -> set[frozenset[int]]:
    """The groups of distinct rows, with as many neighbours as there are rows."""
    rows = embeddings.astype(np.float64)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)

    def alike(one: frozenset[int], other: frozenset[int]) -> float:
        return float((rows @ rows.T)[np.ix_(sorted(one), sorted(other))].mean())

    groups = {frozenset([i]) for i in range(len(rows))}
    for k, overlap, stricter in scales:
        product = products((rows @ rows.T).astype(np.float32), threshold + stricter, k, voices)
        groups = merged(groups, lambda one, other, p=product: overlapping(p, one, other), overlap)
    return merged(groups, alike, threshold)


def products(similarity: np.ndarray, threshold: float, k: int, voices: int) -> np.ndarray:
    """Scalar products of the neighbourhoods of any two linked rows."""
    count = len(similarity)
    near = [
        sorted((j for j in range(count) if j != i), key=lambda j: -similarity[i, j])[:k] for i in range(count)
    ]
    mutual = [[j for j in near[i] if i in near[j] and similarity[i, j] >= threshold] for i in range(count)]
    seen = np.zeros((count, count))
    for i in range(count):
        seen[i, [i, *mutual[i]]] = 1 / (1 + len(mutual[i]))
    spread = np.stack([seen[[i, *mutual[i][:voices]]].mean(axis=0) for i in range(count)])
    linked = np.array([[i == j or i in near[j] or j in near[i] for j in range(count)] for i in range(count)])
    return np.where(linked, spread @ spread.T, 0)


def overlapping(product: np.ndarray, one: frozenset[int], other: frozenset[int]) -> float:
    def between(a: frozenset[int], b: frozenset[int]) -> float:
        return float(product[np.ix_(sorted(a), sorted(b))].sum())

    return between(one, other) / np.sqrt(between(one, one) * between(other, other))


def merged(groups: set[frozenset[int]], closeness, at_least: float) -> set[frozenset[int]]:
    """Round by round, every two groups that are each other's nearest, while they are close enough."""
    while len(groups) > 1:
        nearest = {
            one: max((other for other in groups if other != one), key=lambda other: closeness(one, other))
            for one in groups
        }
        pairs = {
            frozenset([one, other])
            for one, other in nearest.items()
            if nearest[other] == one and closeness(one, other) >= at_least
        }
        if not pairs:
            return groups
        for pair in pairs:
            groups = (groups - pair) | {frozenset().union(*pair)}
    return groups
