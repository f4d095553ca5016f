"""Verification: do two photos show the same individual?"""

from collections.abc import Callable
from pathlib import Path

import numpy as np
from jaxtyping import Float32

from familiar.core.calibration import Calibration
from familiar.core.recognition_types import VerificationResult
from familiar.core.types import Crop
from familiar.detection.cropping import crop_photo
from familiar.detection.detector import Detector
from familiar.embedding.embedder import Embedder, as_embedder

BEST_FACES = (None, None)


def verify(
    first: Path | str,
    second: Path | str,
    model: Embedder | Path | str,
    *,
    detector: Detector | str | None = None,
    flip: bool = False,
    faces: tuple[int | None, int | None] = BEST_FACES,
) -> VerificationResult:
    """Decide whether two photos show the same individual.

    Args:
        first: one photo.
        second: the other photo.
        model: an embedder, a bundle (.onnx), a run folder, or the name of a shipped bundle.
        detector: finds the face in each: a detector, or the name of one as for `build_detector`, such as "none" if the
            photos are crops already. None: the one that the bundle names.
        flip: average each crop's embedding with that of its mirror image.
        faces: number of the face in each photo, counted from the left and from 1; None: the best one. `crop_photo`
            says how many faces a photo has.

    Returns:
        The similarity in [-1, 1], the probability, and the decision at the bundle's balanced threshold; only the
        similarity if the bundle was never calibrated.

    Raises:
        BadBundle: there is no such model.
        UnreadablePhoto: a photo cannot be read.
        NoFaceFound: no face is found in a photo, or none of this number.

    >>> verify("photos/mia-1.png", "photos/mia-2.png", "pet-nano").same
    True
    """
    embedder = as_embedder(model)
    return verify_photos(embedder, Path(first), Path(second), embedder.detector(detector), flip=flip, faces=faces)


def verify_photos(
    embedder: Embedder,
    first: Path,
    second: Path,
    detector: Detector | None = None,
    *,
    flip: bool = False,
    faces: tuple[int | None, int | None] = BEST_FACES,
    on_crop: Callable[[Crop], None] = lambda _: None,
) -> VerificationResult:
    """Decide whether two photos show the same individual.

    Args:
        embedder: computes the embeddings.
        first: one photo.
        second: the other photo.
        detector: finds the face in each; None: the photos are crops.
        flip: average each crop with its mirror image.
        faces: number of the face in each photo, counted from the left and from 1; None: the best one.
        on_crop: called with the crop of each photo, which says which of its faces was taken.

    Raises:
        UnreadablePhoto: a photo cannot be read.
        NoFaceFound: no face is found in a photo, or none of this number.
    """
    preprocessing = embedder.metadata.preprocessing
    photos = zip((first, second), faces, strict=True)
    crops = [crop_photo(photo, preprocessing, detector, face=face) for photo, face in photos]
    for crop in crops:
        on_crop(crop)
    embeddings = embedder.embed(crops, flip=flip)
    return verify_embeddings(embeddings[0], embeddings[1], embedder.metadata.calibration)


def verify_embeddings(
    first: Float32[np.ndarray, " d"], second: Float32[np.ndarray, " d"], calibration: Calibration
) -> VerificationResult:
    """Decide whether two embeddings of one bundle show the same individual.

    Args:
        first: unit vector of one photo.
        second: unit vector of the other photo.
        calibration: of the bundle.

    Returns:
        The similarity, the probability that both show one individual, if both answers are equally likely beforehand,
        and the decision at the balanced threshold. If the bundle was never calibrated, all but the similarity are None.
    """
    similarity = float(min(max(first @ second, -1.0), 1.0))
    if not calibration.fitted:
        return VerificationResult(similarity, probability=None, same=None, threshold=None)
    return VerificationResult(
        similarity=similarity,
        probability=calibration.probability(similarity),
        same=similarity >= calibration.balanced.similarity,
        threshold=calibration.balanced.similarity,
    )
