"""Galleries of a model that was never calibrated calibrate themselves, once enough faces are confirmed.

That is part of the user's decision which confirmed the faces: of its transaction, and of what undoing it restores.
Nothing is fitted or written where a gallery is only read.
"""

import dataclasses
import json
from collections.abc import Sequence

import numpy as np
from jaxtyping import Int64

from familiar.gallery.clustering.assignments import load_assignments
from familiar.gallery.clustering.calibration import confirmed_rows, fit_own_calibration, own_calibration
from familiar.gallery.database.connection import GalleryDatabase
from familiar.gallery.database.repository import Repository
from familiar.metrics.calibration import MIN_CALIBRATION_PAIRS

MAX_FACES = 4000  # to fit on, in two seconds; other writers wait for ten at most
_REFIT_FACTOR = 2  # so many times as many confirmed faces as in the last fit
_FACES_IN_TURN = 5  # of one identity, before those of the next


def calibrate_if_due(gallery: GalleryDatabase, repository: Repository, decision: str | None) -> None:
    """Fit and store the gallery's own calibration if its model has none and enough faces are confirmed.

    As in `calibrate`, there must be ten pairs of faces of one individual and ten of different individuals. It is fitted
    again when the number of confirmed faces has doubled. A calibration that the user made is never replaced.

    Args:
        gallery: the gallery to change.
        repository: of the open write.
        decision: the decision that this is a part of; None: none of them.
    """
    if repository.settings.space().gallery_calibration.fitted:
        return
    previous = own_calibration(gallery)
    if previous is not None and not previous.clustering.is_automatic:
        return
    counts = repository.assignments.confirmed_counts()
    if not _has_enough_pairs(counts):
        return
    last_faces = 0 if previous is None else previous.clustering.faces or 0
    if min(sum(counts), MAX_FACES) < _REFIT_FACTOR * last_faces:
        return
    assignments = load_assignments(gallery)
    rows = confirmed_rows(assignments)
    fitted = fit_own_calibration(assignments, rows[select_faces(assignments.identity[rows], MAX_FACES)])
    if not fitted.calibration.fitted:  # the selected faces have too few pairs
        return
    clustering = dataclasses.replace(fitted.clustering, is_automatic=True)
    fitted = dataclasses.replace(fitted, clustering=clustering, decision=decision, previous=previous)
    repository.settings.set_own_calibration(json.dumps(fitted.to_dict()))


def restore_previous_calibration(gallery: GalleryDatabase, repository: Repository, decision: str) -> None:
    """Undo what `calibrate_if_due` did as a part of a decision.

    Args:
        gallery: the gallery to change.
        repository: of the open write.
        decision: the decision that is being undone.
    """
    fitted = own_calibration(gallery)
    if fitted is not None and fitted.decision == decision:
        previous = None if fitted.previous is None else json.dumps(fitted.previous.to_dict())
        repository.settings.set_own_calibration(previous)


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


def _has_enough_pairs(counts: Sequence[int]) -> bool:
    total, squares = sum(counts), sum(count * count for count in counts)
    return min(squares - total, total * total - squares) >= 2 * MIN_CALIBRATION_PAIRS
