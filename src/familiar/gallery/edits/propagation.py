"""Choose the similar faces that follow a correction out of an identity, and cluster them again."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, Float32, Float64, Int64

from familiar.gallery.cluster.cluster import recluster
from familiar.gallery.same.album import load_album
from familiar.gallery.same.assignments import GalleryAssignments, load_assignments
from familiar.gallery.store.repository import Repository
from familiar.gallery.store.store import Store
from familiar.neighbors.halves import mean_similarity

_MIN_SPLIT_GAP = 0.1  # in similarity: faces of two individuals are so much less similar than faces of one
_MAX_ITERATIONS = 10  # of two-means


def propagate(
    store: Store,
    repository: Repository,
    before: GalleryAssignments,
    leaving: Int64[np.ndarray, " k"],
    unassigned: Int64[np.ndarray, " u"],
    joined: list[int] | None,
    opposite: int | None = None,
) -> int:
    """Unassign the faces that are more similar to those that leave their identity than to those that stay.

    They are clustered again. Also mark each leaving face as different from the central face of those that stay:
    identity numbers may change with the next clustering, faces do not.

    Args:
        store: the gallery to change.
        repository: of the open decision.
        before: assignments before the correction.
        leaving: rows of the faces that the user took out of their identities.
        unassigned: rows of the faces to unassign and cluster again in any case.
        joined: identities that faces were assigned to. Similar unassigned faces may join them, and those that faces
            leave; None: neither.
        opposite: row of a face of which the user said that it shows another individual than the one that leaves; None:
            nobody said who stays, so others only follow if the identity looks like two individuals.

    Returns:
        The number of faces that changed by clustering.
    """
    released = [unassigned]
    identities: list[int] = np.unique(before.identity[leaving]).tolist()
    album = load_album(store)
    for identity in identities:
        taken = leaving[before.identity[leaving] == identity]
        rest = np.setdiff1d(before.rows_of_identity(identity), taken)
        embeddings, same_threshold = album.rows, float(album.thresholds[taken[0]])
        stays = None if opposite is None else int(np.searchsorted(rest, opposite))
        follows = _nearer_to_leaving(embeddings[rest], before.by_user[rest], embeddings[taken], same_threshold, stays)
        released.append(rest[follows])
        if len(rest):
            central = before.central_face(rest[~follows])
            for face in before.faces.ids[taken].tolist():
                repository.constraints.add(face, central, same=False)
    free = before.faces.ids[np.concatenate(released)]
    repository.assignments.unassign(free.tolist())
    for identity in identities:
        repository.constraints.drop_stale(identity)
    return recluster(store, repository, free, [] if joined is None else [*joined, *identities]).changed


def similar_faces(store: Store, identity: int, faces: Sequence[int]) -> list[int]:
    """Return the unconfirmed faces of an identity that are nearer to some of its faces than to the others.

    The others are represented, to begin with, by the one that is least similar to these, which stays.

    Args:
        store: to read.
        identity: its number.
        faces: ids of faces; those of other identities do not count.

    Returns:
        Ids without those of `faces`, rising.

    Raises:
        KeyError: one of the faces does not exist.
    """
    with store.read():
        assignments = load_assignments(store)
        compared = load_album(store).rows
    selected = assignments.faces.rows_of(np.array(sorted(set(faces)), np.int64))
    selected = selected[assignments.identity[selected] == identity]
    rest = np.setdiff1d(assignments.rows_of_identity(identity), selected)
    if not len(selected) or not len(rest):
        return []
    leaving = compared[selected]
    opposite = int((compared[rest] @ leaving.sum(axis=0)).argmin())
    follows = _nearer_to_leaving(compared[rest], assignments.by_user[rest], leaving, 0.0, opposite)
    return assignments.faces.ids[rest[follows]].tolist()


def _nearer_to_leaving(
    rest: Float32[np.ndarray, "n d"],
    is_fixed: Bool[np.ndarray, " n"],
    leaving: Float32[np.ndarray, "k d"],
    same_threshold: float,
    opposite: int | None,
) -> Bool[np.ndarray, " n"]:
    """Mark the rows of `rest` that are more similar to the leaving faces than to the staying ones, by two-means.

    Even within one individual some faces are more similar to any given face than to the others. So no row is marked
    unless the two sides look like two individuals: less similar to each other than `same_threshold`, and by .1 less
    than the faces of one side are among themselves. If `opposite` stays, they are known to be two.

    Args:
        rest: unit embeddings of the identity's other faces.
        is_fixed: rows of `rest` that stay in any case.
        leaving: unit embeddings of the faces that leave.
        same_threshold: similarity from which two faces are clustered together.
        opposite: row of `rest` that stays and shows another individual.
    """
    stay_vectors, leave_vectors = rest.astype(np.float64), leaving.astype(np.float64)
    follows = np.zeros(len(rest), np.bool_)
    if opposite is not None:
        is_fixed = is_fixed | (np.arange(len(rest)) == opposite)  # by rounding, another may be nearer than itself
        to_opposite = stay_vectors @ stay_vectors[opposite]
        follows = (stay_vectors @ leave_vectors.sum(axis=0) > to_opposite * len(leaving)) & ~is_fixed
    for _ in range(_MAX_ITERATIONS):
        leaving_sum = leave_vectors.sum(axis=0) + stay_vectors[follows].sum(axis=0)
        to_leaving = _similarity_to_others(stay_vectors, leaving_sum, follows)
        to_staying = _similarity_to_others(stay_vectors, stay_vectors[~follows].sum(axis=0), ~follows)
        nearer = (to_leaving > to_staying) & ~is_fixed
        if (nearer == follows).all() or nearer.all():  # at least one face stays, to compare with
            break
        follows = nearer
    if not follows.any() or opposite is not None:
        return follows
    first, second = np.concatenate([leave_vectors, stay_vectors[follows]]), stay_vectors[~follows]
    across = float(first.mean(axis=0) @ second.mean(axis=0)) if len(second) else -1.0
    is_split = across < same_threshold and _similarity_within(first, second) - across >= _MIN_SPLIT_GAP
    return follows if is_split else np.zeros(len(rest), np.bool_)


def _similarity_within(*sides: Float64[np.ndarray, "_ d"]) -> float:
    """Return the mean similarity of two faces of one side, averaged over the sides of two faces or more."""
    return float(np.mean([mean_similarity(side) for side in sides if len(side) > 1]))


def _similarity_to_others(
    vectors: Float64[np.ndarray, "n d"], total: Float64[np.ndarray, " d"], included: Bool[np.ndarray, " n"]
) -> Float64[np.ndarray, " n"]:
    """Return the cosine of each row with `total`, less the row itself if it is `included` in it; -1 if that is 0."""
    others = total - vectors * included[:, None]
    length = np.linalg.norm(others, axis=1)
    return np.where(length > 0, (vectors * others).sum(axis=1) / np.where(length > 0, length, 1), -1.0)
