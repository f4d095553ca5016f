"""Pets and people in one photo."""

from collections.abc import Collection, Sequence

from familiar.core.published_files import published_path
from familiar.core.types import Face, Label, Photo
from familiar.detection.detector import sort_best_first
from familiar.detection.heads import LABELS, HeadDetector
from familiar.detection.opencv import YuNetFaces


class PetsAndPeople:
    """Detector for cats, dogs and people, each with its label.

    All are found by `HeadDetector`; people by YuNet instead, if it has been downloaded: its landmarks are more exact.
    What lies on a pet's head is no person: YuNet also finds faces of pets.

    Args:
        labels: which heads to return.
    """

    def __init__(self, labels: Collection[Label] = LABELS) -> None:
        self.labels = frozenset(labels)
        yunet = published_path("yunet")
        self._heads = HeadDetector(LABELS)
        self._people = YuNetFaces(yunet) if yunet.is_file() else None

    def detect(self, photo: Photo) -> list[Face]:
        """Find the heads in a photo.

        Args:
            photo: of any size.

        Returns:
            The heads with their labels, best first; empty if there is none.
        """
        heads = self._heads.detect(photo)
        if self._people is not None:
            pets = [head for head in heads if head.label != "person"]
            heads = [*pets, *(face for face in self._people.detect(photo) if not _is_on_any(face, pets))]
        return sort_best_first(head for head in heads if head.label in self.labels)


def _is_on_any(face: Face, heads: Sequence[Face]) -> bool:
    return any(face.box_xyxy_px.is_same_face(head.box_xyxy_px) for head in heads)
