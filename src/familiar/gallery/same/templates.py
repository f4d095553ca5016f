"""Identity templates: the sum of each identity's embeddings, and the faces most similar to it."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float32, Int64

from familiar.core.blockwise import blocks
from familiar.gallery.same.assignments import UNASSIGNED, GalleryAssignments

_BLOCK_ROWS = 1 << 14  # 8 MB in float32 with 128 dimensions


@dataclass(frozen=True, eq=False)
class Templates:
    """The templates of identities.

    Attributes:
        numbers: identity numbers, rising.
        rows: rows of the identities' faces: from `starts[i]` on those of `numbers[i]`, rising.
        starts: index into `rows` of each identity's first face, and last the number of `rows`.
        indices: index into `numbers` of each of the `rows`.
        sums: sum of each identity's embeddings, which has the direction of their mean.
        norms: the Euclidean norms of `sums`.
    """

    numbers: Int64[np.ndarray, " i"]
    rows: Int64[np.ndarray, " m"]
    starts: Int64[np.ndarray, " i+1"]
    indices: Int64[np.ndarray, " m"]
    sums: Float32[np.ndarray, "i d"]
    norms: Float32[np.ndarray, " i"]

    def rows_of(self, index: int) -> Int64[np.ndarray, " k"]:
        """Return the rows of the faces of `numbers[index]`."""
        return self.rows[self.starts[index] : self.starts[index + 1]]


def compute_templates(assignments: GalleryAssignments, rows: Int64[np.ndarray, " k"]) -> Templates:
    """Compute the templates of the identities that have faces among `rows`.

    Args:
        assignments: of all faces.
        rows: rising rows of the faces that count; unassigned ones are ignored.
    """
    assigned = rows[assignments.identity[rows] != UNASSIGNED]
    assigned = assigned[np.argsort(assignments.identity[assigned], kind="stable")]
    numbers, starts, indices = np.unique(assignments.identity[assigned], return_index=True, return_inverse=True)
    sums = np.zeros((len(numbers), assignments.faces.embeddings.shape[1]), np.float32)
    for block in blocks(len(assigned), 1, _BLOCK_ROWS):
        block_identities, first = np.unique(indices[block], return_index=True)
        sums[block_identities] += np.add.reduceat(assignments.faces.unit_rows(assigned[block]), first, axis=0)
    ends = np.append(starts, len(assigned)).astype(np.int64)
    return Templates(numbers, assigned, ends, indices, sums, np.linalg.norm(sums, axis=1))


def central_faces(assignments: GalleryAssignments, templates: Templates, count: int) -> Int64[np.ndarray, "i count"]:
    """Choose the faces that represent each identity, from different photos.

    Faces that the user confirmed come first, and within these as within the others the most similar to the template.
    The first one is `GalleryAssignments.central_face`.

    Returns:
        Rows of at most `count` faces of each identity, filled up with -1.
    """
    similarity = np.empty(len(templates.rows), np.float32)
    identity_indices = templates.indices
    for block in blocks(len(templates.rows), 1, _BLOCK_ROWS):
        vectors = assignments.faces.unit_rows(templates.rows[block])
        similarity[block] = np.einsum("nd,nd->n", vectors, templates.sums[identity_indices[block]])
    # Sorted within each identity only, so `identity_indices` holds for the sorted rows too.
    order = np.lexsort((-similarity, ~assignments.by_user[templates.rows], identity_indices))
    photos, photo_index = np.unique(assignments.faces.photo_ids[templates.rows[order]], return_inverse=True)
    first_of_photo = np.sort(np.unique(identity_indices * len(photos) + photo_index, return_index=True)[1])
    candidates = identity_indices[first_of_photo]
    rank = np.arange(len(first_of_photo)) - np.searchsorted(candidates, candidates)
    selected = first_of_photo[rank < count]
    result = np.full((len(templates.numbers), count), UNASSIGNED, np.int64)
    result[identity_indices[selected], rank[rank < count]] = templates.rows[order[selected]]
    return result
