"""The review questions whose answers are expected to correct most: do these two faces show the same individual?"""

import sys
from dataclasses import dataclass

import numpy as np

from familiar.core.errors import Contradiction
from familiar.core.gallery_types import Question
from familiar.gallery.edits import corrections
from familiar.gallery.review.batches import propose_batches
from familiar.gallery.review.candidates import MIN_GAIN, identity_of, load_candidates, load_candidates_of
from familiar.gallery.same.assignments import UNASSIGNED, check_faces, load_assignments
from familiar.gallery.store.store import Store


@dataclass(frozen=True)
class Remaining:
    """What is not settled yet, and what the questions do about it.

    Attributes:
        questions: batches and questions whose answers matter, by what is known now; answers may bring up more.
        unnamed: groups without a name.
        unassigned: faces in no group.
        covered: those of them that a batch or a question is about.
    """

    questions: int
    unnamed: int
    unassigned: int
    covered: int


def propose_questions(store: Store, count: int = 10, *, species: str | None = None) -> list[Question]:
    """List at most `count` questions by falling expected gain, each cluster in at most one of them.

    The expected gain is between the number of faces and the number of pairs that the answer sets right. Of a merge or
    a split: the probability that the answer changes something times the root of the product of both sizes. Of an
    outlier: the same with the face alone and the identity's other faces. So large identities that look like two
    individuals (`purity.halve`) come first.

    Pairs that were answered before, faces of one photo and faces that the user marked as different are left out.
    """
    with store.read():  # one snapshot, whatever other processes write
        assignments, candidates = load_assignments(store), load_candidates_of(store, species)
    used: set[int] = set()
    selected: list[Question] = []
    for candidate in candidates:
        if len(selected) >= count:
            break
        if not candidate.clusters & used:
            selected.append(candidate.question(assignments))
            used |= candidate.clusters
    return selected


def count_remaining(store: Store, *, species: str | None = None) -> Remaining:
    """Count what is not settled yet: questions that matter, groups without a name and faces in no group.

    A batch counts as one question, with all that it settles.

    Args:
        store: to read.
        species: only faces and groups of this species.
    """
    with store.read() as repository:
        assignments = load_assignments(store)
        batches = propose_batches(store, sys.maxsize, species=species)
        candidates = [each for each in load_candidates_of(store, species) if each.gain >= MIN_GAIN]
        labels = repository.faces.species()
    batch_identities = {batch.identity for batch in batches}
    others = [
        candidate
        for candidate in candidates
        if not batch_identities
        & {identity_of(assignments, candidate.first_rows), identity_of(assignments, candidate.second_rows)}
    ]
    counted = np.array([species in (None, label) for label in labels], np.bool_)
    unassigned = set(assignments.faces.ids[counted & (assignments.identity == UNASSIGNED)].tolist())
    in_groups = np.unique(assignments.identity[counted & (assignments.identity != UNASSIGNED)])
    covered = {face for batch in batches for face in batch.candidates}
    for candidate in candidates:  # also those that only follow a batch
        covered.update(assignments.faces.ids[[candidate.first_rows[0], candidate.second_rows[0]]].tolist())
    return Remaining(
        questions=len(batches) + len(others),
        unnamed=sum(number not in assignments.names for number in in_groups.tolist()),
        unassigned=len(unassigned),
        covered=len(unassigned & covered),
    )


def doubtful_identities(store: Store) -> frozenset[int]:
    """Find the identities that show two individuals rather than one, by `purity.halve` (probability above one half).

    Those of which the user confirmed faces of both halves are not among them.
    """
    with store.read():
        assignments, candidates = load_assignments(store), load_candidates(store)
    return frozenset(
        int(assignments.identity[candidate.first_rows[0]])
        for candidate in candidates
        if candidate.kind == "split" and candidate.probability < 0.5
    )


def is_still_valid(store: Store, question: Question) -> bool:
    """Tell whether both faces are still in the identities that they were in when the question was proposed.

    Raises:
        KeyError: one of the faces does not exist any more.
    """
    assignments = load_assignments(store)
    rows = assignments.faces.rows_of(np.array([question.first_face, question.second_face], np.int64))
    return [identity_of(assignments, row) for row in rows[:, None]] == [question.first, question.second]


def answer_question(store: Store, question: Question, same: bool) -> None:
    """Apply the user's answer to a question, as one decision that can be undone.

    Raises:
        NotInGallery: one of the faces does not exist any more.
        SharedPhoto: another photo than theirs would show one identity twice; merge the identities if it does.
        Contradiction: one of them is in another identity by now, or the answer contradicts a correction.
    """
    with store.write():  # or another process might reassign the faces after they were checked
        check_faces(store, (question.first_face, question.second_face))
        if not is_still_valid(store, question):
            raise Contradiction("the faces of this question have changed since it was listed; list the questions again")
        first, second = question.first_face, question.second_face
        with store.read() as repository:
            same_photo = repository.faces.row(first).photo == repository.faces.row(second).photo
        if question.kind == "outlier" and not same:
            corrections.reject(store, [first], question.first)
        elif not same:
            corrections.mark_different(store, first, second)
        elif question.kind != "merge":
            corrections.confirm(store, [first] if question.kind == "outlier" else [first, second])
        elif question.first is not None and question.second is not None:
            corrections.merge(store, question.first, [question.second], same_photo=same_photo)
        elif question.first is not None:
            corrections.move(store, [second], question.first, same_photo=same_photo)
        elif question.second is not None:
            corrections.move(store, [first], question.second, same_photo=same_photo)
        else:  # off from the unassigned faces, as a new identity
            corrections.split(store, [first, second], same_photo=same_photo)
