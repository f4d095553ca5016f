"""What is known before rows are grouped: which are together, and which can never be. Knows nothing of vectors."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Int, Int64


@dataclass(frozen=True, eq=False)
class Constraints:
    """What any grouping of n rows must keep to.

    `seeds`: rows of one number from 0 start as one group; a row of -1 starts alone. `settled`: for each seed number,
    whether it is a group in its own right: two settled ones never come into one group. `apart`: pairs of rows that are
    never in one group, in any order.
    `ValueError` for a seed or a row that does not exist, a pair of a row with itself, and one inside a seed.
    """

    seeds: Int64[np.ndarray, " n"]
    locked: Bool[np.ndarray, " s"]
    cannot_link: Int64[np.ndarray, "p 2"]

    def __post_init__(self) -> None:
        rows, seeds = len(self.seeds), len(self.locked)
        if rows and not -1 <= self.seeds.min() <= self.seeds.max() < seeds:
            raise ValueError(f"seeds are -1 or the number of one of {seeds}, not all of those given")
        if self.cannot_link.size and not 0 <= self.cannot_link.min() <= self.cannot_link.max() < rows:
            raise ValueError(f"rows that are apart are among {rows}, not all of those given")
        one, other = self.cannot_link.T
        seed_of = self.seeds[one]
        impossible = np.flatnonzero((one == other) | ((seed_of >= 0) & (seed_of == self.seeds[other])))
        if impossible.size:
            pair = self.cannot_link[impossible[0]].tolist()
            raise ValueError(f"rows {pair[0]} and {pair[1]} are together from the start, and cannot also be apart")

    def items(self, place: Int64[np.ndarray, " n"]) -> Int64[np.ndarray, " n"]:
        """The item of each row, given the number of its vector: those of one item cannot be told apart.

        Rows of equal vectors are one item in the same seed, or where nothing is known of them. Items are numbered by
        vector, seed and the rows they are apart from, whatever order the rows came in.
        """
        alone = self.seeds < 0
        if alone.all() and not len(self.cannot_link):
            return place
        kind = ranks(np.where(alone, place, 0), self.seeds)
        both_ways = np.concatenate([self.cannot_link, self.cannot_link[:, ::-1]])
        of_alone = both_ways[alone[both_ways[:, 0]]]
        itself = np.zeros(len(place), np.int64)
        itself[of_alone[:, 0]] = of_alone[:, 0] + 1
        return ranks(place, self.seeds, np.where(alone, _refined(kind, of_alone), 0), itself)


def no_constraints(rows: int) -> Constraints:
    """The constraints that allow any grouping."""
    return Constraints(np.full(rows, -1), np.zeros(0, bool), np.zeros((0, 2), np.int64))


class Conflicts:
    """Which groups can never be one, while groups merge."""

    def __init__(self, count: int, settled: Int[np.ndarray, " g"], apart: Int[np.ndarray, "p 2"]) -> None:
        """Of groups numbered up to `count`: those that are settled, and pairs that are apart."""
        self._settled = np.zeros(count, bool)
        self._settled[settled] = True
        self._foes: dict[int, set[int]] = {}
        for one, other in apart[~self._settled[apart].all(axis=1)].tolist():
            self._foes.setdefault(one, set()).add(other)
            self._foes.setdefault(other, set()).add(one)

    def without(self, group: int, others: Int[np.ndarray, " o"]) -> Int[np.ndarray, " fewer"]:
        """Those of the others which the group could become one with."""
        if self._settled[group]:
            others = others[~self._settled[others]]
        foes = self._foes.get(group)
        return others if foes is None else others[[other not in foes for other in others.tolist()]]

    def merge(self, into: int, gone: int) -> None:
        """What holds for `gone` holds for `into` from now on."""
        self._settled[into] |= self._settled[gone]
        foes = self._foes.pop(gone, None)
        if foes is None:
            return
        for foe in foes:
            self._foes[foe].remove(gone)
            self._foes[foe].add(into)
        self._foes.setdefault(into, set()).update(foes)


def _refined(kind: Int64[np.ndarray, " n"], pairs: Int64[np.ndarray, "p 2"]) -> Int64[np.ndarray, " n"]:
    """The kinds, those of one kind told apart by the kinds of what they are paired with, as far as that goes.

    Color refinement (Weisfeiler and Leman 1968), with sums of random weights for sets of colors.
    """
    while len(pairs):
        weights = np.random.default_rng(0).integers(2**62, size=len(kind))
        paired = np.zeros(len(kind), np.int64)
        np.add.at(paired, pairs[:, 0], weights[kind[pairs[:, 1]]])
        finer = ranks(kind, paired)
        if finer.max() == kind.max():
            break
        kind = finer
    return kind


def ranks(*keys: Int64[np.ndarray, " n"]) -> Int64[np.ndarray, " n"]:
    """The rank of each place by the first key, then the second and so on; as many ranks as there are differences."""
    order = np.lexsort(keys[::-1])
    differs = np.zeros(len(order), bool)
    for key in keys:
        differs[1:] |= key[order[1:]] != key[order[:-1]]
    ranks = np.empty(len(order), np.int64)
    ranks[order] = np.cumsum(differs)
    return ranks
