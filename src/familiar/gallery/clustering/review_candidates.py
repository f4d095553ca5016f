"""The questions that may be asked about a gallery's clusters, and what their answers are expected to correct."""

from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Float32, Float64, Int64

from familiar.core.gallery_types import Question
from familiar.core.vectors import normalize
from familiar.gallery.clustering.album import Comparable, load_album
from familiar.gallery.clustering.assignments import UNASSIGNED, FaceAssignments, load_assignments
from familiar.gallery.clustering.constraints import gallery_photo_pairs
from familiar.gallery.store.store import Store
from familiar.neighbors.brute_force import search
from familiar.neighbors.clustering import size_penalized_cosine
from familiar.neighbors.labels import sum_by_label
from familiar.neighbors.purity import Halves, halve

NEIGHBORS = 10  # nearest clusters that a cluster may be merged with
MAX_MERGED = 1000  # the largest clusters are compared with all; joining two of the others corrects little
MIN_SPLIT_SIZE = 4  # of an identity that is asked about
# Logistic curves: at the threshold, by an uncertainty more of similarity, by an e-fold of faces. Fitted to clusters of
# cats23, dogs29, ORL and LFW's peopleDevTrain (docs/explanation/clustering.md).
SAME_BY_MERGE = (-0.8, 1.2, 0.0)
DIFFERENT_BY_SPLIT = (-1.7, -2.7, 0.0)
DIFFERENT_BY_OUTLIER = (-3.6, -0.8, 1.5)
QUESTION_KINDS: tuple[Literal["split", "merge", "outlier"], ...] = ("split", "merge", "outlier")
_MAX_CANDIDATES = 1000  # questions of each kind


@dataclass(frozen=True, eq=False)
class Clusters:
    """The identities that have faces, and each unassigned face as a cluster of its own."""

    assignments: FaceAssignments
    compared: Comparable

    @cached_property
    def labels(self) -> Int64[np.ndarray, " n"]:
        """The cluster of each face, from 0."""
        identity = self.assignments.identity
        unassigned = identity == UNASSIGNED
        rank = np.cumsum(np.bincount(identity[~unassigned]) > 0) - 1  # of each identity among those that have faces
        labels = np.empty(len(identity), np.int64)
        labels[unassigned] = np.arange(np.count_nonzero(unassigned))
        labels[~unassigned] = np.count_nonzero(unassigned) + rank[identity[~unassigned]]
        return labels

    @cached_property
    def sizes(self) -> Int64[np.ndarray, " g"]:
        """Number of faces of each cluster."""
        return np.bincount(self.labels)

    @property
    def embeddings(self) -> Float32[np.ndarray, "n d"]:
        """The faces as they are compared."""
        return self.compared.embeddings

    @cached_property
    def sums(self) -> Float32[np.ndarray, "g d"]:
        """The sum of each cluster's embeddings."""
        return sum_by_label(self.embeddings, self.labels)

    def excess(self, similarity: Float64[np.ndarray, " q"], rows: Int64[np.ndarray, " q"]) -> Float64[np.ndarray, " q"]:
        """Return how far similarities exceed the thresholds of some faces, in uncertainties of these."""
        return (similarity - self.compared.thresholds[rows]) / self.compared.uncertainties[rows]

    @cached_property
    def first_rows(self) -> Int64[np.ndarray, " g"]:
        """A row of each cluster."""
        rows = np.empty(len(self.sizes), np.int64)
        rows[self.labels] = np.arange(len(self.labels))
        return rows

    @cached_property
    def members(self) -> list[Int64[np.ndarray, " _"]]:
        """The rows of each cluster's faces, rising."""
        return np.split(np.argsort(self.labels, kind="stable"), np.cumsum(self.sizes)[:-1])


@dataclass(frozen=True, eq=False)
class Candidates:
    """Questions that may be asked, as arrays: faces are chosen for those that are asked only.

    Attributes:
        clusters: that they are about.
        halves: of the clusters that have some.
        kind: index into `QUESTION_KINDS`.
        first, second: the clusters of a merge, in order; of others the same cluster twice.
        row: the row of an outlier; of others -1.
        similarity, probability, gain: see `Question`.
    """

    clusters: Clusters
    halves: dict[int, Halves]
    kind: Int64[np.ndarray, " q"]
    first: Int64[np.ndarray, " q"]
    second: Int64[np.ndarray, " q"]
    row: Int64[np.ndarray, " q"]
    similarity: Float64[np.ndarray, " q"]
    probability: Float64[np.ndarray, " q"]
    gain: Float64[np.ndarray, " q"]

    def question(self, index: int) -> Question:
        """Choose the faces of a question."""
        kind, assignments = QUESTION_KINDS[int(self.kind[index])], self.clusters.assignments
        first_rows = self.clusters.members[int(self.first[index])]
        second_rows = self.clusters.members[int(self.second[index])]
        if kind == "split":
            is_second = self.halves[int(self.first[index])].is_second
            first_rows, second_rows = first_rows[~is_second], first_rows[is_second]
        elif kind == "outlier":
            first_rows, second_rows = self.row[index : index + 1], np.setdiff1d(second_rows, self.row[index])
        return Question(
            kind,
            assignments.central_face(first_rows),
            assignments.central_face(second_rows),
            identity_of(assignments, first_rows),
            identity_of(assignments, second_rows),
            float(self.similarity[index]),
            float(self.probability[index]),
            float(self.gain[index]),
        )


