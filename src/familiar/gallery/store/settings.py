"""The row of the gallery itself: its space, revisions and pending work."""

import secrets

from familiar.core.gallery_types import StoredType
from familiar.gallery.store.model_reference import NO_REFERENCE, ModelReference
from familiar.gallery.store.retention import Retention
from familiar.gallery.store.space import Space
from familiar.gallery.store.table import Table


class Settings(Table):
    """SQL statements on the single row of the table `gallery`."""

    def create(self, space: Space, embedding_dtype: StoredType, reference: ModelReference = NO_REFERENCE) -> None:
        """Insert the row of a new gallery, with a random uid."""
        self._connection.run(
            "INSERT INTO gallery (id, uid, space, embedding_dtype, model) VALUES (1, ?, ?, ?, ?)",
            (secrets.token_hex(16), space.to_json(), embedding_dtype, reference.to_json()),
        )

    def model_reference(self) -> ModelReference:
        """Return where the model is, and which detector finds the faces."""
        return ModelReference.from_json(self._connection.value("SELECT model FROM gallery"))

    def set_model_reference(self, reference: ModelReference) -> None:
        """Store where the model is, and which detector finds the faces."""
        self._connection.run("UPDATE gallery SET model = ?", (reference.to_json(),))

    def uid(self) -> str:
        """Return the random text that is unique to this gallery."""
        return self._connection.value("SELECT uid FROM gallery")

    def space(self) -> Space:
        """Return the embedding space of the stored embeddings."""
        return Space.from_json(self._connection.value("SELECT space FROM gallery"))

    def embedding_format(self) -> tuple[Space, StoredType, int]:
        """Return the space and the stored type of the embeddings, and the revision at which faces last changed."""
        space, dtype, revision = self._connection.row("SELECT space, embedding_dtype, faces_revision FROM gallery")
        return Space.from_json(space), dtype, revision

    def replace_space(self, space: Space) -> None:
        """Set the space of the embeddings."""
        self._connection.run("UPDATE gallery SET space = ?", (space.to_json(),))

    def revision(self) -> int:
        """Return the number of committed writes."""
        return int(self._connection.value("SELECT revision FROM gallery"))

    def faces_revision(self) -> int:
        """Return the revision at which faces were last added, deleted or changed."""
        return self._connection.value("SELECT faces_revision FROM gallery")

    def count_revision(self, *, faces_change: bool) -> None:
        """Count a write that is about to be committed.

        Args:
            faces_change: whether its revision is that of the faces as well.
        """
        self._connection.run(
            "UPDATE gallery SET revision = revision + 1, "
            "faces_revision = CASE WHEN ? THEN revision + 1 ELSE faces_revision END",
            (faces_change,),
        )

    def become_new(self) -> None:
        """Take a new uid, so that nothing that was cached or indexed of another state is taken for this one's."""
        self._connection.run("UPDATE gallery SET uid = ?", (secrets.token_hex(16),))

    def retention(self) -> Retention:
        """Return how many automatic copies are kept."""
        return Retention(*self._connection.row("SELECT copied_days, copied_weeks FROM gallery"))

    def set_retention(self, retention: Retention) -> None:
        """Set how many automatic copies are kept."""
        self._connection.run("UPDATE gallery SET copied_days = ?, copied_weeks = ?", (retention.days, retention.weeks))

    def mark_faces_changed(self) -> None:
        """Set the faces' revision to the one that the current write will have."""
        self._connection.run("UPDATE gallery SET faces_revision = revision + 1")

    def mark_faces_clustered(self, last_face: int) -> None:
        """Store that clustering has processed the faces up to this one; 0: none of them."""
        self._connection.run("UPDATE gallery SET last_clustered_face_id = ?", (last_face,))

    def is_clustering_pending(self) -> bool:
        """Whether faces wait for the next clustering; False if the user has undone the only one."""
        is_pending = self._connection.value(
            "SELECT last_clustered_face_id < (SELECT coalesce(max(id), 0) FROM faces) "
            "AND (last_clustered_face_id > 0 OR NOT EXISTS "
            "(SELECT 1 FROM sqlite_sequence WHERE name = 'identities')) FROM gallery"
        )
        return bool(is_pending)
