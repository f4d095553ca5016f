"""A gallery learns from confirmed faces how to compare the others (`neighbors.within_identity`).

Which faces it learns from is chosen as part of the user's decisions, and undone with them. What it learns is computed
from these faces as they are confirmed now, so a face that is moved or forgotten changes it.
"""

import numpy as np
from jaxtyping import Float32, Int64

from familiar.core.cpu import one_thread_per_product
from familiar.gallery.same.assignments import UNASSIGNED, GalleryAssignments, load_assignments
from familiar.gallery.same.automatic_calibration import select_faces
from familiar.gallery.same.calibration import confirmed_rows
from familiar.gallery.store.repository import Repository
from familiar.gallery.store.store import Store
from familiar.neighbors.album import AlbumWhitening, evenly_spaced
from familiar.neighbors.within_identity import MIN_IDENTITIES, Gain, cross_validate, sharpen

MAX_FACES = 1000
"""To learn from; more would teach little more, and take longer."""
RELEARN_FACTOR = 2
"""So many times as many confirmed individuals as the last time: or every answer would change all similarities."""


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
    rows = _with_a_second(assignments, confirmed_rows(assignments))
    selected = rows[select_faces(assignments.identity[rows], MAX_FACES)]
    repository.learned_faces.replace(assignments.faces.ids[selected].tolist())


def learned_rows(store: Store) -> Int64[np.ndarray, " k"]:
    """List the rows of the faces that the gallery learned from and that are still confirmed, rising."""
    with store.read() as repository:
        faces = np.array(repository.learned_faces.all(), np.int64)
    assignments = load_assignments(store)
    return _with_a_second(assignments, np.intersect1d(assignments.faces.rows_of(faces), confirmed_rows(assignments)))


def learn(
    whitening: AlbumWhitening,
    embeddings: Float32[np.ndarray, "n d"],
    identities: Int64[np.ndarray, " n"],
    learned: Int64[np.ndarray, " k"],
) -> tuple[AlbumWhitening, Gain] | None:
    """Learn from confirmed faces of one species, if that helps with individuals that are left out.

    Args:
        whitening: of the album.
        embeddings: unit rows of the species.
        identities: of all faces, `UNASSIGNED` for those in none.
        learned: rows of the faces to learn from.

    Returns:
        How to compare the faces, and the gain; None if too few individuals are confirmed, or the gain is not sure.
    """
    if len(np.unique(identities[learned])) < MIN_IDENTITIES:
        return None
    sample = np.union1d(evenly_spaced(len(embeddings)), learned)
    with one_thread_per_product():  # on busy cores, many small products in two threads take ten times as long
        gain = cross_validate(whitening, embeddings[sample], identities[sample], np.isin(sample, learned))
        return (sharpen(whitening, embeddings[learned], identities[learned]), gain) if gain.is_sure else None


def _with_a_second(assignments: GalleryAssignments, rows: Int64[np.ndarray, " k"]) -> Int64[np.ndarray, " j"]:
    """Leave out the rows of identities that have only one of them."""
    counts = np.bincount(assignments.identity[rows] - UNASSIGNED)
    return rows[counts[assignments.identity[rows] - UNASSIGNED] > 1]
