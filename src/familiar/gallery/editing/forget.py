"""Taking somebody, or a photo, out of a gallery for good: out of the tables, the index, the log and the free pages.

It cannot be undone. Photos themselves are files of the user's, which no gallery touches but for uploaded ones.
"""

import json
import os
import sqlite3
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from familiar.core.errors import CannotWrite, NotInGallery
from familiar.core.files import absolute_path, fsync_directory, real_path
from familiar.gallery.clustering.assignments import check_identities
from familiar.gallery.clustering.cluster import delete_empty_identities
from familiar.gallery.database.connection import UPLOADED_PHOTOS, Gallery
from familiar.gallery.editing.undo_log import delete_empty_decisions


@dataclass(frozen=True)
class ForgetResult:
    """How much went, and whether its bytes have left the disk: not while another process has the gallery open."""

    photos: int
    faces: int
    erased: bool


def forget_identity(gallery: Gallery, number: int) -> ForgetResult:
    """An identity, its name, and every face that shows it, or did when it was deleted by hand.

    Their photos stay known, so that enrolling the same folder again does not bring the faces back. Where a face was
    moved by hand and is somebody else's since, what was decided up to then cannot be undone any more.
    """
    check_identities(gallery, [number])
    with gallery.writing(faces_change=True) as connection:
        # The name may stand in the log of others too: of who was merged into this one, or had it before.
        connection.execute(
            "DELETE FROM changes WHERE table_name = 'identities' AND (first = ? OR json_extract(before, '$[0]') = "
            "(SELECT name FROM identities WHERE id = ?))",
            (number, number),
        )
        connection.execute("DELETE FROM changes WHERE table_name = 'rejections' AND second = ?", (number,))
        _gather(connection, "SELECT face_id FROM assignments WHERE identity_id = ?", number)
        _gather_logged(connection, number)
        faces = _erase_faces(connection)
        connection.execute("DELETE FROM rejections WHERE identity_id = ?", (number,))
        connection.execute("DELETE FROM identities WHERE id = ?", (number,))
        delete_empty_identities(connection)
    return ForgetResult(0, faces, gallery.purge_deleted())


def forget_photos(gallery: Gallery, paths: Sequence[Path]) -> ForgetResult:
    """Photos and every face in them. Enrolled again, they are new. Files in the gallery's own folder, where uploaded
    ones lie, go as well, copies of a photo that lies elsewhere too; all others are the user's.

    NotInGallery, and nothing is forgotten, where one is not known by that path. The files go first: after a crash in
    between they are gone, and the photos are still known; forget them again. The other way round a server would find
    files that it does not know, and take them in again.
    """
    with gallery.writing(faces_change=True) as connection:
        numbers: list[int] = []
        files: set[Path] = set()
        for path in dict.fromkeys(paths):
            found = _known_as(connection, absolute_path(path)) or _known_as(connection, real_path(path))
            if not found:
                raise NotInGallery(f"{path}: is no photo of {gallery.folder}; nothing was forgotten")
            numbers += [number for number, _, _ in found]
            for _, name, sha256 in found:
                files |= _own_files(gallery.folder / UPLOADED_PHOTOS, Path(name), sha256)
        in_them = (
            "SELECT id FROM faces WHERE photo_id IN (SELECT value FROM json_each(?1)) UNION SELECT first FROM changes "
            "JOIN faces_before ON change_id = changes.id WHERE photo_id IN (SELECT value FROM json_each(?1))"
        )
        _gather(connection, in_them, json.dumps(numbers))
        faces = _erase_faces(connection)
        connection.executemany("DELETE FROM photos WHERE id = ?", ((number,) for number in numbers))
        delete_empty_identities(connection)
        _delete(files)  # the last that can fail before the commit
    return ForgetResult(len(numbers), faces, gallery.purge_deleted())


def _known_as(connection: sqlite3.Connection, path: Path) -> list[tuple[int, str, bytes]]:
    """Number, path and content of each photo that is known by a path."""
    return connection.execute(
        "SELECT id, path, sha256 FROM photos WHERE path = CAST(? AS TEXT)", (os.fsencode(path),)
    ).fetchall()


