"""Galleries of a model that was never calibrated calibrate themselves, once enough faces are confirmed.

That is part of the user's decision which confirmed the faces: of its transaction, and of what undoing it restores.
Nothing is fitted or written where a gallery is only read.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache, partial

import numpy as np
from jaxtyping import Int64

from familiar.gallery.same.assignments import load_assignments
from familiar.gallery.same.calibration import (
    confirmed_rows,
    fit_own_calibration,
    own_calibrations,
    store_own_calibrations,
)
from familiar.gallery.store.repository import Repository
from familiar.gallery.store.store import Store
from familiar.metrics.calibration import MIN_CALIBRATION_PAIRS
from familiar.metrics.roc import pair_totals

MAX_FACES = 4000  # to fit on, in two seconds; other writers wait for ten at most
_REFIT_FACTOR = 2  # so many times as many confirmed faces as in the last fit
_FACES_IN_TURN = 5  # of one identity, before those of the next


def calibrate_if_due(store: Store, repository: Repository, decision: str | None) -> None:
    """Fit and store the gallery's own calibration if its model has none and enough faces are confirmed.

    As in `calibrate`, there must be ten pairs of faces of one individual and ten of different individuals. It is fitted
    again when the number of confirmed faces has doubled. A calibration that the user made is never replaced.

    Args:
        store: the gallery to change.
        repository: of the open write.
        decision: the decision that this is a part of; None: none of them.
    """
    spaces = repository.settings.space().part_spaces
    counts = repository.assignments.confirmed_counts()
    if all(space.gallery_calibration.fitted for space in spaces) or not _has_enough_pairs(counts):
        return
    fitted, assignments = own_calibrations(store), cache(partial(load_assignments, store))
    for part, space in enumerate(spaces):
        previous = fitted.get(part)
        if space.gallery_calibration.fitted or (previous is not None and not previous.automatic):
            continue
        if len(spaces) > 1:
            is_confirmed = assignments().by_user & (assignments().faces.parts == part)
            counts = np.unique(assignments().identity[is_confirmed], return_counts=True)[1].tolist()
        last_faces = 0 if previous is None else previous.faces
        if not _has_enough_pairs(counts) or min(sum(counts), MAX_FACES) < _REFIT_FACTOR * last_faces:
            continue
        rows = confirmed_rows(assignments(), part)
        selected = rows[select_faces(assignments().identity[rows], MAX_FACES)]
        refitted = fit_own_calibration(assignments(), selected)
        if refitted.calibration.fitted:  # else the selected faces have too few pairs
            fitted[part] = replace(refitted, automatic=True, decision=decision, previous=previous)
            store_own_calibrations(repository, fitted)


def restore_previous_calibration(store: Store, repository: Repository, decision: str) -> None:
    """Undo what `calibrate_if_due` did as a part of a decision.

    Args:
        store: the gallery to change.
        repository: of the open write.
        decision: the decision that is being undone.
    """
    fitted = own_calibrations(store)
    undone = {part: each.previous for part, each in fitted.items() if each.decision == decision}
    if undone:
        restored = fitted | undone
        store_own_calibrations(repository, {part: each for part, each in restored.items() if each is not None})


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
    return min(pair_totals(np.repeat(np.arange(len(counts)), np.array(counts, np.int64)))) >= MIN_CALIBRATION_PAIRS
