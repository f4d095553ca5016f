"""Agglomerative clustering of unit vectors in rounds, which is fast from a hundred of them to millions.

In a round, any two clusters that are each other's most similar ones merge if they are similar enough; the required
similarity falls from round to round (reciprocal nearest neighbors: Murtagh 1983; falling thresholds: Monath et al.
2021, arXiv 2010.11821). No constraint can be broken in between, as a cluster takes part in one merge of a round at
most. Every step is one operation on whole columns, which may be maps of files.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Float32, Int, Int32, Int64, UInt64

from familiar.core.blockwise import map_blocks
from familiar.core.vectors import Rows
from familiar.neighbors.labels import sum_by_label

STEP = 0.05
"""Pairs above 1 - .05 merge first, then those above 1 - .1 and so on: what is certain makes the means that decide."""
# Both chosen on cats, ORL and LFW (docs/explanation/clustering.md).
SIZE_PENALTY = 0.15
"""Penalty per doubling of the smaller cluster's size: at a cosine of one half, a quarter of it is subtracted."""
SATURATION_SIZE = 16
"""Size from which on the penalty no longer grows."""
_COMPARED_PAIRS = 1 << 12
_KEY_STEPS = (1 << 31) - 1  # quantization steps of a similarity from -1 to 1
_HALF = np.uint64(32)


def size_penalized_cosine(cosine: Float[np.ndarray, " g"], smaller: Int[np.ndarray, " g"]) -> Float[np.ndarray, " g"]:
    """Lower the cosine of two cluster means by the size of the smaller cluster.

    `c - 0.15 log2(min(smaller, 16)) max(c, 0) (1 - c)`. The mean of many rows has less noise, so the means of two
    halves of one individual are more similar than two single rows, and more similarity is required of them.
    Unchanged are the cosine of two single rows, and cosines that leave no doubt: 0 or less, and 1.

    Args:
        cosine: of the two means, in [-1, 1].
        smaller: number of rows of the smaller cluster, at least 1.

    Returns:
        Similarities in [-1, 1] in the dtype of `cosine`; they rise with the cosine and fall with the size.
    """
    doublings = np.log2(np.minimum(smaller, SATURATION_SIZE))
    return (cosine - SIZE_PENALTY * doublings * np.maximum(cosine, 0.0) * (1.0 - cosine)).astype(cosine.dtype)


def pair_keys(first: Int[np.ndarray, " p"], second: Int[np.ndarray, " p"]) -> UInt64[np.ndarray, " k"]:
    """Return a number for each pair of different clusters, rising, each once: the lower cluster in the upper 32 bits.

    Args:
        first: a cluster of each pair.
        second: the other one.
    """
    different = first != second
    first, second = first[different].astype(np.uint64), second[different].astype(np.uint64)
    return distinct_keys(np.minimum(first, second) << _HALF | np.maximum(first, second))


def distinct_keys(keys: UInt64[np.ndarray, " k"]) -> UInt64[np.ndarray, " d"]:
    """Return keys in rising order, each once. They are sorted in place."""
    keys.sort()
    return keys[np.concatenate([[True], keys[1:] != keys[:-1]])[: len(keys)]]


def pair_sides(pairs: UInt64[np.ndarray, " p"]) -> tuple[Int32[np.ndarray, " p"], Int32[np.ndarray, " p"]]:
    """Return the lower and the higher cluster of each pair."""
    return (pairs >> _HALF).astype(np.int32), pairs.astype(np.int32)