def _own_files(own: Path, path: Path, sha256: bytes) -> set[Path]:
    """A photo's files in the gallery's own folder: uploaded ones, named by its content, and the one it is known by."""
    files = set((own / sha256.hex()[:2]).glob(f"{sha256.hex()}*"))
    is_own = any(path.is_relative_to(place) for place in (absolute_path(own), real_path(own)))
    return files | ({path} if is_own else set())


def _delete(files: Collection[Path]) -> None:
    try:
        for path in files:
            path.unlink(missing_ok=True)
        for folder in {path.parent for path in files if path.parent.is_dir()}:
            fsync_directory(folder)
    except OSError as error:
        raise CannotWrite(f"{error.filename}: cannot be deleted ({error.strerror}); nothing was forgotten") from error


def _gather(connection: sqlite3.Connection, query: str, value: int | str) -> None:
    connection.execute("CREATE TEMP TABLE IF NOT EXISTS going (id INTEGER PRIMARY KEY)")
    connection.execute("DELETE FROM going")
    connection.execute(f"INSERT INTO going {query}", (value,))


def _gather_logged(connection: sqlite3.Connection, number: int) -> None:
    """Adds to those that are `going` the deleted faces that were theirs, as the log still has them.

    Those merged into them count as they do. Of a face that was moved by hand, and is somebody else's since, the log
    holds how it looked when it was theirs: it goes up to there, since decisions are only undone from the last one on.
    """
    connection.execute("CREATE TEMP TABLE IF NOT EXISTS logged (face INTEGER, decision INTEGER)")
    connection.execute("DELETE FROM logged")
    connection.execute(
        "WITH theirs AS (SELECT ? AS number UNION SELECT json_extract(before, '$[0]') FROM changes "
        "WHERE table_name = 'assignments' AND before IS NOT NULL AND first IN (SELECT id FROM going) "
        "AND json_extract(before, '$[0]') NOT IN (SELECT id FROM identities)) "
        "INSERT INTO logged SELECT change.first, change.decision_id FROM faces_before "
        "JOIN changes AS change ON change.id = change_id JOIN changes AS was ON was.table_name = 'assignments' "
        "AND was.first = change.first AND was.decision_id >= change.decision_id "
        "WHERE json_extract(was.before, '$[0]') IN (SELECT number FROM theirs)",
        (number,),
    )
    connection.execute("INSERT OR IGNORE INTO going SELECT face FROM logged WHERE face NOT IN (SELECT id FROM faces)")
    connection.execute(
        "DELETE FROM decisions WHERE id <= (SELECT max(decision) FROM logged WHERE face NOT IN (SELECT id FROM going))"
    )


def _erase_faces(connection: sqlite3.Connection) -> int:
    """Every trace of the faces that are `going`, and of whom they once were, where that is nobody any more."""
    connection.execute(
        "DELETE FROM changes WHERE table_name = 'identities' AND first NOT IN (SELECT id FROM identities) AND first IN "
        "(SELECT json_extract(before, '$[0]') FROM changes WHERE table_name = 'assignments' "
        "AND before IS NOT NULL AND first IN (SELECT id FROM going)) AND first NOT IN "
        "(SELECT json_extract(before, '$[0]') FROM changes WHERE table_name = 'assignments' "
        "AND before IS NOT NULL AND first NOT IN (SELECT id FROM going))"
    )
    connection.execute(
        "DELETE FROM changes WHERE table_name IN ('faces', 'assignments', 'kinds', 'constraints', 'rejections') "
        "AND first IN (SELECT id FROM going)"
    )
    connection.execute("DELETE FROM changes WHERE table_name = 'constraints' AND second IN (SELECT id FROM going)")
    delete_empty_decisions(connection)
    faces = connection.execute("DELETE FROM faces WHERE id IN (SELECT id FROM going)").rowcount
    connection.execute("UPDATE gallery SET erasure_due = 1")
    return faces
