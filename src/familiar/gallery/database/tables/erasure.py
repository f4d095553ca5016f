"""Deleting faces for good: from the tables and from the undo log."""

import json
from collections.abc import Sequence

from familiar.gallery.database.tables.faces import Faces
from familiar.gallery.database.tables.settings import Settings
from familiar.gallery.database.tables.table import Table
from familiar.gallery.database.tables.undo_log import UndoLog


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
        self._connection.execute("CREATE TEMP TABLE IF NOT EXISTS logged (face INTEGER, decision INTEGER)")
        self._connection.execute("DELETE FROM logged")
        self._connection.execute(
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
        self._connection.execute(
            "INSERT OR IGNORE INTO marked SELECT face FROM logged WHERE face NOT IN (SELECT id FROM faces)"
        )
        self._connection.execute(
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

    def erase_watch_notes(self, photos: Sequence[int]) -> None:
        """Delete what `familiar watch` noted about photos and their paths, before the photos are deleted."""
        numbers = json.dumps(list(photos))
        self._connection.execute(
            "DELETE FROM skipped_files WHERE path IN "
            "(SELECT path FROM photos WHERE id IN (SELECT value FROM json_each(?)))",
            (numbers,),
        )
        self._connection.execute(
            "DELETE FROM watch_events WHERE photo_id IN (SELECT value FROM json_each(?))", (numbers,)
        )
        # Events of the time when a file could not be read, and was no photo of the gallery.
        paths = self._connection.execute(
            "SELECT path FROM photos WHERE id IN (SELECT value FROM json_each(?))", (numbers,)
        ).fetchall()
        skipped = self._connection.execute("SELECT id, body FROM watch_events WHERE kind = 'skipped'").fetchall()
        self._connection.executemany(
            "DELETE FROM watch_events WHERE id = ?",
            ((event,) for event, body in skipped if (json.loads(body)["path"],) in paths),
        )

    def erase_watch_sightings(self) -> None:
        """Let all events be completed anew that name identities or names which are no longer in the gallery."""
        self._connection.execute(
            "UPDATE watch_events SET body = json_remove(body, '$.faces'), is_complete = 0 "
            "WHERE is_complete = 1 AND EXISTS (SELECT 1 FROM json_each(body, '$.faces') AS face WHERE "
            "json_extract(face.value, '$.identity') NOT IN (SELECT id FROM identities) OR "
            "json_extract(face.value, '$.name') NOT IN (SELECT name FROM identities WHERE name IS NOT NULL))"
        )

    def _mark(self, query: str, value: int | str) -> None:
        """Fill the temporary table `marked` with the face ids that a query with one parameter selects."""
        self._connection.execute("CREATE TEMP TABLE IF NOT EXISTS marked (id INTEGER PRIMARY KEY)")
        self._connection.execute("DELETE FROM marked")
        self._connection.execute(f"INSERT INTO marked {query}", (value,))

    def erase_marked(self) -> int:
        """Delete the marked faces, their log entries, and those of identities and reports that only they belonged to.

        Returns:
            The number of faces deleted.
        """
        self._connection.execute(
            "DELETE FROM changes WHERE table_name IN ('identities', 'reports') "
            "AND first_key NOT IN (SELECT id FROM identities) "
            "AND first_key IN (SELECT json_extract(previous, '$[0]') FROM changes WHERE table_name = 'assignments' "
            "AND previous IS NOT NULL AND first_key IN (SELECT id FROM marked)) AND first_key NOT IN "
            "(SELECT json_extract(previous, '$[0]') FROM changes WHERE table_name = 'assignments' "
            "AND previous IS NOT NULL AND first_key NOT IN (SELECT id FROM marked))"
        )
        self._connection.execute(
            "DELETE FROM changes WHERE table_name IN ('faces', 'assignments', 'domains', 'constraints', 'rejections') "
            "AND first_key IN (SELECT id FROM marked)"
        )
        self._connection.execute(
            "DELETE FROM changes WHERE table_name = 'constraints' AND second_key IN (SELECT id FROM marked)"
        )
        UndoLog(self._connection).delete_empty()
        # What `familiar watch` has still to report is completed again, without the faces.
        self._connection.execute(
            "UPDATE watch_events SET body = json_remove(body, '$.faces'), is_complete = 0 "
            "WHERE kind IN ('enrolled', 'edited') AND photo_id IN "
            "(SELECT photo_id FROM faces WHERE id IN (SELECT id FROM marked))"
        )
        Faces(self._connection).note_deleted_boxes("id IN (SELECT id FROM marked)")
        faces = self._connection.execute("DELETE FROM faces WHERE id IN (SELECT id FROM marked)").rowcount
        Settings(self._connection).mark_erasure_due()
        return faces
