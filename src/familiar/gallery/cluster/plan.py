"""Assignments that clustering has planned, and writing them, also where others have changed something since."""

from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Int64

from familiar.core.errors import GalleryBusy
from familiar.core.gallery_types import ClusterResult
from familiar.gallery.same.album import Album
from familiar.gallery.same.assignments import UNASSIGNED, GalleryAssignments, load_assignments
from familiar.gallery.same.constraints import are_together, build_constraints
from familiar.gallery.store.repository import Repository
from familiar.gallery.store.store import Store


@dataclass(frozen=True, eq=False)
class Plan:
    """Assignments to write.

    `identity[i]` is the identity that face i will have: -1 is unassigned; below -1 is an identity that is still to be
    created, one number for each new cluster. `assignments` are those before the change.
    """

    assignments: GalleryAssignments
    identity: Int64[np.ndarray, " n"]
    album: Album


def adapt_plan(store: Store, plan: Plan) -> Plan:
    """Adapt a plan to what others have changed since, within a transaction that writes it.

    A face that changed, and every face that the plan moves out of or into an identity in which one did, stays where it
    is now. New faces wait for the next clustering. Faces that must not be together by now are unassigned.

    Args:
        store: to write to.
        plan: of an earlier revision.

    Raises:
        GalleryBusy: the gallery was migrated to another model since.
    """
    now, before = load_assignments(store), plan.assignments
    if now.faces.embeddings.shape[1:] != before.faces.embeddings.shape[1:]:
        raise GalleryBusy(f"{store.folder}: was migrated to another model while it was clustered; cluster it again")
    _, rows, planned = np.intersect1d(now.faces.ids, before.faces.ids, assume_unique=True, return_indices=True)
    is_changed = (now.identity[rows] != before.identity[planned]) | (now.by_user[rows] != before.by_user[planned])
    deleted = np.setdiff1d(before.identity, now.identity)
    renamed = [number for number, _ in now.names.items() ^ before.names.items()]
    changed = now.identity[rows[is_changed]], before.identity[planned[is_changed]]
    touched = np.unique(np.concatenate([*changed, deleted, np.array(renamed, np.int64)]))
    touched = touched[touched != UNASSIGNED]
    target = plan.identity[planned]
    moves = ~is_changed & (target != now.identity[rows])
    moves &= ~np.isin(target, touched) & ~np.isin(now.identity[rows], touched)
    identity = now.identity.copy()
    identity[rows[moves]] = target[moves]
    fixed_identity = np.where(identity == now.identity, identity, UNASSIGNED)
    constraints, _ = build_constraints(store, now, fixed_identity, np.arange(len(identity)))
    identity = unassign_conflicts(identity, fixed_identity, constraints.cannot_link)
    is_new = identity < UNASSIGNED
    sizes = np.bincount(UNASSIGNED - identity[is_new])
    identity[is_new] = np.where(sizes[UNASSIGNED - identity[is_new]] > 1, identity[is_new], UNASSIGNED)
    return replace(plan, assignments=now, identity=identity)


def write_plan(repository: Repository, plan: Plan) -> ClusterResult:
    """Write the assignments that change, and delete unnamed identities that have no face any more."""
    assignments, identity = plan.assignments, plan.identity.copy()
    new_count = int(UNASSIGNED - identity.min(initial=UNASSIGNED))
    last_identity = repository.identities.last_number()
    repository.identities.insert(last_identity + 1 + index for index in range(new_count))
    identity = np.where(identity < UNASSIGNED, last_identity + UNASSIGNED - identity, identity)
    changed = np.flatnonzero(identity != assignments.identity)
    is_removed, ids = identity[changed] == UNASSIGNED, assignments.faces.ids
    repository.assignments.unassign(ids[changed[is_removed]].tolist())
    moved = changed[~is_removed]
    repository.assignments.assign_by_clustering(zip(ids[moved].tolist(), identity[moved].tolist(), strict=True))
    repository.identities.delete_empty()
    assigned = identity[identity != UNASSIGNED]
    return ClusterResult(
        identities=len(np.unique(assigned)),
        faces=len(assigned),
        unassigned=len(identity) - len(assigned),
        changed=len(changed),
        threshold=plan.album.comparisons[plan.album.main].threshold,
    )


def unassign_conflicts(
    identity: Int64[np.ndarray, " m"],
    fixed_identity: Int64[np.ndarray, " m"],
    cannot_link: Int64[np.ndarray, "p 2"],
) -> Int64[np.ndarray, " m"]:
    """Unassign one face of each cannot-link pair that ended up in one identity: the one that is not fixed there.

    Clusters respect cannot-link pairs, but an identity with faces of two species consists of two clusters.
    """
    first, second = cannot_link[are_together(cannot_link, identity)].T
    result = identity.copy()
    result[np.where(fixed_identity[second] == UNASSIGNED, second, first)] = UNASSIGNED
    return result
