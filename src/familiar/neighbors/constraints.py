"""Must-link seeds and cannot-link pairs of a clustering. Independent of vectors."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Int, Int64

from familiar.neighbors.labels import dense_ranks


@dataclass(frozen=True, eq=False)
class Constraints:
    """Constraints that every clustering of n rows has to satisfy.

    Attributes:
        seeds: rows with the same number, from 0 on, start as one cluster (must-link); a row of -1 starts as a cluster
            of its own.
        locked: for each seed number, whether its cluster is final: two locked clusters never merge.
        cannot_link: pairs of rows that never share a cluster, in any order.

    Raises:
        ValueError: a seed or a row out of range, a pair of a row with itself, or a pair within one seed.
    """

    seeds: Int64[np.ndarray, " n"]
    locked: Bool[np.ndarray, " s"]
    cannot_link: Int64[np.ndarray, "p 2"]

    def __post_init__(self) -> None:
        rows, seeds = len(self.seeds), len(self.locked)
        if rows and not -1 <= self.seeds.min() <= self.seeds.max() < seeds:
            raise ValueError(f"seeds must be numbers from -1 to {seeds - 1}")
        if self.cannot_link.size and not 0 <= self.cannot_link.min() <= self.cannot_link.max() < rows:
            raise ValueError(f"cannot-link pairs must be rows from 0 to {rows - 1}")
        first, second = self.cannot_link.T
        first_seed = self.seeds[first]
        impossible = np.flatnonzero((first == second) | ((first_seed >= 0) & (first_seed == self.seeds[second])))
        if impossible.size:
            pair = self.cannot_link[impossible[0]].tolist()
            raise ValueError(f"rows {pair[0]} and {pair[1]} start in one cluster and cannot be a cannot-link pair too")

    def item_ids(self, vector_ids: Int64[np.ndarray, " n"]) -> Int64[np.ndarray, " n"]:
        """Group the rows that are interchangeable into items.

        Rows with equal vectors are one item if they are in the same seed, or if they are in no seed and in no pair.

        Args:
            vector_ids: number of each row's vector among the distinct vectors.

        Returns:
            The item of each row. Items are numbered by vector, seed and the rows they cannot be linked to, so the
            numbers do not depend on the order of the rows.
        """
        unseeded = self.seeds < 0
        if unseeded.all() and not len(self.cannot_link):
            return vector_ids
        color = dense_ranks(np.where(unseeded, vector_ids, 0), self.seeds)
        both_ways = np.concatenate([self.cannot_link, self.cannot_link[:, ::-1]])
        unseeded_pairs = both_ways[unseeded[both_ways[:, 0]]]
        # A row in a pair is an item of its own, whatever its color.
        own_item = np.zeros(len(vector_ids), np.int64)
        own_item[unseeded_pairs[:, 0]] = unseeded_pairs[:, 0] + 1
        return dense_ranks(
            vector_ids, self.seeds, np.where(unseeded, _refine_colors(color, unseeded_pairs), 0), own_item
        )


def restrict_constraints(constraints: Constraints | None, rows: Int64[np.ndarray, " m"]) -> Constraints | None:
    """Select the constraints among some rows, renumbered by their positions in `rows`."""
    if constraints is None:
        return None
    position = np.full(len(constraints.seeds), -1)
    position[rows] = np.arange(len(rows))
    pairs = position[constraints.cannot_link]
    return Constraints(constraints.seeds[rows], constraints.locked, pairs[(pairs >= 0).all(axis=1)])


def no_constraints(rows: int) -> Constraints:
    """Create constraints that allow any clustering of `rows` rows."""
    return Constraints(np.full(rows, -1), np.zeros(0, bool), np.zeros((0, 2), np.int64))


class CannotLinks:
    """Pairs of clusters that must not merge, updated as clusters merge."""

    def __init__(self, count: int, locked: Int[np.ndarray, " g"], cannot_link: Int[np.ndarray, "p 2"]) -> None:
        """Start from clusters numbered below `count`.

        Args:
            count: upper bound of the cluster numbers.
            locked: clusters of which no two may merge.
            cannot_link: pairs of clusters that may not merge.
        """
        self._locked = np.zeros(count, bool)
        self._locked[locked] = True
        self._excluded: dict[int, set[int]] = {}
        for first, second in cannot_link[~self._locked[cannot_link].all(axis=1)].tolist():
            self._excluded.setdefault(first, set()).add(second)
            self._excluded.setdefault(second, set()).add(first)

    def mergeable_with(self, cluster: int, others: Int[np.ndarray, " o"]) -> Int[np.ndarray, " fewer"]:
        """Return the clusters among `others` that may merge with `cluster`, in their order."""
        if self._locked[cluster]:
            others = others[~self._locked[others]]
        excluded = self._excluded.get(cluster)
        return others if excluded is None else others[[other not in excluded for other in others.tolist()]]

    def merge(self, survivor: int, absorbed: int) -> None:
        """Apply the constraints of `absorbed` to `survivor` from now on."""
        self._locked[survivor] |= self._locked[absorbed]
        excluded = self._excluded.pop(absorbed, None)
        if excluded is None:
            return
        for other in excluded:
            self._excluded[other].remove(absorbed)
            self._excluded[other].add(survivor)
        self._excluded.setdefault(survivor, set()).update(excluded)


def _refine_colors(color: Int64[np.ndarray, " n"], pairs: Int64[np.ndarray, "p 2"]) -> Int64[np.ndarray, " n"]:
    """Split the colors of rows by the colors of the rows they are paired with, until nothing splits any more.

    Color refinement (Weisfeiler and Leman 1968), with sums of random weights in place of multisets of colors.
    """
    while len(pairs):
        weights = np.random.default_rng(0).integers(2**62, size=len(color))
        partner_colors = np.zeros(len(color), np.int64)
        np.add.at(partner_colors, pairs[:, 0], weights[color[pairs[:, 1]]])
        refined = dense_ranks(color, partner_colors)
        if refined.max() == color.max():
            break
        color = refined
    return color
