"""Corrections that a user makes to the assignments. Each is one transaction that `undo` reverts as a whole.

Clustering never changes what the user corrected. A correction also propagates: within the same transaction, faces that
the user did not place are clustered again where the correction concerns them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Int64

from familiar.core.errors import Contradiction
from familiar.core.gallery_types import CorrectionResult
from familiar.core.names import normalize_name
from familiar.gallery.clustering.assignments import (
    UNASSIGNED,
    FaceAssignments,
    check_faces,
    check_identities,
    load_assignments,
)
from familiar.gallery.clustering.cluster import recluster
from familiar.gallery.database.connection import GalleryDatabase
from familiar.gallery.database.repository import Repository
from familiar.gallery.editing.propagation import release_similar_faces
from familiar.gallery.editing.undo_log import decision
from familiar.gallery.lost_pets.reports import merge_reports


@dataclass(frozen=True)
class IdentityFaces:
    """Faces that show one individual.

    Attributes:
        name: name of a new or existing identity; None for an individual without a name.
        faces: ids of the faces.
    """

    name: str | None
    faces: tuple[int, ...]


def name_identity(gallery: GalleryDatabase, identity: int, new_name: str, *, confirm: bool = False) -> CorrectionResult:
    """Name an identity, which also keeps it from being re-clustered.

    Args:
        gallery: the gallery to change.
        identity: the identity's number.
        new_name: without control characters, and not beginning with #; stored as `normalize_name` spells it.
        confirm: also mark all its faces as confirmed.

    Raises:
        Contradiction: another identity has that name, or the name is not valid.
    """
    with decision(gallery, "name") as repository:
        check_identities(gallery, [identity])
        set_name(gallery, repository, identity, new_name)
        if confirm:
            repository.assignments.confirm_identity(identity)
    return CorrectionResult(identity, 0)


def confirm(gallery: GalleryDatabase, faces: Sequence[int]) -> None:
    """Mark the assignments of these faces as confirmed; unassigned faces stay unassigned."""
    with decision(gallery, "confirm") as repository:
        check_faces(gallery, faces)
        repository.assignments.confirm(faces)


def merge(gallery: GalleryDatabase, into: int, others: Sequence[int]) -> CorrectionResult:
    """Merge identities into one, named as `into` is, or else as the first of the others that has a name.

    Raises:
        Contradiction: one photo shows two of them.
    """
    others = [other for other in dict.fromkeys(others) if other != into]
    with decision(gallery, "merge") as repository:
        check_identities(gallery, [into, *others])
        for other in others:
            merge_pair(repository, load_assignments(gallery), into, other)
        propagated = recluster(gallery, repository, np.empty(0, np.int64), [into]).changed
    return CorrectionResult(into, propagated)


def move(gallery: GalleryDatabase, faces: Sequence[int], to: int) -> CorrectionResult:
    """Assign these faces to the identity `to`, and reject them from their previous identities.

    Raises:
        Contradiction: one photo would have two faces in that identity.
    """
    with decision(gallery, "move") as repository:
        check_faces(gallery, faces)
        check_identities(gallery, [to])
        return CorrectionResult(to, reassign(gallery, repository, dict.fromkeys(faces, to)))


def split(gallery: GalleryDatabase, faces: Sequence[int], name: str | None = None) -> CorrectionResult:
    """Move these faces to a new identity.

    Raises:
        Contradiction: as in `move` and `name_identity`.
    """
    with decision(gallery, "split") as repository:
        check_faces(gallery, faces)
        identity = create_identity(gallery, repository, name)
        return CorrectionResult(identity, reassign(gallery, repository, dict.fromkeys(faces, identity)))


def assign(gallery: GalleryDatabase, individuals: Sequence[IdentityFaces]) -> int:
    """Assign many faces from a list, as one decision.

    The faces that some of them were clustered with are clustered again; unassigned faces wait for the next `cluster`.
    An individual without a name is the identity that has all its faces already, or else a new identity.

    Returns:
        The number of other faces that changed.

    Raises:
        Contradiction: as in `move` and `name_identity`, for the assignments after the whole list.
        ValueError: a face is listed twice.
    """
    faces = [face for individual in individuals for face in individual.faces]
    if len(set(faces)) < len(faces):
        raise ValueError("each face must be listed only once")
    with decision(gallery, "import") as repository:
        check_faces(gallery, faces)
        before = load_assignments(gallery)
        identity_of_face: dict[int, int] = {}
        used: set[int] = set()
        for individual in sorted(individuals, key=lambda individual: individual.name is None):
            identity = _find_identity(repository, before, individual)
            if identity is None or (individual.name is None and identity in used):
                identity = create_identity(gallery, repository, individual.name)
            used.add(identity)
            identity_of_face |= dict.fromkeys(individual.faces, identity)
        return reassign(gallery, repository, identity_of_face, join=False)


def reject(gallery: GalleryDatabase, faces: Sequence[int], identity: int | None = None) -> CorrectionResult:
    """Store that these faces do not show an identity, and unassign those that are in it.

    Args:
        gallery: the gallery to change.
        faces: ids of the faces.
        identity: the identity that they do not show; None: each face's current identity.

    Raises:
        Contradiction: no identity is given, and one of the faces is unassigned.
    """
    with decision(gallery, "reject") as repository:
        check_faces(gallery, faces)
        check_identities(gallery, [] if identity is None else [identity])
        before = load_assignments(gallery)
        rows = before.faces.rows_of(np.array(faces, np.int64))
        rejected = before.identity[rows] if identity is None else np.full(len(rows), identity)
        if (rejected == UNASSIGNED).any():
            face = faces[int(np.flatnonzero(rejected == UNASSIGNED)[0])]
            raise Contradiction(f"face {face} is not assigned to an identity; give the identity that it does not show")
        repository.constraints.add_rejections(zip(faces, rejected.tolist(), strict=True))
        leaving = rows[before.identity[rows] == rejected]
        propagated = _unassign_and_recluster(gallery, repository, before, leaving)
    return CorrectionResult(int(rejected[0]), propagated)


def mark_different(gallery: GalleryDatabase, first: int, second: int) -> None:
    """Store that two faces show different individuals, and so do the identities they are in.

    Of two faces of one identity, the one that the user did not confirm leaves it (the second if neither is), and so do
    the unconfirmed faces that are nearer to it than to the other.

    Raises:
        Contradiction: both faces were confirmed in one identity, or they are the same face.
    """
    if first == second:
        raise Contradiction(f"face {first} cannot differ from itself; give two faces")
    with decision(gallery, "mark different") as repository:
        check_faces(gallery, (first, second))
        before = load_assignments(gallery)
        rows = before.faces.rows_of(np.array([first, second], np.int64))
        repository.constraints.add(first, second, same=False)
        first_identity, second_identity = before.identity[rows].tolist()
        if first_identity != second_identity or first_identity == UNASSIGNED:
            rejections = [(first, second_identity), (second, first_identity)]
            repository.constraints.add_rejections([pair for pair in rejections if pair[1] != UNASSIGNED])
            return
        if before.by_user[rows].all():
            raise Contradiction(
                f"faces {first} and {second} were both confirmed to show #{first_identity}; move one of them"
            )
        leaving = rows[~before.by_user[rows]][-1:]
        opposite = int(rows[rows != leaving[0]][0])
        _unassign_and_recluster(gallery, repository, before, leaving, opposite)


def merge_pair(repository: Repository, before: FaceAssignments, into: int, other: int) -> None:
    """Move all faces, rejections and, if needed, the name of `other` to `into`, merge the reports, and delete `other`.

    Args:
        repository: of the open decision.
        before: the assignments as they are.
        into: the identity that stays.
        other: the identity that goes.

    Raises:
        Contradiction: one photo shows both.
    """
    into_rows, other_rows = before.rows_of_identity(into), before.rows_of_identity(other)
    _require_different_photos(repository, before, into_rows, other_rows)
    if len(into_rows) and len(other_rows):
        repository.constraints.add(before.central_face(into_rows), before.central_face(other_rows), same=True)
    repository.assignments.assign(dict.fromkeys(before.faces.ids[other_rows].tolist(), into), by_user=None)
    repository.constraints.drop_stale(into)
    repository.constraints.transfer_rejections(other, into)
    merge_reports(repository, into, other)
    into_name, other_name = repository.identities.name(into), repository.identities.name(other)
    repository.identities.delete(other)
    if into_name is None and other_name is not None:
        repository.identities.set_name(into, other_name)


def set_name(gallery: GalleryDatabase, repository: Repository, identity: int, name: str) -> None:
    """Name an identity, within an open decision.

    Raises:
        Contradiction: another identity has that name, or the name is not valid.
    """
    name = check_name(name)
    holder = repository.identities.with_name(name)
    if holder not in (None, identity):
        raise Contradiction(
            f"#{holder} has the name {name} already; choose another name, or, if both are the same individual, merge "
            f"them: familiar gallery merge {gallery.folder} '#{holder}' '#{identity}'"
        )
    repository.identities.set_name(identity, name)


def check_name(name: str) -> str:
    """Return a name in the spelling in which it is stored.

    Raises:
        Contradiction: an identity cannot have this name.
    """
    try:
        name = normalize_name(name)
    except ValueError as error:
        raise Contradiction(f"{error}; choose another") from error
    if name.startswith("#"):
        raise Contradiction(f"'{name}' is not a valid name: it must not start with #, as numbers do; choose another")
    return name


def create_identity(gallery: GalleryDatabase, repository: Repository, name: str | None) -> int:
    """Create an identity, within an open decision, and return its number. Contradiction as in `set_name`."""
    number = repository.identities.create()
    if name is not None:
        set_name(gallery, repository, number, name)
    return number


def _find_identity(repository: Repository, before: FaceAssignments, individual: IdentityFaces) -> int | None:
    """Return the identity of that name; without a name, the one that has all the faces; None if there is none."""
    if individual.name is not None:
        return repository.identities.with_name(individual.name)
    identities = np.unique(before.identity[before.faces.rows_of(np.array(individual.faces, np.int64))])
    return int(identities[0]) if len(identities) == 1 and identities[0] != UNASSIGNED else None


def reassign(
    gallery: GalleryDatabase, repository: Repository, identity_of_face: Mapping[int, int], *, join: bool = True
) -> int:
    """Assign each face to its identity by the user's decision, and reject it from its previous one.

    Args:
        gallery: the gallery to change.
        repository: of the open decision.
        identity_of_face: new identity by face id.
        join: let similar unassigned faces join these identities.

    Returns:
        The number of other faces that changed.

    Raises:
        Contradiction: a photo would have two faces in one identity.
    """
    before = load_assignments(gallery)
    rows = before.faces.rows_of(np.array(list(identity_of_face), np.int64))
    target = np.array(list(identity_of_face.values()), np.int64)
    target_identities: list[int] = np.unique(target).tolist()
    for identity in target_identities:
        staying = np.setdiff1d(before.rows_of_identity(identity), rows)
        _require_different_photos(repository, before, staying, rows[target == identity])
    leaving = rows[(before.identity[rows] != target) & (before.identity[rows] != UNASSIGNED)]
    repository.constraints.add_rejections(
        zip(before.faces.ids[leaving].tolist(), before.identity[leaving].tolist(), strict=True)
    )
    repository.assignments.assign(identity_of_face, by_user=True)
    for identity in target_identities:
        repository.constraints.drop_stale(identity)
    free, source_identities = release_similar_faces(gallery, repository, before, leaving)
    touched = [*target_identities, *source_identities] if join else []
    return recluster(gallery, repository, free, touched).changed


def _unassign_and_recluster(
    gallery: GalleryDatabase,
    repository: Repository,
    before: FaceAssignments,
    leaving: Int64[np.ndarray, " k"],
    opposite: int | None = None,
) -> int:
    """Take faces out of their identities, and re-cluster them with the similar faces that follow them.

    Returns:
        The number of faces that changed by re-clustering.
    """
    leaving_ids = before.faces.ids[leaving]
    repository.assignments.unassign(leaving_ids.tolist())
    free, source_identities = release_similar_faces(gallery, repository, before, leaving, opposite)
    return recluster(gallery, repository, np.concatenate([leaving_ids, free]), source_identities).changed


def _require_different_photos(
    repository: Repository,
    before: FaceAssignments,
    staying: Int64[np.ndarray, " k"],
    added: Int64[np.ndarray, " m"],
) -> None:
    """Raise Contradiction if a photo would have two faces in one identity, at least one of them `added`."""
    photo_ids = before.faces.photo_ids[np.concatenate([staying, added])]
    photos, counts = np.unique(photo_ids, return_counts=True)
    shared = np.intersect1d(photos[counts > 1], before.faces.photo_ids[added])
    if len(shared):
        path = repository.photos.path(int(shared[0]))
        raise Contradiction(
            f"{path}: shows two of these faces, and two faces of one photo are never the same individual; "
            "move or reject the wrong one first"
        )
