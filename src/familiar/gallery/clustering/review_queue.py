"""The review questions whose answers are expected to correct most: do these two faces show the same individual?"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Float32, Float64, Int64

from familiar.core.gallery_types import Question
from familiar.core.vectors import normalize
from familiar.gallery.clustering.album import Comparable, load_album
from familiar.gallery.clustering.assignments import UNASSIGNED, FaceAssignments, load_assignments
from familiar.gallery.database.connection import GalleryDatabase
from familiar.gallery.editing import corrections
from familiar.neighbors.brute_force import nearest_neighbors
from familiar.neighbors.clustering import size_penalized_cosine
from familiar.neighbors.purity import halve

NEIGHBORS = 10  # nearest clusters that a cluster may be merged with
MIN_SPLIT_SIZE = 4  # of an identity that is asked about
# Logistic curves: at the threshold, by an uncertainty more of similarity, by an e-fold of faces. Fitted to clusters of
# cats23, dogs29, ORL and LFW's peopleDevTrain (docs/explanation/clustering.md).
SAME_BY_MERGE = (-0.8, 1.2, 0.0)
DIFFERENT_BY_SPLIT = (-1.7, -2.7, 0.0)
DIFFERENT_BY_OUTLIER = (-3.6, -0.8, 1.5)
MIN_GAIN = 0.6
"""Expected gain from which on an answer matters."""
ANSWERS_PER_QUESTION = (1.15, 1.0, 1.65)
"""Answers per question that matters now: the median, and between which nine in ten moments of reviewing were."""
_MAX_CANDIDATES = 1000  # questions of each kind


@dataclass(frozen=True)
class AnswersLeft:
    """How many answers that matter are left: about so many, and between which limits in nine of ten cases."""

    expected: int
    low: int
    high: int


def propose_questions(gallery: GalleryDatabase, count: int = 10) -> list[Question]:
    """List at most `count` questions by falling expected gain, each cluster in at most one of them.

    The expected gain is between the number of faces and the number of pairs that the answer sets right. Of a merge or
    a split: the probability that the answer changes something times the root of the product of both sizes. Of an
    outlier: the same with the face alone and the identity's other faces. So large identities that look like two
    individuals (`purity.halve`) come first.

    Pairs that were answered before, faces of one photo and faces that the user marked as different are left out.
    """
    with gallery.reading():  # one snapshot, whatever other processes write
        assignments = load_assignments(gallery)
        if len(assignments.faces.ids) < 2 or count < 1:
            return []
        labels, candidates = gallery.cached("questions", gallery.revision, lambda: _candidates(gallery))
    cluster_of_face = dict(zip(assignments.faces.ids.tolist(), labels.tolist(), strict=True))
    used: set[int] = set()
    selected: list[Question] = []
    for question in candidates:
        pair = {cluster_of_face[question.first_face], cluster_of_face[question.second_face]}
        if not pair & used:
            selected.append(question)
            used |= pair
        if len(selected) == count:
            break
    return selected


def estimate_answers_left(gallery: GalleryDatabase) -> AnswersLeft:
    """Estimate how many answers are left that are expected to correct `MIN_GAIN` or more.

    All questions count that are known now, also those about one cluster of which `propose_questions` lists the first.
    Answers bring up new ones, which the factors allow for.
    """
    with gallery.reading():
        if len(load_assignments(gallery).faces.ids) < 2:
            return AnswersLeft(0, 0, 0)
        _, candidates = gallery.cached("questions", gallery.revision, lambda: _candidates(gallery))
    known = sum(question.expected_gain >= MIN_GAIN for question in candidates)
    return AnswersLeft(*(round(factor * known) for factor in ANSWERS_PER_QUESTION))


def _candidates(gallery: GalleryDatabase) -> tuple[Int64[np.ndarray, " n"], list[Question]]:
    """Return the cluster of each face, and all questions by falling expected gain."""
    assignments = load_assignments(gallery)
    clusters = _Clusters(assignments, load_album(gallery).comparable(assignments.domain))
    candidates = [
        *_split_questions(clusters),
        *_merge_questions(gallery, clusters),
        *_outlier_questions(clusters),
    ]
    candidates.sort(key=lambda question: (-question.expected_gain, question.first_face, question.second_face))
    return clusters.labels, candidates


def is_still_valid(gallery: GalleryDatabase, question: Question) -> bool:
    """Tell whether both faces are still in the identities that they were in when the question was proposed.

    Raises:
        KeyError: one of the faces does not exist any more.
    """
    assignments = load_assignments(gallery)
    rows = assignments.faces.rows_of(np.array([question.first_face, question.second_face], np.int64))
    return [_identity_of(assignments, row) for row in rows[:, None]] == [question.first, question.second]


def answer_question(gallery: GalleryDatabase, question: Question, same: bool) -> None:
    """Apply the user's answer to a question, as one decision that can be undone."""
    first, second = question.first_face, question.second_face
    if question.kind == "split":
        if same:
            corrections.confirm(gallery, [first, second])
        else:
            corrections.mark_different(gallery, first, second)
    elif question.kind == "outlier":
        if same:
            corrections.confirm(gallery, [first])
        else:
            corrections.reject(gallery, [first], question.first)
    elif not same:
        corrections.mark_different(gallery, first, second)
    elif question.first is not None and question.second is not None:
        corrections.merge(gallery, question.first, [question.second])
    elif question.first is None and question.second is None:
        corrections.split(gallery, [first, second])  # off from the unassigned faces, as a new identity
    elif question.first is None:
        assert question.second is not None
        corrections.move(gallery, [first], question.second)
    else:
        corrections.move(gallery, [second], question.first)


