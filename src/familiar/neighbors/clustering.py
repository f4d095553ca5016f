"""Centroid-linkage agglomerative clustering of unit vectors, for an unknown number of clusters.

The two clusters with the most similar mean vectors merge, again and again, as long as their similarity reaches the
threshold and no constraint forbids it. Independent of labels and of any threshold's meaning.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Float32, Int, Int64

from familiar.core.blockwise import unit_rows
from familiar.core.vectors import check_unit_rows, normalize
from familiar.neighbors.constraints import CannotLinks, Constraints, no_constraints
from familiar.neighbors.knn_graph import KnnGraph, SearchedRows, build_knn_graph
from familiar.neighbors.labels import distinct_row_ids, relabel_by_first_appearance, sorted_unique, sum_by_label

NEIGHBORS = 60
LARGE_NEIGHBORS = 24  # from `LARGE_ROWS` rows on, where the others of 60 cost much and change next to nothing
LARGE_ROWS = 20_000  # from here on sums are float32, and equal similarities no longer tie exactly
CANDIDATES_PER_NEIGHBOR = 4  # a merged cluster is compared with this many times the neighbors, the nearest of them
THRESHOLDS = tuple(round(step / 50, 2) for step in range(2, 50))  # 0.04 to 0.98
# Both chosen on cats, ORL and LFW (docs/explanation/clustering.md).
SIZE_PENALTY = 0.15
"""Penalty per doubling of the smaller cluster's size: at a cosine of one half, a quarter of it is subtracted."""
SATURATION_SIZE = 16
"""Size from which on the penalty no longer grows."""
_UNKNOWN_SIZE = -1  # no cluster has this size, so the entry is looked up again


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


