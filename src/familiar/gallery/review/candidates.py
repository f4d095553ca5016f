"""The questions that may be asked about a gallery's clusters, and what their answers are expected to correct."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Bool, Float32, Float64, Int64

from familiar.core.calibration import sigmoid
from familiar.core.gallery_types import Question
from familiar.core.vectors import normalize
from familiar.gallery.same.album import Album, load_album
from familiar.gallery.same.assignments import UNASSIGNED, GalleryAssignments, load_assignments
from familiar.gallery.same.constraints import cannot_link_pairs, marked_pairs
from familiar.gallery.store.store import Store
from familiar.neighbors.brute_force import search
from familiar.neighbors.halves import Halves, halve
from familiar.neighbors.labels import sum_by_label
from familiar.neighbors.rounds import size_penalized_cosine

NEIGHBORS = 10  # nearest clusters that a cluster may be merged with
MAX_MERGED = 1000  # the largest clusters are compared with all; joining two of the others corrects little
MIN_GAIN = 0.6
"""Expected gain from which on an answer matters."""
MIN_SPLIT_SIZE = 4  # of an identity that is asked about
# Logistic curves: at the threshold, by an uncertainty more of similarity, by an e-fold of faces. Fitted to clusters of
# cats23, dogs29, ORL and LFW's peopleDevTrain (docs/explanation/clustering.md).
SAME_BY_MERGE = (-0.8, 1.2, 0.0)
DIFFERENT_BY_SPLIT = (-1.7, -2.7, 0.0)
DIFFERENT_BY_OUTLIER = (-3.6, -0.8, 1.5)
_MAX_CANDIDATES = 1000  # questions of each kind
_SHORTEST = 1e-6  # a shorter sum has no direction: one face stands for the cluster


@dataclass(frozen=True, eq=False)
class Clusters:
    """The identities that have faces, and each unassigned face as a cluster of its own.

    Attributes:
        assignments: of all faces.
        album: all faces, as they are compared.
        labels: the cluster of each face, from 0: unassigned faces first, then the identities by their numbers.
        sizes: number of faces of each cluster.
        sums: the sum of each cluster's embeddings.
        members: the rows of each cluster's faces, rising.
        last_rows: the last row of each cluster.
    """

    assignments: GalleryAssignments
    album: Album
    labels: Int64[np.ndarray, " n"]
    sizes: Int64[np.ndarray, " g"]
    sums: Float32[np.ndarray, "g d"]
    members: list[Int64[np.ndarray, " _"]]
    last_rows: Int64[np.ndarray, " g"]

    def probability(
        self,
        curve: tuple[float, float, float],
        similarity: Float64[np.ndarray, " q"],
        rows: Int64[np.ndarray, " q"],
        log_size: Float64[np.ndarray, " q"] | float = 0.0,
    ) -> Float64[np.ndarray, " q"]:
        """Return a probability by how far a similarity exceeds a face's threshold, in uncertainties, and by a size."""
        intercept, by_excess, by_log_size = curve
        excess = (similarity - self.album.thresholds[rows]) / self.album.uncertainties[rows]
        return sigmoid(intercept + by_excess * excess + by_log_size * log_size)


class Candidate(NamedTuple):
    """A question that may be asked. Which faces represent both sides is chosen for those that are asked only.

    Attributes:
        first_rows, second_rows: the faces of both sides: clusters, halves of one, or an outlier and the others.
        clusters: that the question is about.
        kind, similarity, probability, gain: see `Question`.
    """

    kind: Literal["split", "merge", "outlier"]
    first_rows: Int64[np.ndarray, " f"]
    second_rows: Int64[np.ndarray, " s"]
    clusters: frozenset[int]
    similarity: float
    probability: float
    gain: float

    def question(self, assignments: GalleryAssignments) -> Question:
        """Choose the faces of the question."""
        first, second = self.first_rows, self.second_rows
        faces = assignments.central_face(first), assignments.central_face(second)
        identities = identity_of(assignments, first), identity_of(assignments, second)
        return Question(self.kind, *faces, *identities, self.similarity, self.probability, self.gain)


def load_candidates(store: Store) -> list[Candidate]:
    """Find all questions that may be asked, by falling gain; cached until the gallery changes."""
    return store.cached("questions", store.revision, lambda: _find_candidates(store))


