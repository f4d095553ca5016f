"""The few questions whose answers would mend most: are these two faces one individual?"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Float32, Float64, Int64

from familiar.core.vectors import normalize
from familiar.gallery.clustering.assignments import UNASSIGNED, FaceAssignments, load_assignments
from familiar.gallery.clustering.calibration import calibration, clustering_calibration
from familiar.gallery.clustering.cluster import domain_threshold
from familiar.gallery.database.connection import Gallery
from familiar.gallery.editing import corrections
from familiar.gallery.editing.corrections import central_face
from familiar.neighbors.brute_force import nearest_neighbors
from familiar.neighbors.domains import IN_DOMAIN

CLOSEST = 10  # others that a group may be asked to join
UNKNOWN_SLOPE = 20.0  # of the probability, where a model was never calibrated


@dataclass(frozen=True)
class Question:
    """Do `first_face` and `second_face` show one individual?

    `kind` "merge": they stand for two groups (`first` and `second`; None is a face of its own), which would become
    one. "outlier": both are in `first`, and the first face may not belong there. `probability` that the answer is yes;
    `expected_gain`: that times the root of the product of both sizes, between the faces and the pairs
    that it would set right.
    """

    kind: Literal["merge", "outlier"]
    first_face: int
    second_face: int
    first: int | None
    second: int | None
    similarity: float
    probability: float
    expected_gain: float


def propose_questions(gallery: Gallery, count: int = 10) -> list[Question]:
    """The questions of highest worth, at most `count`, each group in one of them at most.

    What was answered is never asked again, nor what cannot be: two faces of one photo, two that were told apart.
    """
    with gallery.reading():  # what others write meanwhile is not seen
        who = load_assignments(gallery)
        if len(who.faces.ids) < 2 or count < 1:
            return []
        units = _units(who)
        seen = who.domain_adapted_embeddings()
        sums = np.zeros((int(units.max()) + 1, seen.shape[1]), np.float32)
        np.add.at(sums, units, seen)
        members = np.split(np.argsort(units, kind="stable"), np.cumsum(np.bincount(units))[:-1])
        every = [
            *_joins(gallery, who, units, sums, members),
            *_doubts(gallery, who, units, seen, sums, members),
        ]
    every.sort(key=lambda question: (-question.expected_gain, question.first_face, question.second_face))
    asked: set[int] = set()
    chosen: list[Question] = []
    place = dict(zip(who.faces.ids.tolist(), units.tolist(), strict=True))
    for question in every:
        groups = {place[question.first_face], place[question.second_face]}
        if not groups & asked:
            chosen.append(question)
            asked |= groups
        if len(chosen) == count:
            break
    return chosen


def is_still_valid(gallery: Gallery, question: Question) -> bool:
    """Whether both faces are still whose they were when it was asked. KeyError where one is gone."""
    who = load_assignments(gallery)
    rows = who.faces.rows_of(np.array([question.first_face, question.second_face], np.int64))
    return [_identity(who, row) for row in rows[:, None]] == [question.first, question.second]


def answer_question(gallery: Gallery, question: Question, same: bool) -> None:
    """The user's word on a question, as a decision."""
    first, second = question.first_face, question.second_face
    if question.kind == "outlier":
        if same:
            corrections.confirm(gallery, [first])
        else:
            corrections.reject(gallery, [first], question.first)
    elif not same:
        corrections.mark_different(gallery, first, second)
    elif question.first is not None and question.second is not None:
        corrections.merge(gallery, question.first, [question.second])
    elif question.first is None and question.second is None:
        corrections.split(gallery, [first, second])
    elif question.first is None:
        assert question.second is not None
        corrections.move(gallery, [first], question.second)
    else:
        corrections.move(gallery, [second], question.first)


def _units(who: FaceAssignments) -> Int64[np.ndarray, " n"]:
    """Of each face the number of its group among all, a face of nobody being one of its own."""
    alone = who.identity == UNASSIGNED
    key = np.where(alone, -1 - np.arange(len(alone)), who.identity)
    return np.unique(key, return_inverse=True)[1].astype(np.int64)


