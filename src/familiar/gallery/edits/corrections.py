"""Corrections that a user makes to the assignments. Each is one transaction that `undo` reverts as a whole.

Clustering never changes what the user corrected. A correction also propagates: within the same transaction, faces that
the user did not place are clustered again where the correction concerns them.

Two faces of one photo are in one identity only if the user put or confirmed both there. As that may be a slip, a
correction by which it would happen is refused, unless it says `same_photo`. What a file says is accepted.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Int64

from familiar.core.errors import Contradiction, SharedPhoto
from familiar.core.gallery_types import CorrectionResult
from familiar.core.names import normalize_name
from familiar.gallery.cluster.cluster import recluster
from familiar.gallery.edits.propagation import propagate
from familiar.gallery.same.assignments import (
    UNASSIGNED,
    GalleryAssignments,
    check_faces,
    check_identities,
    load_assignments,
)
from familiar.gallery.same.constraints import are_together, same_photo_pairs
from familiar.gallery.same.decisions import decision
from familiar.gallery.store.identities import Attributes
from familiar.gallery.store.repository import Repository
from familiar.gallery.store.store import Store

_MAX_LISTED = 5  # photos in a message


@dataclass(frozen=True)
class Individual:
    """Faces that show one individual.

    Attributes:
        name: name of a new or existing identity; None for an individual without a name.
        faces: ids of the faces.
    """

    name: str | None
    faces: tuple[int, ...]


def name_identity(store: Store, identity: int, new_name: str, *, confirm: bool = False) -> CorrectionResult:
    """Name an identity, which also keeps it from being re-clustered.

    Args:
        store: the gallery to change.
        identity: the identity's number.
        new_name: without control characters, and not beginning with #; stored as `normalize_name` spells it.
        confirm: also mark all its faces as confirmed.

    Raises:
        Contradiction: another identity has that name, or the name is not valid.
    """
    with decision(store, "name") as repository:
        check_identities(store, [identity])
        set_name(store, repository, identity, new_name)
        if confirm:
            repository.assignments.confirm_identity(identity)
    return CorrectionResult(identity, 0)


def confirm(store: Store, faces: Sequence[int]) -> None:
    """Mark the assignments of these faces as confirmed; unassigned faces stay unassigned."""
    with decision(store, "confirm") as repository:
        check_faces(store, faces)
        repository.assignments.confirm(faces)


def merge(store: Store, into: int, others: Sequence[int], *, same_photo: bool = False) -> CorrectionResult:
    """Merge identities into one, named as `into` is, or else as the first of the others that has a name.

    The faces are not confirmed: of an identity without a name, clustering all faces again keeps only the two central
    ones together.

    Args:
        store: the gallery to change.
        into: the identity that stays.
        others: the identities that go.
        same_photo: accept that a photo shows two of them; these faces are then confirmed.

    Raises:
        SharedPhoto: a photo does, and `same_photo` is False.
    """
    others = [other for other in dict.fromkeys(others) if other != into]
    with decision(store, "merge") as repository:
        check_identities(store, [into, *others])
        _merge_all(store, repository, into, others, same_photo=same_photo)
        propagated = recluster(store, repository, np.empty(0, np.int64), [into]).changed
    return CorrectionResult(into, propagated)


def move(
    store: Store, faces: Sequence[int], to: int, *, same_photo: bool = False, propagate: bool = True
) -> CorrectionResult:
    """Assign these faces to the identity `to`, and reject them from their previous identities.

    Args:
        store: the gallery to change.
        faces: ids of the faces.
        to: the identity's number.
        same_photo: accept that a photo has two faces in that identity, which are then confirmed.
        propagate: False: the faces are those of a list, as for `assign`.

    Raises:
        SharedPhoto: a photo would, and `same_photo` is False.
    """
    with decision(store, "move") as repository:
        check_faces(store, faces)
        check_identities(store, [to])
        changed = reassign(store, repository, dict.fromkeys(faces, to), same_photo=same_photo, is_list=not propagate)
    return CorrectionResult(to, changed)


def split(
    store: Store,
    faces: Sequence[int],
    name: str | None = None,
    *,
    same_photo: bool = False,
    propagate: bool = True,
) -> CorrectionResult:
    """Move these faces to a new identity.

    Args:
        store: the gallery to change.
        faces: ids of the faces.
        name: of the new identity; None: none.
        same_photo: as for `move`.
        propagate: as for `move`.

    Raises:
        SharedPhoto: as in `move`.
        Contradiction: as in `name_identity`.
    """
    with decision(store, "split") as repository:
        check_faces(store, faces)
        identity = create_identity(store, repository, name)
        changed = reassign(
            store, repository, dict.fromkeys(faces, identity), same_photo=same_photo, is_list=not propagate
        )
    return CorrectionResult(identity, changed)


def assign(store: Store, individuals: Sequence[Individual]) -> int:
    """Assign many faces from a list, as one decision.

    The faces that some of them were clustered with are clustered again; unassigned faces wait for the next `cluster`.
    An individual without a name is the identity that has all its faces already, or else a new identity. Several faces
    of one photo may be listed for one individual; a face of that photo that only clustering put there leaves it.

    Returns:
        The number of other faces that changed.

    Raises:
        Contradiction: as in `name_identity`.
        ValueError: a face is listed twice.
    """
    faces = [face for individual in individuals for face in individual.faces]
    if len(set(faces)) < len(faces):
        raise ValueError("each face must be listed only once")
    with decision(store, "import") as repository:
        check_faces(store, faces)
        before = load_assignments(store)
        identity_of_face: dict[int, int] = {}
        used: set[int] = set()
        for individual in sorted(individuals, key=lambda individual: individual.name is None):
            identity = _find_identity(repository, before, individual)
            if identity is None or (individual.name is None and identity in used):
                identity = create_identity(store, repository, individual.name)
            used.add(identity)
            identity_of_face |= dict.fromkeys(individual.faces, identity)
        return reassign(store, repository, identity_of_face, is_list=True)


def reject(store: Store, faces: Sequence[int], identity: int | None = None) -> CorrectionResult:
    """Store that these faces do not show an identity, and unassign those that are in it.

    Args:
        store: the gallery to change.
        faces: ids of the faces.
        identity: the identity that they do not show; None: each face's current identity.

    Raises:
        Contradiction: no identity is given, and one of the faces is unassigned.
    """
    with decision(store, "reject") as repository:
        check_faces(store, faces)
        check_identities(store, [] if identity is None else [identity])
        before = load_assignments(store)
        rows = before.faces.rows_of(np.array(faces, np.int64))
        rejected = before.identity[rows] if identity is None else np.full(len(rows), identity)
        if (rejected == UNASSIGNED).any():
            face = faces[int(np.flatnonzero(rejected == UNASSIGNED)[0])]
            raise Contradiction(f"face {face} is not assigned to an identity; give the identity that it does not show")
        repository.constraints.add_rejections(zip(faces, rejected.tolist(), strict=True))
        leaving = rows[before.identity[rows] == rejected]
        propagated = propagate(store, repository, before, leaving, leaving, [])
    return CorrectionResult(int(rejected[0]), propagated)


def mark_different(store: Store, first: int, second: int) -> None:
    """Store that two faces show different individuals, and so do the identities they are in.

    Of two faces of one identity, the one that the user did not confirm leaves it (the second if neither is), and so do
    the unconfirmed faces that are nearer to it than to the other.

    Raises:
        Contradiction: both faces were confirmed in one identity, or they are the same face.
    """
    if first == second:
        raise Contradiction(f"face {first} cannot differ from itself; give two faces")
    with decision(store, "mark different") as repository:
        check_faces(store, (first, second))
        before = load_assignments(store)
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
        propagate(store, repository, before, leaving, leaving, [], opposite)


def unmark_different(store: Store, first: int, second: int) -> None:
    """Forget that two identities show different individuals: by pairs of faces, and by rejections of faces."""
    with decision(store, "reconsider") as repository:
        check_identities(store, [first, second])
        faces = [[row.face for row in repository.faces.rows_of_identity(each)] for each in (first, second)]
        repository.constraints.drop_between(faces[0], second)
        repository.constraints.drop_between(faces[1], first)
        repository.constraints.drop_pairs(*faces)


def _merge_all(store: Store, repository: Repository, into: int, others: Sequence[int], *, same_photo: bool) -> None:
    """Merge identities as `merge` does, within an open decision, without clustering again."""
    before = load_assignments(store)
    members = np.flatnonzero(np.isin(before.identity, [into, *others]))
    shared = _faces_in_shared_photos(repository, before, into, members, same_photo)
    for other in others:
        _merge_pair(repository, load_assignments(store), into, other)
    repository.assignments.confirm(shared)


def _merge_pair(repository: Repository, before: GalleryAssignments, into: int, other: int) -> None:
    """Store that the central faces of both show one individual, then let `into` have all that `other` has.

    That is its faces, rejections, attributes and, if needed, its name. `other` is deleted.

    Args:
        repository: of the open decision.
        before: the assignments as they are.
        into: the identity that stays.
        other: the identity that goes.
    """
    into_rows, other_rows = before.rows_of_identity(into), before.rows_of_identity(other)
    if len(into_rows) and len(other_rows):
        repository.constraints.add(before.central_face(into_rows), before.central_face(other_rows), same=True)
    repository.assignments.assign(dict.fromkeys(before.faces.ids[other_rows].tolist(), into), by_user=None)
    repository.constraints.drop_stale(into)  # after the faces have moved, or the pair above would be dropped
    repository.constraints.transfer_rejections(other, into)
    records = [*_records(repository, into), *_records(repository, other)]
    if any(records):
        repository.identities.set_attributes(into, records)
    into_name, other_name = repository.identities.name(into), repository.identities.name(other)
    repository.identities.delete(other)
    if into_name is None and other_name is not None:
        repository.identities.set_name(into, other_name)
    repository.events.add("merged", into, merged=other)


def _records(repository: Repository, identity: int) -> Sequence[Attributes]:
    """Return what is noted about an identity; for one that has only a name, an empty record, which tells that much."""
    is_named = repository.identities.name(identity) is not None
    nothing: Attributes = {}
    return repository.identities.attributes(identity) or ([nothing] if is_named else [])


def set_name(store: Store, repository: Repository, identity: int, name: str) -> None:
    """Name an identity, within an open decision.

    Raises:
        Contradiction: another identity has that name, or the name is not valid.
    """
    name = check_name(name)
    holder = repository.identities.with_name(name)
    if holder not in (None, identity):
        raise Contradiction(
            f"#{holder} has the name {name} already; choose another name, or, if both are the same individual, merge "
            f"them: familiar gallery merge {store.folder} '#{holder}' '#{identity}'"
        )
    if name != repository.identities.name(identity):
        repository.identities.set_name(identity, name)
        repository.events.add("named", identity)


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


def create_identity(store: Store, repository: Repository, name: str | None) -> int:
    """Create an identity, within an open decision, and return its number. Contradiction as in `set_name`."""
    number = repository.identities.create()
    if name is not None:
        set_name(store, repository, number, name)
    return number


def _find_identity(repository: Repository, before: GalleryAssignments, individual: Individual) -> int | None:
    """Return the identity of that name; without a name, the one that has all the faces; None if there is none."""
    if individual.name is not None:
        return repository.identities.with_name(individual.name)
    identities = np.unique(before.identity[before.faces.rows_of(np.array(individual.faces, np.int64))])
    return int(identities[0]) if len(identities) == 1 and identities[0] != UNASSIGNED else None


def reassign(
    store: Store,
    repository: Repository,
    identity_of_face: Mapping[int, int],
    *,
    same_photo: bool = False,
    is_list: bool = False,
) -> int:
    """Assign each face to its identity by the user's decision, and reject it from its previous one.

    Args:
        store: the gallery to change.
        repository: of the open decision.
        identity_of_face: new identity by face id.
        same_photo: as for `move`.
        is_list: the faces are those of a list, as for `assign`. Similar unassigned faces do not join.

    Returns:
        The number of other faces that changed.

    Raises:
        SharedPhoto: a photo would have two faces in one identity, and neither `same_photo` nor `is_list` is True.
    """
    before = load_assignments(store)
    rows = before.faces.rows_of(np.array(list(identity_of_face), np.int64))
    target = np.array(list(identity_of_face.values()), np.int64)
    target_identities: list[int] = np.unique(target).tolist()
    shared: list[int] = []
    displaced = np.empty(0, np.int64)
    for identity in target_identities:
        staying, added = np.setdiff1d(before.rows_of_identity(identity), rows), rows[target == identity]
        if is_list:
            in_photo_of_added = np.isin(before.faces.photo_ids[staying], before.faces.photo_ids[added])
            displaced = np.union1d(displaced, staying[in_photo_of_added & ~before.by_user[staying]])
        members = np.union1d(np.setdiff1d(staying, displaced), added)
        shared += _faces_in_shared_photos(repository, before, identity, members, same_photo or is_list)
    leaving = rows[(before.identity[rows] != target) & (before.identity[rows] != UNASSIGNED)]
    repository.constraints.add_rejections(
        zip(before.faces.ids[leaving].tolist(), before.identity[leaving].tolist(), strict=True)
    )
    repository.assignments.assign(identity_of_face, by_user=True)
    repository.assignments.confirm(shared)
    for identity in target_identities:
        repository.constraints.drop_stale(identity)
    joined = None if is_list else target_identities
    changed = propagate(store, repository, before, leaving, displaced, joined)
    return changed + int((load_assignments(store).identity[displaced] == UNASSIGNED).sum())


def _faces_in_shared_photos(
    repository: Repository,
    before: GalleryAssignments,
    identity: int,
    members: Int64[np.ndarray, " k"],
    same_photo: bool,
) -> list[int]:
    """List the faces that newly share a photo and an identity.

    Args:
        repository: of the open decision.
        before: the assignments as they are.
        identity: the identity's number.
        members: rows of all faces that it will have.
        same_photo: whether the user accepts that there are any.

    Raises:
        SharedPhoto: he does not.
    """
    pairs = members[same_photo_pairs(before.faces.photo_ids[members])]
    pairs = pairs[~are_together(pairs, before.identity)]
    faces = before.faces.ids[pairs]
    if len(pairs) and not same_photo:
        paths = list(dict.fromkeys(row.path for row in repository.faces.rows(faces[:, 0].tolist())))
        others = f" and {len(paths) - _MAX_LISTED} more" if len(paths) > _MAX_LISTED else ""
        name = repository.identities.name(identity)
        raise SharedPhoto(
            f"{', '.join(paths[:_MAX_LISTED])}{others}: would show {name or 'one identity'} twice, as the faces "
            f"{faces[0, 0]} and {faces[0, 1]}; move or reject the wrong one first, or, if that is right, as in a "
            "collage or a mirror, say so: --same-photo for familiar gallery merge, move and split, else same_photo",
            [(first, second) for first, second in faces.tolist()],
            name,
        )
    return faces.reshape(-1).tolist()
