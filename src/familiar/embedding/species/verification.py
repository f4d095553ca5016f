"""The decision whether two photos show the same individual, by the bundle of its species."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from familiar.core.recognition_types import VerificationResult
from familiar.core.types import Crop
from familiar.detection.detector import Detector
from familiar.embedding.species.router import RoutedEmbedder
from familiar.embedding.verification import BEST_FACES, verify_embeddings


@dataclass(frozen=True)
class RoutedVerification:
    """The decision for two photos.

    Attributes:
        species: of each photo.
        probabilities: of these species.
        verification: by the bundle of the species, without a verdict if that was never calibrated; None if the
            species differ. Then the photos show two individuals, and their embeddings are not compared.
    """

    species: tuple[str, str]
    probabilities: tuple[float, float]
    verification: VerificationResult | None


def verify_routed(
    router: RoutedEmbedder,
    first: Path,
    second: Path,
    detector: Detector | None = None,
    *,
    flip: bool = False,
    faces: tuple[int | None, int | None] = BEST_FACES,
    on_crop: Callable[[Crop], None] = lambda _: None,
) -> RoutedVerification:
    """Decide whether two photos show the same individual of one species.

    Arguments as for `verification.verify_photos`.

    Raises:
        UnsureSpecies, NoBundleForSpecies, UnreadablePhoto, NoFaceFound: one of the photos has no embedding.
    """
    photos = zip((first, second), faces, strict=True)
    crops = [router.crop(photo, detector, face=face) for photo, face in photos]
    for each in crops:
        on_crop(each)
    routed = router.embed_crops(crops, flip=flip)
    if routed.skipped:
        raise routed.skipped[0]
    (_, first_species, first_probability), (_, second_species, second_probability) = routed.by_row()
    verification = None
    if first_species == second_species:
        # The species' bundle has embedded these two photos and no others.
        embeddings = routed.by_species[first_species].embeddings
        calibration = router.embedders[first_species].metadata.calibration
        verification = verify_embeddings(embeddings[0], embeddings[1], calibration)
    return RoutedVerification((first_species, second_species), (first_probability, second_probability), verification)
