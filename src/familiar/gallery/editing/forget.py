"""Delete an identity or photos from a gallery for good: from the tables, the index, the undo log and the free pages.

It cannot be undone. Photo files belong to the user, and a gallery deletes none except uploaded ones.
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
    """The outcome of `forget_identity` or `forget_photos`.

    Attributes:
        photos: the number of photos deleted.
        faces: the number of faces deleted.
        erased: whether their bytes have left the disk; not while another process has the gallery open.
    """

    photos: int
    faces: int
    erased: bool


def forget_identity(gallery: Gallery, number: int) -> ForgetResult:
    """Delete an identity, its name, and every face assigned to it, including faces that were deleted by hand.

    The photos stay known, so that enrolling the same folder again does not bring the faces back. If a face was moved
    by hand and has been assigned to another identity since, decisions up to that move cannot be undone any more.

    Raises:
        NotInGallery: there is no such identity.
    """
    check_identities(gallery, [number])
    with gallery.writing(faces_change=True) as connection:
        # Other identities' log entries may contain the name: of one merged into this one, or of a former bearer.
        connection.execute(
            "DELETE FROM changes WHERE table_name = 'identities' AND (first_key = ? "
            "OR json_extract(previous, '$[0]') = (SELECT name FROM identities WHERE id = ?))",
            (number, number),
        )
        connection.execute("DELETE FROM changes WHERE table_name = 'rejections' AND second_key = ?", (number,))
        _mark_faces(connection, "SELECT face_id FROM assignments WHERE identity_id = ?", number)
        _mark_deleted_faces(connection, number)
        faces = _erase_marked_faces(connection)
        connection.execute("DELETE FROM rejections WHERE identity_id = ?", (number,))
        connection.execute("DELETE FROM identities WHERE id = ?", (number,))
        delete_empty_identities(connection)
    return ForgetResult(0, faces, gallery.purge_deleted())


def forget_photos(gallery: Gallery, paths: Sequence[Path]) -> ForgetResult:
    """Delete photos and every face in them from a gallery. Enrolled again, they are new.

    Files in the gallery's own upload folder are deleted too, including uploaded copies of a photo that lies elsewhere;
    all other files are left alone. The files are deleted before the commit: after a crash in between they are gone
    and the photos are still known, so forget them again. In the opposite order, a server would find files that it does
    not know and enroll them again.

    Raises:
        NotInGallery: a path is not known; nothing is forgotten.
        CannotWrite: a file cannot be deleted; nothing is forgotten.
    """
    with gallery.writing(faces_change=True) as connection:
        numbers: list[int] = []
        files: set[Path] = set()
        for path in dict.fromkeys(paths):
            photos = _photos_at(connection, absolute_path(path)) or _photos_at(connection, real_path(path))
            if not photos:
                raise NotInGallery(f"{path}: is not a photo of {gallery.folder}; nothing was forgotten")
            numbers += [number for number, _, _ in photos]
            for _, photo_path, sha256 in photos:
                files |= _uploaded_files(gallery.folder / UPLOADED_PHOTOS, Path(photo_path), sha256)
        faces_of_photos = (
            "SELECT id FROM faces WHERE photo_id IN (SELECT value FROM json_each(?1)) UNION SELECT first_key "
            "FROM changes JOIN previous_faces ON change_id = changes.id "
            "WHERE photo_id IN (SELECT value FROM json_each(?1))"
        )
        _mark_faces(connection, faces_of_photos, json.dumps(numbers))
        faces = _erase_marked_faces(connection)
        connection.executemany("DELETE FROM photos WHERE id = ?", ((number,) for number in numbers))
        delete_empty_identities(connection)
        _delete_files(files)  # the last step that can fail before the commit
    return ForgetResult(len(numbers), faces, gallery.purge_deleted())


def _photos_at(connection: sqlite3.Connection, path: Path) -> list[tuple[int, str, bytes]]:
    """Return the number, path and SHA-256 of each photo enrolled from a path."""
    return connection.execute(
        "SELECT id, path, sha256 FROM photos WHERE path = CAST(? AS TEXT)", (os.fsencode(path),)
    ).fetchall()


def _uploaded_files(uploads: Path, path: Path, sha256: bytes) -> set[Path]:
    """Return a photo's files in the upload folder: those named by its content, and its own path if it is there."""
    files = set((uploads / sha256.hex()[:2]).glob(f"{sha256.hex()}*"))
    is_upload = any(path.is_relative_to(folder) for folder in (absolute_path(uploads), real_path(uploads)))
    return files | ({path} if is_upload else set())


