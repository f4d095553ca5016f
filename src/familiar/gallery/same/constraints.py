"""Must-link and cannot-link constraints on the faces of a gallery, from its photos and the user's corrections."""

from collections.abc import Sequence
from datetime import datetime
from itertools import pairwise

import numpy as np
from jaxtyping import Bool, Int64
from numpy.typing import ArrayLike

from familiar.gallery.same.assignments import UNASSIGNED, GalleryAssignments
from familiar.gallery.store.face_table import EmbeddingTable
from familiar.gallery.store.store import Store
from familiar.neighbors.constraints import Constraints

BURST_SECONDS = 10
"""Photos taken within so many seconds of each other probably show the same individual."""
_NO_PAIRS = np.empty((0, 2), np.int64)


def build_constraints(
    store: Store,
    assignments: GalleryAssignments,
    fixed_identity: Int64[np.ndarray, " n"],
    rows: Int64[np.ndarray, " m"],
    bursts: Int64[np.ndarray, "b 2"] = _NO_PAIRS,
) -> tuple[Constraints, Int64[np.ndarray, " s"]]:
    """Build the constraints for clustering the faces in `rows`.

    Must-link: the faces of one fixed identity, pairs that the user marked as the same individual, and bursts.
    Cannot-link: faces of one photo, pairs that the user marked as different, and a face and an identity it was rejected
    from. Where the two contradict each other, must-link wins: so two faces of one photo share an identity if the user
    said so. But a face that must not be together with another one is linked by no burst.

    Args:
        store: where the corrections are stored.
        assignments: of all n faces, before clustering.
        fixed_identity: of all n faces, the identity that a face stays in, or `UNASSIGNED`.
        rows: rising rows of the faces that are clustered.
        bursts: pairs of all n faces that were photographed one right after the other.

    Returns:
        The constraints, and the identity of each of the first s seeds. These are locked: no two of them are ever
        joined. The seeds after them are faces that the user marked as the same and that are in no fixed identity.
    """
    must_link = marked_pairs(store, assignments.faces.ids[rows], same=True)
    cannot_link = cannot_link_pairs(store, assignments, fixed_identity, rows)
    linked = _indices_of_pairs(bursts, rows)
    linked = linked[~np.isin(linked, cannot_link).any(axis=1)]
    seeds, seed_identities = _seeds(fixed_identity[rows], np.concatenate([must_link, linked]))
    locked: Bool[np.ndarray, " s"] = np.arange(int(seeds.max(initial=UNASSIGNED)) + 1) < len(seed_identities)
    return Constraints(seeds, locked, cannot_link[~are_together(cannot_link, seeds)]), seed_identities


def cannot_link_pairs(
    store: Store,
    assignments: GalleryAssignments,
    fixed_identity: Int64[np.ndarray, " n"],
    rows: Int64[np.ndarray, " m"],
) -> Int64[np.ndarray, "p 2"]:
    """List all cannot-link pairs among `rows`, as indices into them; the arguments are those of `build_constraints`.

    A rejected face is paired with faces that represent the identity it was rejected from. The faces of a fixed identity
    stay together, so one of them represents it. If no face is fixed in the identity, any of its previous faces may
    receive its number again, so each of them counts.
    """
    with store.read() as repository:
        rejections = repository.constraints.rejections()
    ids = assignments.faces.ids[rows]
    identities, first_rows = np.unique(fixed_identity[rows], return_index=True)
    representatives = {int(identity): [int(ids[row])] for identity, row in zip(identities, first_rows, strict=True)}
    for identity in {identity for _, identity in rejections} - representatives.keys():
        representatives[identity] = ids[assignments.identity[rows] == identity].tolist()
    rejected = [
        (face, representative)
        for face, identity in rejections
        for representative in representatives[identity]
        if representative != face
    ]
    return np.concatenate(
        [
            _indices_of_pairs(gallery_photo_pairs(store, assignments.faces), rows),
            marked_pairs(store, ids, same=False),
            _indices_of_pairs(rejected, ids),
        ]
    )


