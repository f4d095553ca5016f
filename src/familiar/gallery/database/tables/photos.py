"""The photos of a gallery."""

import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from familiar.gallery.database.tables.table import Table

_MAX_INTEGER = 2**63 - 1  # of SQLite

FROM_PATH = (
    "(path = CAST(?1 AS TEXT) OR path BETWEEN CAST(?1 AS TEXT) || ' (replaced, photo ' "
    "AND CAST(?1 AS TEXT) || ' (replaced, photo :')"  # the character after the digits
)
"""Condition of the photos that were enrolled from an encoded path, also of those that were replaced there."""


def path_before_replacement(path: str) -> str:
    """Return the path that a photo had before another one took its place there (`Photos.mark_replaced`).

    >>> path_before_replacement("/dcim/1.jpg (replaced, photo 7)"), path_before_replacement("/dcim/1.jpg")
    ('/dcim/1.jpg', '/dcim/1.jpg')
    """
    return re.sub(r" \(replaced, photo \d+\)\Z", "", path)


class Photos(Table):
    """SQL statements on the table `photos`.

    Paths are stored in the file system's encoding, which may not be UTF-8. A photo whose file was replaced by another
    photo's has a path such as `/dcim/1.jpg (replaced, photo 7)`, where there is no file: whoever opens the path of a
    photo must not get another one.
    """

    def count(self) -> int:
        """Return the number of photos."""
        return self._connection.execute("SELECT count(*) FROM photos").fetchone()[0]

    def last_id(self) -> int:
        """Return the highest id of a photo, or 0."""
        return self._connection.execute("SELECT coalesce(max(id), 0) FROM photos").fetchone()[0]

    def find(self, photo: int) -> tuple[str, bytes] | None:
        """Return the path and SHA-256 of a photo, if it exists. The number may be too large for SQLite."""
        return self._connection.execute(
            "SELECT path, sha256 FROM photos WHERE id = CAST(? AS TEXT)", (str(photo),)
        ).fetchone()

    def path(self, photo: int) -> str:
        """Return the path of a photo that exists."""
        return self._connection.execute("SELECT path FROM photos WHERE id = ?", (photo,)).fetchone()[0]

    def with_hash(self, sha256: bytes) -> tuple[int, str] | None:
        """Return the id and path of the photo with this content, if there is one."""
        return self._connection.execute("SELECT id, path FROM photos WHERE sha256 = ?", (sha256,)).fetchone()

    def at_path(self, path: Path) -> list[tuple[int, str, bytes]]:
        """Return the id, path and SHA-256 of each photo enrolled from a path."""
        return self._connection.execute(
            "SELECT id, path, sha256 FROM photos WHERE path = CAST(? AS TEXT)", (os.fsencode(path),)
        ).fetchall()

    def enrolled_from(self, path: Path | str) -> list[tuple[int, bytes, bool]]:
        """Return the id and SHA-256 of each photo with a path, and whether it was enrolled with a file."""
        rows = self._connection.execute(
            "SELECT id, sha256, size_bytes > 0 FROM photos WHERE path = CAST(? AS TEXT) ORDER BY id",
            (os.fsencode(path),),
        ).fetchall()
        return [(photo, sha256, bool(has_file)) for photo, sha256, has_file in rows]

    def page(
        self, *, after: int = 0, before: int | None = None, limit: int
    ) -> list[tuple[int, str, bytes, str | None]]:
        """Return id, path, SHA-256 and capture time of photos by rising id, or of those before an id, newest first."""
        condition, bound, order = ("id > ?", after, "id") if before is None else ("id < ?", before, "id DESC")
        bound = max(0, min(bound, _MAX_INTEGER))
        return self._connection.execute(
            f"SELECT id, path, sha256, taken_at FROM photos WHERE {condition} ORDER BY {order} LIMIT ?", (bound, limit)
        ).fetchall()

    def files(self) -> list[tuple[str, int, int, bytes]]:
        """Return the path, size in bytes, modification time in ns and SHA-256 of every photo."""
        return self._connection.execute("SELECT path, size_bytes, modified_ns, sha256 FROM photos").fetchall()

    def have_files(self) -> bool:
        """Whether the faces of any photo were detected, and not only embeddings stored."""
        return self._connection.execute("SELECT 1 FROM photos WHERE size_bytes > 0 LIMIT 1").fetchone() is not None

    def to_search(self, *, without_face: bool) -> list[tuple[int, str, bytes]]:
        """Return id, path and SHA-256 of every photo that has a file, by rising id; or only of those without a face."""
        condition = "AND NOT EXISTS (SELECT 1 FROM faces WHERE photo_id = photos.id) " if without_face else ""
        return self._connection.execute(
            f"SELECT id, path, sha256 FROM photos WHERE size_bytes > 0 {condition}ORDER BY id"
        ).fetchall()

    def contents(self) -> list[tuple[int, str, bytes]]:
        """Return the id, path and SHA-256 of every photo that was enrolled with a file, by path."""
        return self._connection.execute(
            "SELECT id, path, sha256 FROM photos WHERE size_bytes > 0 ORDER BY path, id"
        ).fetchall()

    def paths_and_hashes(self) -> list[tuple[int, str, bytes]]:
        """Return the id, path and SHA-256 of every photo, by rising id."""
        return self._connection.execute("SELECT id, path, sha256 FROM photos ORDER BY id").fetchall()

    def paths_and_sizes(self) -> Iterator[tuple[str, int]]:
        """Iterate over (path, size in bytes) of every photo, sorted by path. The size is 0 without a file."""
        return self._connection.execute("SELECT path, size_bytes FROM photos ORDER BY path")

    def paths(self) -> Iterator[str]:
        """Iterate over the paths of all photos."""
        return (path for (path,) in self._connection.execute("SELECT path FROM photos"))

    def paths_by_hash(self) -> dict[str, str]:
        """Return the path of every photo by the SHA-256 of its content, in upper-case hex."""
        return dict(self._connection.execute("SELECT hex(sha256), path FROM photos").fetchall())

    def times(self) -> list[tuple[int, str]]:
        """Return photo and time of the photos whose time is known, as ISO 8601, in the order of time."""
        return self._connection.execute(
            "SELECT id, taken_at FROM photos WHERE taken_at IS NOT NULL ORDER BY taken_at, id"
        ).fetchall()

    def insert(self, path: Path, sha256: bytes, size_bytes: int, modified_ns: int, taken_at: str | None) -> int:
        """Add a photo, and return its id."""
        (photo,) = self._connection.execute(
            "INSERT INTO photos (sha256, path, size_bytes, modified_ns, taken_at) VALUES (?, CAST(? AS TEXT), ?, ?, ?) "
            "RETURNING id",
            (sha256, os.fsencode(path), size_bytes, modified_ns, taken_at),
        ).fetchone()
        return photo

    def insert_without_files(self, photos: Iterable[tuple[bytes, bytes]]) -> list[tuple[int, bytes]]:
        """Add photos of which only embeddings are known, unless their hashes are known already.

        Args:
            photos: pairs of a SHA-256 and an encoded name.

        Returns:
            The id and SHA-256 of each new photo, by rising id.
        """
        last_id = self.last_id()
        self._connection.executemany(
            "INSERT INTO photos (sha256, path, size_bytes, modified_ns) VALUES (?, CAST(? AS TEXT), 0, 0) "
            "ON CONFLICT DO NOTHING",
            photos,
        )
        return self._connection.execute("SELECT id, sha256 FROM photos WHERE id > ? ORDER BY id", (last_id,)).fetchall()

    def update_file(self, photo: int, path: Path, size_bytes: int, modified_ns: int) -> None:
        """Store where a photo's file is now, its size and its modification time."""
        self._connection.execute(
            "UPDATE photos SET path = CAST(? AS TEXT), size_bytes = ?, modified_ns = ? WHERE id = ?",
            (os.fsencode(path), size_bytes, modified_ns, photo),
        )

    def mark_replaced(self, path: Path, sha256: bytes) -> None:
        """Take a path, where a file with this content is now, from the other photos that were enrolled from there."""
        self._connection.execute(
            "UPDATE photos SET path = path || ' (replaced, photo ' || id || ')' "
            "WHERE path = CAST(? AS TEXT) AND sha256 <> ? AND size_bytes > 0",
            (os.fsencode(path), sha256),
        )

    def move_folder(self, old: str, new: str) -> None:
        """Replace the beginning of all paths that begin with a folder, given with a separator at its end."""
        self._connection.execute(
            "UPDATE photos SET path = CAST(CAST(?2 AS TEXT) || substr(CAST(path AS BLOB), length(?1) + 1) AS TEXT) "
            "WHERE substr(CAST(path AS BLOB), 1, length(?1)) = ?1",
            (os.fsencode(old), os.fsencode(new)),
        )

    def update_content(self, photo: int, sha256: bytes, size_bytes: int, modified_ns: int) -> None:
        """Store the new content of a photo's file, whose pixels are the same."""
        self._connection.execute(
            "UPDATE photos SET sha256 = ?, size_bytes = ?, modified_ns = ? WHERE id = ?",
            (sha256, size_bytes, modified_ns, photo),
        )

    def delete(self, photos: Iterable[int]) -> None:
        """Delete photos and their faces."""
        self._connection.executemany("DELETE FROM photos WHERE id = ?", ((photo,) for photo in photos))

    def delete_without_faces(self, path: Path, *, except_photo: int) -> list[int]:
        """Delete the photos from a path that have no face, except one; return the ids of the photos deleted."""
        rows = self._connection.execute(
            f"DELETE FROM photos WHERE {FROM_PATH} AND id <> ?2 "
            "AND NOT EXISTS (SELECT 1 FROM faces WHERE photo_id = photos.id) RETURNING id",
            (os.fsencode(path), except_photo),
        ).fetchall()
        return [photo for (photo,) in rows]
