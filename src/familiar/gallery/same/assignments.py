"""The identity of each face of a gallery, as arrays aligned with its embeddings."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

import numpy as np
from jaxtyping import Bool, Int64

from familiar.core.errors import NotInGallery
from familiar.core.names import unify_spelling
from familiar.gallery.store.face_table import EmbeddingTable
from familiar.gallery.store.photo_paths import file_sha256, photos_at_path
from familiar.gallery.store.repository import Repository
from familiar.gallery.store.store import Store

UNASSIGNED = -1
_MAX_DIGITS = 19  # longer references cannot be SQLite integers


@dataclass(frozen=True, eq=False)
class GalleryAssignments:
    """The assignments of all faces of a gallery at one revision.

    Attributes:
        faces: ids, photos, quality and embeddings of the n faces, by rising id.
        identity: identity number of each face, or `UNASSIGNED` (-1).
        by_user: whether the user made or confirmed the assignment.
        names: name of each identity that has one, by identity number.
    """

    faces: EmbeddingTable
    identity: Int64[np.ndarray, " n"]
    by_user: Bool[np.ndarray, " n"]
    names: dict[int, str]

    def rows_of_identity(self, number: int) -> Int64[np.ndarray, " k"]:
        """Return the rows of an identity's faces, rising."""
        return np.flatnonzero(self.identity == number)

    def central_face(self, rows: Int64[np.ndarray, " k"]) -> int:
        """Return the id of the face most similar to the mean of `rows`, preferring faces that the user confirmed."""
        mean = self.faces.unit_rows(rows).mean(axis=0)
        candidates = rows[self.by_user[rows]] if self.by_user[rows].any() else rows
        return int(self.faces.ids[candidates[(self.faces.unit_rows(candidates) @ mean).argmax()]])


def load_assignments(store: Store) -> GalleryAssignments:
    """Read the assignments of all faces; cached until the gallery changes."""
    with store.read() as repository:  # one snapshot, so that the cached value belongs to the revision it is cached for
        return store.cached("assignments", store.revision, lambda: _read_assignments(store.faces(), repository))


def _read_assignments(faces: EmbeddingTable, repository: Repository) -> GalleryAssignments:
    identity = np.full(len(faces.ids), UNASSIGNED, np.int64)
    by_user = np.zeros(len(faces.ids), np.bool_)
    assignments = np.array(repository.assignments.all(), np.int64).reshape(-1, 3)
    rows = faces.rows_of(assignments[:, 0])
    identity[rows], by_user[rows] = assignments[:, 1], assignments[:, 2] == 1
    return GalleryAssignments(faces, identity, by_user, repository.identities.names())


def resolve_identity(store: Store, reference: str) -> int:
    """Return the number of the identity that a name or a number such as `#12` refers to.

    If no identity has that name, it is the only one whose name differs from it only in case.

    Raises:
        NotInGallery: no identity has that name or number, or several names differ only in case.
    """
    label = unify_spelling(reference)
    with store.read() as repository:
        names = repository.identities.names()
        if label.startswith("#") and label[1:].isdecimal() and len(label) < _MAX_DIGITS:
            number = int(label[1:]) if repository.identities.exists(int(label[1:])) else None
        else:
            number = repository.identities.with_name(label)
    if number is not None:
        return number
    by_folded: defaultdict[str, list[int]] = defaultdict(list)
    for identity, name in names.items():
        by_folded[name.casefold()].append(identity)
    matches = by_folded.get(label.casefold(), [])
    if len(matches) == 1:
        return matches[0]
    close = matches or [each for key in get_close_matches(label.casefold(), by_folded) for each in by_folded[key]]
    meant = f" (did you mean {' or '.join(sorted(repr(names[each]) for each in close))}?)" if close else ""
    raise NotInGallery(
        f"{store.folder}: has no identity {reference!r}{meant}; give a name, or a number such as #12; "
        f"`familiar gallery stats {store.folder}` lists them"
    )


def resolve_face(store: Store, reference: str) -> int:
    """Return the id of the face that a face number or the path of a photo with one face refers to.

    Raises:
        NotInGallery: there is no such face or photo, or the photo does not show exactly one face.
        UnreadablePhoto, Contradiction: it is not certain which photo the path means, as its file cannot be read or has
            changed.
    """
    if reference.isdecimal() and len(reference) < _MAX_DIGITS:
        check_faces(store, [int(reference)])
        return int(reference)
    content = file_sha256(Path(reference))
    with store.read() as repository:
        photos = photos_at_path(store, reference, content)
        faces = [row.face for row in repository.faces.rows_in_photos(photos)]
    if not photos:
        raise NotInGallery(
            f"{store.folder}: has no photo {reference}; give the path of an enrolled photo, or a face number"
        )
    if len(faces) != 1:
        shown = f"the faces {', '.join(map(str, faces))}: give one of these numbers" if faces else "no face"
        raise NotInGallery(f"{reference}: shows {shown}")
    return faces[0]


def check_identities(store: Store, numbers: Sequence[int]) -> None:
    """Raise NotInGallery unless every one of these identities exists."""
    for number in numbers:
        resolve_identity(store, f"#{number}")


def check_faces(store: Store, faces: Sequence[int]) -> None:
    """Raise NotInGallery unless every one of these faces exists."""
    with store.read() as repository:
        for face in faces:
            if not repository.faces.exists(face):
                raise NotInGallery(f"{store.folder}: has no face {face}; familiar gallery search lists faces")