def cluster(
    embeddings: Float32[np.ndarray, "n d"],
    threshold: float,
    neighbors: int | None = None,
    constraints: Constraints | None = None,
) -> Int64[np.ndarray, " n"]:
    """Cluster unit vectors under constraints.

    The cosine of two means is the mean similarity between the clusters over the geometric mean of the mean
    similarities within them (each row with itself counted), so clusters of many different photos may be less similar,
    photo by photo, than two single photos. Two clusters are compared only if a row of one is among the `neighbors`
    nearest of a row of the other; rows of locked seeds search for none. The order of the rows changes only the
    numbers of the clusters, and equal rows without constraints always share a cluster.

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
    return prepare_linkage(embeddings, neighbors, constraints).clusters_at([threshold])[0]


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
    scores = np.array([score(clusters) for clusters in prepare_linkage(embeddings, neighbors).clusters_at(ascending)])
    best = np.flatnonzero(scores == scores.max())
    middle = int(best[(len(best) - 1) // 2])
    return ascending[middle], float(scores[middle])


@dataclass(frozen=True, eq=False)
class LinkageInput:
    """Rows with their nearest neighbors, ready to be clustered at any thresholds. See `prepare_linkage`.

    Attributes:
        rows: one embedding per item, sorted. Equal input rows are one item unless constraints distinguish them.
        item_of_row: for each input row its index in `rows`.
        initial_cluster: the cluster each item starts in, identified by the cluster's first item.
        graph: the nearest neighbors of the items.
        locked: initial clusters of which no two may merge.
        cannot_link: pairs of initial clusters that must not merge.
    """

    rows: Float[np.ndarray, "m d"]
    item_of_row: Int64[np.ndarray, " n"]
    initial_cluster: Int64[np.ndarray, " m"]
    graph: KnnGraph
    locked: Int64[np.ndarray, " s"]
    cannot_link: Int64[np.ndarray, "p 2"]

    def clusters_at(self, thresholds: Sequence[float]) -> list[Int64[np.ndarray, " n"]]:
        """Cluster at each of the thresholds, as `cluster` does.

        Clusters at a lower threshold are made by merging those at a higher one, so all thresholds together take as
        long as the lowest alone.

        Args:
            thresholds: each in [-1, 1], in any order.

        Returns:
            For each threshold the cluster of each original row, numbered by first appearance.

        Raises:
            ValueError: a threshold outside its range.
        """
        for threshold in thresholds:
            if not -1.0 <= threshold <= 1.0:
                raise ValueError(f"the threshold must lie in [-1, 1], got {threshold}")
        agglomeration = _Agglomeration(self)
        clusters: dict[float, Int64[np.ndarray, " n"]] = {}
        for threshold in sorted(thresholds, reverse=True):
            agglomeration.run_down_to(threshold)
            clusters[threshold] = relabel_by_first_appearance(agglomeration.clusters.cluster_of_item[self.item_of_row])
        return [clusters[threshold] for threshold in thresholds]


def prepare_linkage(
    embeddings: Float32[np.ndarray, "n d"],
    neighbors: int | None = None,
    constraints: Constraints | None = None,
    searched: SearchedRows | None = None,
) -> LinkageInput:
    """Find the nearest neighbors once, for clustering at several thresholds. Arguments and errors as for `cluster`.

    `searched` is asked for neighbors that it knows from clustering the same rows under other constraints, and keeps
    those that are found now.
    """
    if neighbors is not None and neighbors < 1:
        raise ValueError(f"the number of neighbors must be at least 1, got {neighbors}")
    check_unit_rows(embeddings)  # or ValueError, before a NaN is sorted
    constraints = no_constraints(len(embeddings)) if constraints is None else constraints
    if len(constraints.seeds) != len(embeddings):
        raise ValueError(f"the constraints are for {len(constraints.seeds)} rows, not for {len(embeddings)}")
    # Sorted and without duplicates, the items are the same for any order of the rows, to the last bit of every sum.
    item_of_row = constraints.item_ids(distinct_row_ids(embeddings))
    row_of_item = np.unique(item_of_row, return_index=True)[1]
    seeds = constraints.seeds[row_of_item]
    _, first_item, seed_index = np.unique(seeds, return_index=True, return_inverse=True)
    initial_cluster = np.where(seeds < 0, np.arange(len(row_of_item)), first_item[seed_index])
    locked = seeds >= 0
    locked[locked] = constraints.locked[seeds[locked]]
    large = len(row_of_item) >= LARGE_ROWS
    rows = normalize(embeddings[row_of_item]) if large else embeddings[row_of_item]
    default_neighbors = LARGE_NEIGHBORS if large else NEIGHBORS
    graph = build_knn_graph(rows, neighbors or default_neighbors, np.flatnonzero(~locked), searched)
    return LinkageInput(
        rows if large else unit_rows(rows),
        item_of_row,
        initial_cluster,
        graph,
        initial_cluster[locked],
        initial_cluster[item_of_row[constraints.cannot_link]],
    )


class _Clusters:
    """The current partition of the items: members, size, sum and norm of each cluster, changed together.

    A cluster is identified by one of its items. On a merge the identifier of the larger cluster survives (of equally
    large ones the lower); that of the other has size 0 from then on.
    """

    def __init__(self, rows: Float[np.ndarray, "m d"], initial_cluster: Int64[np.ndarray, " m"]) -> None:
        self.cluster_of_item: Int64[np.ndarray, " m"] = initial_cluster.copy()
        self.sizes = np.bincount(initial_cluster, minlength=len(rows))
        self.size: list[int] = self.sizes.tolist()  # the same numbers: single ones are read faster from a list
        self.members: dict[int, list[int]] = {}  # of clusters of several items only
        self._sums = rows.copy()
        self._norms = np.ones(len(rows))
        self._gather_initial()

    def _gather_initial(self) -> None:
        """Sum the rows of the initial clusters of several items."""
        items = np.flatnonzero(self.sizes[self.cluster_of_item] > 1)
        if not len(items):
            return
        items = items[np.argsort(self.cluster_of_item[items], kind="stable")]
        clusters, starts, labels = np.unique(self.cluster_of_item[items], return_index=True, return_inverse=True)
        self._sums[clusters] = sum_by_label(self._sums[items], labels.astype(np.int64))
        self._norms[clusters] = np.linalg.norm(self._sums[clusters], axis=1)
        self.members = {
            cluster: members.tolist()
            for cluster, members in zip(clusters.tolist(), np.split(items, starts[1:]), strict=True)
        }

    def similarities(self, cluster: int, others: Int[np.ndarray, " o"]) -> Float32[np.ndarray, " o"]:
        """Compare one cluster with others. Rounded to float32, so that equal similarities tie exactly."""
        product = self._sums[others] @ self._sums[cluster]
        cosine = product / np.maximum(self._norms[others] * self._norms[cluster], np.finfo(np.float64).tiny)
        return size_penalized_cosine(cosine, np.minimum(self.sizes[others], self.size[cluster])).astype(np.float32)

    def merge(self, first: int, second: int) -> tuple[int, int]:
        """Merge two clusters and return (survivor, absorbed)."""
        assert first != second, "a cluster cannot merge with itself"
        survivor, absorbed = sorted((first, second), key=lambda cluster: (-self.size[cluster], cluster))
        moved = self.members.pop(absorbed, [absorbed])
        members = self.members.setdefault(survivor, [survivor])
        assert len(moved) == self.size[absorbed] > 0, "an absorbed cluster still has all its members"
        self.cluster_of_item[moved] = survivor
        members.extend(moved)
        self.size[survivor] = self.sizes[survivor] = len(members)
        self.size[absorbed] = self.sizes[absorbed] = 0
        self._sums[survivor] += self._sums[absorbed]
        self._norms[survivor] = np.linalg.norm(self._sums[survivor])
        return survivor, absorbed


class _NearestCluster(NamedTuple):
    """A heap entry: the nearest cluster of a cluster, and the sizes of both when they were compared.

    The heap pops the most similar pair first, and of equally similar ones the lowest identifier. A cluster's size
    only ever changes by a merge, so an entry whose sizes are no longer true is out of date.
    """

    negative_similarity: float
    cluster: int
    size: int
    nearest: int
    nearest_size: int


class _Agglomeration:
    """Centroid linkage with one heap entry per cluster (generic linkage, Müllner, arXiv 1109.2378).

    Invariant: for any two clusters that may merge, one has a current heap entry at least as high as their similarity.
    When the nearest of a cluster has merged, the entry remains an upper bound for all others but the merged cluster,
    which got an entry of its own. So the nearest is looked up again only once such an entry is the highest of all.
    """

    def __init__(self, linkage: LinkageInput) -> None:
        self.clusters = _Clusters(linkage.rows, linkage.initial_cluster)
        self.heap = self._initial_entries(linkage)
        self._graph = linkage.graph
        self._cannot_links = CannotLinks(len(linkage.rows), linkage.locked, linkage.cannot_link)
        self._max_candidates = CANDIDATES_PER_NEIGHBOR * max(1, linkage.graph.nearest.shape[1])
        # Items that a cluster is compared with the clusters of, where they are not simply those of the graph.
        self._candidates: dict[int, Int[np.ndarray, " c"]] = {
            cluster: np.concatenate([self._graph.adjacent(member) for member in members])
            for cluster, members in self.clusters.members.items()
        }
        heapify(self.heap)
        for cluster in list(self._candidates):
            self._push_nearest(cluster)

    def run_down_to(self, threshold: float) -> None:
        """Merge until no two clusters reach the threshold."""
        size = self.clusters.size
        while self.heap and -self.heap[0].negative_similarity >= threshold:
            _, cluster, size_then, nearest, nearest_size_then = heappop(self.heap)
            if size[cluster] != size_then:
                continue  # merged since, and got another entry then
            if size[nearest] == nearest_size_then:
                self._merge(cluster, nearest)
            else:
                self._push_nearest(cluster)

    def _initial_entries(self, linkage: LinkageInput) -> list[_NearestCluster]:
        """Create the heap entries of clusters of one item that have neighbors.

        A pair of a one-item cluster and a larger one is stored in the larger cluster's entry.
        """
        graph = linkage.graph
        if not graph.nearest.size:
            return []
        sizes = self.clusters.sizes
        single = graph.queries[sizes[graph.queries] == 1]
        query = graph.query_index[single]
        nearest = graph.nearest[query, 0]
        # Where the nearest belongs to a seed of several, its size is not 1, so it is looked up; so is, below, the
        # nearest of an item that has a cannot-link pair.
        nearest_size = np.where(np.isin(single, linkage.cannot_link), _UNKNOWN_SIZE, 1)
        columns = (-graph.similarity[query], single, sizes[single], nearest, nearest_size)
        return list(map(_NearestCluster, *(column.tolist() for column in columns)))

    def _push_nearest(self, cluster: int) -> None:
        """Find the nearest cluster that may merge with `cluster`, if there is one, and push its entry."""
        candidates = sorted_unique(self.clusters.cluster_of_item[self._candidates_of(cluster)])
        candidates = self._cannot_links.mergeable_with(cluster, candidates[candidates != cluster])
        if not len(candidates):
            self._candidates[cluster] = candidates
            return
        similarity = self.clusters.similarities(cluster, candidates)
        best = int(similarity.argmax())
        nearest, highest = int(candidates[best]), min(max(float(similarity[best]), -1.0), 1.0)
        size = self.clusters.size
        assert size[nearest] > 0, "a candidate still exists"
        heappush(self.heap, _NearestCluster(-highest, cluster, size[cluster], nearest, size[nearest]))
        if len(candidates) > self._max_candidates:
            candidates = candidates[np.argpartition(similarity, -self._max_candidates)[-self._max_candidates :]]
        if size[cluster] > 1:
            self._candidates[cluster] = candidates

    def _merge(self, first: int, second: int) -> None:
        survivor, absorbed = self.clusters.merge(first, second)
        self._candidates[survivor] = np.concatenate([self._candidates_of(survivor), self._candidates_of(absorbed)])
        self._candidates.pop(absorbed, None)
        self._cannot_links.merge(survivor, absorbed)
        self._push_nearest(survivor)

    def _candidates_of(self, cluster: int) -> Int[np.ndarray, " c"]:
        candidates = self._candidates.get(cluster)
        return self._graph.adjacent(cluster) if candidates is None else candidates
