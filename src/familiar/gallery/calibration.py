"""What similarities mean in a gallery: as its model says, or as its own confirmed faces show."""

import dataclasses
import json
from dataclasses import dataclass

import numpy as np

from familiar.core.calibration import Calibration
from familiar.core.errors import CorruptGallery, NothingToMeasure
from familiar.gallery.store import Gallery
from familiar.gallery.who import who_is_who
from familiar.metrics.calibration import MIN_CALIBRATION_PAIRS
from familiar.metrics.calibration import calibrate as fit
from familiar.metrics.clustering import contingency
from familiar.metrics.roc import pair_totals
from familiar.neighbors.group import fit_threshold


@dataclass(frozen=True)
class Grouping:
    """`threshold`: the similarity from which two faces are grouped. `own` where it was fitted on this gallery's faces,
    `f` then being the mean of pairwise and B-cubed F that it reached there."""

    threshold: float
    own: bool
    f: float | None = None


def calibration(gallery: Gallery) -> Calibration:
    """The gallery's own where it was calibrated, else its model's."""
    own = _own(gallery)
    return gallery.space.calibration if own is None else own[0]


def grouping(gallery: Gallery) -> Grouping:
    """The gallery's own where it was calibrated, else the similarity at which its model takes few strangers for one."""
    own = _own(gallery)
    if own is None:
        return Grouping(gallery.space.calibration.high_precision.similarity, own=False)
    return own[1]


def calibrate(gallery: Gallery) -> tuple[Calibration, Grouping]:
    """Fits both on the faces that the user confirmed, and keeps them until `uncalibrate`.

    NothingToMeasure where these are too few: ten pairs of one individual and ten of two at least. Of named groups only
    confirmed faces count; the others are where they are since they were alike, and would confirm whatever put them
    there.
    """
    who = who_is_who(gallery)
    rows = np.flatnonzero(who.by_user)
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
        connection.execute("UPDATE gallery SET own_calibration = ?", (json.dumps(own),))
    return fitted, Grouping(threshold, own=True, f=f)


def uncalibrate(gallery: Gallery) -> None:
    """Back to what the model says."""
    with gallery.writing() as connection:
        connection.execute("UPDATE gallery SET own_calibration = NULL")


def _own(gallery: Gallery) -> tuple[Calibration, Grouping] | None:
    with gallery.reading() as connection:
        (stored,) = connection.execute("SELECT own_calibration FROM gallery").fetchone()
    if stored is None:
        return None
    try:
        own = json.loads(stored)
        return Calibration.from_dict(own["calibration"]), Grouping(own["threshold"], own=True, f=own["f"])
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptGallery(
            f"{gallery.folder}: its own calibration is damaged; save all else with: familiar gallery repair "
            f"{gallery.folder}"
        ) from error
