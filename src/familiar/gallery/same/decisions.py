"""Decisions, the user's and those of clustering, one transaction each, and undoing them."""

import contextlib
from collections.abc import Generator
from datetime import UTC, datetime

from familiar.core.errors import Contradiction, NotInGallery
from familiar.core.gallery_types import Decision
from familiar.gallery.same.learning import learn_if_due
from familiar.gallery.store.repository import Repository
from familiar.gallery.store.store import Store


@contextlib.contextmanager
def decision(store: Store, kind: str, *, faces_change: bool = False) -> Generator[Repository, None, None]:
    """Run a transaction whose changes `undo` can restore. One that changes nothing leaves no entry in the log.

    Within another decision it is a part of that one.

    At its end the gallery learns from confirmed faces, if that is due (`same.learning`).

    Args:
        store: to write to.
        kind: the command, as the log lists it.
        faces_change: as in `Store.write`.
    """
    with store.write(faces_change=faces_change) as repository:
        if repository.undo_log.is_recording():
            yield repository
            return
        number = repository.undo_log.open_decision(kind, datetime.now(UTC).isoformat(timespec="seconds"))
        yield repository
        learn_if_due(store, repository)
        repository.undo_log.close_decision(number)


def undo(store: Store, expected: int | None = None) -> Decision:
    """Undo the last decision: restore every row that it changed.

    What was forgotten since stays forgotten, and so does a deleted face whose photo has been edited since.

    Args:
        store: to write to.
        expected: the number that the last decision must have (None: any).

    Returns:
        The decision that was undone.

    Raises:
        NotInGallery: there is nothing to undo.
        Contradiction: the last decision is not the expected one; nothing was undone.
    """
    with store.write() as repository:
        entries = decisions(store, limit=1)
        if not entries:
            raise NotInGallery(f"{store.folder}: nothing to undo")
        last = entries[0]
        if expected not in (None, last.number):
            raise Contradiction(
                f"nothing was undone, because the last change is another one by now ({last.kind}); reload and retry"
            )
        if repository.undo_log.restore(last.number):
            repository.settings.mark_faces_changed()  # not by `write(faces_change=True)`: it is known only now
        if last.kind == "cluster":
            repository.settings.mark_faces_clustered(0)
        repository.undo_log.delete(last.number)
        repository.events.add("undone")
    return last


def decisions(store: Store, limit: int = 20) -> list[Decision]:
    """List the last decisions that can be undone, newest first."""
    with store.read() as repository:
        return [Decision(*row) for row in repository.undo_log.last_decisions(limit)]