def _delete_files(files: Collection[Path]) -> None:
    try:
        for path in files:
            path.unlink(missing_ok=True)
        for folder in {path.parent for path in files if path.parent.is_dir()}:
            fsync_directory(folder)
    except OSError as error:
        raise CannotWrite(f"{error.filename}: cannot be deleted ({error.strerror}); nothing was forgotten") from error


def _mark_faces(connection: sqlite3.Connection, query: str, value: int | str) -> None:
    """Fill the temporary table `marked` with the face ids that a query with one parameter selects."""
    connection.execute("CREATE TEMP TABLE IF NOT EXISTS marked (id INTEGER PRIMARY KEY)")
    connection.execute("DELETE FROM marked")
    connection.execute(f"INSERT INTO marked {query}", (value,))


def _mark_deleted_faces(connection: sqlite3.Connection, number: int) -> None:
    """Mark also the deleted faces of an identity that the undo log still contains.

    Faces of identities that were merged into it count as its own. If a face was moved by hand and belongs to another
    identity now, the log contains its version from when it was this identity's: the log is deleted up to that
    decision, since decisions are only undone in reverse order.
    """
    connection.execute("CREATE TEMP TABLE IF NOT EXISTS logged (face INTEGER, decision INTEGER)")
    connection.execute("DELETE FROM logged")
    connection.execute(
        "WITH merged AS (SELECT ? AS number UNION SELECT json_extract(previous, '$[0]') FROM changes "
        "WHERE table_name = 'assignments' AND previous IS NOT NULL AND first_key IN (SELECT id FROM marked) "
        "AND json_extract(previous, '$[0]') NOT IN (SELECT id FROM identities)) "
        "INSERT INTO logged SELECT change.first_key, change.decision_id FROM previous_faces "
        "JOIN changes AS change ON change.id = change_id JOIN changes AS assigned "
        "ON assigned.table_name = 'assignments' AND assigned.first_key = change.first_key "
        "AND assigned.decision_id >= change.decision_id "
        "WHERE json_extract(assigned.previous, '$[0]') IN (SELECT number FROM merged)",
        (number,),
    )
    connection.execute("INSERT OR IGNORE INTO marked SELECT face FROM logged WHERE face NOT IN (SELECT id FROM faces)")
    connection.execute(
        "DELETE FROM decisions WHERE id <= (SELECT max(decision) FROM logged WHERE face NOT IN (SELECT id FROM marked))"
    )


def _erase_marked_faces(connection: sqlite3.Connection) -> int:
    """Delete the marked faces, their log entries, and those of identities that only they ever belonged to.

    Returns:
        The number of faces deleted.
    """
    connection.execute(
        "DELETE FROM changes WHERE table_name = 'identities' AND first_key NOT IN (SELECT id FROM identities) "
        "AND first_key IN (SELECT json_extract(previous, '$[0]') FROM changes WHERE table_name = 'assignments' "
        "AND previous IS NOT NULL AND first_key IN (SELECT id FROM marked)) AND first_key NOT IN "
        "(SELECT json_extract(previous, '$[0]') FROM changes WHERE table_name = 'assignments' "
        "AND previous IS NOT NULL AND first_key NOT IN (SELECT id FROM marked))"
    )
    connection.execute(
        "DELETE FROM changes WHERE table_name IN ('faces', 'assignments', 'domains', 'constraints', 'rejections') "
        "AND first_key IN (SELECT id FROM marked)"
    )
    connection.execute("DELETE FROM changes WHERE table_name = 'constraints' AND second_key IN (SELECT id FROM marked)")
    delete_empty_decisions(connection)
    faces = connection.execute("DELETE FROM faces WHERE id IN (SELECT id FROM marked)").rowcount
    connection.execute("UPDATE gallery SET erasure_due = 1")
    return faces
