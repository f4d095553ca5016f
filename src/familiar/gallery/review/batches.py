"""Batches of faces: who is this, and which of these faces show the same individual?

A batch is about one identity. It shows the faces that fit it least, and the unassigned faces and unnamed groups that
may show it too, so that one answer names it, takes out what is wrong and adds what is missing.
"""

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Int64

from familiar.core.errors import Contradiction
from familiar.core.gallery_types import Batch
from familiar.gallery.edits import corrections
from familiar.gallery.review.candidates import MIN_GAIN, Candidate, identity_of, load_candidates
from familiar.gallery.same.assignments import (
    UNASSIGNED,
    GalleryAssignments,
    check_faces,
    check_identities,
    load_assignments,
)
from familiar.gallery.same.decisions import decision
from familiar.gallery.store.store import Store

MIN_LIKELY = 0.08
"""Probability from which on a face or a group may show the individual. Looking at one more costs little."""
MAX_MEMBERS, MAX_CANDIDATES = 12, 24
"""Faces of a batch: as many as can be looked at together."""


@dataclass
class _Collected:
    """What is known of one identity's batch."""

    gain: float = 0.0
    doubtful: list[Candidate] = field(default_factory=list[Candidate])
    similar: list[tuple[float, Int64[np.ndarray, " k"]]] = field(
        default_factory=list[tuple[float, Int64[np.ndarray, " k"]]]
    )


def propose_batches(store: Store, count: int = 10, *, species: str | None = None) -> list[Batch]:
    """List at most `count` batches whose answers matter, by falling expected gain.

    An identity without a name gains as many faces as it has, in a batch of its own; the others gain what the
    questions in it do (`questions.propose_questions`). Of two unnamed groups that may be one, the larger is asked
    about.

    Args:
        store: to read.
        count: maximum number of batches.
        species: only identities of this species.
    """
    with store.read() as repository:
        assignments, candidates = load_assignments(store), load_candidates(store)
        batches = store.cached("batches", store.revision, lambda: _collect(assignments, candidates))
        if species is not None:
            species_of = repository.identities.species()
            batches = [batch for batch in batches if species_of.get(batch.identity) == species]
    return batches[:count]


def _collect(assignments: GalleryAssignments, candidates: Sequence[Candidate]) -> list[Batch]:
    numbers, sizes = np.unique(assignments.identity[assignments.identity != UNASSIGNED], return_counts=True)
    size_of = dict(zip(numbers.tolist(), sizes.tolist(), strict=True))
    collected: defaultdict[int, _Collected] = defaultdict(_Collected)
    for number, size in size_of.items():
        if number not in assignments.names:
            collected[number].gain += size
    for candidate in candidates:
        first, second = (identity_of(assignments, rows) for rows in (candidate.first_rows, candidate.second_rows))
        if candidate.kind == "merge":
            sides = [(first, candidate.second_rows, second), (second, candidate.first_rows, first)]
            owner, rows, other = min(sides, key=lambda side: _rank(side[0], size_of, assignments.names))
            if owner is None or other in assignments.names or candidate.probability < MIN_LIKELY:
                continue
            collected[owner].similar.append((candidate.probability, rows))
        elif first is not None:
            owner = first
            if candidate.kind == "outlier":
                collected[owner].doubtful.append(candidate)
        else:
            continue
        collected[owner].gain += candidate.gain
    batches = [_batch(assignments, number, each) for number, each in collected.items() if each.gain >= MIN_GAIN]
    return sorted(batches, key=lambda batch: (-batch.expected_gain, batch.identity))


def _rank(identity: int | None, size_of: dict[int, int], names: Collection[int]) -> tuple[bool, bool, int, int]:
    """Order identities by which of two a batch is about: one with a name, or else the larger one."""
    return identity is None, identity not in names, -size_of.get(identity or 0, 0), identity or 0


def _batch(assignments: GalleryAssignments, identity: int, collected: _Collected) -> Batch:
    by_probability = sorted(collected.doubtful, key=lambda each: each.probability)
    rows = np.array([int(each.first_rows[0]) for each in by_probability], np.int64)
    if not len(rows):
        members = assignments.rows_of_identity(identity)
        rows = members[~assignments.by_user[members]]
    similar = sorted(collected.similar, key=lambda each: -each[0])[:MAX_CANDIDATES]
    return Batch(
        identity,
        tuple(assignments.faces.ids[rows[:MAX_MEMBERS]].tolist()),
        tuple(assignments.central_face(rows) for _, rows in similar),
        collected.gain,
    )


def answer_batch(
    store: Store, batch: Batch, same: Collection[int], name: str | None = None, *, same_photo: bool = False
) -> None:
    """Apply the answer to a batch, as one decision that can be undone.

    Args:
        store: to write to.
        batch: one that was proposed.
        same: the faces of the batch that show the individual; all others do not.
        name: of the identity from now on; None: as it is.
        same_photo: as for `corrections.merge`.

    Raises:
        NotInGallery: one of the faces, or the identity, does not exist any more.
        Contradiction: one of the faces is in another identity by now, or the name is taken or not valid.
        SharedPhoto: a photo would show the identity twice, and `same_photo` is False.
    """
    identity, shown = batch.identity, (*batch.members, *batch.candidates)
    with decision(store, "batch"):
        check_faces(store, shown)
        check_identities(store, [identity])
        before = load_assignments(store)
        rows = before.faces.rows_of(np.array(shown, np.int64))
        identities: list[int] = before.identity[rows].tolist()
        current = dict(zip(shown, identities, strict=True))
        if any((current[face] == identity) != (face in batch.members) for face in shown):
            raise Contradiction("the faces of this question have changed since it was listed; list the questions again")
        if name is not None:
            corrections.name_identity(store, identity, name)
        corrections.confirm(store, [face for face in batch.members if face in same])
        central = before.central_face(before.rows_of_identity(identity))
        for face in batch.candidates:  # before others join, so that none of these does
            if face not in same and current[face] != UNASSIGNED:
                corrections.mark_different(store, face, central)
        refused = [face for face in shown if face not in same and current[face] in (UNASSIGNED, identity)]
        if refused:
            corrections.reject(store, refused, identity)
        added = [face for face in batch.candidates if face in same]
        groups = list(dict.fromkeys(current[face] for face in added if current[face] != UNASSIGNED))
        if groups:
            corrections.merge(store, identity, groups, same_photo=same_photo)
            corrections.confirm(store, [face for face in added if current[face] != UNASSIGNED])
        faces = [face for face in added if current[face] == UNASSIGNED]
        if faces:
            corrections.move(store, faces, identity, same_photo=same_photo)
