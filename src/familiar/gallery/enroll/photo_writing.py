"""Write the photos of an enrollment, within a transaction: known, moved, copied, edited or new."""

from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Literal

import numpy as np

from familiar.core.files import content_sha256
from familiar.core.types import Face
from familiar.embedding.photos import stack_embeddings
from familiar.gallery.enroll.photo_reading import PhotoFile
from familiar.gallery.store.photos import PhotoRow, path_before_replacement
from familiar.gallery.store.repository import Repository
from familiar.gallery.store.store import Store

SAME_PICTURE = 0.9
"""Least similarity of a face before and after its photo was edited; another photo's face is hardly so similar."""


@dataclass(frozen=True)
class WrittenPhoto:
    """What became of a photo in its transaction.

    Attributes:
        file: the photo as it was read.
        change: "known": enrolled from this path before; "copy": enrolled from another path, where it still is;
            "forgotten": deleted from the gallery since the call began, and not enrolled again.
        photo: its number in the gallery; None if it is forgotten.
        previous_path: of a photo that has moved.
        replaced: numbers of the photos that it replaces, of which it is an edit. They are deleted.
        new_faces: faces that the gallery did not have.
    """

    file: PhotoFile
    change: Literal["new", "edited", "known", "moved", "copy", "forgotten"]
    photo: int | None = None
    previous_path: str | None = None
    replaced: tuple[int, ...] = ()
    new_faces: int = 0


def write_photo(repository: Repository, store: Store, file: PhotoFile) -> WrittenPhoto:
    """Write one photo and its faces: known, edited or new. Others that were enrolled from its path lose that path."""
    repository.photos.mark_replaced(file.path, file.sha256)
    row = repository.photos.with_hash(file.sha256)
    if row is not None:
        return _update_known_photo(repository, file, row)
    if file.faces is None:  # forgotten since the call began, and it stays forgotten
        return WrittenPhoto(file, "forgotten")
    photo = repository.photos.insert(file.path, file.sha256, file.size_bytes, file.modified_ns, file.taken_at)
    faces_before_edit = _match_edited_faces(repository, store, file, photo)
    for index, face in enumerate(file.faces):
        embedding = encode_embedding(store, face)
        if index in faces_before_edit:
            # An unfinished migration may have embedded the face from the photo before it was edited.
            repository.migration.delete_face(faces_before_edit[index])
            repository.faces.move_to_photo(faces_before_edit[index], photo, face, embedding)
        else:
            repository.faces.insert(photo, face, embedding)
    # Only after the faces were updated: deleting a photo deletes the faces that still belong to it.
    replaced = tuple(repository.photos.delete_without_faces(file.path, except_photo=photo))
    change = "edited" if replaced else "new"
    return WrittenPhoto(file, change, photo, replaced=replaced, new_faces=len(file.faces) - len(faces_before_edit))


def _update_known_photo(repository: Repository, file: PhotoFile, row: PhotoRow) -> WrittenPhoto:
    """Update the path, size and time of an enrolled photo, unless the file is a copy of it."""
    if row.path != str(file.path) and _is_same_content(Path(row.path), file):
        return WrittenPhoto(file, "copy", row.photo)
    repository.photos.update_file(row.photo, file.path, file.size_bytes, file.modified_ns)
    previous_path = path_before_replacement(row.path)
    if previous_path == str(file.path):
        return WrittenPhoto(file, "known", row.photo)
    return WrittenPhoto(file, "moved", row.photo, previous_path=previous_path)


def encode_embedding(store: Store, face: Face) -> bytes:
    """Encode a face's embedding as the database has it. That of a model that computes longer ones is truncated."""
    (embedding,) = store.encode_embeddings(store.truncate(stack_embeddings([face])))
    return embedding


def _is_same_content(path: Path, file: PhotoFile) -> bool:
    """Check whether `path` still has the content of `file`: another photo may have taken its name."""
    try:
        is_same_size = path.stat().st_size == file.size_bytes and path.is_file()
        return is_same_size and content_sha256(path) == file.sha256
    except OSError:
        return False


def _match_edited_faces(repository: Repository, store: Store, file: PhotoFile, photo: int) -> dict[int, int]:
    """Match the faces of a photo with those of an earlier photo at the same path, which it may be an edit of.

    They match only if every face of the earlier photo is still there, each as another face, the most similar ones
    first. Otherwise another photo has taken the name, and the earlier one keeps its faces, in case it turns up
    elsewhere. Of several earlier photos the latest is tried first.

    Returns:
        The id of the earlier face for each index into `file.faces` that has one.
    """
    rows = repository.faces.embeddings_at_path(file.path, except_photo=photo)
    if not file.faces:
        return {}
    new_embeddings = store.truncate(stack_embeddings(file.faces))
    for _, earlier_rows in groupby(rows, key=lambda row: row[0]):
        _, earlier_faces, encoded = zip(*earlier_rows, strict=True)
        similarity = store.decode_embeddings(encoded) @ new_embeddings.T
        matched: dict[int, int] = {}
        while similarity.max() >= SAME_PICTURE:
            row, column = np.unravel_index(int(similarity.argmax()), similarity.shape)
            matched[int(column)] = earlier_faces[row]
            similarity[row], similarity[:, column] = -1, -1
        if len(matched) == len(earlier_faces):
            return matched
    return {}
