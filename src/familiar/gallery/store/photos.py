"""The photos of a gallery."""

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from familiar.gallery.store.connection import MAX_INTEGER
from familiar.gallery.store.table import Table

FROM_PATH = (
    "(path = ?1 OR path BETWEEN CAST(?1 || ' (replaced, photo ' AS BLOB) "
    "AND CAST(?1 || ' (replaced, photo :' AS BLOB))"  # the character after the digits
)
"""Condition of the photos that were enrolled from an encoded path, also of those that were replaced there."""


def path_before_replacement(path: str) -> str:
    """Return the path that a photo had before another one took its place there (`Photos.mark_replaced`).

    >>> path_before_replacement("/dcim/1.jpg (replaced, photo 7)"), path_before_replacement("/dcim/1.jpg")
    ('/dcim/1.jpg', '/dcim/1.jpg')
    """
    return re.sub(r" \(replaced, photo \d+\)\Z", "", path)


@dataclass(frozen=True)
class PhotoRow:
    """A row of the table `photos`.

    Attributes:
        photo: its number.
        path: where its file was, when it was last seen.
        sha256: of its content.
        size_bytes: of the file; 0 if only an embedding was enrolled.
        modified_ns: when the file was modified; likewise.
        taken_at: ISO 8601, if it is known.
    """

    photo: int
    path: str
    sha256: bytes
    size_bytes: int
    modified_ns: int
    taken_at: str | None

    @property
    def original_path(self) -> str:
        """The path without the mark of one whose file another photo has replaced."""
        return path_before_replacement(self.path)

    @property
    def has_file(self) -> bool:
        """Whether it was enrolled from a file."""
        return self.size_bytes > 0


