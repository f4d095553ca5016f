import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import cv2
import numpy as np
import pytest

from familiar.core.errors import BadDetector
from familiar.core.types import Photo
from familiar.detection.detector import Detector
from familiar.detection.detectors import DETECTORS, build_detector
from familiar.detection.opencv import YuNetFaces, _ModelPool
from familiar.photos.decoding import load_photo

pytestmark = pytest.mark.slow


def blank(width: int, height: int, gray: int = 128) -> Photo:
    return Photo(np.full((height, width, 3), gray, np.uint8), "blank", (width, height))


def every_nth(folder: Path, count: int) -> list[Path]:
    paths = sorted(folder.glob("*/*.jpg"))
    return paths[:: len(paths) // count][:count]


@pytest.fixture(scope="module")
def yunet_file(shared_data: Path) -> Path:
    return shared_data / "weights" / "yunet" / "yunet_n_640_640.onnx"


# By name


@pytest.mark.parametrize("name", ["none", "center", "pets", "people", "auto"])
def test_detectors_are_built_by_name(name: str) -> None:
    assert isinstance(build_detector(name), Detector)


def test_every_detector_has_a_description() -> None:
    assert set(DETECTORS) == {"none", "center", "pets", "people", "auto", "yunet"}
    assert all(spec.description for spec in DETECTORS.values())


def test_rejects_unknown_name_and_lists_detectors() -> None:
    with pytest.raises(BadDetector, match="'mtcnn'; there are: none, center, pets, people, auto, yunet"):
        build_detector("mtcnn")


def test_rejects_yunet_without_model_file() -> None:
    with pytest.raises(BadDetector, match="the yunet detector needs its ONNX file"):
        build_detector("yunet")


def test_rejects_missing_yunet_file(tmp_path: Path) -> None:
    with pytest.raises(BadDetector, match=r"gone\.onnx: No such file or directory"):
        build_detector("yunet", tmp_path / "gone.onnx")


@pytest.mark.parametrize("content", [b"", b"no network at all"])
def test_rejects_corrupt_yunet_file(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "broken.onnx"
    path.write_bytes(content)
    with pytest.raises(BadDetector, match=r"broken\.onnx: cannot be loaded as a YuNet"):
        build_detector("yunet", path)


def test_rejects_model_file_for_a_detector_of_the_package(tmp_path: Path) -> None:
    with pytest.raises(BadDetector, match="pets detector takes no model file"):
        build_detector("pets", tmp_path / "model.onnx")


# Without a detector


def test_none_detector_returns_whole_photo() -> None:
    (only,) = build_detector("none").detect(blank(30, 20))
    assert only.box_xyxy_px == (0, 0, 30, 20)
    assert only.landmarks_px is None
    assert only.score == 1


@pytest.mark.parametrize(
    ("size_px", "box_xyxy_px"),
    [
        ((30, 20), (5, 0, 25, 20)),
        ((20, 30), (0, 5, 20, 25)),
        ((7, 7), (0, 0, 7, 7)),
        ((4, 1), (1.5, 0, 2.5, 1)),
    ],
)
def test_center_detector_returns_largest_centered_square(size_px: tuple[int, int], box_xyxy_px: tuple) -> None:
    (only,) = build_detector("center").detect(blank(*size_px))
    assert only.box_xyxy_px == box_xyxy_px
    assert only.score == 1


# Photos without faces


@pytest.mark.shared_data
@pytest.mark.parametrize("size_px", [(1, 1), (3, 2), (4000, 1), (1, 4000), (1280, 1), (300, 200), (3000, 2000)])
def test_yunet_returns_no_detection_on_blank_photo(size_px: tuple[int, int], yunet_file: Path) -> None:
    detector = build_detector("yunet", yunet_file)
    for gray in (0, 128, 255):
        assert detector.detect(blank(*size_px, gray)) == []


@pytest.mark.shared_data
def test_yunet_keeps_no_state_between_photos(yunet_file: Path) -> None:
    random = np.random.default_rng(0)
    used = build_detector("yunet", yunet_file)
    for height, width in [(20, 600), (500, 9), (32, 32), (300, 200), (8, 640), (33, 500)]:
        noise = random.integers(0, 256, (height, width, 3), dtype=np.uint8)
        photo = Photo(noise, "noise", (width, height))
        assert used.detect(photo) == build_detector("yunet", yunet_file).detect(photo) == []


def test_threads_detect_at_the_same_time() -> None:
    """Each thread waits inside OpenCV's call until the other is there too, each in a network of its own."""
    both, used = threading.Barrier(2, timeout=30), set[int]()

    class WaitingNetwork:
        def setInputSize(self, _: object) -> None:  # noqa: N802
            pass

        def detect(self, _: object) -> tuple[int, None]:
            used.add(id(self))
            both.wait()
            return 1, None

    detector = YuNetFaces.__new__(YuNetFaces)
    detector._networks = _ModelPool(WaitingNetwork)
    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(detector.detect, [blank(64, 64)] * 4)) == [[]] * 4
    assert len(used) == 2  # a network is used again


# Real photos


@pytest.mark.shared_data
def test_yunet_landmarks_are_plausible_on_lfw(shared_data: Path, yunet_file: Path) -> None:
    detector = build_detector("yunet", yunet_file)
    for path in every_nth(shared_data / "lfw_photos_devtest", 30):
        best = detector.detect(load_photo(path))[0]
        assert best.score >= 0.6
        assert best.landmarks_px is not None
        left_eye, right_eye, nose, left_mouth, right_mouth = best.landmarks_px
        assert left_eye[0] < right_eye[0]
        assert left_mouth[0] < right_mouth[0]
        assert max(left_eye[1], right_eye[1]) < nose[1] < min(left_mouth[1], right_mouth[1])
        left, top, right, bottom = best.box_xyxy_px
        assert (best.landmarks_px > (left, top)).all()
        assert (best.landmarks_px < (right, bottom)).all()


@pytest.mark.shared_data
@pytest.mark.parametrize("name", ["auto", "yunet"])
def test_detections_are_sorted_by_score_x_area_and_deterministic(
    name: str, shared_data: Path, yunet_file: Path
) -> None:
    paths = every_nth(shared_data / "lfw_photos_devtest", 4)
    photos = [load_photo(path).rgb_u8 for path in paths]
    group = Photo(np.vstack([np.hstack(photos[:2]), np.hstack(photos[2:])]), "group", (384, 384))
    detector = build_detector(name, yunet_file if name == "yunet" else None)
    detections = detector.detect(group)
    assert len(detections) >= 4
    order = [detection.score * detection.box_xyxy_px.area for detection in detections]
    assert order == sorted(order, reverse=True)
    repeated = detector.detect(group)
    assert [face.box_xyxy_px for face in repeated] == [face.box_xyxy_px for face in detections]


@pytest.mark.shared_data
def test_huge_photo_detections_use_original_pixels(shared_data: Path, yunet_file: Path) -> None:
    rgb_u8 = load_photo(every_nth(shared_data / "lfw_photos_devtest", 30)[1]).rgb_u8
    scene = np.full((600, 1280, 3), 90, np.uint8)
    scene[200:392, 700:892] = rgb_u8
    huge = cv2.resize(scene, None, fx=3, fy=3, interpolation=cv2.INTER_CUBIC)
    detector = build_detector("yunet", yunet_file)
    small_best = detector.detect(Photo(scene, "scene", (1280, 600)))[0]
    huge_best = detector.detect(Photo(huge, "huge", (3840, 1800)))[0]
    # Interpolation moves boxes by a few pixels at the search size, three times as many in the photo.
    np.testing.assert_allclose(np.array(huge_best.box_xyxy_px) / 3, small_best.box_xyxy_px, atol=5)
    np.testing.assert_allclose(huge_best.landmarks_px / 3, small_best.landmarks_px, atol=2)


@pytest.mark.shared_data
def test_yunet_matches_opencv_reference(shared_data: Path, yunet_file: Path) -> None:
    reference = cv2.FaceDetectorYN.create(str(yunet_file), "", (192, 192), 0.6)
    detector = build_detector("yunet", yunet_file)
    for path in every_nth(shared_data / "lfw_photos_devtest", 5):
        photo = load_photo(path)
        _, rows = reference.detect(np.ascontiguousarray(photo.rgb_u8[..., ::-1]))  # BGR
        best, row = detector.detect(photo)[0], max(rows, key=lambda row: row[14])
        x, y, width, height = (float(value) for value in row[:4])
        assert best.box_xyxy_px == (x, y, x + width, y + height)
        assert best.score == row[14]
        np.testing.assert_array_equal(best.landmarks_px, row[4:14].reshape(5, 2))
