"""Adapt a query embedding to the domain it belongs to, as the gallery's faces are adapted for clustering."""

from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float32, Int64

from familiar.core.calibration import Calibration
from familiar.gallery.same.assignments import GalleryAssignments, load_assignments
from familiar.gallery.same.calibration import calibration_at, clustering_calibration
from familiar.gallery.store.store import Store
from familiar.neighbors.domains import DOMAIN_THRESHOLD, IN_DOMAIN, DomainCentroid, assign_domain, domain_centroids
from familiar.neighbors.whitening import whiten_to_domain


@dataclass(frozen=True, eq=False)
class AdaptedQuery:
    """A query embedding whitened for one domain, and what it is compared with; unchanged in `IN_DOMAIN`.

    Attributes:
        assignments: of all faces, as they are compared with embeddings of the query's length.
        part: of the space, that the query is compared with.
        model: the calibration of its similarities.
        threshold: the clustering threshold of these, in `IN_DOMAIN`.
        query: unit vector.
        domain: the domain of the faces that the query is compared with.
        adapted: whitened embeddings of all faces of the domain; None for `IN_DOMAIN`.
        shift: to be added to a similarity within the domain before the calibration curve, which is an in-domain one,
            is applied.
    """

    assignments: GalleryAssignments
    part: int
    model: Calibration
    threshold: float
    query: Float32[np.ndarray, " d"]
    domain: int = IN_DOMAIN
    adapted: Float32[np.ndarray, "m d"] | None = None
    shift: float = 0.0

    def vectors(self, rows: Int64[np.ndarray, " k"]) -> Float32[np.ndarray, "k d"]:
        """Return the embeddings to compare the query with, of faces of its domain."""
        if self.adapted is None:
            return self.assignments.faces.unit_rows(rows)
        return self.adapted[np.searchsorted(np.flatnonzero(self.assignments.domain == self.domain), rows)]


def plain_query(store: Store, query: Float32[np.ndarray, " d"]) -> AdaptedQuery:
    """Subtract from a query what is subtracted from the gallery's faces of its part; it is not adapted to a domain."""
    faces = store.faces_at(len(query))
    part = faces.part_of_query(query)
    return AdaptedQuery(
        replace(load_assignments(store), faces=faces),
        part,
        calibration_at(store, len(query), part),
        clustering_calibration(store, part).threshold,
        faces.center_query(query),
    )


def adapt_query(store: Store, centered: AdaptedQuery) -> AdaptedQuery:
    """Assign a query to a domain of the gallery, and whiten it together with the faces of that domain."""
    assignments, query = centered.assignments, centered.query

    def compute_centroids() -> list[DomainCentroid]:
        rows = np.flatnonzero(assignments.domain != IN_DOMAIN)
        return domain_centroids(assignments.faces.unit_rows(rows), assignments.domain[rows])

    centroids = store.cached(f"domain centroids at {len(query)}", store.revision, compute_centroids)
    (domain,) = assign_domain(query[None], centroids).tolist()
    if domain == IN_DOMAIN:
        return centered
    rows = np.flatnonzero(assignments.domain == domain)
    adapted = whiten_to_domain(np.concatenate([assignments.faces.unit_rows(rows), query[None]]))
    shift = centered.threshold - DOMAIN_THRESHOLD
    return replace(centered, query=adapted[-1], domain=domain, adapted=adapted[:-1], shift=shift)
