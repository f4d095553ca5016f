"""The confirmed faces that a gallery has learned from (see `same.learning`)."""

from collections.abc import Iterable

from familiar.gallery.store.table import Table


class LearnedFaces(Table):
    """SQL statements on the table `learned_faces`."""

    def all(self) -> list[int]:
        """Return the ids of the faces, rising."""
        return [face for (face,) in self._connection.rows("SELECT face_id FROM learned_faces ORDER BY face_id")]

    def count_identities(self) -> int:
        """Count the identities that these faces are in now."""
        return self._connection.value(
            "SELECT count(DISTINCT identity_id) FROM assignments WHERE face_id IN (SELECT face_id FROM learned_faces)"
        )

    def replace(self, faces: Iterable[int]) -> None:
        """Set the faces."""
        before, now = set(self.all()), set(faces)
        for statement, changed in (
            ("DELETE FROM learned_faces WHERE face_id = ?", before - now),
            ("INSERT INTO learned_faces (face_id) VALUES (?)", now - before),
        ):
            self._connection.run_many(statement, ((face,) for face in sorted(changed)))
