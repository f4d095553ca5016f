"""What each identity looks like as a whole: the sum of its faces' embeddings, and the faces most like it."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Float32, Int64

from familiar.core.blockwise import blocks
from familiar.gallery.clustering.assignments import UNASSIGNED, FaceAssignments

_ROWS_AT_ONCE = 1 << 14  # in float32: 8 MB of 128 dimensions


@dataclass(frozen=True, eq=False)
class Templates:
    """Identities by rising number. Those of `rows` from `starts[i]` on are the faces of `numbers[i]`, rising too;
    `sums[i]` is the sum of their embeddings, which points where their mean does."""

    numbers: Int64[np.ndarray, " i"]
    rows: Int64[np.ndarray, " m"]
    starts: Int64[np.ndarray, " i"]
    sums: Float32[np.ndarray, "i d"]

    @property
    def sizes(self) -> Int64[np.ndarray, " i"]:
        return np.diff(self.starts, append=len(self.rows))

    @cached_property
    def lengths(self) -> Float32[np.ndarray, " i"]:
        """Of the sums."""
        return np.linalg.norm(self.sums, axis=1)

    @property
    def places(self) -> Int64[np.ndarray, " m"]:
        """Of each of the rows, the place of its identity."""
        return np.repeat(np.arange(len(self.numbers)), self.sizes)

    def rows_of(self, place: int) -> Int64[np.ndarray, " k"]:
        end = self.starts[place + 1] if place + 1 < len(self.starts) else len(self.rows)
        return self.rows[self.starts[place] : end]


def templates(
    who: FaceAssignments, rows: Int64[np.ndarray, " k"], vectors: Float32[np.ndarray, "k d"] | None = None
) -> Templates:
    """Of those among the faces in `rows`, rising, that are somebody's; `vectors` if they are seen another way."""
    held = np.flatnonzero(who.identity[rows] != UNASSIGNED)
    held = held[np.argsort(who.identity[rows[held]], kind="stable")]
    numbers, starts = np.unique(who.identity[rows[held]], return_index=True)
    places = np.repeat(np.arange(len(numbers)), np.diff(starts, append=len(held)))
    sums = np.zeros((len(numbers), who.faces.embeddings.shape[1]), np.float32)
    for part in blocks(len(held), 1, _ROWS_AT_ONCE):
        some = who.faces.unit_rows(rows[held[part]]) if vectors is None else vectors[held[part]]
        here, first = np.unique(places[part], return_index=True)
        sums[here] += np.add.reduceat(some, first, axis=0)
    return Templates(numbers, rows[held], starts.astype(np.int64), sums)


def central_faces(who: FaceAssignments, of: Templates, most: int) -> Int64[np.ndarray, "i most"]:
    """Rows of the faces that stand for each identity, from different photos, filled up with -1.

    Those that the user confirmed come first, and of these as of the others those most like all: the first is the
    `central_face`.
    """
    likeness = np.empty(len(of.rows), np.float32)
    places = of.places
    for part in blocks(len(of.rows), 1, _ROWS_AT_ONCE):
        likeness[part] = np.einsum("nd,nd->n", who.faces.unit_rows(of.rows[part]), of.sums[places[part]])
    order = np.lexsort((-likeness, ~who.by_user[of.rows], places))  # within each identity: the places stay
    numbers, photos = np.unique(who.faces.photo_ids[of.rows[order]], return_inverse=True)
    first = np.sort(np.unique(places * len(numbers) + photos, return_index=True)[1])  # face of a photo
    rank = np.arange(len(first)) - np.searchsorted(places[first], places[first])
    few = first[rank < most]
    found = np.full((len(of.numbers), most), UNASSIGNED, np.int64)
    found[places[few], rank[rank < most]] = of.rows[order[few]]
    return found
