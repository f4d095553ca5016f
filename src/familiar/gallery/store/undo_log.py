"""The log of the user's decisions, which triggers fill while one is open (see `store.schema`)."""

from familiar.gallery.store.schema import mend_references, restore_change
from familiar.gallery.store.table import Table


class UndoLog(Table):
    """SQL statements on the tables `decisions`, `changes` and `previous_faces`."""

    def open_decision(self, kind: str, decided_at: str) -> int:
        """Record all changes from now on as those of a new decision, and return its number."""
        self._connection.run("INSERT INTO decisions (decided_at, kind) VALUES (?, ?)", (decided_at, kind))
        number = self._connection.last_insert_rowid()
        self._connection.run("UPDATE gallery SET open_decision = ? WHERE open_decision IS NULL", (number,))
        assert self._connection.changes(), "a decision is no part of another one"
        return number

    def is_recording(self) -> bool:
        """Whether a decision is open."""
        return self._connection.value("SELECT open_decision FROM gallery") is not None

    def close_decision(self, number: int) -> None:
        """Stop recording, and delete the decision if it has changed nothing."""
        self._connection.run("UPDATE gallery SET open_decision = NULL")
        self._connection.run(
            "DELETE FROM decisions WHERE id = ? AND NOT EXISTS (SELECT 1 FROM changes WHERE decision_id = ?)",
            (number, number),
        )

    def last_decisions(self, limit: int) -> list[tuple[int, str, str, int]]:
        """Return number, kind, time and number of changes of the last decisions, newest first."""
        return self._connection.rows(
            "SELECT id, kind, decided_at, (SELECT count(*) FROM changes WHERE decision_id = decisions.id "
            "AND table_name != 'learned_faces') FROM decisions ORDER BY id DESC LIMIT ?",
            (limit,),
        )

    def last_decision_about_identity(self, identity: int, after: int) -> tuple[int, str, str] | None:
        """Return number, kind and time of the last decision that changed an identity or its faces.

        Args:
            identity: its number.
            after: only decisions with a higher number.
        """
        return self._connection.first(
            "SELECT id, kind, decided_at FROM decisions WHERE id > ?2 AND EXISTS (SELECT 1 FROM changes "
            "WHERE decision_id = decisions.id AND (table_name = 'identities' AND first_key = ?1 "
            "OR table_name = 'assignments' AND (json_extract(previous, '$[0]') = ?1 "
            "OR first_key IN (SELECT face_id FROM assignments WHERE identity_id = ?1)))) ORDER BY id DESC LIMIT 1",
            (identity, after),
        )

    def last_decision_about_face(self, face: int, after: int) -> tuple[int, str, str] | None:
        """Return number, kind and time of the last decision after another one that assigned or unassigned a face."""
        return self._connection.first(
            "SELECT id, kind, decided_at FROM decisions WHERE id > ?2 AND EXISTS (SELECT 1 FROM changes "
            "WHERE decision_id = decisions.id AND table_name = 'assignments' AND first_key = ?1) "
            "ORDER BY id DESC LIMIT 1",
            (face, after),
        )

    def identity_that_took_faces(self, decision: int, identity: int) -> int | None:
        """Return the identity that has most of the faces now that a decision took out of another one."""
        row = self._connection.first(
            "SELECT identity_id FROM assignments WHERE face_id IN (SELECT first_key FROM changes "
            "WHERE decision_id = ? AND table_name = 'assignments' AND json_extract(previous, '$[0]') = ?) "
            "GROUP BY identity_id ORDER BY count(*) DESC, identity_id LIMIT 1",
            (decision, identity),
        )
        return None if row is None else int(row[0])

    def restore(self, number: int) -> bool:
        """Restore every row that a decision changed, the last change first.

        What has been forgotten since stays forgotten. An identity that lost its last face may have been deleted since;
        if restored faces need it, it is there again, without a name.

        Returns:
            Whether faces were among the rows.
        """
        self._connection.run("PRAGMA defer_foreign_keys = ON")
        changes = self._connection.rows(
            "SELECT id, table_name, first_key, second_key, previous FROM changes WHERE decision_id = ? "
            "ORDER BY id DESC",
            (number,),
        )
        for change in changes:
            restore_change(self._connection, change)
        mend_references(self._connection)
        return any(table == "faces" for _, table, *_ in changes)

    def delete(self, number: int) -> None:
        """Delete a decision and its changes."""
        self._connection.run("DELETE FROM decisions WHERE id = ?", (number,))

    def delete_empty(self) -> None:
        """Delete decisions without recorded changes, which have nothing to undo."""
        self._connection.run("DELETE FROM decisions WHERE id NOT IN (SELECT decision_id FROM changes)")

    def delete_decisions_with_embeddings(self) -> None:
        """Delete decisions whose log contains embeddings, and all earlier ones, as undo goes in reverse order."""
        self._connection.run(
            "DELETE FROM decisions WHERE id <= "
            "(SELECT max(decision_id) FROM changes JOIN previous_faces ON change_id = changes.id)"
        )

    def forget_identity(self, number: int) -> None:
        """Delete the logged changes that contain an identity's name, its attributes or rejections from it."""
        # The attributes of identities that were merged into this one are its own: they name the same people.
        self._connection.run(
            "DELETE FROM changes WHERE table_name = 'identities' AND first_key NOT IN (SELECT id FROM identities) "
            "AND json_extract(previous, '$[1]') <> '[]' AND decision_id IN "
            "(SELECT decision_id FROM changes WHERE table_name = 'identities' AND first_key = ?)",
            (number,),
        )
        # Other identities' log entries may contain the name: of one merged into this one, or of a previous holder.
        self._connection.run(
            "DELETE FROM changes WHERE table_name = 'identities' AND (first_key = ? "
            "OR json_extract(previous, '$[0]') = (SELECT name FROM identities WHERE id = ?))",
            (number, number),
        )
        self._connection.run("DELETE FROM changes WHERE table_name = 'rejections' AND second_key = ?", (number,))
