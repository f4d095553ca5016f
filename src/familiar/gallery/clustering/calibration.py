"""The calibration of a gallery: its model's, or one fitted on the gallery's confirmed faces."""

import dataclasses
import json
import math
from dataclasses import dataclass

import numpy as np

from familiar.core.calibration import Calibration
from familiar.core.errors import CorruptGallery, GalleryBusy, NothingToMeasure
from familiar.gallery.clustering.assignments import load_assignments
from familiar.gallery.database.connection import GalleryDatabase
from familiar.metrics.calibration import MIN_CALIBRATION_PAIRS
from familiar.metrics.calibration import calibrate as fit_calibration
from familiar.metrics.clustering import contingency
from familiar.metrics.roc import pair_totals
from familiar.neighbors.clustering import fit_threshold
from familiar.neighbors.domains import IN_DOMAIN

MAX_ODDS = 200


@dataclass(frozen=True)
class ClusteringCalibration:
    """The clustering threshold of a gallery.

    Attributes:
        threshold: similarity in [-1, 1] from which two faces are clustered together.
        from_gallery: whether the threshold was fitted on this gallery's confirmed faces.
        f: mean of pairwise and B-cubed F that the threshold reached on these faces; None if not fitted.
    """

    threshold: float
    from_gallery: bool
    f: float | None = None


def calibration(gallery: GalleryDatabase) -> Calibration:
    """Return the calibration fitted on this gallery, or its model's if there is none."""
    stored = _stored_calibration(gallery)
    return gallery.space.calibration if stored is None else stored[0]


def clustering_calibration(gallery: GalleryDatabase) -> ClusteringCalibration:
    """Return the clustering threshold fitted on this gallery, or one with few false accepts by its model.

    By default it is the model's `high_precision` threshold. If a few unusual negative pairs drove that up, it is the
    similarity at which two faces are 200 times as likely to show the same individual as not (fewer times in a gallery
    of fewer faces: as many as it has faces).
    """
    stored = _stored_calibration(gallery)
    if stored is not None:
        return stored[1]
    model = gallery.space.calibration
    threshold = model.high_precision.similarity
    if model.slope is not None and model.intercept is not None:
        odds = min(MAX_ODDS, max(2, len(gallery.faces().ids)))
        threshold = min(threshold, (math.log(odds) - model.intercept) / model.slope)
    return ClusteringCalibration(max(threshold, model.balanced.similarity), from_gallery=False)


def calibrate(gallery: GalleryDatabase) -> tuple[Calibration, ClusteringCalibration]:
    """Fit both calibrations on the faces that the user confirmed, and store them until `reset_calibration`.

    Only confirmed faces count, also in named identities: the others were assigned because they are similar, and would
    confirm whatever assigned them. Out-of-domain faces do not count, as their similarities mean something else.

    Raises:
        NothingToMeasure: there are fewer than ten pairs of the same individual, or than ten of different ones.
        GalleryBusy: faces changed in the meantime.
    """
    assignments = load_assignments(gallery)
    rows = np.flatnonzero(assignments.by_user & (assignments.domain == IN_DOMAIN))
    labels = np.unique(assignments.identity[rows], return_inverse=True)[1]
    same, different = pair_totals(labels) if len(labels) else (0, 0)
    if min(same, different) < MIN_CALIBRATION_PAIRS:
        raise NothingToMeasure(
            f"{gallery.folder}: {same} pairs of confirmed faces show the same individual and {different} show two "
            f"different ones; at least {MIN_CALIBRATION_PAIRS} of each are needed. Confirm more faces with familiar "
            "gallery name --confirm, or answer the questions of familiar gallery review"
        )
    embeddings = assignments.faces.unit_rows(rows)

    def mean_f(clusters: np.ndarray) -> float:
        table = contingency(labels, clusters)
        return (table.pairwise().f + table.bcubed().f) / 2

    fitted = fit_calibration(embeddings, labels)
    threshold, f = fit_threshold(embeddings, mean_f)
    content = {"calibration": dataclasses.asdict(fitted), "threshold": threshold, "f": f}
    with gallery.writing() as repository:
        if repository.settings.faces_revision() != assignments.faces.revision:
            raise GalleryBusy(f"{gallery.folder}: its faces changed during the calibration; calibrate again")
        repository.settings.set_own_calibration(json.dumps(content))
    return fitted, ClusteringCalibration(threshold, from_gallery=True, f=f)


def reset_calibration(gallery: GalleryDatabase) -> None:
    """Delete the calibration fitted on this gallery, so that its model's is used again."""
    with gallery.writing() as repository:
        repository.settings.set_own_calibration(None)


def _stored_calibration(gallery: GalleryDatabase) -> tuple[Calibration, ClusteringCalibration] | None:
    with gallery.reading() as repository:
        stored = repository.settings.own_calibration()
    if stored is None:
        return None
    try:
        content = json.loads(stored)
        return (
            Calibration.from_dict(content["calibration"]),
            ClusteringCalibration(content["threshold"], from_gallery=True, f=content["f"]),
        )
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptGallery(
            f"{gallery.folder}: its stored calibration is damaged; recover everything else with: familiar gallery "
            f"repair {gallery.folder}"
        ) from error