class _Columns(NamedTuple):
    """Candidates of one kind: the columns of `Candidates`."""

    first: Int64[np.ndarray, " q"]
    second: Int64[np.ndarray, " q"]
    row: Int64[np.ndarray, " q"]
    similarity: Float64[np.ndarray, " q"]
    probability: Float64[np.ndarray, " q"]
    gain: Float64[np.ndarray, " q"]


def load_candidates(gallery: Store) -> Candidates:
    """Find all questions that may be asked; cached until the gallery changes."""
    return gallery.cached("questions", gallery.revision, lambda: _find_candidates(gallery))


def _find_candidates(gallery: Store) -> Candidates:
    assignments = load_assignments(gallery)
    clusters = Clusters(assignments, load_album(gallery).comparable(assignments.domain))
    halves = _halves(gallery, clusters)
    parts = _splits(gallery, clusters, halves), _merges(gallery, clusters), _outliers(clusters)
    kind = np.repeat(np.arange(len(parts)), [len(part.first) for part in parts])
    return Candidates(clusters, halves, kind, *(np.concatenate(columns) for columns in zip(*parts, strict=True)))


def _halves(gallery: Store, clusters: Clusters) -> dict[int, Halves]:
    """Divide the clusters in two; those whose faces have not changed since were divided before."""
    known: dict[bytes, Halves | None] = gallery.cached("halves", gallery.faces().revision, dict[bytes, Halves | None])
    halves: dict[int, Halves] = {}
    for number in np.flatnonzero(clusters.sizes >= MIN_SPLIT_SIZE).tolist():
        rows = clusters.members[number]
        key = rows.tobytes() + clusters.compared.thresholds[rows[:1]].tobytes()
        if key not in known:
            known[key] = halve(clusters.embeddings[rows])
        if (divided := known[key]) is not None:
            halves[number] = divided
    return halves


def _splits(gallery: Store, clusters: Clusters, halves: dict[int, Halves]) -> _Columns:
    """Find identities of two parts, unless the user said that faces of both are the same.

    A single face is asked about as an outlier.
    """
    assignments = clusters.assignments
    with gallery.read() as repository:
        same = np.array(repository.constraints.pairs(same=True), np.int64).reshape(-1, 2)
    is_second = np.zeros(len(assignments.identity), np.bool_)
    for number, divided in halves.items():
        is_second[clusters.members[number]] = divided.is_second
    count = len(clusters.sizes)
    confirmed = np.minimum(
        np.bincount(clusters.labels, assignments.by_user & is_second, count),
        np.bincount(clusters.labels, assignments.by_user & ~is_second, count),
    )
    linked = assignments.faces.rows_of(same.reshape(-1)).reshape(-1, 2)
    across = (clusters.labels[linked[:, 0]] == clusters.labels[linked[:, 1]]) & (
        is_second[linked[:, 0]] != is_second[linked[:, 1]]
    )
    confirmed[clusters.labels[linked[across, 0]]] = 1
    eligible = [number for number in halves if not confirmed[number] and halves[number].smaller > 1]
    numbers = np.array(eligible, np.int64)
    similarity = np.array([halves[number].across for number in eligible], np.float64)
    sizes = np.array([halves[number].smaller for number in eligible], np.int64)
    different = _probability(DIFFERENT_BY_SPLIT, clusters.excess(similarity, clusters.first_rows[numbers]))
    gain = different * np.sqrt(sizes * (clusters.sizes[numbers] - sizes))
    return _Columns(numbers, numbers, np.full(len(numbers), -1), similarity, 1 - different, gain)


