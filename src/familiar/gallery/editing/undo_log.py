"""What a user decided, one transaction each, and the way back."""

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
    """One entry of the log: the command that made it, when (UTC, ISO 8601), and how many rows it changed."""

    number: int
    kind: str
    decided_at: str
    changes: int


@contextlib.contextmanager
def decision(gallery: Gallery, kind: str, *, faces_change: bool = False) -> Generator[sqlite3.Connection, None, None]:
    """A transaction whose changes `undo` takes back. One that changes nothing leaves no entry.

    `faces_change` as in `Gallery.writing`.
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
    """Takes the last decision back: every row it changed is as it was before. NotInGallery where there is none left.

    Contradiction where a number was `expected`, and the last decision is another by now.

    What was forgotten since stays forgotten, and so does a deleted face whose photo has been edited since.
    """
    with gallery.writing() as connection:
        last = _decisions(connection, limit=1)
        if not last:
            raise NotInGallery(f"{gallery.folder}: there is no decision left to undo")
        if expected not in (None, last[0].number):
            raise Contradiction(
                f"something else was decided meanwhile ({last[0].kind}), so nothing was undone; look again"
            )
        connection.execute("PRAGMA defer_foreign_keys = ON")
        changes = connection.execute(
            "SELECT id, table_name, first, second, before FROM changes WHERE decision_id = ? ORDER BY id DESC",
            (last[0].number,),
        ).fetchall()
        for change in changes:
            restore_change(connection, change)
        if any(table == "faces" for _, table, *_ in changes):
            # The number of this write, as `writing(faces_change=True)` has it, which is known only now.
            connection.execute("UPDATE gallery SET faces_revision = revision + 1")
        delete_orphan_rows(connection)
        # An identity that came to hold nobody may have been swept away since; those who return to it need it.
        connection.execute(
            "INSERT INTO identities (id, name) SELECT DISTINCT identity_id, NULL FROM assignments "
            "WHERE identity_id NOT IN (SELECT id FROM identities)"
        )
        # Of whom nothing else is left, since they were forgotten.
        connection.execute("DELETE FROM rejections WHERE identity_id NOT IN (SELECT id FROM identities)")
        if last[0].kind == "group":  # which may find other kinds when it is done again
            connection.execute("UPDATE gallery SET judged_face = 0")
        connection.execute("DELETE FROM decisions WHERE id = ?", (last[0].number,))
    return last[0]


def decisions(gallery: Gallery, limit: int = 20) -> list[Decision]:
    """The last ones that can be taken back, newest first."""
    with gallery.reading() as connection:
        return _decisions(connection, limit)


def delete_empty_decisions(connection: sqlite3.Connection) -> None:
    """A decision of which nothing is left has nothing to undo."""
    connection.execute("DELETE FROM decisions WHERE id NOT IN (SELECT decision_id FROM changes)")


def _decisions(connection: sqlite3.Connection, limit: int) -> list[Decision]:
    rows = connection.execute(
        "SELECT id, kind, decided_at, (SELECT count(*) FROM changes WHERE decision_id = decisions.id) "
        "FROM decisions ORDER BY id DESC LIMIT ?",
        (limit,),
    )
    return [Decision(*row) for row in rows]