@dataclass(frozen=True, eq=False)
class _Clusters:
    """The identities that have faces, and each unassigned face as a cluster of its own."""

    assignments: FaceAssignments
    compared: Comparable

    @cached_property
    def labels(self) -> Int64[np.ndarray, " n"]:
        """The cluster of each face, from 0."""
        identity = self.assignments.identity
        keys = np.where(identity == UNASSIGNED, -1 - np.arange(len(identity)), identity)
        return np.unique(keys, return_inverse=True)[1].astype(np.int64)

    @cached_property
    def sizes(self) -> Int64[np.ndarray, " g"]:
        return np.bincount(self.labels)

    @property
    def embeddings(self) -> Float32[np.ndarray, "n d"]:
        return self.compared.embeddings

    @cached_property
    def sums(self) -> Float32[np.ndarray, "g d"]:
        """The sum of each cluster's embeddings."""
        sums = np.zeros((len(self.sizes), self.embeddings.shape[1]), np.float32)
        np.add.at(sums, self.labels, self.embeddings)
        return sums

    def excess(self, similarity: Float64[np.ndarray, " q"], rows: Int64[np.ndarray, " q"]) -> Float64[np.ndarray, " q"]:
        """Return how far similarities exceed the thresholds of some faces, in uncertainties of these."""
        return (similarity - self.compared.thresholds[rows]) / self.compared.uncertainties[rows]

    @cached_property
    def members(self) -> list[Int64[np.ndarray, " _"]]:
        """The rows of each cluster's faces, rising."""
        return np.split(np.argsort(self.labels, kind="stable"), np.cumsum(self.sizes)[:-1])


