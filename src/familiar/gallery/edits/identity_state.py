"""Identities as a user saw them, compared before a correction is written that he chose by what he saw.

A page may be open for hours, and a question on the terminal for minutes. In between other programs, and other windows,
change the gallery. A correction of an identity that has become another one is refused, with the change that made it so;
changes of other identities, and faces that were enrolled since, refuse nothing.
"""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np

from familiar.core.errors import Contradiction
from familiar.gallery.same.assignments import UNASSIGNED, GalleryAssignments, check_faces, load_assignments
from familiar.gallery.store.repository import Repository
from familiar.gallery.store.store import Store

NO_IDENTITY = 0
"""Number of the state of unassigned faces."""
STATE_PATTERN = r"^[0-9]{1,18}\.[0-9]{1,18}\.[0-9]{1,18}\.[0-9a-f]{16}\.[0-9a-f]{16}\.[0-9a-f]{16}$"
_PARTICIPLES = {  # by the kind of a decision: what it did to an identity or a face
    "name": "renamed",
    "merge": "merged",
    "reunite": "merged",
    "cluster": "clustered again",
    "import": "changed by an import",
}


@dataclass(frozen=True)
class IdentityState:
    """What a user saw of an identity.

    Attributes:
        identity: its number; `NO_IDENTITY` for unassigned faces.
        last_face: the highest number of a face then; later faces are not compared.
        last_decision: the number of the last decision then.
        name: a hash of its name.
        faces: a hash of the numbers of its faces.
        attributes: a hash of its attributes.
    """

    identity: int
    last_face: int
    last_decision: int
    name: str
    faces: str
    attributes: str

    def __str__(self) -> str:
        """Return the text for the hidden field of a form."""
        return f"{self.identity}.{self.last_face}.{self.last_decision}.{self.name}.{self.faces}.{self.attributes}"

    @staticmethod
    def parse(text: str) -> "IdentityState":
        """Read what `str` wrote.

        Args:
            text: matches `STATE_PATTERN`.
        """
        identity, last_face, last_decision, name, faces, attributes = text.split(".")
        return IdentityState(int(identity), int(last_face), int(last_decision), name, faces, attributes)


def read_states(store: Store, identities: Iterable[int | None]) -> dict[int, IdentityState]:
    """Return the states of identities as they are now, by number.

    Read them within the same `read` as what is shown. Those that do not exist are left out.

    Args:
        store: to read.
        identities: numbers; None, and `NO_IDENTITY`, for unassigned faces.
    """
    with store.read() as repository:
        assignments = load_assignments(store)
        last_face = int(assignments.faces.ids.max(initial=0))
        last_decision = max((number for number, *_ in repository.undo_log.last_decisions(1)), default=0)
        numbers = {number or NO_IDENTITY for number in identities}
        return {
            number: _read_state(repository, assignments, number, last_face, last_decision)
            for number in sorted(numbers)
            if number == NO_IDENTITY or repository.identities.exists(number)
        }


def check_states(
    store: Store, states: Iterable[IdentityState], *, faces: bool = True, attributes: bool = False
) -> None:
    """Check, within a write, that identities are as the user saw them.

    Args:
        store: to read.
        states: of the identities that his correction is about.
        faces: whether their faces must be the same, or only their names.
        attributes: whether their attributes must be the same.

    Raises:
        Contradiction: one was changed, merged or deleted; the message says how and when, where that is known.
    """
    with store.read() as repository:
        assignments = load_assignments(store)
        for state in states:
            if state.identity == NO_IDENTITY:
                continue
            if not repository.identities.exists(state.identity):
                raise Contradiction(_removal(repository, assignments, state))
            now = _read_state(repository, assignments, state.identity, state.last_face, state.last_decision)
            if (
                now.name != state.name
                or (faces and now.faces != state.faces)
                or (attributes and now.attributes != state.attributes)
            ):
                label = _label(assignments, state.identity)
                cause = repository.undo_log.last_decision_about_identity(state.identity, state.last_decision)
                raise Contradiction(_message(f"{label} was", cause, "changed"))


def check_identity_of_faces(store: Store, faces: Sequence[int], state: IdentityState) -> None:
    """Check, within a write, that faces are still in the identity that the user saw them in, and that it has its name.

    Raises:
        NotInGallery: one of the faces does not exist any more.
        Contradiction: one is in another identity, or the identity was renamed.
    """
    with store.read() as repository:
        check_faces(store, faces)
        assignments = load_assignments(store)
        rows = assignments.faces.rows_of(np.array(faces, np.int64))
        expected = state.identity or UNASSIGNED
        moved = np.flatnonzero(assignments.identity[rows] != expected)
        if not len(moved):
            check_states(store, [state], faces=False)
            return
        face, now = faces[int(moved[0])], int(assignments.identity[rows[moved[0]]])
        where = "unassigned" if now == UNASSIGNED else f"in {_label(assignments, now)}"
        cause = repository.undo_log.last_decision_about_face(face, state.last_decision)
        raise Contradiction(_message(f"face {face} is {where} now: it was", cause, "reassigned"))


def _read_state(
    repository: Repository, assignments: GalleryAssignments, identity: int, last_face: int, last_decision: int
) -> IdentityState:
    ids = assignments.faces.ids[assignments.rows_of_identity(identity)]
    name = assignments.names.get(identity)
    attributes = None if identity == NO_IDENTITY else repository.identities.attributes(identity)
    compared = (name, ids[ids <= last_face].tolist(), attributes)
    hashes = (hashlib.blake2b(repr(part).encode(), digest_size=8).hexdigest() for part in compared)
    return IdentityState(identity, last_face, last_decision, *hashes)


def _removal(repository: Repository, assignments: GalleryAssignments, state: IdentityState) -> str:
    """Say why an identity does not exist any more: mostly it was merged into another one."""
    cause = repository.undo_log.last_decision_about_identity(state.identity, state.last_decision)
    if cause is not None and _PARTICIPLES.get(cause[1]) == "merged":
        into = repository.undo_log.identity_that_took_faces(cause[0], state.identity)
        if into is not None:
            return _message(f"#{state.identity} was", cause, "merged", f" into {_label(assignments, into)}")
    return _message(f"#{state.identity} does not exist any more: it was", cause, "dissolved")


def _message(lead: str, cause: tuple[int, str, str] | None, otherwise: str, target: str = "") -> str:
    """Say what happened, when, and what to do.

    Args:
        lead: the beginning of the sentence.
        cause: number, kind and time of the decision; None: it was none, such as an undo.
        otherwise: the participle where the kind tells no better one.
        target: what follows the participle.
    """
    if cause is None:
        how = f"{otherwise}, or a change of it was undone,"
    else:
        how = f"{_PARTICIPLES.get(cause[1], otherwise)}{target} at {_clock(cause[2])}"
    return f"{lead} {how} by another program or in another window; reload and decide again"


def _clock(decided_at: str) -> str:
    """Return the local time of a decision, with the day if it was another one."""
    time = datetime.fromisoformat(decided_at).astimezone()
    today = datetime.now(UTC).astimezone().date()
    return f"{time:%H:%M}" if time.date() == today else f"{time:%H:%M on %Y-%m-%d}"


def _label(assignments: GalleryAssignments, identity: int) -> str:
    return assignments.names.get(identity) or f"#{identity}"
