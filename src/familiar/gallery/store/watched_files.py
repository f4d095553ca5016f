"""What `familiar watch` noted about files: photos that are missing, and files that it could not read."""

import os
from collections.abc import Iterable

from familiar.gallery.store.table import Table


class WatchedFiles(Table):
    """SQL statements on the tables `missing_photos` and `skipped_files`."""

    def missing(self) -> list[tuple[int, str]]:
        """Return the id of each missing photo and the time at which that was noticed."""
        return self._connection.rows("SELECT photo_id, noticed_at FROM missing_photos ORDER BY 1")

    def note_missing(self, photo: int, path: str, noticed_at: str) -> bool:
        """Note that a photo's file is gone; False if that was noted before, or the photo is not at this path now."""
        statement = (
            "INSERT INTO missing_photos (photo_id, noticed_at) SELECT id, ? FROM photos WHERE id = ? AND path = ? "
            "ON CONFLICT DO NOTHING"
        )
        return self._connection.run(statement, (noticed_at, photo, os.fsencode(path))) > 0

    def note_returned(self, photo: int) -> bool:
        """Delete the note that a photo is missing; False if there is none."""
        return self._connection.run("DELETE FROM missing_photos WHERE photo_id = ?", (photo,)) > 0

    def skipped(self) -> dict[str, tuple[int, int, int]]:
        """Return size in bytes, modification and change time in ns of each file that was skipped, by its path."""
        rows = self._connection.rows("SELECT path, size_bytes, modified_ns, changed_ns FROM skipped_files")
        return {os.fsdecode(path): (size, modified, changed) for path, size, modified, changed in rows}

    def note_skipped(self, path: str, status: tuple[int, int, int]) -> bool:
        """Note that a file could not be read; False if it was noted in the same state before."""
        statement = (
            "INSERT INTO skipped_files (path, size_bytes, modified_ns, changed_ns) VALUES (?, ?, ?, ?) "
            "ON CONFLICT (path) DO UPDATE SET size_bytes = excluded.size_bytes, modified_ns = excluded.modified_ns, "
            "changed_ns = excluded.changed_ns WHERE (size_bytes, modified_ns, changed_ns) <> "
            "(excluded.size_bytes, excluded.modified_ns, excluded.changed_ns)"
        )
        return self._connection.run(statement, (os.fsencode(path), *status)) > 0

    def delete_skipped(self, paths: Iterable[str]) -> None:
        """Delete the notes about files that could be read since, or are gone."""
        self._connection.run_many("DELETE FROM skipped_files WHERE path = ?", ((os.fsencode(path),) for path in paths))
