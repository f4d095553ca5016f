"""What is known before faces are grouped: who is together, and who can never be."""

import numpy as np
from jaxtyping import Bool, Int64

from familiar.gallery.clustering.assignments import UNASSIGNED, FaceAssignments
from familiar.gallery.database.connection import FaceTable, Gallery
from familiar.neighbors.constraints import Constraints


def build_constraints(
    gallery: Gallery, who: FaceAssignments, kept: Int64[np.ndarray, " n"], rows: Int64[np.ndarray, " m"]
) -> tuple[Constraints, Int64[np.ndarray, " s"]]:
    """What holds for the faces in `rows`, where those whose identity is `kept` stay in it.

    The first seeds are identities, each settled, and their numbers are told; then come faces that the user called the
    same. Apart are faces of one photo, those that the user told apart, and a face and an identity it was rejected from.
    """
    seeds, numbers = _seeds(gallery, who, kept[rows], rows)
    settled: Bool[np.ndarray, " s"] = np.arange(int(seeds.max(initial=UNASSIGNED)) + 1) < len(numbers)
    return Constraints(seeds, settled, _apart(gallery, who, kept, rows, seeds)), numbers


def _seeds(
    gallery: Gallery, who: FaceAssignments, kept: Int64[np.ndarray, " m"], rows: Int64[np.ndarray, " m"]
) -> tuple[Int64[np.ndarray, " m"], Int64[np.ndarray, " s"]]:
    """What starts together: the faces of an identity, then those that the user called the same. The former's numbers.

    `seeds` below the count of these are settled.
    """
    numbers = np.unique(kept[kept != UNASSIGNED])
    seeds = np.where(kept == UNASSIGNED, UNASSIGNED, np.searchsorted(numbers, kept))
    free = len(numbers)
    for first, second in _pairs(gallery, who.faces, rows, same=True).tolist():
        if seeds[first] == seeds[second] == UNASSIGNED:
            seeds[first] = seeds[second] = free
            free += 1
        elif UNASSIGNED in (seeds[first], seeds[second]):
            seeds[first] = seeds[second] = max(seeds[first], seeds[second])
        elif max(seeds[first], seeds[second]) >= len(numbers):
            low, high = sorted((int(seeds[first]), int(seeds[second])))
            seeds[seeds == high] = low
    # Seeds that came together leave gaps among those that are not settled.
    loose = seeds >= len(numbers)
    seeds[loose] = len(numbers) + np.unique(seeds[loose], return_inverse=True)[1]
    return seeds.astype(np.int64), numbers


def _apart(
    gallery: Gallery,
    who: FaceAssignments,
    kept: Int64[np.ndarray, " n"],
    rows: Int64[np.ndarray, " m"],
    seeds: Int64[np.ndarray, " m"],
) -> Int64[np.ndarray, "p 2"]:
    """Places among `rows` that are never one individual."""
    pairs = np.concatenate(
        [
            _in_one_photo(who.faces.photo_ids[rows]),
            _pairs(gallery, who.faces, rows, same=False),
            _rejected(gallery, who.faces, who.identity, kept, rows),
        ]
    )
    # The user's word goes before all: what was put together stays so.
    together = (seeds[pairs[:, 0]] == seeds[pairs[:, 1]]) & (seeds[pairs[:, 0]] != UNASSIGNED)
    return pairs[~together]


def _in_one_photo(photos: Int64[np.ndarray, " m"]) -> Int64[np.ndarray, "p 2"]:
    order = np.argsort(photos, kind="stable")
    ends = np.flatnonzero(np.diff(photos[order], append=-1)) + 1
    starts = np.concatenate([[0], ends[:-1]])
    several = np.flatnonzero(ends - starts > 1)
    pairs = [np.empty((0, 2), np.int64)]
    for first, end in zip(starts[several], ends[several], strict=True):
        one, other = np.triu_indices(end - first, 1)
        pairs.append(np.stack([order[first + one], order[first + other]], axis=1))
    return np.concatenate(pairs)


def _pairs(
    gallery: Gallery, faces: FaceTable, rows: Int64[np.ndarray, " m"], *, same: bool
) -> Int64[np.ndarray, "p 2"]:
    with gallery.reading() as connection:
        told = connection.execute("SELECT first_face, second_face FROM constraints WHERE same = ?", (same,)).fetchall()
    return _places(np.array(told, np.int64).reshape(-1, 2), faces.ids[rows])


def _rejected(
    gallery: Gallery,
    faces: FaceTable,
    before: Int64[np.ndarray, " n"],
    kept: Int64[np.ndarray, " n"],
    rows: Int64[np.ndarray, " m"],
) -> Int64[np.ndarray, "p 2"]:
    """A face and any one of those who hold the identity it is not."""
    with gallery.reading() as connection:
        told = connection.execute("SELECT face_id, identity_id FROM rejections").fetchall()
    numbers, first = np.unique(kept[rows], return_index=True)
    holders = {int(number): [int(faces.ids[rows[place]])] for number, place in zip(numbers, first, strict=True)}
    for number in {number for _, number in told} - holders.keys():
        # Nobody holds it for certain: whichever of those who had it is given it again shall not bring the face with it.
        holders[number] = faces.ids[rows[before[rows] == number]].tolist()
    known = [(face, holder) for face, number in told for holder in holders[number] if holder != face]
    return _places(np.array(known, np.int64).reshape(-1, 2), faces.ids[rows])


def _places(pairs: Int64[np.ndarray, "p 2"], ids: Int64[np.ndarray, " m"]) -> Int64[np.ndarray, "q 2"]:
    """Pairs of faces as places among the rising `ids`; those not among them are left out."""
    if not len(ids):
        return np.empty((0, 2), np.int64)
    at = np.minimum(np.searchsorted(ids, pairs), len(ids) - 1)
    return at[(ids[at] == pairs).all(axis=1)].astype(np.int64)
