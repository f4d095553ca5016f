"""Deleting faces for good: from the tables and from the undo log."""

import json
import os
from collections.abc import Iterable, Sequence
from typing import Literal, TypeAlias

from familiar.gallery.store.faces import Faces
from familiar.gallery.store.table import Table
from familiar.gallery.store.undo_log import UndoLog

Forgotten: TypeAlias = frozenset[tuple[Literal["photo", "face", "identity"], int]]
"""What was forgotten and may still be in the file's bytes, in copies or in an index. No number is given out again."""


class Erasure(Table):
    """SQL statements that mark faces, including deleted ones that the undo log still contains, and erase them.

    Ids of marked faces are in the temporary table `marked`: there may be too many for query parameters.
    """

    def mark_faces_of_identity(self, number: int) -> None:
        """Mark the faces of an identity, and its deleted faces that the undo log still contains.

        Faces of identities that were merged into it count as its own. If a face was moved by hand and belongs to
        another identity now, the log contains its version from when it was this identity's: the log is deleted up to
        that decision, since decisions are only undone in reverse order.
        """
        self._mark("SELECT face_id FROM assignments WHERE identity_id = ?", number)
        self._connection.run("CREATE TEMP TABLE IF NOT EXISTS logged (face INTEGER, decision INTEGER)")
        self._connection.run("DELETE FROM logged")
        self._connection.run(
            "WITH merged AS (SELECT ? AS number UNION SELECT json_extract(previous, '$[0]') FROM changes "
            "WHERE table_name = 'assignments' AND previous IS NOT NULL AND first_key IN (SELECT id FROM marked) "
            "AND json_extract(previous, '$[0]') NOT IN (SELECT id FROM identities)) "
            "INSERT INTO logged SELECT change.first_key, change.decision_id FROM previous_faces "
            "JOIN changes AS change ON change.id = change_id JOIN changes AS assigned "
            "ON assigned.table_name = 'assignments' AND assigned.first_key = change.first_key "
            "AND assigned.decision_id >= change.decision_id "
            "WHERE json_extract(assigned.previous, '$[0]') IN (SELECT number FROM merged)",
            (number,),
        )
        self._connection.run(
            "INSERT OR IGNORE INTO marked SELECT face FROM logged WHERE face NOT IN (SELECT id FROM faces)"
        )
        self._connection.run(
            "DELETE FROM decisions WHERE id <= "
            "(SELECT max(decision) FROM logged WHERE face NOT IN (SELECT id FROM marked))"
        )

    def mark_faces_of_photos(self, photos: Sequence[int]) -> None:
        """Mark the faces in photos, and their deleted faces that the undo log still contains."""
        self._mark(
            "SELECT id FROM faces WHERE photo_id IN (SELECT value FROM json_each(?1)) UNION SELECT first_key "
            "FROM changes JOIN previous_faces ON change_id = changes.id "
            "WHERE photo_id IN (SELECT value FROM json_each(?1))",
            json.dumps(list(photos)),
        )

    def erase_notes(self, photos: Sequence[int]) -> None:
        """Delete events and notes of photos and of their paths, before the photos are deleted."""
        numbers = [json.dumps(list(photos))]
        for table in ("events", "notes"):
            self._connection.run(f"DELETE FROM {table} WHERE photo_id IN (SELECT value FROM json_each(?))", numbers)
        # Notes of the time when a file could not be read, and was no photo of the gallery.
        query = "SELECT path FROM photos WHERE id IN (SELECT value FROM json_each(?))"
        paths = {os.fsdecode(path) for (path,) in self._connection.rows(query, numbers)}
        notes = self._connection.rows("SELECT id, body FROM notes WHERE photo_id IS NULL")
        self._connection.run_many(
            "DELETE FROM notes WHERE id = ?", ((note,) for note, body in notes if json.loads(body).get("path") in paths)
        )

    def erase_names_in_notes(self) -> None:
        """Let notes tell of their faces anew if they name identities or names which are no longer in the gallery."""
        self._connection.run(
            "UPDATE notes SET faces = NULL WHERE faces IS NOT NULL AND EXISTS "
            "(SELECT 1 FROM json_each(faces) AS face WHERE "
            "json_extract(face.value, '$.identity') NOT IN (SELECT id FROM identities) OR "
            "json_extract(face.value, '$.name') NOT IN (SELECT name FROM identities WHERE name IS NOT NULL))"
        )

    def _mark(self, query: str, value: int | str) -> None:
        """Fill the temporary table `marked` with the face ids that a query with one parameter selects."""
        self._connection.run("CREATE TEMP TABLE IF NOT EXISTS marked (id INTEGER PRIMARY KEY)")
        self._connection.run("DELETE FROM marked")
        self._connection.run(f"INSERT INTO marked {query}", (value,))

    def erase_marked(self) -> int:
        """Delete the marked faces, their log entries, and those of identities that only they belonged to.

        Returns:
            The number of faces deleted.
        """
        self._connection.run(
            "DELETE FROM changes WHERE table_name = 'identities' "
            "AND first_key NOT IN (SELECT id FROM identities) "
            "AND first_key IN (SELECT json_extract(previous, '$[0]') FROM changes WHERE table_name = 'assignments' "
            "AND previous IS NOT NULL AND first_key IN (SELECT id FROM marked)) AND first_key NOT IN "
            "(SELECT json_extract(previous, '$[0]') FROM changes WHERE table_name = 'assignments' "
            "AND previous IS NOT NULL AND first_key NOT IN (SELECT id FROM marked))"
        )
        self._connection.run(
            "DELETE FROM changes WHERE table_name IN ('faces', 'assignments', 'constraints', 'rejections') "
            "AND first_key IN (SELECT id FROM marked)"
        )
        self._connection.run(
            "DELETE FROM changes WHERE table_name = 'constraints' AND second_key IN (SELECT id FROM marked)"
        )
        UndoLog(self._connection).delete_empty()
        self._connection.run(
            "UPDATE notes SET faces = NULL WHERE photo_id IN "
            "(SELECT photo_id FROM faces WHERE id IN (SELECT id FROM marked))"
        )
        self._connection.run("INSERT OR IGNORE INTO forgotten SELECT 'face', id FROM marked")
        Faces(self._connection).note_deleted_boxes("id IN (SELECT id FROM marked)")
        return self._connection.run("DELETE FROM faces WHERE id IN (SELECT id FROM marked)")

    def note(self, kind: str, numbers: Iterable[int]) -> None:
        """Note photos ("photo") or identities ("identity") as forgotten, before they are deleted, with their names."""
        self._connection.run_many(
            "INSERT OR IGNORE INTO forgotten VALUES (?, ?)", ((kind, number) for number in numbers)
        )

    def erase_name(self, name: str | None) -> None:
        """Delete the name of a forgotten identity from the attributes of photos and identities, and from events."""
        if name is None:
            return
        self._connection.run("DELETE FROM events WHERE EXISTS (SELECT 1 FROM json_tree(body) WHERE atom = ?)", (name,))
        for table in ("photos", "identities"):
            while rows := self._connection.rows(
                f"SELECT {table}.id, min(fullkey) FROM {table}, json_tree({table}.attributes) WHERE atom = ? "
                "GROUP BY 1",
                (name,),
            ):
                self._connection.run_many(
                    f"UPDATE {table} SET attributes = json_remove(attributes, ?2) WHERE id = ?1", rows
                )

    def forgotten(self) -> Forgotten:
        """Return what was forgotten and may not be erased everywhere yet."""
        return frozenset((kind, number) for kind, number in self._connection.rows("SELECT kind, number FROM forgotten"))

    def finish(self, forgotten: Forgotten) -> None:
        """Store that all this is erased everywhere."""
        self._connection.run_many("DELETE FROM forgotten WHERE kind = ? AND number = ?", forgotten)

    def erase_in_copy(self, forgotten: Forgotten) -> None:
        """Erase in a copy of the gallery what the gallery has forgotten; what could be undone in the copy goes, too."""
        photos, faces, identities = (
            [number for kind, number in forgotten if kind == each] for each in ("photo", "face", "identity")
        )
        self._connection.run("DELETE FROM decisions")
        marked = "(SELECT value FROM json_each(?))"
        query = f"SELECT DISTINCT identity_id FROM assignments WHERE face_id IN {marked}"
        shown = {number for (number,) in self._connection.rows(query, [json.dumps(faces)])}
        self._connection.run(f"DELETE FROM faces WHERE id IN {marked}", [json.dumps(faces)])
        self.erase_notes(photos)
        self._connection.run(f"DELETE FROM photos WHERE id IN {marked}", [json.dumps(photos)])
        # An identity that was merged into a forgotten one had a name of its own in this copy.
        remaining = {number for (number,) in self._connection.rows("SELECT DISTINCT identity_id FROM assignments")}
        for number in {*identities, *(shown - remaining if identities else ())}:
            self.erase_identity(number)

    def erase_identity(self, number: int) -> None:
        """Delete an identity with its name, wherever that is. Faces that are assigned to it become unassigned."""
        row = self._connection.first("SELECT name FROM identities WHERE id = ?", (number,))
        self.erase_name(None if row is None else row[0])
        for table in ("events", "assignments", "rejections"):
            self._connection.run(f"DELETE FROM {table} WHERE identity_id = ?", (number,))
        self._connection.run("DELETE FROM identities WHERE id = ?", (number,))
        self.erase_names_in_notes()
