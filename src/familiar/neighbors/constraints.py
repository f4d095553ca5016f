"""Must-link seeds and cannot-link pairs of a clustering. Independent of vectors."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Int64


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

    def select(self, rows: Int64[np.ndarray, " m"]) -> "Constraints":
        """Select the constraints among some rows.

        Args:
            rows: indices; the constraints that are returned number them by their positions here.
        """
        position = np.full(len(self.seeds), -1)
        position[rows] = np.arange(len(rows))
        pairs = position[self.cannot_link]
        return Constraints(self.seeds[rows], self.locked, pairs[(pairs >= 0).all(axis=1)])


def no_constraints(rows: int) -> Constraints:
    """Create constraints that allow any clustering of `rows` rows."""
    return Constraints(np.full(rows, -1), np.zeros(0, bool), np.zeros((0, 2), np.int64))
