"""Adapt a query embedding to the domain it belongs to, as the gallery's faces are adapted for clustering."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float32, Int64

from familiar.gallery.clustering.assignments import FaceAssignments
from familiar.gallery.clustering.calibration import clustering_calibration
from familiar.gallery.store.store import Store
from familiar.neighbors.domains import DOMAIN_THRESHOLD, IN_DOMAIN, DomainCentroid, assign_domain, domain_centroids
from familiar.neighbors.whitening import whiten_to_domain


@dataclass(frozen=True, eq=False)
class AdaptedQuery:
    """A query embedding whitened for one domain; unchanged in `IN_DOMAIN`.

    Attributes:
        domain: the domain of the faces that the query is compared with.
        query: unit vector.
        adapted: whitened embeddings of all faces of the domain; None for `IN_DOMAIN`.
        shift: to be added to a similarity within the domain before the calibration curve, which is an in-domain one,
            is applied.
    """

    domain: int
    query: Float32[np.ndarray, " d"]
    adapted: Float32[np.ndarray, "m d"] | None = None
    shift: float = 0.0

    def vectors(self, assignments: FaceAssignments, rows: Int64[np.ndarray, " k"]) -> Float32[np.ndarray, "k d"]:
        """Return the embeddings to compare the query with, of faces of its domain."""
        if self.adapted is None:
            return assignments.faces.unit_rows(rows)
        return self.adapted[np.searchsorted(np.flatnonzero(assignments.domain == self.domain), rows)]


def adapt_query(gallery: Store, assignments: FaceAssignments, query: Float32[np.ndarray, " d"]) -> AdaptedQuery:
    """Assign a query to a domain of the gallery, and whiten it together with the faces of that domain."""

    def compute_centroids() -> list[DomainCentroid]:
        rows = np.flatnonzero(assignments.domain != IN_DOMAIN)
        return domain_centroids(assignments.faces.unit_rows(rows), assignments.domain[rows])

    centroids = gallery.cached(f"domain centroids at {len(query)}", gallery.revision, compute_centroids)
    (domain,) = assign_domain(query[None], centroids).tolist()
    part = assignments.faces.part_of_query(query)
    if domain == IN_DOMAIN:
        return AdaptedQuery(IN_DOMAIN, query)
    rows = np.flatnonzero(assignments.domain == domain)
    adapted = whiten_to_domain(np.concatenate([assignments.faces.unit_rows(rows), query[None]]))
    threshold = clustering_calibration(gallery, part).threshold
    return AdaptedQuery(domain, adapted[-1], adapted[:-1], threshold - DOMAIN_THRESHOLD)
