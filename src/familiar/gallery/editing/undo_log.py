"""The user's decisions, one transaction each, and undoing them."""

import contextlib
import sqlite3
from collections.abc import Generator
from dataclasses import dataclass
from datetime import UTC, datetime

from familiar.core.errors import Contradiction, NotInGallery
from familiar.gallery.database.connection import Gallery
from familiar.gallery.database.schema import delete_orphan_rows, restore_change


@dataclass(frozen=True)
class Decision:
    """An entry of the undo log.

    Attributes:
        number: increases with every decision.
        kind: the command that made it.
        decided_at: UTC, ISO 8601.
        changes: the number of rows that it changed.
    """

    number: int
    kind: str
    decided_at: str
    changes: int


@contextlib.contextmanager
def decision(gallery: Gallery, kind: str, *, faces_change: bool = False) -> Generator[sqlite3.Connection, None, None]:
    """Run a transaction whose changes `undo` can restore. One that changes nothing leaves no entry in the log.

    Args:
        gallery: to write to.
        kind: the command, as the log lists it.
        faces_change: as in `Gallery.writing`.
    """
    with gallery.writing(faces_change=faces_change) as connection:
        number = connection.execute(
            "INSERT INTO decisions (decided_at, kind) VALUES (?, ?)",
            (datetime.now(UTC).isoformat(timespec="seconds"), kind),
        ).lastrowid
        connection.execute("UPDATE gallery SET open_decision = ?", (number,))
        yield connection
        connection.execute("UPDATE gallery SET open_decision = NULL")
        connection.execute(
            "DELETE FROM decisions WHERE id = ? AND NOT EXISTS (SELECT 1 FROM changes WHERE decision_id = ?)",
            (number, number),
        )


def undo(gallery: Gallery, expected: int | None = None) -> Decision:
    """Undo the last decision: restore every row that it changed.

    What was forgotten since stays forgotten, and so does a deleted face whose photo has been edited since.

    Args:
        gallery: to write to.
        expected: the number that the last decision must have (None: any).

    Returns:
        The decision that was undone.

    Raises:
        NotInGallery: there is nothing to undo.
        Contradiction: the last decision is not the expected one; nothing was undone.
    """
    with gallery.writing() as connection:
        entries = _read_decisions(connection, limit=1)
        if not entries:
            raise NotInGallery(f"{gallery.folder}: nothing to undo")
        last = entries[0]
        if expected not in (None, last.number):
            raise Contradiction(
                f"nothing was undone, because the last change is another one by now ({last.kind}); reload and retry"
            )
        connection.execute("PRAGMA defer_foreign_keys = ON")
        changes = connection.execute(
            "SELECT id, table_name, first_key, second_key, previous FROM changes WHERE decision_id = ? "
            "ORDER BY id DESC",
            (last.number,),
        ).fetchall()
        for change in changes:
            restore_change(connection, change)
        if any(table == "faces" for _, table, *_ in changes):
            # As `writing(faces_change=True)` does at its end; that faces change is known only now.
            connection.execute("UPDATE gallery SET faces_revision = revision + 1")
        delete_orphan_rows(connection)
        # An identity that lost its last face may have been deleted since; the restored faces need it.
        connection.execute(
            "INSERT INTO identities (id, name) SELECT DISTINCT identity_id, NULL FROM assignments "
            "WHERE identity_id NOT IN (SELECT id FROM identities)"
        )
        # Restored rejections of an identity that has been forgotten since.
        connection.execute("DELETE FROM rejections WHERE identity_id NOT IN (SELECT id FROM identities)")
        if last.kind == "cluster":  # the next clustering may find other domains, so it must process all faces
            connection.execute("UPDATE gallery SET last_clustered_face_id = 0")
        connection.execute("DELETE FROM decisions WHERE id = ?", (last.number,))
    return last


def decisions(gallery: Gallery, limit: int = 20) -> list[Decision]:
    """List the last decisions that can be undone, newest first."""
    with gallery.reading() as connection:
        return _read_decisions(connection, limit)


def delete_empty_decisions(connection: sqlite3.Connection) -> None:
    """Delete decisions without recorded changes, which have nothing to undo."""
    connection.execute("DELETE FROM decisions WHERE id NOT IN (SELECT decision_id FROM changes)")


def _read_decisions(connection: sqlite3.Connection, limit: int) -> list[Decision]:
    rows = connection.execute(
        "SELECT id, kind, decided_at, (SELECT count(*) FROM changes WHERE decision_id = decisions.id) "
        "FROM decisions ORDER BY id DESC LIMIT ?",
        (limit,),
    )
    return [Decision(*row) for row in rows]
