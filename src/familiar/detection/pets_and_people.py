"""Pets and people in one photo."""

from familiar.core.published_files import published_path
from familiar.core.types import Detection, Photo
from familiar.detection.boxes import SAME_FACE_OVERLAP, overlap_of_smaller
from familiar.detection.detector import Detector, sort_best_first
from familiar.detection.heads import HeadDetector
from familiar.detection.opencv import YuNetFaces


class PetsAndPeople:
    """Detector for cats, dogs and people, each with its label.

    Pets are found by `HeadDetector`; people by YuNet if it has been downloaded, else by `HeadDetector` too. What lies
    on a pet's head is no person: YuNet also finds faces of pets.
    """

    def __init__(self) -> None:
        yunet = published_path("yunet")
        self._people: Detector | None = YuNetFaces(yunet) if yunet.is_file() else None
        self._heads = HeadDetector(("cat", "dog") if self._people else ("cat", "dog", "person"))

    def detect(self, photo: Photo) -> list[Detection]:
        """Find the heads in a photo.

        Args:
            photo: of any size.

        Returns:
            The heads with their labels, best first; empty if there is none.
        """
        heads = self._heads.detect(photo)
        people = self._people.detect(photo) if self._people else []
        return sort_best_first(
            [
                *heads,
                *(face for face in people if all(overlap_of_smaller(face, head) < SAME_FACE_OVERLAP for head in heads)),
            ]
        )
