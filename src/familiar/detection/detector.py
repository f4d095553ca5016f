"""What a face detector is, and the order in which it returns faces."""

from collections.abc import Iterable
from typing import Protocol, runtime_checkable

from familiar.core.types import Face, Label, Photo


@runtime_checkable
class Detector(Protocol):
    """A face detector. May be used by several threads at once.

    It may have an attribute `labels`, the labels of the faces that it looks for: messages name them.
    """

    def detect(self, photo: Photo) -> list[Face]:
        """Find the faces of a photo.

        Args:
            photo: the image to search; faces are in its pixels.

        Returns:
            The faces, best first: by score x area, so that people in the background come last. Empty if there is
            none.
        """
        ...


def sort_best_first(faces: Iterable[Face]) -> list[Face]:
    """Sort by score x area.

    The scores of sharp faces hardly differ: by score alone, 14 of LFW's 1,549 DevTest photos had a bystander first.
    """
    return sorted(faces, key=lambda face: (-face.score * face.box_xyxy_px.area, -face.score, face.box_xyxy_px))


def labels_of(detector: Detector) -> frozenset[Label]:
    """Return the labels of the faces that a detector looks for; none if it does not say so."""
    return frozenset(getattr(detector, "labels", ()))


def looked_for(detector: Detector) -> str:
    """Say what a detector looks for, to be put after "no ".

    >>> from familiar import build_detector
    >>> looked_for(build_detector("pets")), looked_for(build_detector("none"))
    ('head of a cat or dog', 'face')
    """
    labels = labels_of(detector)
    pets = " or ".join(label for label in ("cat", "dog") if label in labels)
    names = [f"head of a {pets}"] * bool(pets) + ["face of a person"] * ("person" in labels)
    return " and no ".join(names) or "face"


def not_looked_for(detector: Detector) -> str | None:
    """Say what only the detector "auto" would find: "people", or "cats and dogs"; None: nothing, or not known."""
    labels = labels_of(detector)
    if not labels:
        return None
    return "people" if "person" not in labels else None if labels & {"cat", "dog"} else "cats and dogs"
