"""The calibration of a gallery: its model's, or one fitted on the gallery's confirmed faces."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from jaxtyping import Int64

from familiar.core.calibration import Calibration
from familiar.core.errors import CorruptGallery, GalleryBusy, NothingToMeasure
from familiar.core.json_codec import DOCUMENTS
from familiar.gallery.same.assignments import GalleryAssignments, load_assignments
from familiar.gallery.store.repository import Repository
from familiar.gallery.store.store import Store
from familiar.metrics.calibration import HIGH_PRECISION_FAR, MIN_CALIBRATION_PAIRS, uncalibrated
from familiar.metrics.calibration import calibrate as fit_calibration
from familiar.metrics.clustering import contingency
from familiar.metrics.roc import pair_totals
from familiar.neighbors.clustering import fit_threshold
from familiar.neighbors.domains import IN_DOMAIN

MAX_ODDS = 500  # chosen on people of LFW's peopleDevTrain, 100 to 2,000 of them: docs/explanation/clustering.md


@dataclass(frozen=True)
class ClusteringSettings:
    """The clustering threshold of a gallery.

    Attributes:
        threshold: similarity in [-1, 1] from which two faces are clustered together.
        from_gallery: whether the threshold was fitted on this gallery's confirmed faces.
        f: mean of pairwise and B-cubed F that the threshold reached on these faces; None if not fitted.
        faces: the number of these faces; None if not fitted.
        is_automatic: whether the gallery calibrated itself; False if the user calibrated it.
        is_guess: whether the threshold is a fixed number, because neither the model nor the gallery is calibrated.
    """

    threshold: float
    from_gallery: bool
    f: float | None = None
    faces: int | None = None
    is_automatic: bool = False
    is_guess: bool = False


@dataclass(frozen=True)
class GalleryFit:
    """A calibration fitted on a gallery's confirmed faces, as the gallery stores it.

    Attributes:
        calibration: of similarities.
        threshold: similarity from which faces are clustered together.
        f: as for `ClusteringSettings`.
        faces: as for `ClusteringSettings`.
        automatic: whether the gallery calibrated itself.
        decision: the user's decision by which a gallery calibrated itself; None: none of them.
        previous: the calibration to restore if this decision is undone.
    """

    calibration: Calibration
    threshold: float
    f: float
    faces: int
    automatic: bool = False
    decision: str | None = None
    previous: "GalleryFit | None" = None

    @property
    def clustering(self) -> ClusteringSettings:
        """The clustering threshold."""
        return ClusteringSettings(self.threshold, True, self.f, self.faces, self.automatic)


def calibration(store: Store, part: int = 0) -> Calibration:
    """Return the calibration fitted on this gallery, or its model's if there is none.

    Args:
        store: whose similarities are calibrated.
        part: of its space, if its model has several bundles (`Space.parts`).
    """
    fitted = own_calibration(store, part)
    return store.space.part_spaces[part].gallery_calibration if fitted is None else fitted.calibration


def calibration_at(store: Store, length: int, part: int = 0) -> Calibration:
    """Return the calibration of similarities between embeddings of a length.

    Shorter prefixes have those of the model; one that has none is uncalibrated.

    Args:
        store: whose similarities they are.
        length: one of `Space.lengths`.
        part: as for `calibration`.
    """
    if length == store.space.embedding_dim:
        return calibration(store, part)
    fitted = store.space.prefix_calibrations.get(length)
    return uncalibrated() if fitted is None else fitted


def clustering_calibration(store: Store, part: int = 0) -> ClusteringSettings:
    """Return the clustering threshold fitted on this gallery, or that of its model; `part` as for `calibration`."""
    fitted = own_calibration(store, part)
    return model_clustering(store, part) if fitted is None else fitted.clustering


def model_clustering(store: Store, part: int = 0) -> ClusteringSettings:
    """Return the clustering threshold by the calibration of a gallery's model.

    It is the similarity at which two faces are 500 times as likely to show the same individual as not (fewer
    times in a gallery of fewer faces: as many as it has faces), since one false pair merges whole clusters. Where the
    model was calibrated on too few pairs to know that, it is no higher than the model's `high_precision` threshold. If
    the model was never calibrated, it is a guess.
    """
    model = store.space.part_spaces[part].gallery_calibration
    threshold = model.high_precision.similarity
    if model.slope is not None and model.intercept is not None:
        odds = min(MAX_ODDS, max(2, len(store.faces().ids)))
        at_odds = (math.log(odds) - model.intercept) / model.slope
        threshold = at_odds if model.target_far == HIGH_PRECISION_FAR else min(threshold, at_odds)
    threshold = max(threshold, model.balanced.similarity)
    return ClusteringSettings(threshold, from_gallery=False, is_guess=not model.fitted)


def calibrate(store: Store) -> dict[int, GalleryFit]:
    """Fit both calibrations on the faces that the user confirmed, and store them until `reset_calibration`.

    Only confirmed faces count, also in named identities: the others were assigned because they are similar, and would
    confirm whatever assigned them. Out-of-domain faces do not count, as their similarities mean something else.

    Returns:
        The calibration of each part of the gallery's space with enough pairs; there is only one part unless the model
        has several bundles.

    Raises:
        NothingToMeasure: there are fewer than ten pairs of the same individual, or than ten of different ones.
        GalleryBusy: the confirmed faces changed in the meantime.
    """
    assignments = load_assignments(store)
    fitted: dict[int, GalleryFit] = {}
    totals: list[tuple[int, int]] = []
    for part in range(len(store.space.part_spaces)):
        rows = confirmed_rows(assignments, part)
        totals.append(pair_totals(assignments.identity[rows]))
        if min(totals[-1]) >= MIN_CALIBRATION_PAIRS:
            fitted[part] = fit_own_calibration(assignments, rows)
    if not fitted:
        same, different = max(totals, key=min)
        raise NothingToMeasure(
            f"{store.folder}: {same} pairs of confirmed faces show the same individual and {different} show two "
            f"different ones; at least {MIN_CALIBRATION_PAIRS} of each are needed. Confirm more faces with familiar "
            "gallery name --confirm, or answer the questions of familiar gallery review"
        )
    with store.write() as repository:
        if _confirmed_faces(load_assignments(store)) != _confirmed_faces(assignments):
            raise GalleryBusy(
                f"{store.folder}: another program changed its faces, or which are confirmed, during the calibration; "
                "calibrate again"
            )
        store_own_calibrations(repository, own_calibrations(store) | fitted)
    return fitted


def _confirmed_faces(assignments: GalleryAssignments) -> tuple[bytes, ...]:
    """Return what a calibration is fitted on; other faces may come meanwhile."""
    rows, faces = confirmed_rows(assignments), assignments.faces
    return tuple(values[rows].tobytes() for values in (faces.ids, assignments.identity, faces.embeddings))


def reset_calibration(store: Store) -> None:
    """Delete the calibration fitted on this gallery, so that its model's is used again.

    If the model was never calibrated, the gallery calibrates itself again with the next decision.
    """
    with store.write() as repository:
        repository.settings.set_own_calibration(None)


def confirmed_rows(assignments: GalleryAssignments, part: int | None = None) -> Int64[np.ndarray, " k"]:
    """Return the rows of the faces to calibrate on: those that the user confirmed, without out-of-domain ones.

    Args:
        assignments: of the gallery.
        part: as for `calibration`; None: the faces of all parts.
    """
    mask = assignments.by_user & (assignments.domain == IN_DOMAIN)
    return np.flatnonzero(mask if part is None else mask & (assignments.faces.parts == part))


def fit_own_calibration(assignments: GalleryAssignments, rows: Int64[np.ndarray, " k"]) -> GalleryFit:
    """Fit thresholds, probabilities and the clustering threshold on confirmed faces.

    Args:
        assignments: of the gallery.
        rows: the faces, of two identities or more.
    """
    labels = np.unique(assignments.identity[rows], return_inverse=True)[1]
    embeddings = assignments.faces.unit_rows(rows)

    def mean_f(clusters: Int64[np.ndarray, " k"]) -> float:
        table = contingency(labels, clusters)
        return (table.pairwise().f + table.bcubed().f) / 2

    threshold, f = fit_threshold(embeddings, mean_f)
    return GalleryFit(fit_calibration(embeddings, labels), threshold, f, len(rows))


def own_calibration(store: Store, part: int = 0) -> GalleryFit | None:
    """Return the calibration that was fitted on this gallery, if any; `part` as for `calibration`.

    Raises:
        CorruptGallery: the stored calibration cannot be read.
    """
    return own_calibrations(store).get(part)


def own_calibrations(store: Store) -> dict[int, GalleryFit]:
    """Return the calibrations that were fitted on this gallery, by part of its space.

    Raises:
        CorruptGallery: the stored calibrations cannot be read.
    """
    with store.read() as repository:
        stored = repository.settings.own_calibration()
    if stored is None:
        return {}
    try:
        return dict(_parse_own_calibrations(stored))
    except ValueError as error:
        raise CorruptGallery(
            f"{store.folder}: its stored calibration is damaged; recover everything else with: familiar gallery "
            f"repair {store.folder}"
        ) from error


def store_own_calibrations(repository: Repository, by_part: Mapping[int, GalleryFit]) -> None:
    """Store calibrations fitted on a gallery, in place of those before.

    Args:
        repository: of an open write.
        by_part: by part of the gallery's space.
    """
    content = json.dumps(DOCUMENTS.to_json(by_part)) if by_part else None
    repository.settings.set_own_calibration(content)


@lru_cache(maxsize=16)  # every query parses it, and the text hardly ever changes
def _parse_own_calibrations(text: str) -> dict[int, GalleryFit]:
    return DOCUMENTS.from_json(dict[int, GalleryFit], json.loads(text))