class Photos(Table):
    """SQL statements on the table `photos`.

    Paths are stored in the file system's encoding, which may not be UTF-8. A photo whose file was replaced by another
    photo's has a path such as `/dcim/1.jpg (replaced, photo 7)`, where there is no file: whoever opens the path of a
    photo must not get another one.
    """

    def count(self) -> int:
        """Return the number of photos."""
        return self._connection.value("SELECT count(*) FROM photos")

    def rows(self) -> list[PhotoRow]:
        """Return all photos, by rising number."""
        return self._select("true ORDER BY id")

    def row(self, photo: int) -> PhotoRow | None:
        """Return a photo, if it exists. The number may be too large for SQLite."""
        return next(iter(self._select("id = ?", str(photo))), None)

    def with_hash(self, sha256: bytes) -> PhotoRow | None:
        """Return the photo with this content, if there is one."""
        return next(iter(self._select("sha256 = ?", sha256)), None)

    def at_path(self, path: Path | str) -> list[PhotoRow]:
        """Return the photos with a path, by rising number."""
        return self._select("path = ? ORDER BY id", os.fsencode(path))

    def page(
        self, *, after: int = 0, before: int | None = None, species: str | None = None, limit: int
    ) -> list[PhotoRow]:
        """Return photos by rising number, or those before a number, newest first; or only those with a species."""
        condition, bound, order = ("id > ?1", after, "id") if before is None else ("id < ?1", before, "id DESC")
        has_species = "(?2 = '' OR EXISTS (SELECT 1 FROM faces WHERE photo_id = photos.id AND species = ?2))"
        return self._select(
            f"{condition} AND {has_species} ORDER BY {order} LIMIT ?3",
            max(0, min(bound, MAX_INTEGER)),
            species or "",
            limit,
        )

    def in_other_folders(self, part: str, folders: Sequence[str]) -> list[PhotoRow]:
        """Return the photos with a file whose paths contain a part, and begin with none of one or two folders."""
        outside = "substr(path, 1, length({0})) <> {0}"
        return self._select(
            f"size_bytes > 0 AND instr(path, ?1) AND {outside.format('?2')} AND {outside.format('?3')} ORDER BY id",
            *map(os.fsencode, (part, folders[0], folders[-1])),
        )

    def _select(self, condition: str, *values: int | str | bytes) -> list[PhotoRow]:
        rows = self._connection.each(
            f"SELECT id, path, sha256, size_bytes, modified_ns, taken_at FROM photos WHERE {condition}", values
        )
        return [PhotoRow(photo, os.fsdecode(path), *rest) for photo, path, *rest in rows]

    def without_face(self) -> list[PhotoRow]:
        """Return the photos that have a file and no face, by rising number."""
        return self._select(
            "size_bytes > 0 AND NOT EXISTS (SELECT 1 FROM faces WHERE photo_id = photos.id) ORDER BY id"
        )

    def have_files(self) -> bool:
        """Whether the faces of any photo were detected, and not only embeddings stored."""
        return self._connection.first("SELECT 1 FROM photos WHERE size_bytes > 0 LIMIT 1") is not None

    def times(self) -> list[tuple[int, str]]:
        """Return photo and time of the photos whose time is known, as ISO 8601, in the order of time."""
        return self._connection.rows("SELECT id, taken_at FROM photos WHERE taken_at IS NOT NULL ORDER BY taken_at, id")

    def paths(self) -> Iterator[str]:
        """Iterate over the paths of all photos."""
        return (os.fsdecode(path) for (path,) in self._connection.each("SELECT path FROM photos"))

    def insert(self, path: Path, sha256: bytes, size_bytes: int, modified_ns: int, taken_at: str | None) -> int:
        """Add a photo, and return its id."""
        return self._connection.value(
            "INSERT INTO photos (sha256, path, size_bytes, modified_ns, taken_at) VALUES (?, ?, ?, ?, ?) RETURNING id",
            (sha256, os.fsencode(path), size_bytes, modified_ns, taken_at),
        )

    def insert_without_files(self, photos: Iterable[tuple[bytes, bytes]]) -> list[tuple[int, bytes]]:
        """Add photos of which only embeddings are known, unless their hashes are known already.

        Args:
            photos: pairs of a SHA-256 and an encoded name.

        Returns:
            The id and SHA-256 of each new photo, by rising id.
        """
        return self._connection.run_many(
            "INSERT INTO photos (sha256, path, size_bytes, modified_ns) VALUES (?, ?, 0, 0) ON CONFLICT DO NOTHING "
            "RETURNING id, sha256",
            photos,
        )

    def update_file(self, photo: int, path: Path, size_bytes: int, modified_ns: int) -> None:
        """Store where a photo's file is now, its size and its modification time."""
        self._connection.run(
            "UPDATE photos SET path = ?, size_bytes = ?, modified_ns = ? WHERE id = ?",
            (os.fsencode(path), size_bytes, modified_ns, photo),
        )

    def mark_replaced(self, path: Path, sha256: bytes) -> None:
        """Take a path, where a file with this content is now, from the other photos that were enrolled from there."""
        self._connection.run(
            "UPDATE photos SET path = CAST(path || ' (replaced, photo ' || id || ')' AS BLOB) "
            "WHERE path = ? AND sha256 <> ? AND size_bytes > 0",
            (os.fsencode(path), sha256),
        )

    def move_folder(self, old: str, new: str) -> None:
        """Replace the beginning of all paths that begin with a folder, given with a separator at its end."""
        self._connection.run(
            "UPDATE photos SET path = CAST(?2 || substr(path, length(?1) + 1) AS BLOB) "
            "WHERE substr(path, 1, length(?1)) = ?1",
            (os.fsencode(old), os.fsencode(new)),
        )

    def update_content(self, photo: int, sha256: bytes, size_bytes: int, modified_ns: int) -> None:
        """Store the new content of a photo's file, whose pixels are the same."""
        self._connection.run(
            "UPDATE photos SET sha256 = ?, size_bytes = ?, modified_ns = ? WHERE id = ?",
            (sha256, size_bytes, modified_ns, photo),
        )

    def delete(self, photos: Iterable[int]) -> None:
        """Delete photos and their faces."""
        self._connection.run_many("DELETE FROM photos WHERE id = ?", ((photo,) for photo in photos))

    def delete_without_faces(self, path: Path, *, except_photo: int) -> list[int]:
        """Delete the photos from a path that have no face, except one; return the ids of the photos deleted."""
        rows = self._connection.rows(
            f"DELETE FROM photos WHERE {FROM_PATH} AND id <> ?2 "
            "AND NOT EXISTS (SELECT 1 FROM faces WHERE photo_id = photos.id) RETURNING id",
            (os.fsencode(path), except_photo),
        )
        return [photo for (photo,) in rows]
