"""Who each face is, as far as the gallery knows: read once, as arrays beside the embeddings."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Int64

from familiar.core.errors import NotInGallery
from familiar.gallery.store import Faces, Gallery

NOBODY = -1


@dataclass(frozen=True, eq=False)
class Who:
    """`identity[i]` is the number of whom face i of `faces` shows, or -1; `by_user[i]` whether a user said so.

    `names` are those that identities have.
    """

    faces: Faces
    identity: Int64[np.ndarray, " n"]
    by_user: Bool[np.ndarray, " n"]
    names: dict[int, str]

    def rows_of_identity(self, number: int) -> Int64[np.ndarray, " k"]:
        return np.flatnonzero(self.identity == number)


def who_is_who(gallery: Gallery) -> Who:
    return gallery.kept("who", gallery.revision, lambda: _read(gallery))


def _read(gallery: Gallery) -> Who:
    with gallery.reading() as connection:
        faces = gallery.faces()
        rows = connection.execute(
            "SELECT face_id, identity_id, by_user FROM assignments ORDER BY face_id"
        ).fetchall()
        names = dict(connection.execute("SELECT id, name FROM identities WHERE name IS NOT NULL").fetchall())
    identity = np.full(len(faces.ids), NOBODY, np.int64)
    by_user = np.zeros(len(faces.ids), np.bool_)
    if rows:
        known = np.array(rows, np.int64)
        at = faces.rows_of(known[:, 0])
        identity[at], by_user[at] = known[:, 1], known[:, 2] == 1
    return Who(faces, identity, by_user, names)


def find_identity(gallery: Gallery, who: str) -> int:
    """The number of an identity that is given by name, or as #12. NotInGallery where there is none such."""
    with gallery.reading() as connection:
        if who.startswith("#") and who[1:].isdecimal():
            row = connection.execute("SELECT id FROM identities WHERE id = ?", (int(who[1:]),)).fetchone()
        else:
            row = connection.execute("SELECT id FROM identities WHERE name = ?", (who,)).fetchone()
    if row is None:
        raise NotInGallery(
            f"{gallery.folder}: knows no {who!r}; give a name, or a number such as #12; "
            f"familiar gallery stats {gallery.folder} lists them"
        )
    return int(row[0])


def check_identities(gallery: Gallery, numbers: Sequence[int]) -> None:
    """NotInGallery unless every one of these identities is here."""
    for number in numbers:
        find_identity(gallery, f"#{number}")


def check_faces(gallery: Gallery, faces: Sequence[int]) -> None:
    """NotInGallery unless every one of these faces is here."""
    with gallery.reading() as connection:
        for face in faces:
            if connection.execute("SELECT 1 FROM faces WHERE id = ?", (face,)).fetchone() is None:
                raise NotInGallery(
                    f"{gallery.folder}: has no face {face}; familiar gallery search lists faces"
                )
