"""The identity of each assigned face."""

import os
from collections.abc import Iterable, Mapping

from familiar.gallery.store.table import Table


class Assignments(Table):
    """SQL statements on the table `assignments`."""

    def all(self) -> list[tuple[int, int, int]]:
        """Return face, identity and by_user (0 or 1) of every assigned face, by rising face."""
        return self._connection.rows("SELECT face_id, identity_id, by_user FROM assignments ORDER BY face_id")

    def estimated_identities(self) -> int:
        """Estimate the number of individuals: identities that have faces, plus one for each unassigned face."""
        return self._connection.value(
            "SELECT count(DISTINCT identity_id) + (SELECT count(*) FROM faces) - count(*) FROM assignments"
        )

    def confirmed_counts(self) -> list[int]:
        """Count the faces that the user confirmed, of each identity."""
        rows = self._connection.rows("SELECT count(*) FROM assignments WHERE by_user = 1 GROUP BY identity_id")
        return [count for (count,) in rows]

    def exists(self, face: int) -> bool:
        """Whether a face is assigned."""
        return self._connection.first("SELECT 1 FROM assignments WHERE face_id = ?", (face,)) is not None

    def photos_by_identity(self) -> list[tuple[int, str, str, bytes | None]]:
        """Return number, name (or #number), path and SHA-256 for each photo of each identity, by number, then path.

        The SHA-256 of an embedding that was enrolled without a photo is None.
        """
        rows = self._connection.rows(
            "SELECT DISTINCT identity_id, coalesce(name, '#' || identity_id), path, iif(size_bytes > 0, sha256, NULL) "
            "FROM assignments "
            "JOIN identities ON identities.id = identity_id JOIN faces ON faces.id = face_id "
            "JOIN photos ON photos.id = photo_id ORDER BY identity_id, path"
        )
        return [(number, name, os.fsdecode(path), sha256) for number, name, path, sha256 in rows]

    def assign(self, identity_of_face: Mapping[int, int], *, by_user: bool | None) -> None:
        """Assign each face to its identity, on behalf of the user.

        Args:
            identity_of_face: identity number by face id.
            by_user: whether the user made the assignment; None leaves that as it was. An assignment once made by the
                user stays so.
        """
        flag = 0 if by_user is None else int(by_user)
        self._connection.run_many(
            "INSERT INTO assignments (face_id, identity_id, by_user) VALUES (?, ?, ?) ON CONFLICT (face_id) DO UPDATE "
            "SET identity_id = excluded.identity_id, by_user = max(excluded.by_user, by_user) "
            "WHERE identity_id <> excluded.identity_id OR by_user < excluded.by_user",
            ((face, identity, flag) for face, identity in identity_of_face.items()),
        )

    def assign_by_clustering(self, assignments: Iterable[tuple[int, int]]) -> None:
        """Assign faces, given as pairs of a face and an identity, without a confirmation by the user."""
        self._connection.run_many(
            "INSERT INTO assignments (face_id, identity_id, by_user) VALUES (?, ?, 0) "
            "ON CONFLICT (face_id) DO UPDATE SET identity_id = excluded.identity_id, by_user = 0",
            assignments,
        )

    def unassign(self, faces: Iterable[int]) -> None:
        """Remove faces from their identities."""
        self._connection.run_many("DELETE FROM assignments WHERE face_id = ?", ((face,) for face in faces))

    def unassign_unconfirmed(self, face: int) -> None:
        """Remove a face from its identity, unless the user confirmed it or the identity has no other face."""
        self._connection.run(
            "DELETE FROM assignments WHERE face_id = ? AND by_user = 0 AND EXISTS (SELECT 1 FROM assignments AS other "
            "WHERE other.identity_id = assignments.identity_id AND other.face_id <> assignments.face_id)",
            (face,),
        )

    def confirm(self, faces: Iterable[int]) -> None:
        """Mark the assignments of faces as made by the user."""
        self._connection.run_many(
            "UPDATE assignments SET by_user = 1 WHERE face_id = ? AND by_user = 0", ((face,) for face in faces)
        )

    def confirm_identity(self, identity: int) -> None:
        """Mark the assignments of all faces of an identity as made by the user."""
        self._connection.run("UPDATE assignments SET by_user = 1 WHERE identity_id = ? AND by_user = 0", (identity,))
