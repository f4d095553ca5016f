"""The detectors that can be chosen by name. Independent of crops and identities."""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from familiar.core.errors import BadDetector
from familiar.core.published_files import published_path
from familiar.core.types import LABELS, Box, Face, Label, Photo
from familiar.detection.detector import Detector
from familiar.detection.heads import PETS, HeadDetector
from familiar.detection.opencv import YuNetFaces
from familiar.detection.pets_and_people import PetsAndPeople

log = logging.getLogger(__name__)

PEOPLE: frozenset[Label] = frozenset({"person"})


class WholePhoto:
    """Detector for photos that are crops already: the whole photo is the face, with score 1."""

    def detect(self, photo: Photo) -> list[Face]:
        """Return the whole photo as its only face.

        Args:
            photo: a crop of one face.

        Returns:
            One face, without landmarks.
        """
        return [Face(self.box(photo.size_px), None, 1.0)]

    @staticmethod
    def box(size_px: tuple[int, int]) -> Box:
        """Return the box in a photo.

        Args:
            size_px: width and height of the photo.
        """
        return Box(0.0, 0.0, float(size_px[0]), float(size_px[1]))


class CenterSquare:
    """Detector for portraits without a suitable detector: the largest centered square, with score 1."""

    def detect(self, photo: Photo) -> list[Face]:
        """Return the largest centered square as the photo's only face.

        Args:
            photo: a portrait with one face in the middle.

        Returns:
            One face, without landmarks.
        """
        return [Face(self.box(photo.size_px), None, 1.0)]

    @staticmethod
    def box(size_px: tuple[int, int]) -> Box:
        """Return the box in a photo.

        Args:
            size_px: width and height of the photo.
        """
        width, height = size_px
        side = min(width, height)
        x, y = (width - side) / 2, (height - side) / 2
        return Box(x, y, x + side, y + side)


@dataclass(frozen=True)
class DetectorSpec:
    """A detector that can be chosen by name, and the labels of the faces that it looks for.

    `build` takes a model file's path if `needs_model_file`, else nothing.
    """

    description: str
    build: Callable[..., Detector]
    labels: frozenset[Label] = frozenset()
    needs_model_file: bool = False


DETECTORS: dict[str, DetectorSpec] = {
    "none": DetectorSpec("photos are crops already", WholePhoto),
    "center": DetectorSpec("the largest centered square", CenterSquare),
    "pets": DetectorSpec("heads of cats and dogs; built in", HeadDetector, frozenset(PETS)),
    "people": DetectorSpec("people's faces, by YuNet if it is here; built in", lambda: PetsAndPeople(PEOPLE), PEOPLE),
    "auto": DetectorSpec(
        "heads of cats and dogs, and people's faces, by YuNet if it is here; built in",
        PetsAndPeople,
        frozenset(LABELS),
    ),
    "yunet": DetectorSpec(
        "people's faces with landmarks; needs its ONNX file", YuNetFaces, PEOPLE, needs_model_file=True
    ),
}

CROP_DETECTORS = ("none", "center")  # which look for nothing: the photo is the face


def available_detector(name: str, model_path: Path | None = None) -> str:
    """Return the name of the detector to use for one that a bundle names: "auto", if its model file is not here.

    The log says so, once. A detector that the user names is not replaced.

    Args:
        name: that the bundle names.
        model_path: its model file; None: the downloaded one.
    """
    spec = DETECTORS.get(name)
    if spec is None or not spec.needs_model_file or model_path is not None or published_path(name).is_file():
        return name
    _say_replaced(name)
    return "auto"


@cache
def _say_replaced(name: str) -> None:
    log.warning(
        "the model is made for the %s detector, whose ONNX file is not here: auto takes its place; `familiar download "
        "%s` fetches it",
        name,
        name,
    )


def build_detector(name: str, model_path: Path | None = None) -> Detector:
    """Build a detector of `DETECTORS`.

    Args:
        name: one of its keys, such as "pets".
        model_path: ONNX file of a detector that needs one ("yunet"); None: the downloaded one.

    Raises:
        BadDetector: an unknown name, or a model file that is missing, broken or not accepted.
    """
    spec = DETECTORS.get(name)
    if spec is None:
        raise BadDetector(f"no detector is called {name!r}; there are: {', '.join(DETECTORS)}")
    if not spec.needs_model_file:
        if model_path is not None:
            raise BadDetector(f"the {name} detector takes no model file, but got {model_path}")
        return spec.build()
    path = model_path or published_path(name)
    if model_path is None and not path.is_file():
        raise BadDetector(f"the {name} detector needs its ONNX file: `familiar download {name}` fetches it")
    return spec.build(path)


class KnownFaces:
    """Detector for photos whose faces are known already, such as those of a gallery.

    Args:
        faces: by the source of their photo.
    """

    def __init__(self, faces: Mapping[Path | str, Sequence[Face]]) -> None:
        self._faces = faces

    def detect(self, photo: Photo) -> list[Face]:
        """Return the faces of a photo.

        Args:
            photo: decoded in full.
        """
        return [*self._faces[photo.source]]
