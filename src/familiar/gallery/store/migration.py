"""An unfinished migration to another model: its space, and the new embeddings so far."""

from collections.abc import Iterable

from familiar.core.types import Box
from familiar.gallery.store.space import Space
from familiar.gallery.store.table import Table


class Migration(Table):
    """SQL statements on the table `next_embeddings` and `gallery.next_space`."""

    def space(self) -> Space | None:
        """Return the space that the gallery is being migrated to; None if no migration is under way."""
        space = self._connection.value("SELECT next_space FROM gallery")
        return None if space is None else Space.from_json(space)

    def begin(self, space: Space) -> None:
        """Begin a migration, deleting embeddings that an interrupted one has left."""
        self._connection.run("DELETE FROM next_embeddings")
        self._connection.run("UPDATE gallery SET next_space = ?", (space.to_json(),))

    def end(self) -> None:
        """Delete the migration and its embeddings."""
        self._connection.run("DELETE FROM next_embeddings")
        self._connection.run("UPDATE gallery SET next_space = NULL")

    def has_pending_faces(self) -> bool:
        """Whether a face has no new embedding."""
        return (
            self._connection.first("SELECT 1 FROM faces WHERE id NOT IN (SELECT face_id FROM next_embeddings) LIMIT 1")
            is not None
        )

    def save(self, origin: str, embeddings: Iterable[tuple[bytes, int, bytes, Box]]) -> None:
        """Save new embeddings of faces that have no new one, and whose photo and box are still the given ones.

        Args:
            origin: "photo" or "bridge".
            embeddings: (encoded embedding, face, SHA-256 of the photo, box).
        """
        self._connection.run_many(
            "INSERT INTO next_embeddings (face_id, origin, embedding) SELECT faces.id, ?, ? FROM faces "
            "JOIN photos ON photos.id = photo_id WHERE faces.id = ? AND sha256 = ? "
            "AND (left_px, top_px, right_px, bottom_px) = (?, ?, ?, ?) ON CONFLICT (face_id) DO NOTHING",
            ((origin, embedding, face, sha256, *box) for embedding, face, sha256, box in embeddings),
        )

    def delete_face(self, face: int) -> None:
        """Delete the new embedding of a face, which has changed since."""
        self._connection.run("DELETE FROM next_embeddings WHERE face_id = ?", (face,))

    def delete_mapped(self) -> None:
        """Delete new embeddings that were mapped by a bridge."""
        self._connection.run("DELETE FROM next_embeddings WHERE origin = 'bridge'")

    def embeddings_from_photos(self) -> list[tuple[int, bytes]]:
        """Return face and new encoded embedding of the faces that were embedded from their photos, by rising face."""
        return self._connection.rows(
            "SELECT face_id, embedding FROM next_embeddings WHERE origin = 'photo' ORDER BY face_id"
        )

    def counts_by_origin(self) -> dict[str, int]:
        """Return the number of new embeddings of each origin that has any."""
        return dict(self._connection.rows("SELECT origin, count(*) FROM next_embeddings GROUP BY origin"))

    def swap_embeddings(self) -> None:
        """Replace the embedding of every face by its new one, and end the migration."""
        self._connection.run(
            "UPDATE faces SET embedding = (SELECT embedding FROM next_embeddings WHERE face_id = faces.id)"
        )
        self.end()