def _find_candidates(store: Store) -> list[Candidate]:
    assignments = load_assignments(store)
    identity, count = assignments.identity, len(assignments.identity)
    if count < 2:
        return []
    labels = np.unique(np.where(identity == UNASSIGNED, np.arange(count) - count, identity), return_inverse=True)[1]
    album, sizes = load_album(store), np.bincount(labels)
    members = np.split(np.argsort(labels, kind="stable"), np.cumsum(sizes)[:-1])
    last_rows = np.array([rows[-1] for rows in members], np.int64)
    sums = sum_by_label(album.rows, labels)
    clusters = Clusters(assignments, album, labels, sizes, sums, members, last_rows)
    candidates = [*_splits(store, clusters), *_merges(store, clusters), *_outliers(clusters)]
    return sorted(candidates, key=lambda candidate: -candidate.gain)


def load_candidates_of(store: Store, species: str | None) -> list[Candidate]:
    """Find the questions about faces of a species, as `load_candidates`; None: about all."""
    candidates = load_candidates(store)
    if species is None:
        return candidates
    with store.read() as repository:
        labels = repository.faces.species()
    return [each for each in candidates if labels[each.first_rows[0]] == species]


def _halves(store: Store, clusters: Clusters) -> dict[int, Halves]:
    """Divide the clusters in two; those whose faces have not changed since were divided before."""
    known: dict[bytes, Halves | None] = store.cached("halves", store.faces().revision, dict[bytes, Halves | None])
    halves: dict[int, Halves] = {}
    for number in np.flatnonzero(clusters.sizes >= MIN_SPLIT_SIZE).tolist():
        rows = clusters.members[number]
        key = rows.tobytes() + clusters.album.thresholds[rows[:1]].tobytes()
        if key not in known:
            known[key] = halve(clusters.album.rows[rows])
        if (divided := known[key]) is not None:
            halves[number] = divided
    return halves


def _splits(store: Store, clusters: Clusters) -> Iterator[Candidate]:
    """Find identities of two parts, unless the user confirmed faces of both or said that two of them are the same.

    A single face is asked about as an outlier.
    """
    by_user, labels, halves = clusters.assignments.by_user, clusters.labels, _halves(store, clusters)
    is_second = np.zeros(len(labels), np.bool_)
    for number, divided in halves.items():
        is_second[clusters.members[number]] = divided.is_second
    sides = (by_user & is_second, by_user & ~is_second)
    confirmed = np.minimum(*(np.bincount(labels[side], minlength=len(clusters.sizes)) for side in sides))
    first, second = marked_pairs(store, clusters.assignments.faces.ids, same=True).T
    across = (labels[first] == labels[second]) & (is_second[first] != is_second[second])
    confirmed[labels[first[across]]] = 1
    smaller = {number: divided.smaller for number, divided in halves.items()}
    eligible = [number for number in halves if smaller[number] > 1 and not confirmed[number]]
    numbers, sizes = np.array(eligible, np.int64), np.array([smaller[number] for number in eligible], np.int64)
    similarity = np.array([halves[number].across for number in eligible], np.float64)
    different = clusters.probability(DIFFERENT_BY_SPLIT, similarity, clusters.last_rows[numbers])
    gain = different * np.sqrt(sizes * (clusters.sizes[numbers] - sizes))
    for index, number in enumerate(eligible):
        rows, divided = clusters.members[number], halves[number]
        values = divided.across, float(1 - different[index]), float(gain[index])
        yield Candidate("split", rows[~divided.is_second], rows[divided.is_second], frozenset([number]), *values)


