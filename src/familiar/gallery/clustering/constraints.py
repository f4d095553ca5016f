"""Must-link and cannot-link constraints on the faces of a gallery, from its photos and the user's corrections."""

from collections.abc import Sequence
from datetime import datetime
from itertools import pairwise

import numpy as np
from jaxtyping import Bool, Int64

from familiar.gallery.clustering.assignments import UNASSIGNED, FaceAssignments
from familiar.gallery.store.store import Store
from familiar.neighbors.constraints import Constraints

BURST_SECONDS = 10
"""Photos taken within so many seconds of each other probably show the same individual."""


def build_constraints(
    gallery: Store,
    assignments: FaceAssignments,
    fixed_identity: Int64[np.ndarray, " n"],
    rows: Int64[np.ndarray, " m"],
) -> tuple[Constraints, Int64[np.ndarray, " s"]]:
    """Build the constraints for clustering the faces in `rows`.

    Must-link: the faces of one fixed identity, and pairs that the user marked as the same individual. Cannot-link:
    faces of one photo, pairs that the user marked as different, and a face and an identity it was rejected from. Where
    the two contradict each other, must-link wins: so two faces of one photo share an identity if the user said so.

    Args:
        gallery: where the corrections are stored.
        assignments: of all n faces, before clustering.
        fixed_identity: of all n faces, the identity that a face stays in, or `UNASSIGNED`.
        rows: rising rows of the faces that are clustered.

    Returns:
        The constraints, and the identity of each of the first s seeds. These are locked: no two of them are ever
        joined. The seeds after them are faces that the user marked as the same and that are in no fixed identity.
    """
    must_link = _constraint_pairs(gallery, assignments.faces.ids[rows], same=True)
    seeds, seed_identities = _seeds(fixed_identity[rows], must_link)
    locked: Bool[np.ndarray, " s"] = np.arange(int(seeds.max(initial=UNASSIGNED)) + 1) < len(seed_identities)
    cannot_link = np.concatenate(
        [
            same_photo_pairs(assignments.faces.photo_ids[rows]),
            _constraint_pairs(gallery, assignments.faces.ids[rows], same=False),
            _rejection_pairs(gallery, assignments, fixed_identity, rows),
        ]
    )
    return Constraints(seeds, locked, cannot_link[~are_together(cannot_link, seeds)]), seed_identities


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
    components = _UnionFind()
    for first, second in nodes[must_link].tolist():
        low, high = sorted((components.root(first), components.root(second)))
        if high >= len(identities):
            components.join(high, low)
    seed_of_root: dict[int, int] = {}
    for row in must_link.reshape(-1).tolist():
        root = components.root(int(nodes[row]))
        if root < len(identities):
            seeds[row] = root
        else:
            seeds[row] = seed_of_root.setdefault(root, len(identities) + len(seed_of_root))
    return seeds, identities


class _UnionFind:
    """Disjoint sets of integers. A number that was never joined is a set of its own."""

    def __init__(self) -> None:
        self._parent: dict[int, int] = {}

    def root(self, node: int) -> int:
        """Return the number that represents the node's set."""
        root = node
        while root in self._parent:
            root = self._parent[root]
        while node != root:  # path compression
            self._parent[node], node = root, self._parent[node]
        return root

    def join(self, root: int, new_root: int) -> None:
        """Add the set of `root` to that of `new_root`; nothing changes if they are the same."""
        if root != new_root:
            self._parent[root] = new_root


def same_photo_pairs(photos: Int64[np.ndarray, " m"]) -> Int64[np.ndarray, "p 2"]:
    """List all pairs of rows that are faces of one photo."""
    order = np.argsort(photos, kind="stable")
    ends = np.flatnonzero(np.diff(photos[order], append=-1)) + 1
    starts = np.concatenate([[0], ends[:-1]])
    several = np.flatnonzero(ends - starts > 1)
    pairs = [np.empty((0, 2), np.int64)]
    for start, end in zip(starts[several], ends[several], strict=True):
        first, second = np.triu_indices(end - start, 1)
        pairs.append(np.stack([order[start + first], order[start + second]], axis=1))
    return np.concatenate(pairs)


def gallery_photo_pairs(gallery: Store) -> Int64[np.ndarray, "p 2"]:
    """List all pairs of a gallery's rows that are faces of one photo; cached until its faces change."""
    faces = gallery.faces()
    return gallery.cached("pairs in one photo", faces.revision, lambda: same_photo_pairs(faces.photo_ids))


def are_together(pairs: Int64[np.ndarray, "p 2"], identity: Int64[np.ndarray, " n"]) -> Bool[np.ndarray, " p"]:
    """Tell of each pair of rows whether both are in the same identity, and not both unassigned."""
    first, second = identity[pairs].T
    return (first == second) & (first != UNASSIGNED)


def burst_pairs(photos: Int64[np.ndarray, " m"], times: Sequence[tuple[int, str]]) -> Int64[np.ndarray, "p 2"]:
    """List pairs of rows whose photos were taken one right after the other, each of them with a single face.

    Such a pair shows the same individual in nearly all cases. It is no constraint, as it need not.

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


def _constraint_pairs(gallery: Store, ids: Int64[np.ndarray, " m"], *, same: bool) -> Int64[np.ndarray, "p 2"]:
    """List the pairs of rows that the user marked as the same individual, or as different ones."""
    with gallery.read() as repository:
        pairs = repository.constraints.pairs(same=same)
    return _pairs_of_rows(np.array(pairs, np.int64).reshape(-1, 2), ids)


def _rejection_pairs(
    gallery: Store,
    assignments: FaceAssignments,
    fixed_identity: Int64[np.ndarray, " n"],
    rows: Int64[np.ndarray, " m"],
) -> Int64[np.ndarray, "p 2"]:
    """Pair each rejected face with faces that represent the identity it was rejected from.

    The faces of a fixed identity stay together, so one of them represents it. If no face is fixed in the identity, any
    of its previous faces may receive its number again, so each of them counts.
    """
    with gallery.read() as repository:
        rejections = repository.constraints.rejections()
    ids = assignments.faces.ids[rows]
    identities, first_rows = np.unique(fixed_identity[rows], return_index=True)
    representatives = {int(identity): [int(ids[row])] for identity, row in zip(identities, first_rows, strict=True)}
    for identity in {identity for _, identity in rejections} - representatives.keys():
        representatives[identity] = ids[assignments.identity[rows] == identity].tolist()
    pairs = [
        (face, representative)
        for face, identity in rejections
        for representative in representatives[identity]
        if representative != face
    ]
    return _pairs_of_rows(np.array(pairs, np.int64).reshape(-1, 2), ids)


def _pairs_of_rows(pairs: Int64[np.ndarray, "p 2"], ids: Int64[np.ndarray, " m"]) -> Int64[np.ndarray, "q 2"]:
    """Convert pairs of face ids to pairs of indices into the rising `ids`, leaving out pairs of other faces."""
    if not len(ids):
        return np.empty((0, 2), np.int64)
    indices = np.minimum(np.searchsorted(ids, pairs), len(ids) - 1)
    return indices[(ids[indices] == pairs).all(axis=1)].astype(np.int64)
