"""Centroid-linkage agglomerative clustering of unit vectors under constraints, for an unknown number of clusters.

Clusters with the most similar mean vectors merge, again and again, as long as their similarity reaches the threshold
and no constraint forbids it (`rounds`). Independent of labels and of any threshold's meaning.
"""

from collections.abc import Callable, Sequence

import numpy as np
from jaxtyping import Float32, Int64

from familiar.core.blockwise import unit_rows
from familiar.core.vectors import check_unit_rows, normalize
from familiar.neighbors.brute_force import search
from familiar.neighbors.constraints import Constraints, no_constraints
from familiar.neighbors.inverted_file import InvertedFile, default_groups
from familiar.neighbors.labels import relabel_by_first_appearance
from familiar.neighbors.rounds import CannotLinks, Clusters, Rounds, pair_keys

NEIGHBORS = 60
LARGE_NEIGHBORS = 24  # from `LARGE_ROWS` rows on, where the others of 60 cost much and change next to nothing
LARGE_ROWS = 20_000  # from here on sums are float32, and equal similarities no longer tie exactly
MAX_EXACT_SIMILARITIES = 2_500_000_000  # 50,000 rows against each other; with more than this IVF is used
THRESHOLDS = tuple(round(step / 50, 2) for step in range(2, 50))  # 0.04 to 0.98


class Linkage:
    """Rows whose nearest neighbors are known, to be clustered at any threshold.

    Args:
        embeddings: unit rows.
        neighbors: as for `cluster`.
        constraints: as for `cluster`.

    Raises:
        ValueError: as `cluster`, but for the threshold.
    """

    def __init__(
        self,
        embeddings: Float32[np.ndarray, "n d"],
        neighbors: int | None = None,
        constraints: Constraints | None = None,
    ) -> None:
        if neighbors is not None and neighbors < 1:
            raise ValueError(f"the number of neighbors must be at least 1, got {neighbors}")
        check_unit_rows(embeddings)  # or ValueError, before a NaN is sorted
        constraints = no_constraints(len(embeddings)) if constraints is None else constraints
        if len(constraints.seeds) != len(embeddings):
            raise ValueError(f"the constraints are for {len(constraints.seeds)} rows, not for {len(embeddings)}")
        row_of_item, self._item_of_row = distinct_items(embeddings, constraints)
        items, seeds = normalize(embeddings[row_of_item]), constraints.seeds[row_of_item]
        is_large = len(items) >= LARGE_ROWS
        self._items = items if is_large else unit_rows(items)
        numbers = np.where(seeds < 0, len(constraints.locked) + np.arange(len(seeds)), seeds)
        labels, self._initial = np.unique(numbers, return_inverse=True)
        self._locked = np.pad(constraints.locked, (0, len(seeds)))[labels]
        self._cannot_link = self._initial[self._item_of_row[constraints.cannot_link]]
        count = min(neighbors or (LARGE_NEIGHBORS if is_large else NEIGHBORS), len(items) - 1)
        queries, nearest = nearest_rows(items, count, np.flatnonzero(~self._locked[self._initial]))
        first, second = np.repeat(self._initial[queries], nearest.shape[1]), self._initial[nearest].reshape(-1)
        self._pairs = pair_keys(first, second)

    def clusters_at(self, thresholds: Sequence[float]) -> list[Int64[np.ndarray, " n"]]:
        """Cluster at several thresholds, as `clusters_at`.

        Args:
            thresholds: each in [-1, 1], in any order.
        """
        for threshold in thresholds:
            if not -1.0 <= threshold <= 1.0:
                raise ValueError(f"the threshold must lie in [-1, 1], got {threshold}")
        clusters = Clusters.from_rows(self._items, self._initial)
        rounds = Rounds(clusters, self._pairs, CannotLinks(self._locked, self._cannot_link))
        partitions: dict[float, Int64[np.ndarray, " n"]] = {}
        for threshold in sorted(thresholds, reverse=True):
            rounds.merge_down_to(threshold)
            partitions[threshold] = relabel_by_first_appearance(clusters.cluster()[self._item_of_row])
        return [partitions[threshold] for threshold in thresholds]