def _merges(gallery: Store, clusters: Clusters) -> _Columns:
    """Find pairs of similar clusters of one kind."""
    sizes = clusters.sizes
    if len(sizes) < 2:
        nothing = np.zeros(0, np.int64)
        return _Columns(nothing, nothing, nothing, np.zeros(0), np.zeros(0), np.zeros(0))
    largest = np.argsort(-sizes, kind="stable")[:MAX_MERGED]
    means = normalize(clusters.sums)
    neighbors, similarities = search(means, means[largest], min(NEIGHBORS + 1, len(sizes)))
    queries = np.repeat(largest, neighbors.shape[1])
    low, high = np.minimum(queries, neighbors.reshape(-1)), np.maximum(queries, neighbors.reshape(-1))
    keys, first_index = np.unique(low * len(sizes) + high, return_index=True)
    kind = clusters.compared.kind[clusters.first_rows]
    same_kind = kind[keys // len(sizes)] == kind[keys % len(sizes)]
    is_open = (
        same_kind & (keys // len(sizes) != keys % len(sizes)) & ~np.isin(keys, _cannot_link_keys(gallery, clusters))
    )
    first, second = np.divmod(keys[is_open], len(sizes))
    similarity = similarities.reshape(-1)[first_index[is_open]].astype(np.float64)
    penalized = size_penalized_cosine(similarity, np.minimum(sizes[first], sizes[second]))
    probability = _probability(SAME_BY_MERGE, clusters.excess(penalized, clusters.first_rows[first]))
    gain = probability * np.sqrt(sizes[first] * sizes[second])
    best = np.argsort(-gain, kind="stable")[:_MAX_CANDIDATES]
    return _Columns(first[best], second[best], np.full(len(best), -1), similarity[best], probability[best], gain[best])


def _outliers(clusters: Clusters) -> _Columns:
    """Find unconfirmed faces that are dissimilar to the rest of their identity."""
    assignments, labels, sizes = clusters.assignments, clusters.labels, clusters.sizes
    rows = np.flatnonzero((sizes[labels] > 2) & ~assignments.by_user & (assignments.identity != UNASSIGNED))
    rest_sums = clusters.sums[labels[rows]] - clusters.embeddings[rows]
    norms = np.maximum(np.linalg.norm(rest_sums, axis=1), 1e-6)
    similarity = (np.einsum("rd,rd->r", clusters.embeddings[rows], rest_sums) / norms).astype(np.float64)
    others = sizes[labels[rows]]
    different = _probability(DIFFERENT_BY_OUTLIER, clusters.excess(similarity, rows), np.log(others))
    gain = different * np.sqrt(others - 1)
    best = np.argsort(-gain, kind="stable")[:_MAX_CANDIDATES]
    cluster = labels[rows[best]]
    return _Columns(cluster, cluster, rows[best], similarity[best], 1 - different[best], gain[best])


def _probability(
    curve: tuple[float, float, float],
    excess: Float64[np.ndarray, " q"],
    log_size: Float64[np.ndarray, " q"] | float = 0.0,
) -> Float64[np.ndarray, " q"]:
    """Return a probability by a similarity's excess over the threshold, in uncertainties, and a cluster's size."""
    intercept, by_excess, by_log_size = curve
    return 0.5 * (1 + np.tanh(0.5 * (intercept + by_excess * excess + by_log_size * log_size)))


def identity_of(assignments: FaceAssignments, rows: Int64[np.ndarray, " k"]) -> int | None:
    """Return the identity of a cluster's faces, None for an unassigned face."""
    identity = int(assignments.identity[rows[0]])
    return None if identity == UNASSIGNED else identity


def _cannot_link_keys(gallery: Store, clusters: Clusters) -> Int64[np.ndarray, " c"]:
    """List the pairs of clusters that must not be joined, each as `low * cluster count + high`."""
    faces, labels = clusters.assignments.faces, clusters.labels
    with gallery.read() as repository:
        different = repository.constraints.pairs(same=False)
        rejections = repository.constraints.rejections()
    marked = faces.rows_of(np.array(different, np.int64).reshape(-1)).reshape(-1, 2)
    pairs = labels[np.concatenate([marked, gallery_photo_pairs(gallery)])]
    identities, first_rows = np.unique(clusters.assignments.identity, return_index=True)
    cluster_of_identity = dict(zip(identities.tolist(), labels[first_rows].tolist(), strict=True))
    rejected = [
        (face, cluster_of_identity[identity]) for face, identity in rejections if identity in cluster_of_identity
    ]
    rejected_pairs = np.array(rejected, np.int64).reshape(-1, 2)
    rejected_pairs[:, 0] = labels[faces.rows_of(rejected_pairs[:, 0])]
    all_pairs = np.concatenate([pairs, rejected_pairs])
    return all_pairs.min(axis=1) * len(clusters.sizes) + all_pairs.max(axis=1)
