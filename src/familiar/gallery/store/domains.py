"""The domains of faces outside the main one (see `neighbors.domains`)."""

from collections.abc import Iterable

from familiar.gallery.store.table import Table


class Domains(Table):
    """SQL statements on the table `domains`."""

    def all(self) -> list[tuple[int, int]]:
        """Return the face and domain of every face outside the main domain, by rising face."""
        return self._connection.rows("SELECT face_id, domain FROM domains ORDER BY face_id")

    def is_empty(self) -> bool:
        """Whether all faces are in the main domain."""
        return self._connection.first("SELECT 1 FROM domains LIMIT 1") is None

    def set(self, domains: Iterable[tuple[int, int]]) -> None:
        """Set the domains of faces, given as pairs of a face and a domain."""
        self._connection.run_many(
            "INSERT INTO domains (face_id, domain) VALUES (?, ?) "
            "ON CONFLICT (face_id) DO UPDATE SET domain = excluded.domain",
            domains,
        )

    def delete(self, faces: Iterable[int]) -> None:
        """Return faces to the main domain."""
        self._connection.run_many("DELETE FROM domains WHERE face_id = ?", ((face,) for face in faces))

    def delete_all(self) -> None:
        """Return all faces to the main domain."""
        self._connection.run("DELETE FROM domains")