def cluster(
    embeddings: Float32[np.ndarray, "n d"],
    threshold: float,
    neighbors: int | None = None,
    constraints: Constraints | None = None,
) -> Int64[np.ndarray, " n"]:
    """Cluster unit vectors without knowing the number of clusters.

    The cosine of two means is the mean similarity between the clusters over the geometric mean of the mean
    similarities within them (each row with itself counted), so clusters of many different photos may be less similar,
    photo by photo, than two single photos. Two clusters are compared only if a row of one is among the `neighbors`
    nearest of a row of the other; rows of locked seeds search for none. The order of the rows changes only the
    numbers of the clusters, unless equal rows have different constraints; equal rows without constraints always share
    a cluster.

    Args:
        embeddings: unit rows.
        threshold: similarity in [-1, 1] from which on two single rows merge; `size_penalized_cosine` tells how much
            more is required of larger clusters.
        neighbors: nearest rows that each row is linked to; None: 60, or 24 from 20,000 rows on.
        constraints: satisfied whatever the similarities. Two clusters that must not merge may each grow on.

    Returns:
        The cluster of each row, numbered by first appearance; a row without similar ones is a cluster of one.

    Raises:
        ValueError: rows that are not unit vectors, a threshold outside its range, fewer than 1 neighbor, or
            constraints for another number of rows.

    >>> cluster(np.array([[1, 0], [0.8, 0.6], [0, 1]], np.float32), threshold=0.7)
    array([0, 0, 1])
    """
    return clusters_at(embeddings, [threshold], neighbors, constraints)[0]


def clusters_at(
    embeddings: Float32[np.ndarray, "n d"],
    thresholds: Sequence[float],
    neighbors: int | None = None,
    constraints: Constraints | None = None,
) -> list[Int64[np.ndarray, " n"]]:
    """Cluster at several thresholds, in the time that the lowest takes: its clusters consist of those at higher ones.

    Args:
        embeddings: unit rows.
        thresholds: each in [-1, 1], in any order.
        neighbors: as for `cluster`.
        constraints: as for `cluster`.

    Returns:
        For each threshold the cluster of each row, numbered by first appearance. They may differ from those of
        `cluster` where clusters are about as similar as a threshold in between.

    Raises:
        ValueError: as `cluster`.
    """
    return Linkage(embeddings, neighbors, constraints).clusters_at(thresholds)


def distinct_items(
    embeddings: Float32[np.ndarray, "n d"], constraints: Constraints
) -> tuple[Int64[np.ndarray, " i"], Int64[np.ndarray, " n"]]:
    """Group the rows that are interchangeable into items: those of equal vectors without any constraint.

    Items are sorted, so they are the same for any order of the rows, to the last bit of every sum.

    Args:
        embeddings: of finite numbers.
        constraints: of the rows.

    Returns:
        A row of each item, and the item of each row.
    """
    number = np.zeros(len(embeddings), np.int32)
    constrained = np.union1d(constraints.cannot_link, np.flatnonzero(constraints.seeds >= 0))
    number[constrained] = constrained + 1
    vectors = embeddings.astype(np.float32) + 0  # of -0, 0
    keys = np.column_stack([vectors.view(np.int32), constraints.seeds.astype(np.int32), number])
    _, row, item = np.unique(keys.view(f"V{4 * keys.shape[1]}"), return_index=True, return_inverse=True)
    return row, item.reshape(-1)


def nearest_rows(
    rows: Float32[np.ndarray, "m d"], k: int, queries: Int64[np.ndarray, " q"]
) -> tuple[Int64[np.ndarray, " q"], Int64[np.ndarray, "q k"]]:
    """Find the nearest other rows of some rows: exactly, or about so in an inverted file if there are many.

    Args:
        rows: unit rows.
        k: neighbors of each, from 0 to m - 1.
        queries: indices of the rows to search for.

    Returns:
        The queries, in any order, and their neighbors. A query with fewer than k is filled up with itself.
    """
    if k <= 0 or not len(queries):
        return queries, np.empty((len(queries), 0), np.int64)
    if len(queries) * len(rows) <= MAX_EXACT_SIMILARITIES:
        return queries, search(rows, queries=rows[queries], k=k + 1)[0]  # itself among them
    inverted_file = InvertedFile.build(rows, default_groups(len(rows)))
    positions = np.flatnonzero(np.isin(inverted_file.original, queries))
    nearest, _ = inverted_file.search(positions, k)
    original = inverted_file.original.astype(np.int64)
    return original[positions], original[nearest]


def fit_threshold(
    embeddings: Float32[np.ndarray, "n d"],
    score: Callable[[Int64[np.ndarray, " n"]], float],
    thresholds: Sequence[float] = THRESHOLDS,
    neighbors: int | None = None,
) -> tuple[float, float]:
    """Find the threshold whose clusters score highest; of several equally good ones the middle one.

    Args:
        embeddings: unit rows.
        score: higher is better; gets the cluster of each row.
        thresholds: those to try, each in [-1, 1].
        neighbors: as for `cluster`.

    Returns:
        The threshold and its score.

    Raises:
        ValueError: as `cluster`, or there is no threshold to try.
    """
    if not thresholds:
        raise ValueError("no thresholds to choose from")
    ascending = sorted(thresholds)
    scores = np.array([score(clusters) for clusters in clusters_at(embeddings, ascending, neighbors)])
    best = np.flatnonzero(scores == scores.max())
    middle = int(best[(len(best) - 1) // 2])
    return ascending[middle], float(scores[middle])
