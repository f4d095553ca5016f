"""Changes to the register of lost and found pets. Each is one decision that `undo` reverts."""

from collections.abc import Mapping, Sequence
from itertools import groupby

import numpy as np

from familiar.core.errors import Contradiction, NoFaceFound
from familiar.core.names import unify_spelling
from familiar.gallery import Gallery, GalleryFace
from familiar.integrations.lost_pets.reports import Report, find_pet

PERSON = "person"
"""The detector's label of people, who may be on a pet's photo too."""


def set_reports(gallery: Gallery, reports: Mapping[int, Report]) -> None:
    """Store the reports of identities, replacing earlier ones.

    Args:
        gallery: to write to.
        reports: of each identity's number.

    Raises:
        NotInGallery: there is no such identity; nothing is stored.
    """
    with gallery.decision("report"):
        gallery.require(identities=list(reports))
        for identity, report in reports.items():
            gallery.set_attributes(identity, report.record)


def edit_pet(gallery: Gallery, identity: int, name: str, report: Report) -> None:
    """Store the name and the report of a pet, as one decision.

    Args:
        gallery: to write to.
        identity: its number.
        name: "" leaves the name as it is.
        report: replaces the earlier one.

    Raises:
        NotInGallery: there is no such identity.
        Contradiction: another identity has that name, or the name is not valid.
    """
    with gallery.decision("report"):
        gallery.set_attributes(identity, report.record)
        if unify_spelling(name):
            gallery.name(identity, name)


def enter_pet(gallery: Gallery, photos: Sequence[int], name: str, report: Report) -> int:
    """Enter a pet that enrolled photos show, as one decision.

    Of each photo the best face counts that shows no person and that belongs to no pet yet.

    Args:
        gallery: to write to.
        photos: ids of enrolled photos.
        name: of the pet; "" for none.
        report: what is known about it.

    Returns:
        The number of its identity.

    Raises:
        NoFaceFound: no photo shows a face.
        Contradiction: a photo shows a pet that was entered before, or the name is taken.
    """
    with gallery.decision("report"):
        faces = choose_faces(gallery, photos)
        if not faces:
            raise NoFaceFound(
                "no pet was found on these photos; take some on which its face is larger, upright and turned to the "
                "camera"
            )
        identity = gallery.split(faces, name if unify_spelling(name) else None, propagate=False).identity
        gallery.set_attributes(identity, report.record)
    return identity


def add_photos(gallery: Gallery, identity: int, photos: Sequence[int]) -> int:
    """Add enrolled photos to a pet, as one decision; return how many of them show a face.

    Args:
        gallery: to write to.
        identity: the pet's.
        photos: ids of enrolled photos. Of each the best face counts, as in `enter_pet`.

    Raises:
        NotInGallery: there is no such identity.
        Contradiction: a photo shows another pet that was entered before.
    """
    with gallery.decision("report"):
        gallery.require(identities=[identity])
        if faces := choose_faces(gallery, photos, identity):
            gallery.move(faces, identity, propagate=False)
    return len(faces)


def dismiss(gallery: Gallery, first: int, second: int) -> None:
    """Remember that two pets are not the same: neither is a candidate for the other any more.

    The faces of each are rejected from the other, and the most similar two must not be clustered together. So it
    outlives a migration to another model, and clustering respects it.

    Args:
        gallery: to write to.
        first: a pet's identity.
        second: the other pet's.

    Raises:
        NotInGallery: there is no such pet.
        Contradiction: both are the same identity, or one has no face.
    """
    with gallery.decision("mark different"):
        gallery.require(identities=[first, second])
        faces, others = ([face.face for face in gallery.faces(identity=each)] for each in (first, second))
        if first == second or not faces or not others:
            raise Contradiction("only two different pets with photos can be marked as not the same")
        similarity = gallery.similarities(np.stack([gallery.face_embedding(face) for face in faces]), others)
        face, other = np.unravel_index(int(similarity.argmax()), similarity.shape)
        gallery.reject(faces, second)
        gallery.reject(others, first)
        gallery.mark_different(faces[face], others[other])


def reconsider(gallery: Gallery, first: int, second: int) -> None:
    """Forget that two pets are not the same, so that they are candidates for each other again.

    Args:
        gallery: to write to.
        first: a pet's identity.
        second: the other pet's.

    Raises:
        NotInGallery: there is no such pet.
    """
    gallery.unmark_different(first, second)


def reunite(gallery: Gallery, lost: int, found_pet: int, *, same_photo: bool = False) -> None:
    """Record that a found pet is a lost one: both become one identity with the photos of both, which is home.

    It keeps the number and the name of the lost pet, and its note says where it was found.

    Args:
        gallery: to write to.
        lost: identity of a lost pet.
        found_pet: identity of a found pet.
        same_photo: accept that a photo shows both.

    Raises:
        NotInGallery: there is no such pet.
        SharedPhoto: a photo shows both, and `same_photo` is False.
        Contradiction: it is not a lost and a found pet.
    """
    with gallery.decision("reunite"):
        pets = find_pet(gallery, lost), find_pet(gallery, found_pet)
        if [pet.report.status for pet in pets] != ["lost", "found"]:
            raise Contradiction(f"{pets[0].label} and {pets[1].label} are not a lost and a found pet any more")
        gallery.confirm([face.face for each in (lost, found_pet) for face in gallery.faces(identity=each)])
        gallery.merge(lost, [found_pet], same_photo=same_photo)  # its report says that it is home


def choose_faces(gallery: Gallery, photos: Sequence[int], identity: int | None = None) -> list[int]:
    """Choose the face of each photo that shows the pet: its own, or else the best one that shows no person.

    Args:
        gallery: to read.
        photos: ids of enrolled photos.
        identity: the pet's, if it was entered before; None: a new one.

    Returns:
        A face of each photo that has one.

    Raises:
        Contradiction: the face was entered as another pet.
    """

    def preference(row: GalleryFace) -> tuple[bool, bool, float, int]:
        is_own = identity is not None and row.identity == identity
        return is_own, row.species != PERSON, row.quality, row.face

    rows = groupby(gallery.faces(photos=photos), key=lambda row: row.photo)
    chosen = [max(in_photo, key=preference) for _, in_photo in rows]
    for row in chosen:
        if row.identity not in (None, identity) and (row.name is not None or row.by_user):
            name = row.name or f"#{row.identity}"
            raise Contradiction(
                f"{gallery.folder}: a photo shows {name} already; add photos to that pet, or give others"
            )
    return [row.face for row in chosen]
