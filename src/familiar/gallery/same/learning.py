"""A gallery learns from confirmed faces how to compare the others (`neighbors.within_identity`).

Which faces it learns from is chosen as part of the user's decisions, and undone with them. What it learns is computed
from these faces as they are confirmed now, so a face that is moved or forgotten changes it.
"""

import numpy as np
from jaxtyping import Float32, Int64

from familiar.core.cpu import one_thread_per_product
from familiar.gallery.same.assignments import UNASSIGNED, GalleryAssignments, load_assignments
from familiar.gallery.store.repository import Repository
from familiar.gallery.store.store import Store
from familiar.neighbors.comparison import Comparison
from familiar.neighbors.whitening import evenly_spaced
from familiar.neighbors.within_identity import MIN_IDENTITIES, Gain, cross_validate, sharpen

MAX_FACES = 1000
"""To learn from; more would teach little more, and take longer."""
RELEARN_FACTOR = 2
"""So many times as many confirmed individuals as the last time: or every answer would change all similarities."""
_FACES_IN_TURN = 5  # of one identity, before those of the next


def learn_if_due(store: Store, repository: Repository) -> None:
    """Choose the faces to learn from if five individuals have two confirmed faces, or twice as many as the last time.

    Args:
        store: the gallery to change.
        repository: of the open decision.
    """
    individuals = sum(count > 1 for count in repository.assignments.confirmed_counts())
    if individuals < max(MIN_IDENTITIES, RELEARN_FACTOR * repository.learned_faces.count_identities()):
        return
    assignments = load_assignments(store)
    rows = _with_a_second(assignments, np.flatnonzero(assignments.by_user))
    selected = rows[select_faces(assignments.identity[rows], MAX_FACES)]
    repository.learned_faces.replace(assignments.faces.ids[selected].tolist())


def learned_rows(store: Store) -> Int64[np.ndarray, " k"]:
    """List the rows of the faces that the gallery learned from and that are still confirmed, rising."""
    with store.read() as repository:
        faces = np.array(repository.learned_faces.all(), np.int64)
    assignments = load_assignments(store)
    return _with_a_second(
        assignments, np.intersect1d(assignments.faces.rows_of(faces), np.flatnonzero(assignments.by_user))
    )


def learn(
    comparison: Comparison,
    embeddings: Float32[np.ndarray, "n d"],
    identities: Int64[np.ndarray, " n"],
    learned: Int64[np.ndarray, " k"],
) -> tuple[Comparison, Gain | None]:
    """Learn from confirmed faces of one species, if that helps with individuals that are left out.

    Args:
        comparison: of the album.
        embeddings: unit rows of the species.
        identities: of all faces, `UNASSIGNED` for those in none.
        learned: rows of the faces to learn from.

    Returns:
        How to compare the faces, and the gain; as before and None if the album is not whitened, too few individuals are
        confirmed, or the gain is not sure.
    """
    if comparison.whitening is None or len(np.unique(identities[learned])) < MIN_IDENTITIES:
        return comparison, None
    sample = np.union1d(evenly_spaced(len(embeddings)), learned)
    with one_thread_per_product():  # on busy cores, many small products in two threads take ten times as long
        is_learned = np.isin(sample, learned)
        gain = cross_validate(comparison.whitening, embeddings[sample], identities[sample], is_learned)
        if not gain.is_sure:
            return comparison, None
        sharpened = sharpen(comparison.whitening, embeddings[learned], identities[learned])
        return comparison.whitened_by(sharpened, embeddings), gain


def select_faces(identities: Int64[np.ndarray, " n"], count: int) -> Int64[np.ndarray, " k"]:
    """Select faces of as many identities as possible, but five of each if it has so many.

    Args:
        identities: the identity of each face.
        count: maximum number of faces.

    Returns:
        Their indices, rising. All if there are at most `count`. Otherwise five of each identity in turn, those with
        most faces first, then five more of each.
    """
    if len(identities) <= count:
        return np.arange(len(identities))
    labels, sizes = np.unique(identities, return_inverse=True, return_counts=True)[1:]
    by_identity = np.argsort(labels, kind="stable")
    rank = np.empty(len(identities), np.int64)  # of each face within its identity
    rank[by_identity] = np.arange(len(identities)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    order = np.lexsort((labels, -sizes[labels], rank // _FACES_IN_TURN))
    return np.sort(order[:count])


def _with_a_second(assignments: GalleryAssignments, rows: Int64[np.ndarray, " k"]) -> Int64[np.ndarray, " j"]:
    """Leave out the rows of identities that have only one of them."""
    counts = np.bincount(assignments.identity[rows] - UNASSIGNED)
    return rows[counts[assignments.identity[rows] - UNASSIGNED] > 1]
