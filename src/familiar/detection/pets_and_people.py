"""Pets and people in one photo."""

from collections.abc import Sequence

from familiar.core.published_files import published_path
from familiar.core.types import Face, Photo
from familiar.detection.detector import Detector, sort_best_first
from familiar.detection.heads import LABELS, HeadDetector
from familiar.detection.opencv import YuNetFaces, haar_people_as_arcface


class PetsAndPeople:
    """Detector for cats, dogs and people, each with its label.

    Pets are found by `HeadDetector`; people by YuNet if it has been downloaded. Otherwise `HeadDetector` finds them,
    and where OpenCV's Haar detector sees a face in the same place, its box is taken, which networks for people
    recognize better. What lies on a pet's head is no person: YuNet and Haar also find faces of pets.
    """

    labels = frozenset(LABELS)

    def __init__(self) -> None:
        yunet = published_path("yunet")
        self._heads = HeadDetector(LABELS)
        self._has_yunet = yunet.is_file()
        self._people: Detector = YuNetFaces(yunet) if self._has_yunet else haar_people_as_arcface()

    def detect(self, photo: Photo) -> list[Face]:
        """Find the heads in a photo.

        Args:
            photo: of any size.

        Returns:
            The heads with their labels, best first; empty if there is none.
        """
        heads = self._heads.detect(photo)
        pets = [head for head in heads if head.label != "person"]
        if self._has_yunet:
            people = self._people.detect(photo)
        else:
            people = [head for head in heads if head.label == "person"]
            if people:
                faces = self._people.detect(photo)
                people = [next((face for face in faces if _is_same(face, head)), head) for head in people]
        return sort_best_first([*pets, *(face for face in people if not _is_on_any(face, pets))])


def _is_same(face: Face, head: Face) -> bool:
    return face.box_xyxy_px.is_same_face(head.box_xyxy_px)


def _is_on_any(face: Face, heads: Sequence[Face]) -> bool:
    return any(_is_same(face, head) for head in heads)