def _merge_questions(gallery: GalleryDatabase, clusters: _Clusters) -> list[Question]:
    """Propose pairs of similar clusters of one kind."""
    assignments, sizes = clusters.assignments, clusters.sizes
    if len(sizes) < 2:
        return []
    neighbors, similarities = nearest_neighbors(normalize(clusters.sums), min(NEIGHBORS, len(sizes) - 1))
    queries = np.repeat(np.arange(len(sizes)), neighbors.shape[1])
    low, high = np.minimum(queries, neighbors.reshape(-1)), np.maximum(queries, neighbors.reshape(-1))
    keys, first_index = np.unique(low * len(sizes) + high, return_index=True)
    kind_of_cluster = np.zeros(len(sizes), np.int64)
    kind_of_cluster[clusters.labels] = clusters.compared.kind
    same_kind = kind_of_cluster[keys // len(sizes)] == kind_of_cluster[keys % len(sizes)]
    is_open = same_kind & ~np.isin(keys, _cannot_link_keys(gallery, clusters))
    first, second = np.divmod(keys[is_open], len(sizes))
    similarity = similarities.reshape(-1)[first_index[is_open]].astype(np.float64)
    penalized = size_penalized_cosine(similarity, np.minimum(sizes[first], sizes[second]))
    some_face = np.array([members[0] for members in clusters.members], np.int64)
    probability = _probability(SAME_BY_MERGE, clusters.excess(penalized, some_face[first]))
    gain = probability * np.sqrt(sizes[first] * sizes[second])
    questions: list[Question] = []
    for index in np.argsort(-gain, kind="stable")[:_MAX_CANDIDATES]:
        first_rows, second_rows = clusters.members[first[index]], clusters.members[second[index]]
        questions.append(
            Question(
                "merge",
                assignments.central_face(first_rows),
                assignments.central_face(second_rows),
                _identity_of(assignments, first_rows),
                _identity_of(assignments, second_rows),
                float(similarity[index]),
                float(probability[index]),
                float(gain[index]),
            )
        )
    return questions


def _split_questions(clusters: _Clusters) -> list[Question]:
    """Propose the two parts of identities, unless the user confirmed faces of both."""
    assignments = clusters.assignments
    questions: list[Question] = []
    for rows in clusters.members:
        halves = halve(clusters.embeddings[rows]) if len(rows) >= MIN_SPLIT_SIZE else None
        if halves is None:
            continue
        first, second = rows[~halves.is_second], rows[halves.is_second]
        by_user = assignments.by_user
        if min(len(first), len(second)) == 1 or (by_user[first].any() and by_user[second].any()):
            continue  # a single face is asked about as an outlier
        excess = clusters.excess(np.array([halves.across]), rows[:1])
        different = float(_probability(DIFFERENT_BY_SPLIT, excess)[0])
        identity = _identity_of(assignments, rows)
        questions.append(
            Question(
                "split",
                assignments.central_face(first),
                assignments.central_face(second),
                identity,
                identity,
                halves.across,
                1 - different,
                different * float(np.sqrt(len(first) * len(second))),
            )
        )
    return questions


def _outlier_questions(clusters: _Clusters) -> list[Question]:
    """Propose unconfirmed faces that are dissimilar to the rest of their identity."""
    assignments, labels, sizes = clusters.assignments, clusters.labels, clusters.sizes
    rest_sums = clusters.sums[labels] - clusters.embeddings
    norms = np.maximum(np.linalg.norm(rest_sums, axis=1), 1e-6)
    similarity = ((clusters.embeddings * rest_sums).sum(axis=1) / norms).astype(np.float64)
    excess = clusters.excess(similarity, np.arange(len(labels)))
    different = _probability(DIFFERENT_BY_OUTLIER, excess, np.log(np.maximum(sizes[labels], 1)))
    gain = different * np.sqrt(sizes[labels] - 1)
    eligible = np.flatnonzero((sizes[labels] > 2) & ~assignments.by_user & (assignments.identity != UNASSIGNED))
    questions: list[Question] = []
    for row in eligible[np.argsort(-gain[eligible], kind="stable")][:_MAX_CANDIDATES]:
        rest = np.setdiff1d(clusters.members[labels[row]], [row])
        identity = int(assignments.identity[row])
        questions.append(
            Question(
                "outlier",
                int(assignments.faces.ids[row]),
                assignments.central_face(rest),
                identity,
                identity,
                float(similarity[row]),
                float(1 - different[row]),
                float(gain[row]),
            )
        )
    return questions


def _probability(
    curve: tuple[float, float, float],
    excess: Float64[np.ndarray, " q"],
    log_size: Float64[np.ndarray, " q"] | float = 0.0,
) -> Float64[np.ndarray, " q"]:
    """Return a probability by a similarity's excess over the threshold, in uncertainties, and a cluster's size."""
    intercept, by_excess, by_log_size = curve
    return 0.5 * (1 + np.tanh(0.5 * (intercept + by_excess * excess + by_log_size * log_size)))


def _identity_of(assignments: FaceAssignments, rows: Int64[np.ndarray, " k"]) -> int | None:
    """Return the identity of a cluster's faces, None for an unassigned face."""
    identity = int(assignments.identity[rows[0]])
    return None if identity == UNASSIGNED else identity


def _cannot_link_keys(gallery: GalleryDatabase, clusters: _Clusters) -> Int64[np.ndarray, " c"]:
    """List the pairs of clusters that must not be joined, each as `low * cluster count + high`."""
    faces, labels = clusters.assignments.faces, clusters.labels
    with gallery.reading() as repository:
        different = repository.constraints.pairs(same=False)
        rejections = repository.constraints.rejections()
        same_photo = repository.faces.pairs_in_one_photo()
    face_pairs = np.array([*different, *same_photo], np.int64).reshape(-1, 2)
    pairs = labels[faces.rows_of(face_pairs.reshape(-1))].reshape(-1, 2)
    identities, first_rows = np.unique(clusters.assignments.identity, return_index=True)
    cluster_of_identity = dict(zip(identities.tolist(), labels[first_rows].tolist(), strict=True))
    rejected = [
        (face, cluster_of_identity[identity]) for face, identity in rejections if identity in cluster_of_identity
    ]
    rejected_pairs = np.array(rejected, np.int64).reshape(-1, 2)
    rejected_pairs[:, 0] = labels[faces.rows_of(rejected_pairs[:, 0])]
    all_pairs = np.concatenate([pairs, rejected_pairs])
    return all_pairs.min(axis=1) * len(clusters.sizes) + all_pairs.max(axis=1)