def _seeds(
    fixed_identity: Int64[np.ndarray, " m"], must_link: Int64[np.ndarray, "p 2"]
) -> tuple[Int64[np.ndarray, " m"], Int64[np.ndarray, " s"]]:
    """Number the sets of rows that start as one cluster: connected components of must-link pairs.

    A component contains at most one fixed identity: a pair that would join two of them is ignored, and of two pairs
    that would join a component to different identities the first counts.

    Returns:
        The seed of each row, or `UNASSIGNED` for a row without any must-link; and the identities of the first s
        seeds, rising. Other seeds are numbered by their first pair.
    """
    identities = np.unique(fixed_identity[fixed_identity != UNASSIGNED])
    is_fixed = fixed_identity != UNASSIGNED
    seeds = np.where(is_fixed, np.searchsorted(identities, fixed_identity), UNASSIGNED).astype(np.int64)
    # A node is a fixed identity (by its index) or, after these, a row that is in none. The smaller root wins, so that
    # a component that contains an identity has that identity as its root.
    nodes = np.where(is_fixed, seeds, len(identities) + np.arange(len(seeds)))
    parent: dict[int, int] = {}

    def root(node: int) -> int:
        while node in parent:
            parent[node] = parent.get(parent[node], parent[node])  # path halving
            node = parent[node]
        return node

    for first, second in nodes[must_link].tolist():
        low, high = sorted((root(first), root(second)))
        if low < high and high >= len(identities):
            parent[high] = low
    seed_of_root: dict[int, int] = {}
    for row in must_link.reshape(-1).tolist():
        component = root(int(nodes[row]))
        if component < len(identities):
            seeds[row] = component
        else:
            seeds[row] = seed_of_root.setdefault(component, len(identities) + len(seed_of_root))
    return seeds, identities


def same_photo_pairs(photos: Int64[np.ndarray, " m"]) -> Int64[np.ndarray, "p 2"]:
    """List all pairs of rows that are faces of one photo."""
    _, numbers, counts = np.unique(photos, return_inverse=True, return_counts=True)
    shared = np.flatnonzero(counts[numbers] > 1)
    shared = shared[np.argsort(numbers[shared], kind="stable")]
    by_photo = np.split(shared, np.cumsum(counts[counts > 1])[:-1])
    pairs = (rows[np.stack(np.triu_indices(len(rows), 1), axis=1)] for rows in by_photo)
    return np.concatenate([np.empty((0, 2), np.int64), *pairs])


def gallery_photo_pairs(store: Store, faces: EmbeddingTable) -> Int64[np.ndarray, "p 2"]:
    """List all pairs of a gallery's rows that are faces of one photo; cached until its faces change."""
    return store.cached("pairs in one photo", faces.revision, lambda: same_photo_pairs(faces.photo_ids))


def gallery_burst_pairs(store: Store, faces: EmbeddingTable) -> Int64[np.ndarray, "p 2"]:
    """List a gallery's `burst_pairs`; cached until its faces change."""

    def compute() -> Int64[np.ndarray, "p 2"]:
        with store.read() as repository:
            return burst_pairs(faces.photo_ids, repository.photos.times())

    return store.cached("pairs in bursts", faces.revision, compute)


def are_together(pairs: Int64[np.ndarray, "p 2"], identity: Int64[np.ndarray, " n"]) -> Bool[np.ndarray, " p"]:
    """Tell of each pair of rows whether both are in the same identity, and not both unassigned."""
    first, second = identity[pairs].T
    return (first == second) & (first != UNASSIGNED)


def burst_pairs(photos: Int64[np.ndarray, " m"], times: Sequence[tuple[int, str]]) -> Int64[np.ndarray, "p 2"]:
    """List pairs of rows whose photos were taken one right after the other, each of them with a single face.

    Such a pair shows the same individual in nearly all cases.

    Args:
        photos: of each row.
        times: photo and time (ISO 8601) in the order of time; photos without any row may be among them.
    """
    numbers, first_row, counts = np.unique(photos, return_index=True, return_counts=True)
    row_of_photo = {
        int(number): int(row) for number, row, count in zip(numbers, first_row, counts, strict=True) if count == 1
    }
    pairs = [
        (row_of_photo[earlier], row_of_photo[later])
        for (earlier, start), (later, end) in pairwise(times)
        if earlier in row_of_photo and later in row_of_photo and _seconds_between(start, end) <= BURST_SECONDS
    ]
    return np.array(pairs, np.int64).reshape(-1, 2)


def _seconds_between(start: str, end: str) -> float:
    return (datetime.fromisoformat(end) - datetime.fromisoformat(start)).total_seconds()


def marked_pairs(store: Store, ids: Int64[np.ndarray, " m"], *, same: bool) -> Int64[np.ndarray, "p 2"]:
    """List the pairs of indices into the rising `ids` that the user marked as one individual, or as different ones."""
    with store.read() as repository:
        return _indices_of_pairs(repository.constraints.pairs(same=same), ids)


def _indices_of_pairs(pairs: ArrayLike, numbers: Int64[np.ndarray, " m"]) -> Int64[np.ndarray, "q 2"]:
    """Convert pairs of numbers to pairs of indices into the rising `numbers`, leaving out pairs of others."""
    listed = np.array(pairs, np.int64).reshape(-1, 2)
    if not len(numbers):
        return listed[:0]
    indices = np.minimum(np.searchsorted(numbers, listed), len(numbers) - 1)
    return indices[(numbers[indices] == listed).all(axis=1)].astype(np.int64)
