"""Calibration fitted on the faces that the user confirmed."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from familiar.core.errors import NothingToMeasure
from familiar.gallery.cluster.cluster import cluster
from familiar.gallery.edits import corrections
from familiar.gallery.same.calibration import calibrate, calibration, clustering_calibration, reset_calibration
from familiar.gallery.search.search import search_faces, search_identities
from familiar.gallery.store.store import Store
from familiar.metrics.calibration import calibrate as fit_calibration
from support.small_gallery import (
    SPACE,
    THRESHOLD,
    close_together,
    draw_individuals,
    enroll_vectors,
    groups,
    identity_of,
)


@pytest.fixture
def gallery(gallery: Store) -> Store:
    """Three named individuals of five confirmed faces each."""
    enroll_vectors(gallery, close_together([5, 5, 5]))
    for first, name in ((1, "Mia"), (6, "Tom"), (11, "Lia")):
        corrections.split(gallery, list(range(first, first + 5)), name)
    return gallery


def test_fits_on_confirmed_faces_only(gallery: Store):
    expected = fit_calibration(close_together([5, 5, 5]), np.repeat([0, 1, 2], 5))
    enroll_vectors(gallery, close_together([0, 0, 0, 0, 6]), "unconfirmed")
    cluster(gallery)
    assert identity_of(gallery, 16) in (1, 2, 3)  # clustered with one of them, which must not count as evidence
    refitted = calibrate(gallery)[0]
    assert (refitted.calibration.pairs_same, refitted.calibration.pairs_different) == (30, 75)
    assert refitted.calibration.balanced.similarity == pytest.approx(expected.balanced.similarity, abs=0.01)
    assert (refitted.clustering.from_gallery, refitted.clustering.f) == (True, pytest.approx(1.0))
    assert 0.85 < refitted.clustering.threshold < 1.0
    assert calibration(gallery) == refitted.calibration
    assert clustering_calibration(gallery) == refitted.clustering


def test_clustering_and_search_use_calibration_until_reset(gallery: Store):
    calibrate(gallery)
    enroll_vectors(gallery, close_together([1, 0, 0, 3, 3], seed=1), "more")
    cluster(gallery)
    assert {frozenset([17, 18, 19]), frozenset([20, 21, 22])} <= groups(gallery)
    assert identity_of(gallery, 16) == 1
    unknown = close_together([0, 0, 0, 0, 0, 1])[0]
    assert not any(match.known for match in search_identities(gallery, unknown))
    (hit,) = search_faces(gallery, unknown, 1)
    assert hit.probability is not None
    assert hit.probability < 0.5
    reset_calibration(gallery)
    assert calibration(gallery) == SPACE.calibration
    assert sum(match.probability or 0 for match in search_identities(gallery, unknown)) > 0.9
    assert search_faces(gallery, unknown, 1)[0].probability > 0.9


def test_rejects_too_few_confirmed_pairs(folder: Path):
    with Store.create(folder, SPACE) as gallery:
        enroll_vectors(gallery, draw_individuals([6, 6]))
        cluster(gallery)
        with pytest.raises(NothingToMeasure, match="0 pairs of confirmed faces"):  # clustered is not confirmed
            calibrate(gallery)
        corrections.confirm(gallery, range(1, 7))
        with pytest.raises(NothingToMeasure, match=r"15 pairs of confirmed faces show the same .* and 0 show two"):
            calibrate(gallery)
        corrections.confirm(gallery, range(7, 9))
        assert calibrate(gallery)[0].calibration.pairs_different == 12


@pytest.mark.parametrize(
    ("target_far", "slope", "faces", "similarity"),
    [
        (1e-4, 20.0, 90, (math.log(90) + 12) / 20),  # the inverse of the probability curve, above THRESHOLD
        (1e-4, 20.0, 600, (math.log(500) + 12) / 20),
        (1e-3, 20.0, 90, THRESHOLD),
        (1e-4, 40.0, 90, THRESHOLD),  # the balanced one is never undercut
    ],
)
def test_clustering_asks_for_likelier_pairs_in_a_larger_gallery_if_the_calibration_can_tell(
    tmp_path: Path, target_far: float, slope: float, faces: int, similarity: float
):
    model = replace(SPACE.calibration, target_far=target_far, slope=slope)
    with Store.create(tmp_path / "large", replace(SPACE, calibration=model)) as gallery:
        enroll_vectors(gallery, draw_individuals([faces]))
        assert clustering_calibration(gallery).threshold == pytest.approx(similarity)