def _merges(store: Store, clusters: Clusters) -> Iterator[Candidate]:
    """Find pairs of similar clusters of one species, unless the user named both and confirmed faces of both."""
    sizes, count = clusters.sizes, len(clusters.sizes)
    if count < 2:
        return
    largest = np.argsort(-sizes, kind="stable")[:MAX_MERGED]
    lengths = np.linalg.norm(clusters.sums, axis=1, keepdims=True)
    directions = np.where(lengths > _SHORTEST, clusters.sums, clusters.album.rows[clusters.last_rows])
    means = normalize(directions)
    neighbors, similarities = search(means, queries=means[largest], k=min(NEIGHBORS + 1, count))
    queries = np.repeat(largest, neighbors.shape[1])
    pairs = np.sort(np.stack([queries, neighbors.reshape(-1)]), axis=0)
    keys, first_index = np.unique(pairs[0] * count + pairs[1], return_index=True)
    first, second = np.divmod(keys, count)
    species, is_settled = _main_species(clusters), _are_named_and_confirmed(clusters)
    is_open = (
        (species[first] == species[second]) & (first != second) & ~np.isin(keys, _cannot_link_keys(store, clusters))
    )
    is_open &= ~(is_settled[first] & is_settled[second])
    first, second = first[is_open], second[is_open]
    similarity = similarities.reshape(-1)[first_index[is_open]].astype(np.float64)
    penalized = size_penalized_cosine(similarity, np.minimum(sizes[first], sizes[second]))
    probability = clusters.probability(SAME_BY_MERGE, penalized, clusters.last_rows[first])
    gain = probability * np.sqrt(sizes[first] * sizes[second])
    for index in np.argsort(-gain, kind="stable")[:_MAX_CANDIDATES].tolist():
        low, high = int(first[index]), int(second[index])
        numbers = float(similarity[index]), float(probability[index]), float(gain[index])
        yield Candidate("merge", clusters.members[low], clusters.members[high], frozenset([low, high]), *numbers)


def _main_species(clusters: Clusters) -> Int64[np.ndarray, " g"]:
    """Return the most frequent species of each cluster's faces: an identity may have faces of several."""
    species = clusters.album.species
    main = species[clusters.last_rows]
    for number in np.unique(clusters.labels[species != main[clusters.labels]]).tolist():
        main[number] = np.bincount(species[clusters.members[number]]).argmax()
    return main


def _are_named_and_confirmed(clusters: Clusters) -> Bool[np.ndarray, " g"]:
    """Tell which clusters have a name and a confirmed face, which is then the one that a question shows."""
    assignments = clusters.assignments
    is_named = np.isin(assignments.identity[clusters.last_rows], list(assignments.names))
    return is_named & (np.bincount(clusters.labels, assignments.by_user) > 0)


def _outliers(clusters: Clusters) -> Iterator[Candidate]:
    """Find unconfirmed faces that are dissimilar to the rest of their identity."""
    assignments, labels, embeddings = clusters.assignments, clusters.labels, clusters.album.rows
    sizes = clusters.sizes[labels]
    rows = np.flatnonzero((sizes > 2) & ~assignments.by_user & (assignments.identity != UNASSIGNED))
    rest_sums = clusters.sums[labels[rows]] - embeddings[rows]
    norms = np.maximum(np.linalg.norm(rest_sums, axis=1), 1e-6)
    similarity = (np.einsum("rd,rd->r", embeddings[rows], rest_sums) / norms).astype(np.float64)
    different = clusters.probability(DIFFERENT_BY_OUTLIER, similarity, rows, np.log(sizes[rows]))
    gain = different * np.sqrt(sizes[rows] - 1)
    for index in np.argsort(-gain, kind="stable")[:_MAX_CANDIDATES].tolist():
        cluster = int(labels[rows[index]])
        others = clusters.members[cluster][clusters.members[cluster] != rows[index]]
        numbers = float(similarity[index]), float(1 - different[index]), float(gain[index])
        yield Candidate("outlier", rows[index : index + 1], others, frozenset([cluster]), *numbers)


def identity_of(assignments: GalleryAssignments, rows: Int64[np.ndarray, " k"]) -> int | None:
    """Return the identity of a cluster's faces, None for an unassigned face."""
    identity = int(assignments.identity[rows[0]])
    return None if identity == UNASSIGNED else identity


def _cannot_link_keys(store: Store, clusters: Clusters) -> Int64[np.ndarray, " c"]:
    """List the pairs of clusters that must not be joined, each as `low * cluster count + high`."""
    assignments, every_row = clusters.assignments, np.arange(len(clusters.labels))
    pairs = clusters.labels[cannot_link_pairs(store, assignments, assignments.identity, every_row)]
    return pairs.min(axis=1) * len(clusters.sizes) + pairs.max(axis=1)
