"""Agglomerative clustering of millions of unit vectors in rounds.

In a round every cluster merges with the one that is most similar to it, if that is similar enough, instead of only the
most similar pair of all; the required similarity falls from round to round (sub-cluster components: Monath et al. 2021,
"Scalable Hierarchical Agglomerative Clustering"). Every step is one operation on whole columns, which may be maps of
files. Similarities are those of `clustering.cluster`: size-penalized cosines of mean vectors.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float32, Int32, UInt64

from familiar.core.blockwise import blocks, map_blocks
from familiar.neighbors.clustering import size_penalized_cosine
from familiar.neighbors.inverted_file import Rows

STEP = 0.05
"""Pairs above 1 - .05 merge first, then those above 1 - .1 and so on: what is certain makes the means that decide."""
MARGIN = 0.1
"""Pairs that are less similar than the threshold by more are forgotten."""
_COMPARED_PAIRS = 1 << 12
_KEY_STEPS = (1 << 31) - 1  # quantization steps of a similarity from -1 to 1


@dataclass(eq=False)
class Clusters:
    """A partition of items into clusters, each identified by one of its items.

    Attributes:
        cluster: of each item.
        directions: of each cluster's sum of rows, of unit length; those of absorbed clusters are out of date.
        lengths: of each cluster's sum.
        sizes: how many rows each cluster has; 0 for absorbed ones.
    """

    cluster: Int32[np.ndarray, " n"]
    directions: Rows
    lengths: Float32[np.ndarray, " n"]
    sizes: Int32[np.ndarray, " n"]

    @staticmethod
    def from_rows(rows: Rows) -> "Clusters":
        """Return clusters of one row each; `rows` are overwritten as clusters merge."""
        count = len(rows)
        return Clusters(np.arange(count, dtype=np.int32), rows, np.ones(count, np.float32), np.ones(count, np.int32))

    def __len__(self) -> int:
        return int(np.count_nonzero(self.sizes))

    def merge(self, became: Int32[np.ndarray, " n"]) -> Int32[np.ndarray, " m"]:
        """Merge clusters.

        Args:
            became: of each cluster, the one that it becomes part of; itself: it stays.

        Returns:
            Those that merged, survivors included.
        """
        moved = np.flatnonzero(became != np.arange(len(became), dtype=np.int32))
        changed = np.union1d(moved, became[moved]).astype(np.int32)
        self._sum(changed, became[changed])
        self.cluster = became[self.cluster]
        return changed

    def _sum(self, merged: Int32[np.ndarray, " m"], into: Int32[np.ndarray, " m"]) -> None:
        order = np.argsort(into, kind="stable")
        merged = merged[order]
        survivors, starts = np.unique(into[order], return_index=True)
        ends = np.append(starts[1:], len(merged))
        for part in blocks(len(survivors), 1, _COMPARED_PAIRS):
            rows = merged[starts[part.start] : ends[part][-1]]
            weighted = self.directions[rows].astype(np.float32) * self.lengths[rows, None]
            sums = np.add.reduceat(weighted, starts[part] - starts[part.start])
            lengths = np.maximum(np.linalg.norm(sums, axis=1), np.finfo(np.float32).tiny)
            self.directions[survivors[part]] = sums / lengths[:, None]
            self.lengths[survivors[part]] = lengths
        sizes = np.add.reduceat(self.sizes[merged], starts)
        self.sizes[merged] = 0
        self.sizes[survivors] = sizes

    def similarity(self, pairs: "Pairs") -> Float32[np.ndarray, " p"]:
        """Compare pairs of clusters."""
        similarity = np.empty(len(pairs.first), np.float32)

        def compare(part: slice) -> None:
            first, second = pairs.first[part], pairs.second[part]
            left, right = (self.directions[each].astype(np.float32, copy=False) for each in (first, second))
            cosine = np.einsum("pd,pd->p", left, right)
            smaller = np.minimum(self.sizes[first], self.sizes[second])
            similarity[part] = np.clip(size_penalized_cosine(cosine, smaller), -1.0, 1.0)

        map_blocks(compare, len(similarity), 1, _COMPARED_PAIRS)
        return similarity


@dataclass(frozen=True, eq=False)
class Pairs:
    """Pairs of different clusters, each once.

    Attributes:
        first: has the lower identifier.
        second: has the higher.
    """

    first: Int32[np.ndarray, " p"]
    second: Int32[np.ndarray, " p"]

    @staticmethod
    def distinct(first: Int32[np.ndarray, " p"], second: Int32[np.ndarray, " p"]) -> "Pairs":
        """Order pairs, and drop repeated ones and those of a cluster with itself."""
        different = first != second
        first, second = first[different], second[different]
        return Pairs.from_keys(Pairs(np.minimum(first, second), np.maximum(first, second)).keys())

    @staticmethod
    def from_keys(keys: UInt64[np.ndarray, " k"]) -> "Pairs":
        """Return the pairs that have some `keys`, each once. The keys are sorted in place."""
        keys.sort()
        keys = keys[np.concatenate([[True], keys[1:] != keys[:-1]])] if len(keys) else keys
        return Pairs((keys >> np.uint64(32)).astype(np.int32), (keys & np.uint64(0xFFFFFFFF)).astype(np.int32))

    def keys(self) -> UInt64[np.ndarray, " p"]:
        """Return a number for each pair."""
        return self.first.astype(np.uint64) << np.uint64(32) | self.second.astype(np.uint64)

    def __getitem__(self, chosen: Bool[np.ndarray, " p"]) -> "Pairs":
        return Pairs(self.first[chosen], self.second[chosen])


def merge_in_rounds(clusters: Clusters, pairs: Pairs, threshold: float) -> None:
    """Merge clusters until no pair that is known reaches the threshold.

    Args:
        clusters: changed in place.
        pairs: of clusters that are compared; so are, once they have merged, those that they became part of.
        threshold: similarity in [-1, 1].
    """
    floor = threshold - MARGIN
    similarity = clusters.similarity(pairs)
    known = similarity >= floor
    pairs, similarity = pairs[known], similarity[known]
    for step in _descending_to(threshold):
        while (became := _follow_nearest(pairs, similarity, step, len(clusters.sizes))) is not None:
            merged = clusters.merge(became)
            pairs, similarity = _after_merging(clusters, pairs, similarity, became, merged, floor)


def _descending_to(threshold: float) -> Iterator[float]:
    step = 1.0 - STEP
    while step > threshold:
        yield step
        step -= STEP
    yield threshold


def _follow_nearest(
    pairs: Pairs, similarity: Float32[np.ndarray, " p"], threshold: float, count: int
) -> Int32[np.ndarray, " n"] | None:
    """Return for each cluster the one it becomes part of: the end of the chain of most similar clusters.

    Only pairs similar by `threshold` or more count. None: there is no such pair.
    """
    near = similarity >= threshold
    if not near.any():
        return None
    first, second = pairs.first[near], pairs.second[near]
    # Similarity in the upper bits; below it the number of the pair: no two are equal, so chains end in a pair of which
    # each is the most similar of the other.
    keys = ((similarity[near].astype(np.float64) + 1) / 2 * _KEY_STEPS).astype(np.uint64) << np.uint64(32)
    keys |= np.arange(1, len(keys) + 1, dtype=np.uint64)
    best: UInt64[np.ndarray, " n"] = np.zeros(count, np.uint64)
    np.maximum.at(best, first, keys)
    np.maximum.at(best, second, keys)
    became = np.arange(count, dtype=np.int32)
    linked = np.flatnonzero(best)
    pair = (best[linked] & np.uint64(0xFFFFFFFF)).astype(np.int64) - 1
    became[linked] = first[pair] + second[pair] - linked
    ends = linked[(became[became[linked]] == linked) & (became[linked] > linked)]
    became[ends] = ends
    while not np.array_equal(became[became[linked]], became[linked]):
        became[linked] = became[became[linked]]
    return became


def _after_merging(
    clusters: Clusters,
    pairs: Pairs,
    similarity: Float32[np.ndarray, " p"],
    became: Int32[np.ndarray, " n"],
    merged: Int32[np.ndarray, " m"],
    floor: float,
) -> tuple[Pairs, Float32[np.ndarray, " r"]]:
    """Return the pairs between the clusters of now, and how similar they are."""
    is_merged = np.zeros(len(became), bool)
    is_merged[merged] = True
    changed = is_merged[pairs.first] | is_merged[pairs.second]
    compared = Pairs.distinct(became[pairs.first[changed]], became[pairs.second[changed]])
    compared_similarity = clusters.similarity(compared)
    known = compared_similarity >= floor
    compared, unchanged = compared[known], pairs[~changed]
    return (
        Pairs(np.concatenate([unchanged.first, compared.first]), np.concatenate([unchanged.second, compared.second])),
        np.concatenate([similarity[~changed], compared_similarity[known]]),
    )