@dataclass(eq=False)
class Clusters:
    """A partition of items into numbered clusters.

    Attributes:
        initial: the cluster that each item starts in.
        directions: of each cluster's sum of rows, of unit length; those of absorbed clusters are out of date.
        lengths: of each cluster's sum.
        sizes: how many rows each cluster has; 0 for absorbed ones.
        absorbed_by: the cluster that each became part of first; itself: it still exists.
    """

    initial: Int64[np.ndarray, " n"]
    directions: Rows
    lengths: Float[np.ndarray, " g"]
    sizes: Int32[np.ndarray, " g"]
    absorbed_by: Int32[np.ndarray, " g"]

    @staticmethod
    def from_rows(rows: Rows, initial: Int64[np.ndarray, " n"] | None = None) -> "Clusters":
        """Return clusters of one row each, or as `initial` numbers them, from 0 on without gaps.

        Args:
            rows: unit rows, overwritten as clusters merge if `initial` is None.
            initial: the cluster of each row.
        """
        if initial is None:
            initial, sizes = np.arange(len(rows)), np.ones(len(rows), np.int32)
            directions, lengths = rows, np.ones(len(rows), np.result_type(rows.dtype, np.float32))
        else:
            sums, sizes = sum_by_label(rows, initial), np.bincount(initial).astype(np.int32)
            lengths = _lengths(sums)
            directions = sums / lengths[:, None]
        return Clusters(initial, directions, lengths, sizes, np.arange(len(sizes), dtype=np.int32))

    def __len__(self) -> int:
        return int(np.count_nonzero(self.sizes))

    def cluster(self) -> Int64[np.ndarray, " n"]:
        """Return the cluster of each item."""
        return self.existing(self.initial.astype(np.int32)).astype(np.int64)

    def existing(self, clusters: Int32[np.ndarray, " m"]) -> Int32[np.ndarray, " m"]:
        """Return what clusters have become part of."""
        while not np.array_equal(became := self.absorbed_by[clusters], clusters):
            clusters = became
        return clusters

    def merge(self, survivors: Int32[np.ndarray, " m"], absorbed: Int32[np.ndarray, " m"]) -> None:
        """Merge pairs of clusters, none of which is in two of the pairs."""
        first, second = (
            self.directions[each].astype(self.lengths.dtype, copy=False) * self.lengths[each, None]
            for each in (survivors, absorbed)
        )
        sums = first + second
        lengths = _lengths(sums)
        self.directions[survivors], self.lengths[survivors] = sums / lengths[:, None], lengths
        self.sizes[survivors] += self.sizes[absorbed]
        self.sizes[absorbed] = 0
        self.absorbed_by[absorbed] = survivors

    def similarity(self, pairs: UInt64[np.ndarray, " p"]) -> Float32[np.ndarray, " p"]:
        """Compare pairs of clusters. Rounded to float32, so that equal similarities tie exactly."""
        similarity = np.empty(len(pairs), np.float32)

        def compare(part: slice) -> None:
            sides = pair_sides(pairs[part])
            left, right = (self.directions[each].astype(self.lengths.dtype, copy=False) for each in sides)
            cosine = np.einsum("pd,pd->p", left, right)
            smaller = np.minimum(*(self.sizes[each] for each in sides))
            similarity[part] = np.clip(size_penalized_cosine(cosine, smaller), -1.0, 1.0)

        if len(similarity) <= _COMPARED_PAIRS:  # starting threads would take longer
            compare(slice(None))
        else:
            map_blocks(compare, len(similarity), 1, _COMPARED_PAIRS)
        return similarity


def _lengths(sums: Float[np.ndarray, "g d"]) -> Float[np.ndarray, " g"]:
    return np.maximum(np.linalg.norm(sums, axis=1), np.finfo(sums.dtype).tiny)


class CannotLinks:
    """Clusters that must not merge.

    Args:
        locked: of each cluster, whether it is one of those of which no two may merge.
        pairs: of clusters that may not merge.
    """

    def __init__(self, locked: Bool[np.ndarray, " g"], pairs: Int[np.ndarray, "p 2"]) -> None:
        self._locked = locked.copy()
        self._pairs = pair_keys(*pairs.T)
        self._is_linked = np.zeros(len(locked), np.bool_)
        self._is_linked[pairs] = True

    def allow(self, pairs: UInt64[np.ndarray, " p"]) -> Bool[np.ndarray, " p"]:
        """Tell which pairs of clusters may merge."""
        first, second = pair_sides(pairs)
        allowed = ~(self._locked[first] & self._locked[second])
        doubtful = np.flatnonzero(self._is_linked[first] & self._is_linked[second])
        keys = pairs[doubtful]
        linked = np.take(self._pairs, np.searchsorted(self._pairs, keys), mode="clip") == keys
        allowed[doubtful[linked]] = False
        return allowed

    def merge(self, survivors: Int32[np.ndarray, " m"], absorbed: Int32[np.ndarray, " m"]) -> None:
        """Apply what holds for absorbed clusters to those that they became part of."""
        self._locked[survivors] |= self._locked[absorbed]
        linked = self._is_linked[absorbed]
        if linked.any():
            self._is_linked[survivors] |= linked
            became = np.arange(len(self._locked), dtype=np.int32)
            became[absorbed] = survivors
            self._pairs = pair_keys(*(became[each] for each in pair_sides(self._pairs)))


