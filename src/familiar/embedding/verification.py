"""Two photos, one question: the same individual?"""

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float32

from familiar.core.calibration import Calibration
from familiar.detection.detectors import Detector
from familiar.embedding.embedder import Embedder, crop_photo


@dataclass(frozen=True)
class VerificationResult:
    """`similarity` in [-1, 1]; `probability` that it is one individual, where both answers are equally likely
    beforehand; `same` where the similarity reaches the bundle's balanced `threshold`.

    Of a bundle whose similarities were never calibrated the threshold is a fixed one, and `probability` None.
    """

    similarity: float
    probability: float | None
    same: bool
    threshold: float


def verify_photos(
    embedder: Embedder, first: Path, second: Path, detector: Detector | None = None, *, flip: bool = False
) -> VerificationResult:
    """UnreadablePhoto or NoFaceFound where one of the two cannot be judged."""
    preprocessing = embedder.metadata.preprocessing
    crops = [crop_photo(photo, preprocessing, detector) for photo in (first, second)]
    left, right = embedder.embed(crops, flip=flip)
    return verify_embeddings(left, right, embedder.metadata.calibration)


def verify_embeddings(
    left: Float32[np.ndarray, " d"], right: Float32[np.ndarray, " d"], calibration: Calibration
) -> VerificationResult:
    """Two embeddings of one bundle, judged as it is calibrated."""
    similarity = float(min(max(left @ right, -1.0), 1.0))
    return VerificationResult(
        similarity=similarity,
        probability=probability_same(similarity, calibration),
        same=similarity >= calibration.balanced.similarity,
        threshold=calibration.balanced.similarity,
    )


def probability_same(similarity: float, calibration: Calibration) -> float | None:
    """The bundle's calibrated curve at a similarity, None where it has none.

    A steep curve takes the exponent beyond what a float holds, so it is bounded first.
    """
    if calibration.slope is None or calibration.intercept is None:
        return None
    exponent = min(max(calibration.slope * similarity + calibration.intercept, -700.0), 700.0)
    return 1.0 / (1.0 + math.exp(-exponent))
