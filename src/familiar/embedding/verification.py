"""Verification: do two photos show the same individual?"""

import numpy as np
from jaxtyping import Float32

from familiar.core.calibration import Calibration
from familiar.core.recognition_types import VerificationResult
from familiar.core.types import Face
from familiar.detection.detector import Detector
from familiar.embedding.embedder import Embedder, as_embedder
from familiar.embedding.species import FAMILY, Models
from familiar.neighbors.comparison import Comparison
from familiar.photos.photo_source import PhotoSource

BEST_FACES = (None, None)


def verify(
    first: PhotoSource,
    second: PhotoSource,
    model: Embedder | Models = FAMILY,
    *,
    detector: Detector | str | None = None,
    species: str | None = None,
    flip: bool = False,
    faces: tuple[int | None, int | None] = BEST_FACES,
) -> VerificationResult:
    """Decide whether two photos show the same individual.

    Args:
        first: one photo: a path, bytes, an open file, or what else `load_photo` takes.
        second: the other photo.
        model: an embedder, or what one is made of: a bundle (.onnx), a run folder, the name of a shipped bundle.
            By default the shipped ones for cats, dogs and people.
        detector: finds the face in each: a detector, or the name of one as for `build_detector`, such as "none" if the
            photos are crops already. None: the one that the bundle names.
        species: of both faces; None: what the detector says.
        flip: average each crop's embedding with that of its mirror image.
        faces: number of the face in each photo, counted from the left and from 1; None: the best one.

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
    chosen = embedder.detector(detector)
    photos = zip((first, second), faces, strict=True)
    pair = [embedder.face(photo, chosen, number=number, species=species, flip=flip) for photo, number in photos]
    return verify_faces(embedder, pair[0], pair[1])


def verify_faces(embedder: Embedder, first: Face, second: Face) -> VerificationResult:
    """Decide whether two embedded faces show the same individual, by the bundle of their species.

    Args:
        embedder: that has embedded both.
        first: one face.
        second: the other face.

    Returns:
        As for `verify`. With a bundle for each species, faces of two are not compared: they are two individuals, and
        their similarity is said to be 0.
    """
    assert first.embedding is not None
    assert second.embedding is not None
    if embedder.species is not None and first.species != second.species:
        return VerificationResult(0.0, probability=0.0, same=False, threshold=None)
    bundle_embedder, columns = embedder.only(first.species)
    return verify_embeddings(first.embedding[columns], second.embedding[columns], bundle_embedder.metadata.calibration)


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
        and the decision, at `Comparison.pair_threshold`. If the bundle was never calibrated, all but the similarity are
        None.
    """
    similarity = float(min(max(first @ second, -1.0), 1.0))
    threshold = Comparison(calibration, faces=2).pair_threshold if calibration.fitted else None
    same = None if threshold is None else similarity >= threshold
    return VerificationResult(similarity, calibration.probability(similarity), same, threshold)
