"""Grouping as slow and obvious as it can be: full matrices, sets and loops."""

import numpy as np


def groups_of(embeddings: np.ndarray, threshold: float) -> set[frozenset[int]]:
    """The groups of distinct rows, each a neighbour of all others: the closest two merge, while close enough."""
    rows = embeddings.astype(np.float64)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    similarity = rows @ rows.T

    def between(one: frozenset[int], other: frozenset[int]) -> float:
        return float(similarity[np.ix_(sorted(one), sorted(other))].mean())

    def closeness(one: frozenset[int], other: frozenset[int]) -> float:
        return between(one, other) / np.sqrt(between(one, one) * between(other, other))

    groups = {frozenset([i]) for i in range(len(rows))}
    while len(groups) > 1:
        found, one, other = max(
            ((closeness(one, other), one, other) for one in groups for other in groups if one != other),
            key=lambda pair: pair[0],
        )
        if found < threshold:
            break
        groups = (groups - {one, other}) | {one | other}
    return groups
