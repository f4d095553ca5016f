"""Grouping as slow and obvious as it can be: full matrices, sets and loops."""

import numpy as np

from familiar.neighbors.constraints import Constraints


def groups_of(embeddings: np.ndarray, threshold: float, constraints: Constraints | None = None) -> set[frozenset[int]]:
    """The groups of distinct rows, each a neighbor of all others: the closest two that may merge, while close
    enough."""
    rows = embeddings.astype(np.float64)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    similarity = rows @ rows.T
    count = len(rows)
    seeds = np.full(count, -1) if constraints is None else constraints.seeds
    settled = set() if constraints is None else set(np.flatnonzero(constraints.locked[seeds] & (seeds >= 0)))
    apart = [] if constraints is None else [frozenset(pair) for pair in constraints.cannot_link.tolist()]

    def between(one: frozenset[int], other: frozenset[int]) -> float:
        return float(similarity[np.ix_(sorted(one), sorted(other))].mean())

    def closeness(one: frozenset[int], other: frozenset[int]) -> float:
        cosine = between(one, other) / np.sqrt(between(one, one) * between(other, other))
        doublings = np.log2(min(len(one), len(other), 16))
        return cosine - 0.15 * doublings * max(cosine, 0) * (1 - cosine)

    def may_merge(one: frozenset[int], other: frozenset[int]) -> bool:
        both = one | other
        return not (one & settled and other & settled) and not any(pair <= both for pair in apart)

    groups = {frozenset([row]) for row in range(count) if seeds[row] < 0}
    groups |= {frozenset(np.flatnonzero(seeds == seed).tolist()) for seed in seeds if seed >= 0}
    while True:
        pairs = [(one, other) for one in groups for other in groups if one != other and may_merge(one, other)]
        if not pairs:
            break
        one, other = max(pairs, key=lambda pair: closeness(*pair))
        if closeness(one, other) < threshold:
            break
        groups = (groups - {one, other}) | {one | other}
    return groups
