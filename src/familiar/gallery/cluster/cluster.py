"""Cluster the faces of a gallery into identities by their embeddings, within the user's corrections.

Existing assignments are kept: a face stays in its identity, and two existing identities are joined only by the user.
New faces join these identities or one another. `rebuild` releases the faces that are neither in a named identity nor
placed by the user.
"""

import numpy as np
from jaxtyping import Bool, Int64

from familiar.core.gallery_types import ClusterResult
from familiar.gallery.cluster.plan import Plan, adapt_plan, unassign_conflicts, write_plan
from familiar.gallery.same.album import Album, album_at, load_album, similar_bursts
from familiar.gallery.same.assignments import UNASSIGNED, GalleryAssignments, load_assignments
from familiar.gallery.same.constraints import build_constraints
from familiar.gallery.same.decisions import decision
from familiar.gallery.store.repository import Repository
from familiar.gallery.store.store import Store
from familiar.neighbors import clustering
from familiar.neighbors.brute_force import search
from familiar.neighbors.comparison import MIN_QUALITY

_NEIGHBORS = 60  # nearest faces whose identities a released face might join


def cluster(store: Store, *, threshold: float | None = None, rebuild: bool = False) -> ClusterResult:
    """Cluster all unassigned faces, as one decision that can be undone.

    Never together: two faces of one photo, unless the user said that they show one individual; faces that the user
    marked as different or rejected; and two existing identities. Together from the start: the faces of photos with one
    face each that were taken within ten seconds, if they are not too different (`similar_bursts`). Faces of a quality
    below .02 are only in an identity if the user put them there, or if it has a name. The result is deterministic.
    Other writers wait only while it is written.

    Args:
        store: the gallery to change.
        threshold: similarity in [-1, 1] from which two faces, compared as they are, show the same individual. None: as
            `load_album` measures it, by species.
        rebuild: also re-cluster the faces of unnamed identities, except those that the user put there. An identity
            keeps its number if most of it comes together again.
    """
    if rebuild:
        store.make_automatic_copy("before-rebuild")
    revision, plan = store.revision, _plan(store, threshold, rebuild)
    if store.revision != revision:  # other writers were faster; if they are again, what they changed stays as it is
        revision, plan = store.revision, _plan(store, threshold, rebuild)
    with decision(store, "cluster") as repository:
        last_face = int(plan.assignments.faces.ids.max(initial=0))
        if store.revision != revision:
            plan = adapt_plan(store, plan)
        repository.settings.mark_faces_clustered(last_face)
        return write_plan(repository, plan)


def recluster(
    store: Store, repository: Repository, released: Int64[np.ndarray, " k"], changed_identities: list[int]
) -> ClusterResult:
    """Re-cluster released faces, and let unassigned faces join changed identities, inside a decision's transaction.

    Args:
        store: the gallery to change.
        repository: of the open decision.
        released: ids of the faces to re-cluster.
        changed_identities: identities that similar unassigned faces may join.
    """
    assignments = load_assignments(store)
    album = load_album(store)
    free_mask = np.isin(assignments.faces.ids, released)
    unassigned = np.flatnonzero((assignments.identity == UNASSIGNED) & ~free_mask)
    for identity in changed_identities:
        members = assignments.rows_of_identity(identity)
        present: list[int] = np.unique(album.species[members]).tolist()
        for species in present:
            mean = album.rows[members[album.species[members] == species]].mean(axis=0)
            candidates = unassigned[album.species[unassigned] == species]
            min_product = np.linalg.norm(mean) * album.comparisons[species].threshold
            free_mask[candidates[album.rows[candidates] @ mean >= min_product]] = True
    rows = np.flatnonzero(free_mask)
    if not len(rows):
        return write_plan(repository, Plan(assignments, assignments.identity, album))
    neighbors, _ = search(album.rows, queries=album.rows[rows], k=min(_NEIGHBORS, len(album.rows)))
    nearby = {*changed_identities, *np.unique(assignments.identity[neighbors]).tolist()} - {UNASSIGNED}
    subset_mask = free_mask | np.isin(assignments.identity, list(nearby))
    fixed_identity = np.where(free_mask, UNASSIGNED, assignments.identity)
    return write_plan(repository, _compute_plan(store, assignments, album, fixed_identity, subset_mask))


