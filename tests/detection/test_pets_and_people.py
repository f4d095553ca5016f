from pathlib import Path

import cv2
import numpy as np
import pytest

from familiar.core.published_files import PUBLISHED_FILES
from familiar.core.types import LABELS, Face, Photo
from familiar.datasets.synthetic import SyntheticPhoto
from familiar.detection.detectors import build_detector
from familiar.detection.pets_and_people import PetsAndPeople
from familiar.photos.decoding import load_photo

CANVAS = Photo(np.full((100, 300, 3), 120, np.uint8), "canvas", (300, 100))
CAT = Face((10.0, 10.0, 60.0, 60.0), None, 0.9, label="cat")


class Saying:
    """A detector that finds the same in every photo."""

    def __init__(self, *detections: Face) -> None:
        self.detections = list(detections)

    def detect(self, _: Photo) -> list[Face]:
        return self.detections


def both(heads: Saying, people: Saying) -> PetsAndPeople:
    detector = PetsAndPeople.__new__(PetsAndPeople)
    detector._heads = heads  # pyright: ignore[reportAttributeAccessIssue]
    detector.labels = frozenset(LABELS)
    detector._people = people  # pyright: ignore[reportAttributeAccessIssue]
    return detector


def test_face_on_a_pets_head_is_no_person() -> None:
    """YuNet finds the faces of dogs."""
    on_cat = Face((15.0, 20.0, 45.0, 55.0), None, 0.95, label="person")
    bystander = Face((200.0, 10.0, 280.0, 90.0), None, 0.8, label="person")
    assert both(Saying(CAT), Saying(on_cat, bystander)).detect(CANVAS) == [bystander, CAT]
    assert both(Saying(), Saying(on_cat)).detect(CANVAS) == [on_cat]


@pytest.fixture
def folder_of_models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FAMILIAR_MODELS", str(tmp_path))
    return tmp_path


def photo_of_three(shared_data: Path) -> Photo:
    """A drawn cat, a drawn dog and a person."""
    person = load_photo(shared_data / "lfw_photos_devtest" / "Aaron_Guiel" / "Aaron_Guiel_0001.jpg").rgb_u8
    drawn = [SyntheticPhoto(species, 1, 0).draw().rgb_u8 for species in ("cats", "dogs")]
    parts = [cv2.resize(part, (224, 224)) for part in (*drawn, person)]
    pixels = np.concatenate(parts, axis=1)
    return Photo(pixels, "three", (pixels.shape[1], pixels.shape[0]))


@pytest.mark.shared_data
@pytest.mark.parametrize("has_yunet", [False, True])
def test_finds_a_cat_a_dog_and_a_person(has_yunet: bool, shared_data: Path, folder_of_models: Path) -> None:
    if has_yunet:
        yunet = shared_data / "weights" / "yunet" / "yunet_n_640_640.onnx"
        (folder_of_models / PUBLISHED_FILES["yunet"].name).symlink_to(yunet)
    detections = sorted(build_detector("auto").detect(photo_of_three(shared_data)), key=lambda each: each.box_xyxy_px)
    assert [each.label for each in detections] == ["cat", "dog", "person"]
    assert detections[2].landmarks_px is not None
    assert len(detections[2].landmarks_px) == 5
