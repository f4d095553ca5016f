"""Who each face is, as far as the gallery knows: read once, as arrays beside the embeddings."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Bool, Float32, Int64

from familiar.core.errors import NotInGallery
from familiar.core.files import absolute_path
from familiar.gallery.database.connection import FaceTable, Gallery
from familiar.neighbors.domains import IN_DOMAIN, whiten_by_domain

UNASSIGNED = -1
_DIGITS = 19  # more than SQLite's numbers have


@dataclass(frozen=True, eq=False)
class FaceAssignments:
    """`identity[i]` is the number of whom face i of `faces` shows, or -1; `by_user[i]` whether a user said so.

    `kind` is 0, or the number of one of the kinds among whom even strangers are alike (`neighbors.kinds`). `names` are
    those that identities have.
    """

    faces: FaceTable
    identity: Int64[np.ndarray, " n"]
    by_user: Bool[np.ndarray, " n"]
    domain: Int64[np.ndarray, " n"]
    names: dict[int, str]

    def rows_of_identity(self, number: int) -> Int64[np.ndarray, " k"]:
        return np.flatnonzero(self.identity == number)

    @cached_property
    def estimated_identity_count(self) -> int:
        """How many there seem to be: identities that hold faces, and faces of nobody."""
        held = self.identity[self.identity != UNASSIGNED]
        return len(np.unique(held)) + len(self.identity) - len(held)

    def domain_adapted_embeddings(self) -> Float32[np.ndarray, "n d"]:
        """What faces are grouped by: their embeddings, those of each kind adapted. Of two kinds they do not compare."""
        return whiten_by_domain(self.faces.unit_rows(), self.domain)


def load_assignments(gallery: Gallery) -> FaceAssignments:
    with gallery.reading():  # so that what is kept for a revision is of that one
        return gallery.cached("who", gallery.revision, lambda: _read(gallery))


def _read(gallery: Gallery) -> FaceAssignments:
    with gallery.reading() as connection:
        faces = gallery.faces()
        rows = connection.execute("SELECT face_id, identity_id, by_user FROM assignments ORDER BY face_id").fetchall()
        kinds = connection.execute("SELECT face_id, kind FROM kinds ORDER BY face_id").fetchall()
        names = dict(connection.execute("SELECT id, name FROM identities WHERE name IS NOT NULL").fetchall())
    identity = np.full(len(faces.ids), UNASSIGNED, np.int64)
    by_user = np.zeros(len(faces.ids), np.bool_)
    if rows:
        known = np.array(rows, np.int64)
        at = faces.rows_of(known[:, 0])
        identity[at], by_user[at] = known[:, 1], known[:, 2] == 1
    kind = np.full(len(faces.ids), IN_DOMAIN, np.int64)
    if kinds:
        of_kind = np.array(kinds, np.int64)
        kind[faces.rows_of(of_kind[:, 0])] = of_kind[:, 1]
    return FaceAssignments(faces, identity, by_user, kind, names)


def resolve_identity(gallery: Gallery, reference: str) -> int:
    """The number of an identity that is given by name, or as #12. NotInGallery where there is none such."""
    with gallery.reading() as connection:
        if reference.startswith("#") and reference[1:].isdecimal() and len(reference) < _DIGITS:
            row = connection.execute("SELECT id FROM identities WHERE id = ?", (int(reference[1:]),)).fetchone()
        else:
            row = connection.execute(
                "SELECT id FROM identities WHERE name = CAST(? AS TEXT)", (os.fsencode(reference.strip()),)
            ).fetchone()
    if row is None:
        raise NotInGallery(
            f"{gallery.folder}: knows no {reference!r}; give a name, or a number such as #12; "
            f"familiar gallery stats {gallery.folder} lists them"
        )
    return int(row[0])


def resolve_face(gallery: Gallery, reference: str) -> int:
    """A face that is given by its number, or by the path of a photo that shows one. NotInGallery where it is none."""
    if reference.isdecimal() and len(reference) < _DIGITS:
        check_faces(gallery, [int(reference)])
        return int(reference)
    with gallery.reading() as connection:
        rows = connection.execute(
            "SELECT photos.id, faces.id FROM photos LEFT JOIN faces ON photo_id = photos.id WHERE path = CAST(? AS "
            "TEXT) OR path = CAST(? AS TEXT) ORDER BY photos.id DESC, faces.id",
            (os.fsencode(absolute_path(reference)), os.fsencode(reference)),
        ).fetchall()
    faces = [face for photo, face in rows if photo == rows[0][0] and face is not None]
    if not rows:
        raise NotInGallery(
            f"{gallery.folder}: has no photo {reference}; give a photo that was enrolled, or a face's number"
        )
    if len(faces) != 1:
        shown = f"the faces {', '.join(map(str, faces))}: give one of these numbers" if faces else "no face"
        raise NotInGallery(f"{reference}: shows {shown}")
    return faces[0]


def check_identities(gallery: Gallery, numbers: Sequence[int]) -> None:
    """NotInGallery unless every one of these identities is here."""
    for number in numbers:
        resolve_identity(gallery, f"#{number}")


def check_faces(gallery: Gallery, faces: Sequence[int]) -> None:
    """NotInGallery unless every one of these faces is here."""
    with gallery.reading() as connection:
        for face in faces:
            if not connection.execute("SELECT 1 FROM faces WHERE id = CAST(? AS TEXT)", (str(face),)).fetchone():
                raise NotInGallery(f"{gallery.folder}: has no face {face}; familiar gallery search lists faces")