class Rounds:
    """Merges clusters, down to lower and lower thresholds.

    Args:
        clusters: changed in place.
        pairs: keys of the clusters that are compared; so are, once they have merged, those that they became part of.
        cannot_link: changed in place; None: all may merge.
        floor: pairs that are less similar are forgotten.
    """

    def __init__(
        self,
        clusters: Clusters,
        pairs: UInt64[np.ndarray, " p"],
        cannot_link: CannotLinks | None = None,
        floor: float = -1.0,
    ) -> None:
        self._clusters, self._cannot_link, self._floor = clusters, cannot_link, floor
        self._has_changed = np.zeros(len(clusters.sizes), np.bool_)
        self._pairs: UInt64[np.ndarray, " p"]
        self._similarity: Float32[np.ndarray, " p"]
        self._pairs, self._similarity = self._compare(pairs, floor)
        self._level = 1.0

    def merge_down_to(self, threshold: float) -> None:
        """Merge until no two clusters that are compared reach the threshold, in [-1, 1]."""
        while self._level > threshold:
            self._level = max(self._level - STEP, threshold)
            self._merge_at(self._level)
        self._merge_at(threshold)

    def _merge_at(self, level: float) -> None:
        while (near := self._similarity >= level).any():
            pairs, similarity = self._pairs[near], self._similarity[near]
            merged: list[Int32[np.ndarray, " _"]] = []
            while len(similarity):
                survivors, absorbed = _nearest_to_each_other(pairs, similarity)
                self._clusters.merge(survivors, absorbed)
                if self._cannot_link is not None:
                    self._cannot_link.merge(survivors, absorbed)
                merged += [survivors, absorbed]
                pairs, similarity = self._compare_again(pairs, similarity, level, merged[-2:])
            # Only now those that were less similar than the level: there are many.
            self._pairs, self._similarity = self._compare_again(self._pairs, self._similarity, self._floor, merged)

    def _compare_again(
        self,
        pairs: UInt64[np.ndarray, " p"],
        similarity: Float32[np.ndarray, " p"],
        floor: float,
        merged: list[Int32[np.ndarray, " _"]],
    ) -> tuple[UInt64[np.ndarray, " r"], Float32[np.ndarray, " r"]]:
        """Replace pairs of clusters that have merged by those of what they became part of."""
        changed = np.concatenate(merged)
        self._has_changed[changed] = True
        sides = pair_sides(pairs)
        again = self._has_changed[sides[0]] | self._has_changed[sides[1]]
        self._has_changed[changed] = False
        compared, compared_similarity = self._compare(
            pair_keys(*(self._clusters.existing(each[again]) for each in sides)), floor
        )
        return np.concatenate([pairs[~again], compared]), np.concatenate([similarity[~again], compared_similarity])

    def _compare(
        self, pairs: UInt64[np.ndarray, " p"], floor: float
    ) -> tuple[UInt64[np.ndarray, " r"], Float32[np.ndarray, " r"]]:
        """Compare the pairs that may merge, and drop those that are not similar enough."""
        if self._cannot_link is not None:
            pairs = pairs[self._cannot_link.allow(pairs)]
        similarity = self._clusters.similarity(pairs)
        return pairs[similarity >= floor], similarity[similarity >= floor]


def _nearest_to_each_other(
    pairs: UInt64[np.ndarray, " p"], similarity: Float32[np.ndarray, " p"]
) -> tuple[Int32[np.ndarray, " m"], Int32[np.ndarray, " m"]]:
    """Return the pairs of clusters that are each other's most similar ones; of equal pairs the first counts."""
    # Similarity in the upper bits; below it the number of the pair, so that no two are equal.
    keys = ((similarity.astype(np.float64) + 1) / 2 * _KEY_STEPS).astype(np.uint64) << _HALF
    keys |= np.arange(len(keys), 0, -1, dtype=np.uint64)
    clusters, index = np.unique(np.concatenate(pair_sides(pairs)), return_inverse=True)
    first, second = index.reshape(2, -1)
    best = np.zeros(len(clusters), np.uint64)
    np.maximum.at(best, first, keys)
    np.maximum.at(best, second, keys)
    nearest = np.flatnonzero((best[first] == keys) & (best[second] == keys))
    return clusters[first[nearest]], clusters[second[nearest]]
