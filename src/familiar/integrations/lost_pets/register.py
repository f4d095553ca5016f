"""Changes to the register of lost and found pets. Each is one decision that `undo` reverts."""

from collections.abc import Mapping, Sequence
from itertools import groupby

import numpy as np

from familiar.core.errors import Contradiction, NoFaceFound
from familiar.core.gallery_types import GalleryFace
from familiar.core.names import unify_spelling
from familiar.gallery.edits.corrections import create_identity, merge_all, reassign, set_name
from familiar.gallery.same.assignments import check_identities, load_assignments
from familiar.gallery.same.decisions import decision
from familiar.gallery.store.repository import Repository
from familiar.gallery.store.store import Store
from familiar.integrations.lost_pets.reports import Report, find_pet

PERSON = "person"
"""The detector's label of people, who may be on a pet's photo too."""


def set_reports(gallery: Store, reports: Mapping[int, Report]) -> None:
    """Store the reports of identities, replacing earlier ones.

    Args:
        gallery: to write to.
        reports: of each identity's number.

    Raises:
        NotInGallery: there is no such identity; nothing is stored.
    """
    with decision(gallery, "report") as repository:
        check_identities(gallery, list(reports))
        for identity, report in reports.items():
            repository.identities.set_attributes(identity, report.records)


def edit_pet(gallery: Store, identity: int, name: str, report: Report) -> None:
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
    with decision(gallery, "report") as repository:
        check_identities(gallery, [identity])
        if unify_spelling(name):
            set_name(gallery, repository, identity, name)
        repository.identities.set_attributes(identity, report.records)


def enter_pet(gallery: Store, photos: Sequence[int], name: str, report: Report) -> int:
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
    with decision(gallery, "report") as repository:
        faces = choose_faces(gallery, repository, photos)
        if not faces:
            raise NoFaceFound(
                "no pet was found on these photos; take some on which its face is larger, upright and turned to the "
                "camera"
            )
        identity = create_identity(gallery, repository, name if unify_spelling(name) else None)
        reassign(gallery, repository, dict.fromkeys(faces, identity), is_list=True)
        repository.identities.set_attributes(identity, report.records)
    return identity


def add_photos(gallery: Store, identity: int, photos: Sequence[int]) -> int:
    """Add enrolled photos to a pet, as one decision; return how many of them show a face.

    Args:
        gallery: to write to.
        identity: the pet's.
        photos: ids of enrolled photos. Of each the best face counts, as in `enter_pet`.

    Raises:
        NotInGallery: there is no such identity.
        Contradiction: a photo shows another pet that was entered before.
    """
    with decision(gallery, "report") as repository:
        check_identities(gallery, [identity])
        faces = choose_faces(gallery, repository, photos, identity)
        reassign(gallery, repository, dict.fromkeys(faces, identity), is_list=True)
    return len(faces)


def dismiss(gallery: Store, first: int, second: int) -> None:
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
    with decision(gallery, "mark different") as repository:
        faces = [_faces_of_pet(gallery, identity) for identity in (first, second)]
        if first == second or not all(map(len, faces)):
            raise Contradiction("only two different pets with photos can be marked as not the same")
        embeddings = [gallery.faces().unit_rows(gallery.faces().rows_of(ids)) for ids in faces]
        best = np.unravel_index(int((embeddings[0] @ embeddings[1].T).argmax()), (len(faces[0]), len(faces[1])))
        repository.constraints.add(int(faces[0][best[0]]), int(faces[1][best[1]]), same=False)
        repository.constraints.add_rejections((face, second) for face in faces[0].tolist())
        repository.constraints.add_rejections((face, first) for face in faces[1].tolist())


def reconsider(gallery: Store, first: int, second: int) -> None:
    """Forget that two pets are not the same, so that they are candidates for each other again.

    Args:
        gallery: to write to.
        first: a pet's identity.
        second: the other pet's.

    Raises:
        NotInGallery: there is no such pet.
    """
    with decision(gallery, "reconsider") as repository:
        faces = [_faces_of_pet(gallery, identity).tolist() for identity in (first, second)]
        repository.constraints.drop_between(faces[0], second)
        repository.constraints.drop_between(faces[1], first)
        repository.constraints.drop_pairs(*faces)


def dismissed_pets(gallery: Store, identity: int) -> frozenset[int]:
    """Return the identities that are known not to be the same as this one, by `dismiss` or by other corrections."""
    with gallery.read() as repository:
        return frozenset(repository.constraints.different_identities(identity))


def reunite(gallery: Store, lost: int, found_pet: int, *, same_photo: bool = False) -> None:
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
    with decision(gallery, "reunite") as repository:
        pets = find_pet(gallery, lost), find_pet(gallery, found_pet)
        if [pet.report.status for pet in pets] != ["lost", "found"]:
            raise Contradiction(f"{pets[0].label} and {pets[1].label} are not a lost and a found pet any more")
        merge_all(gallery, repository, lost, [found_pet], same_photo=same_photo)  # its report says that it is home
        repository.assignments.confirm_identity(lost)


def choose_faces(
    gallery: Store, repository: Repository, photos: Sequence[int], identity: int | None = None
) -> list[int]:
    """Choose the face of each photo that shows the pet: its own, or else the best one that shows no person.

    Args:
        gallery: to read.
        repository: of the open transaction.
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

    rows = repository.faces.rows_in_photos(photos)
    chosen = [max(in_photo, key=preference) for _, in_photo in groupby(rows, key=lambda row: row.photo)]
    for row in chosen:
        if row.identity not in (None, identity) and (row.name is not None or row.by_user):
            name = row.name or f"#{row.identity}"
            raise Contradiction(
                f"{gallery.folder}: a photo shows {name} already; add photos to that pet, or give others"
            )
    return [row.face for row in chosen]


def _faces_of_pet(gallery: Store, identity: int) -> np.ndarray:
    """Return the ids of a pet's faces; raise NotInGallery if there is no such identity."""
    check_identities(gallery, [identity])
    assignments = load_assignments(gallery)
    return assignments.faces.ids[assignments.rows_of_identity(identity)]