def _joins(
    gallery: Gallery,
    who: FaceAssignments,
    units: Int64[np.ndarray, " n"],
    sums: Float32[np.ndarray, "g d"],
    members: list[Int64[np.ndarray, " _"]],
) -> list[Question]:
    """Two groups that may be one. `sums` and `members` are of each group, by its number in `units`."""
    sizes = np.bincount(units)
    if len(sizes) < 2:
        return []
    near, similarity = nearest_neighbors(normalize(sums), min(CLOSEST, len(sizes) - 1))
    one = np.repeat(np.arange(len(sizes)), near.shape[1])
    pairs = np.stack([np.minimum(one, near.reshape(-1)), np.maximum(one, near.reshape(-1))], axis=1)
    keys, first = np.unique(pairs[:, 0] * len(sizes) + pairs[:, 1], return_index=True)
    kinds = np.zeros(len(sizes), np.int64)
    kinds[units] = who.domain
    apart = kinds[keys // len(sizes)] != kinds[keys % len(sizes)]
    open_ones = ~apart & ~np.isin(keys, _closed(gallery, who, units, len(sizes)))
    one, other = np.divmod(keys[open_ones], len(sizes))
    close = similarity.reshape(-1)[first[open_ones]].astype(np.float64)
    probability = _probability(gallery, close, kinds[one])
    worth = probability * np.sqrt(sizes[one] * sizes[other])
    best = np.argsort(-worth, kind="stable")[: max(1000, 10 * CLOSEST)]
    found: list[Question] = []
    for at in best:
        mine, theirs = members[one[at]], members[other[at]]
        found.append(
            Question(
                "merge",
                central_face(who, mine),
                central_face(who, theirs),
                _identity(who, mine),
                _identity(who, theirs),
                float(close[at]),
                float(probability[at]),
                float(worth[at]),
            )
        )
    return found


def _doubts(
    gallery: Gallery,
    who: FaceAssignments,
    units: Int64[np.ndarray, " n"],
    seen: Float32[np.ndarray, "n d"],
    sums: Float32[np.ndarray, "g d"],
    members: list[Int64[np.ndarray, " _"]],
) -> list[Question]:
    """Faces nobody confirmed that are less like the rest of their group than two of one individual should be."""
    sizes = np.bincount(units)
    others = sums[units] - seen
    similarity = (seen * others).sum(axis=1) / np.maximum(np.linalg.norm(others, axis=1), 1e-6)
    probability = _probability(gallery, similarity.astype(np.float64), who.domain)
    worth = (1 - probability) * np.sqrt(sizes[units] - 1)
    asked = np.flatnonzero((sizes[units] > 2) & ~who.by_user & (who.identity != UNASSIGNED))
    found: list[Question] = []
    for row in asked[np.argsort(-worth[asked], kind="stable")][:1000]:
        rest = np.setdiff1d(members[units[row]], [row])
        number = int(who.identity[row])
        found.append(
            Question(
                "outlier",
                int(who.faces.ids[row]),
                central_face(who, rest),
                number,
                number,
                float(similarity[row]),
                float(probability[row]),
                float(worth[row]),
            )
        )
    return found


def _probability(
    gallery: Gallery, similarity: Float64[np.ndarray, " q"], kinds: Int64[np.ndarray, " q"]
) -> Float64[np.ndarray, " q"]:
    """That groups so alike are one individual: a half at the similarity from which faces are grouped."""
    slope = calibration(gallery).slope or UNKNOWN_SLOPE
    at_home = clustering_calibration(gallery).threshold
    half = np.where(kinds == IN_DOMAIN, at_home, domain_threshold(at_home, IN_DOMAIN + 1))
    return 0.5 * (1 + np.tanh(0.5 * slope * (similarity - half)))


def _identity(who: FaceAssignments, rows: Int64[np.ndarray, " k"]) -> int | None:
    number = int(who.identity[rows[0]])
    return None if number == UNASSIGNED else number


def _closed(
    gallery: Gallery, who: FaceAssignments, units: Int64[np.ndarray, " n"], count: int
) -> Int64[np.ndarray, " c"]:
    """Pairs of groups that can never be one, as one number each."""
    with gallery.reading() as connection:
        apart = connection.execute("SELECT first_face, second_face FROM constraints WHERE same = 0").fetchall()
        rejected = connection.execute("SELECT face_id, identity_id FROM rejections").fetchall()
        together = connection.execute(
            "SELECT one.id, other.id FROM faces AS one JOIN faces AS other "
            "ON one.photo_id = other.photo_id AND one.id < other.id"
        ).fetchall()
    faces = np.array([*apart, *together], np.int64).reshape(-1, 2)
    pairs = units[who.faces.rows_of(faces.reshape(-1))].reshape(-1, 2)
    numbers, first = np.unique(who.identity, return_index=True)
    holder = dict(zip(numbers.tolist(), units[first].tolist(), strict=True))
    known = [(face, holder[number]) for face, number in rejected if number in holder]
    told = np.array(known, np.int64).reshape(-1, 2)
    told[:, 0] = units[who.faces.rows_of(told[:, 0])]
    both = np.concatenate([pairs, told])
    return both.min(axis=1) * count + both.max(axis=1)