def _plan(store: Store, threshold: float | None, rebuild: bool) -> Plan:
    with store.read():  # one snapshot: all have the same faces
        assignments = load_assignments(store)
        album = load_album(store) if threshold is None else album_at(assignments.faces, threshold)
    fixed_identity = assignments.identity.copy()
    if rebuild:
        is_named = np.isin(assignments.identity, np.array(list(assignments.names), np.int64))
        fixed_identity[~is_named & ~assignments.by_user] = UNASSIGNED
    return _compute_plan(store, assignments, album, fixed_identity, np.ones(len(fixed_identity), np.bool_))


def _compute_plan(
    store: Store,
    assignments: GalleryAssignments,
    album: Album,
    fixed_identity: Int64[np.ndarray, " n"],
    subset_mask: Bool[np.ndarray, " n"],
) -> Plan:
    """Cluster the faces in `subset_mask` around those that stay in their `fixed_identity`; the others do not change."""
    rows = np.flatnonzero(subset_mask & ((fixed_identity != UNASSIGNED) | (assignments.faces.quality >= MIN_QUALITY)))
    bursts = similar_bursts(store, album)
    constraints, seed_identities = build_constraints(store, assignments, fixed_identity, rows, bursts)
    clusters = np.zeros(len(rows), np.int64)
    for number, comparison in enumerate(album.comparisons):
        selected = np.flatnonzero(album.species[rows] == number)
        compared, within = album.rows[rows[selected]], constraints.select(selected)
        partition = clustering.cluster(compared, comparison.threshold, constraints=within)
        clusters[selected] = clusters.max(initial=-1) + 1 + partition
    fixed = fixed_identity[rows]
    labels = _label_clusters(clusters, constraints.seeds, seed_identities, assignments.identity[rows], fixed)
    identity = np.where(subset_mask, fixed_identity, assignments.identity)
    identity[rows] = unassign_conflicts(labels, fixed, constraints.cannot_link)
    return Plan(assignments, identity, album)


def _label_clusters(
    clusters: Int64[np.ndarray, " m"],
    seeds: Int64[np.ndarray, " m"],
    seed_identities: Int64[np.ndarray, " s"],
    previous_identity: Int64[np.ndarray, " m"],
    fixed_identity: Int64[np.ndarray, " m"],
) -> Int64[np.ndarray, " m"]:
    """Return the identity of each face, given its cluster.

    A cluster with a locked seed has the seed's identity. Any other cluster of two or more faces has the identity that
    most of its faces had before, where each previous identity goes to the cluster with most of its faces; or else a
    new identity, numbered downwards from below -1. A cluster of one face is unassigned.
    """
    cluster_count = clusters.max(initial=-1) + 1
    identity = np.full(cluster_count, UNASSIGNED, np.int64)  # of each cluster
    is_locked = (seeds != UNASSIGNED) & (seeds < len(seed_identities))
    identity[clusters[is_locked]] = seed_identities[seeds[is_locked]]
    sizes = np.bincount(clusters, minlength=cluster_count)
    needs_identity = (identity == UNASSIGNED) & (sizes > 1)
    released = (
        needs_identity[clusters]
        & (previous_identity != UNASSIGNED)
        & (fixed_identity == UNASSIGNED)
        & ~np.isin(previous_identity, seed_identities)
    )
    keys, counts = np.unique(previous_identity[released] * cluster_count + clusters[released], return_counts=True)
    reused: set[int] = set()
    for index in np.argsort(-counts, kind="stable"):
        number, cluster_index = divmod(int(keys[index]), int(cluster_count))
        if number not in reused and identity[cluster_index] == UNASSIGNED:
            identity[cluster_index] = number
            reused.add(number)
    new = np.flatnonzero(needs_identity & (identity == UNASSIGNED))
    identity[new] = min(UNASSIGNED, int(seed_identities.min(initial=UNASSIGNED))) - 1 - np.arange(len(new))
    return identity[clusters]
