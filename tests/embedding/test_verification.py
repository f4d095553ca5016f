from pathlib import Path

import numpy as np
import pytest

from familiar.core.calibration import Calibration, Threshold
from familiar.core.errors import UnreadablePhoto
from familiar.core.types import Photo
from familiar.embedding.embedder import Embedder
from familiar.embedding.verification import verify, verify_embeddings
from familiar.photos.decoding import save_photo


def curve(slope: float, intercept: float) -> Calibration:
    point = Threshold(0.5, 0.0, 1.0)
    return Calibration(point, point, point, slope, intercept, 0.0, 1, 1)


def test_without_calibration_there_is_a_similarity_and_no_verdict():
    point = Threshold(0.55, None, None)
    fixed = Calibration(point, point, point, None, None, None, 0, 0)
    for other, similarity in (([0.6, 0.8], 0.6), ([0.0, 1.0], 0.0)):
        answer = verify_embeddings(np.array([1, 0], np.float32), np.array(other, np.float32), fixed)
        assert answer.similarity == pytest.approx(similarity)
        assert (answer.same, answer.probability, answer.threshold) == (None, None, None)


def test_verify_accepts_same_and_rejects_different_color(mean_color_bundle: Path, tmp_path: Path):
    def photo(name: str, *rgb: int) -> Path:
        return save_photo(Photo(np.full((40, 40, 3), rgb, np.uint8), name, (40, 40)), tmp_path / name)

    embedder = Embedder(mean_color_bundle)
    red, darker, green = photo("r.png", 200, 0, 0), photo("d.png", 90, 0, 0), photo("g.png", 0, 200, 0)
    same = verify(red, darker, embedder)
    assert (same.similarity, same.same, same.threshold) == (pytest.approx(1.0), True, 0.9)
    different = verify(red, green, embedder)
    assert (different.similarity, different.same) == (pytest.approx(0.0), False)
    assert different.probability < 0.5 < same.probability
    with pytest.raises(UnreadablePhoto, match=r"missing\.png"):
        verify(red, tmp_path / "missing.png", embedder)
