"""What similarities mean in a gallery: as its model says, or as its own confirmed faces show."""

import dataclasses
import json
import math
from dataclasses import dataclass

import numpy as np

from familiar.core.calibration import Calibration
from familiar.core.errors import CorruptGallery, GalleryBusy, NothingToMeasure
from familiar.gallery.clustering.assignments import load_assignments
from familiar.gallery.database.connection import Gallery
from familiar.metrics.calibration import MIN_CALIBRATION_PAIRS
from familiar.metrics.calibration import calibrate as fit
from familiar.metrics.clustering import contingency
from familiar.metrics.roc import pair_totals
from familiar.neighbors.clustering import fit_threshold
from familiar.neighbors.domains import IN_DOMAIN

MOST_ODDS = 200


@dataclass(frozen=True)
class ClusteringCalibration:
    """`threshold`: the similarity from which two faces are grouped. `own` where it was fitted on this gallery's faces,
    `f` then being the mean of pairwise and B-cubed F that it reached there."""

    threshold: float
    own: bool
    f: float | None = None


def calibration(gallery: Gallery) -> Calibration:
    """The gallery's own where it was calibrated, else its model's."""
    own = _own(gallery)
    return gallery.space.calibration if own is None else own[0]


def clustering_calibration(gallery: Gallery) -> ClusteringCalibration:
    """The gallery's own where it was calibrated, else where its model says that it takes few strangers for one.

    That is the similarity of its high precision, or, where that was drawn up by a few odd strangers, the one at which
    the same individual is 200 times as likely as not; in a gallery of fewer faces, as many times as there are faces.
    """
    own = _own(gallery)
    if own is not None:
        return own[1]
    means = gallery.space.calibration
    threshold = means.high_precision.similarity
    if means.slope is not None and means.intercept is not None:
        odds = min(MOST_ODDS, max(2, len(gallery.faces().ids)))
        threshold = min(threshold, (math.log(odds) - means.intercept) / means.slope)
    return ClusteringCalibration(max(threshold, means.balanced.similarity), own=False)


def calibrate(gallery: Gallery) -> tuple[Calibration, ClusteringCalibration]:
    """Fits both on the faces that the user confirmed, and keeps them until `uncalibrate`.

    NothingToMeasure where these are too few: ten pairs of one individual and ten of two at least. Of named groups only
    confirmed faces count; the others are where they are since they were alike, and would confirm whatever put them
    there. Nor do faces of a kind, whose similarities mean something else.
    """
    who = load_assignments(gallery)
    rows = np.flatnonzero(who.by_user & (who.domain == IN_DOMAIN))
    labels = np.unique(who.identity[rows], return_inverse=True)[1]
    same, different = pair_totals(labels) if len(labels) else (0, 0)
    if min(same, different) < MIN_CALIBRATION_PAIRS:
        raise NothingToMeasure(
            f"{gallery.folder}: {same} pairs of confirmed faces show one individual and {different} two; "
            f"{MIN_CALIBRATION_PAIRS} of each are needed. Confirm more: familiar gallery name --confirm, or suggest"
        )
    embeddings = who.faces.unit_rows(rows)

    def both(groups: np.ndarray) -> float:
        table = contingency(labels, groups)
        return (table.pairwise().f + table.bcubed().f) / 2

    fitted = fit(embeddings, labels)
    threshold, f = fit_threshold(embeddings, both)
    own = {"calibration": dataclasses.asdict(fitted), "threshold": threshold, "f": f}
    with gallery.writing() as connection:
        if connection.execute("SELECT faces_revision FROM gallery").fetchone()[0] != who.faces.revision:
            raise GalleryBusy(f"{gallery.folder}: its faces changed while they were measured; calibrate again")
        connection.execute("UPDATE gallery SET own_calibration = ?", (json.dumps(own),))
    return fitted, ClusteringCalibration(threshold, own=True, f=f)


def reset_calibration(gallery: Gallery) -> None:
    """Back to what the model says."""
    with gallery.writing() as connection:
        connection.execute("UPDATE gallery SET own_calibration = NULL")


def _own(gallery: Gallery) -> tuple[Calibration, ClusteringCalibration] | None:
    with gallery.reading() as connection:
        (stored,) = connection.execute("SELECT own_calibration FROM gallery").fetchone()
    if stored is None:
        return None
    try:
        own = json.loads(stored)
        return Calibration.from_dict(own["calibration"]), ClusteringCalibration(own["threshold"], own=True, f=own["f"])
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptGallery(
            f"{gallery.folder}: its own calibration is damaged; save all else with: familiar gallery repair "
            f"{gallery.folder}"
        ) from error
