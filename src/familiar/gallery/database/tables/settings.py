"""The row of the gallery itself: its space, revisions, calibration and pending work."""

import secrets

from familiar.gallery.database.model_reference import NO_REFERENCE, ModelReference
from familiar.gallery.database.space import Space
from familiar.gallery.database.tables.table import Table


class Settings(Table):
    """SQL statements on the single row of the table `gallery`."""

    def create(self, space: Space, embedding_dtype: str, reference: ModelReference = NO_REFERENCE) -> None:
        """Insert the row of a new gallery, with a random uid."""
        self._connection.execute(
            "INSERT INTO gallery (id, uid, space, embedding_dtype, model) VALUES (1, ?, ?, ?, ?)",
            (secrets.token_hex(16), space.to_json(), embedding_dtype, reference.to_json()),
        )

    def model_reference(self) -> ModelReference:
        """Return where the model is, and which detector finds the faces."""
        return ModelReference.from_json(self._connection.execute("SELECT model FROM gallery").fetchone()[0])

    def set_model_reference(self, reference: ModelReference) -> None:
        """Store where the model is, and which detector finds the faces."""
        self._connection.execute("UPDATE gallery SET model = ?", (reference.to_json(),))

    def uid(self) -> str:
        """Return the random text that is unique to this gallery."""
        return self._connection.execute("SELECT uid FROM gallery").fetchone()[0]

    def space(self) -> Space:
        """Return the embedding space of the stored embeddings."""
        return Space.from_json(self._connection.execute("SELECT space FROM gallery").fetchone()[0])

    def embedding_dtype(self) -> str:
        """Return how embeddings are stored: "float16" or "float32"."""
        return self._connection.execute("SELECT embedding_dtype FROM gallery").fetchone()[0]

    def embedding_format(self) -> tuple[Space, str, int]:
        """Return the space and the stored type of the embeddings, and the revision at which faces last changed."""
        space, embedding_dtype, faces_revision = self._connection.execute(
            "SELECT space, embedding_dtype, faces_revision FROM gallery"
        ).fetchone()
        return Space.from_json(space), embedding_dtype, faces_revision

    def replace_space(self, space: Space) -> None:
        """Set the space of the embeddings, and delete the calibration that was fitted in the previous space."""
        self._connection.execute("UPDATE gallery SET space = ?, own_calibration = NULL", (space.to_json(),))

    def revision(self) -> int:
        """Return the number of committed writes."""
        return int(self._connection.execute("SELECT revision FROM gallery").fetchone()[0])

    def faces_revision(self) -> int:
        """Return the revision at which faces were last added, deleted or changed."""
        return self._connection.execute("SELECT faces_revision FROM gallery").fetchone()[0]

    def count_write(self, *, new_revision: bool, faces_change: bool, sequence_checksum: int) -> int:
        """Count a write that is about to be committed.

        Args:
            new_revision: whether it changes what connections cache.
            faces_change: whether its revision is that of the faces as well.
            sequence_checksum: of the numbers given out so far; see `database.checksums`.

        Returns:
            The number of writes so far.
        """
        (writes,) = self._connection.execute(
            "UPDATE gallery SET writes = writes + 1, revision = revision + ?1, sequence_checksum = ?2, "
            "faces_revision = CASE WHEN ?3 THEN revision + ?1 ELSE faces_revision END RETURNING writes",
            (int(new_revision), sequence_checksum, int(faces_change)),
        ).fetchone()
        return writes

    def repaired_from(self) -> list[str]:
        """Return the uids of the damaged galleries that this one was recovered from, one after the other."""
        uids: str | None = self._connection.execute("SELECT repaired_from FROM gallery").fetchone()[0]
        return uids.split() if uids else []

    def become_new(self, acknowledged: int) -> None:
        """Take a new uid and higher numbers than a previous gallery ever had, of which this is an older state.

        Args:
            acknowledged: the number of writes that the previous gallery is known to have had.
        """
        self._connection.execute(
            "UPDATE gallery SET uid = ?1, repaired_from = NULL, revision = max(revision, ?2) + 1, "
            "faces_revision = max(revision, ?2) + 1, writes = max(writes, ?2) + 1",
            (secrets.token_hex(16), acknowledged),
        )

    def mark_faces_changed(self) -> None:
        """Set the faces' revision to the one that the current write will have."""
        self._connection.execute("UPDATE gallery SET faces_revision = revision + 1")

    def own_calibration(self) -> str | None:
        """Return the JSON of the calibration that was fitted on this gallery, if any."""
        return self._connection.execute("SELECT own_calibration FROM gallery").fetchone()[0]

    def set_own_calibration(self, content: str | None) -> None:
        """Store the JSON of a calibration, or delete it."""
        self._connection.execute("UPDATE gallery SET own_calibration = ?", (content,))

    def last_clustered_face(self) -> int:
        """Return the id up to which clustering has processed the faces; 0 if it must process all of them."""
        return self._connection.execute("SELECT last_clustered_face_id FROM gallery").fetchone()[0]

    def mark_faces_clustered(self, last_face: int) -> None:
        """Store that clustering has processed the faces up to this one."""
        self._connection.execute("UPDATE gallery SET last_clustered_face_id = ?", (last_face,))

    def mark_no_face_clustered(self) -> None:
        """Let the next clustering process all faces."""
        self._connection.execute("UPDATE gallery SET last_clustered_face_id = 0")

    def is_clustering_pending(self) -> bool:
        """Whether faces wait for the next clustering; False if the user has undone the only one."""
        (is_pending,) = self._connection.execute(
            "SELECT last_clustered_face_id < (SELECT coalesce(max(id), 0) FROM faces) "
            "AND (last_clustered_face_id > 0 OR NOT EXISTS "
            "(SELECT 1 FROM sqlite_sequence WHERE name = 'identities')) FROM gallery"
        ).fetchone()
        return bool(is_pending)

    def erasure_due(self) -> int:
        """Return the mark of the last forgetting whose content may still be in the file's bytes; 0: of none."""
        return self._connection.execute("SELECT erasure_due FROM gallery").fetchone()[0]

    def mark_erasure_due(self) -> None:
        """Store that forgotten content may still be in the file's bytes, with a mark that there was never before."""
        self._connection.execute("UPDATE gallery SET erasure_due = writes + 1")  # the number of this write

    def clear_erasure_due(self, mark: int) -> None:
        """Store that all forgotten content is erased, unless the mark is another one by now."""
        self._connection.execute("UPDATE gallery SET erasure_due = 0 WHERE erasure_due = ?", (mark,))
