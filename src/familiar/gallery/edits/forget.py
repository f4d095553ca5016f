"""Delete an identity or photos from a gallery for good: from the tables, the index, the undo log and the free pages.

It is erased from the automatic copies, too, and what `repair` and `restore` have moved aside is erased as a whole:
docs/explanation/privacy.md.

It cannot be undone. Photo files belong to the user, and a gallery deletes none except uploaded ones.
"""

import os
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from familiar.core.errors import CannotWrite, NotInGallery
from familiar.core.files import absolute_path, erase_file, real_path, unfinished_files
from familiar.gallery.edits.identity_state import IdentityState, check_states
from familiar.gallery.same.assignments import check_identities
from familiar.gallery.store.photo_paths import file_sha256, photos_at_path
from familiar.gallery.store.store import UPLOADED_PHOTOS, Store
from familiar.gallery.store.uploaded_files import uploaded_sha256


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


def forget_identity(store: Store, number: int, state: IdentityState | None = None) -> ForgetResult:
    """Delete an identity, its name, and every face assigned to it, including faces that were deleted by hand.

    The photos stay known, so that enrolling the same folder again does not bring the faces back. If a face was moved
    by hand and has been assigned to another identity since, decisions up to that move cannot be undone any more.

    Args:
        store: to delete from.
        number: of the identity.
        state: of the identity when the user chose to erase it; None: however it is now.

    Raises:
        NotInGallery: there is no such identity.
        Contradiction: it has other faces or another name than in `state`; nothing is erased.
    """
    with store.write(faces_change=True) as repository:
        check_states(store, [] if state is None else [state])
        check_identities(store, [number])
        repository.undo_log.forget_identity(number)
        repository.erasure.mark_faces_of_identity(number)
        faces = repository.erasure.erase_marked()
        repository.erasure.note("identity", [number])
        repository.erasure.erase_identity(number)
        repository.identities.delete_empty()
    return ForgetResult(0, faces, store.purge_deleted())


def forget_photos(store: Store, photos: Sequence[Path | int]) -> ForgetResult:
    """Delete photos, given by path or number, and every face in them from a gallery. Enrolled again, they are new.

    Uploaded files are deleted too, including uploaded copies of a photo that lies elsewhere. All other files are left
    alone, also those that the user put into the folder of uploads. The files are deleted before the commit: after a
    crash in between they are gone and the photos are still known, so forget them again. In the opposite order, a server
    would find files that it does not know and enroll them again.

    Raises:
        NotInGallery: a path or number is not known; nothing is forgotten.
        UnreadablePhoto, Contradiction: it is not certain which photo a path means, as its file cannot be read or has
            changed; nothing is forgotten.
        CannotWrite: a file cannot be deleted, or the disk is full; the photos are still known.
    """
    contents = {path: file_sha256(path) for path in photos if isinstance(path, Path)}
    files: set[Path] = set()
    try:
        with store.write(faces_change=True) as repository:
            numbers = [photo for photo in photos if isinstance(photo, int)]
            for path, content in contents.items():
                at_path = photos_at_path(store, path, content)
                if not at_path:
                    raise NotInGallery(f"{path}: is not a photo of {store.folder}; nothing was forgotten")
                numbers += at_path
            numbers = list(dict.fromkeys(numbers))
            for number in numbers:
                if (row := repository.photos.row(number)) is None:
                    raise NotInGallery(f"{store.folder}: has no photo {number}; nothing was forgotten")
                files |= _uploaded_files(store.folder / UPLOADED_PHOTOS, Path(row.path), row.sha256)
            repository.erasure.mark_faces_of_photos(numbers)
            faces = repository.erasure.erase_marked()
            repository.erasure.note("photo", numbers)
            repository.erasure.erase_notes(numbers)
            repository.photos.delete(numbers)
            repository.identities.delete_empty()
            _delete_files(files)  # the last step that can fail before the commit
    except CannotWrite as error:
        if all(map(os.path.lexists, files)):
            raise
        cause = error.__cause__ or error  # which does not say that nothing was changed
        raise CannotWrite(
            f"{store.folder}: the photos could not be forgotten ({cause}), but uploaded files of theirs are deleted "
            "already; forget the photos again"
        ) from error
    return ForgetResult(len(numbers), faces, store.purge_deleted())


def _uploaded_files(uploads: Path, path: Path, sha256: bytes) -> set[Path]:
    """Return a photo's files in the folder of uploads: those named by its content, and the upload at its own path.

    The latter may be named by an earlier content: `export_xmp` writes names into photos. If it stayed, the next start
    of a server would enroll it again.
    """
    files = set((uploads / sha256.hex()[:2]).glob(f"{sha256.hex()}*"))
    files |= _interrupted_uploads(files)
    is_upload = path.parent.parent in (absolute_path(uploads), real_path(uploads)) and uploaded_sha256(path) is not None
    return files | ({path} if is_upload and os.path.lexists(path) else set())


def _interrupted_uploads(files: Collection[Path]) -> set[Path]:
    """Return what killed servers have left of uploads: unfinished files with the beginning of one of these files."""
    interrupted: set[Path] = set()
    for path in files:
        try:
            content = path.read_bytes() if path.is_file() else b""
            interrupted |= {part for part in unfinished_files(path.parent) if content.startswith(part.read_bytes())}
        except OSError as error:
            raise CannotWrite(f"{path}: cannot be read ({error.strerror}); nothing was forgotten") from error
    return interrupted


def _delete_files(files: Collection[Path]) -> None:
    try:
        for path in files:
            erase_file(path)
    except CannotWrite as error:
        raise CannotWrite(f"{error}; nothing was forgotten") from error
