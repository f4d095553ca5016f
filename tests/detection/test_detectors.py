import math
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import cv2
import numpy as np
import pytest
from cv2.data import haarcascades

from familiar.core.errors import BadDetector
from familiar.core.types import Photo
from familiar.detection.alignment import similarity_transform, template_px
from familiar.detection.detector import Detector
from familiar.detection.detectors import DETECTORS, build_detector
from familiar.detection.opencv import HaarFaces, _ModelPool
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


@pytest.mark.parametrize("name", ["none", "center", "pets", "auto", "haar", "haar-arcface", "haar-cat"])
def test_detectors_are_built_by_name(name: str) -> None:
    assert isinstance(build_detector(name), Detector)


def test_every_detector_has_a_description() -> None:
    assert set(DETECTORS) == {"none", "center", "pets", "auto", "haar", "haar-arcface", "haar-cat", "yunet"}
    assert all(spec.description for spec in DETECTORS.values())


def test_rejects_unknown_name_and_lists_detectors() -> None:
    with pytest.raises(
        BadDetector, match="'mtcnn'; there are: none, center, pets, auto, haar, haar-arcface, haar-cat, yunet"
    ):
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


def test_rejects_model_file_for_haar(tmp_path: Path) -> None:
    with pytest.raises(BadDetector, match="haar detector takes no model file"):
        build_detector("haar", tmp_path / "model.onnx")


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


@pytest.mark.parametrize("name", ["haar", "haar-arcface", "haar-cat"])
@pytest.mark.parametrize("size_px", [(1, 1), (3, 2), (4000, 1), (1, 4000), (300, 200), (3000, 2000)])
def test_haar_returns_no_detection_on_blank_photo(name: str, size_px: tuple[int, int]) -> None:
    assert build_detector(name).detect(blank(*size_px)) == []


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


def test_threads_detect_at_the_same_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each thread waits inside OpenCV's call until the other is there too, each in a cascade of its own."""
    detector = HaarFaces("haarcascade_frontalface_default.xml")
    both, used = threading.Barrier(2, timeout=30), set[int]()

    class WaitingCascade:
        def detectMultiScale3(self, *_: object, **__: object) -> tuple[tuple[()], tuple[()], tuple[()]]:  # noqa: N802
            used.add(id(self))
            both.wait()
            return (), (), ()

    monkeypatch.setattr(detector, "_cascades", _ModelPool(WaitingCascade))
    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(detector.detect, [blank(64, 64)] * 4)) == [[]] * 4
    assert len(used) == 2  # a cascade is used again


def test_larger_face_comes_before_sharper_bystander(monkeypatch: pytest.MonkeyPatch) -> None:
    class Cascade:
        def detectMultiScale3(self, *_: object, **__: object) -> tuple[object, object, object]:  # noqa: N802
            return [(0, 0, 10, 10), (20, 20, 40, 40)], (1, 1), (8.0, 4.0)

    detector = HaarFaces("haarcascade_frontalface_default.xml")
    monkeypatch.setattr(detector, "_cascades", _ModelPool(Cascade))
    first, second = detector.detect(blank(64, 64))
    assert (first.box_xyxy_px, second.box_xyxy_px) == ((20, 20, 60, 60), (0, 0, 10, 10))
    assert first.score < second.score


def test_moved_boxes_keep_center_column_and_shape(monkeypatch: pytest.MonkeyPatch) -> None:
    class Cascade:
        def detectMultiScale3(self, *_: object, **__: object) -> tuple[object, object, object]:  # noqa: N802
            return [(100, 200, 400, 400)], (1,), (8.0,)

    detector = HaarFaces("haarcascade_frontalface_default.xml", lowered=-0.1, enlarged=1.5)
    monkeypatch.setattr(detector, "_cascades", _ModelPool(Cascade))
    (face,) = detector.detect(blank(800, 800))
    assert face.box_xyxy_px == (0, 60, 600, 660)  # center (300, 400) raised by 40; side 400 -> 600


# Real photos


@pytest.mark.shared_data
def test_haar_boxes_fit_crops_by_landmarks_on_lfw(shared_data: Path, yunet_file: Path) -> None:
    """Compare centers and sides with those of the square that YuNet's landmarks give."""
    haar, yunet = build_detector("haar-arcface"), build_detector("yunet", yunet_file)
    differences: list[tuple[float, ...]] = []
    for path in every_nth(shared_data / "lfw_photos_devtest", 30):
        photo = load_photo(path)
        faces, best = haar.detect(photo), yunet.detect(photo)[0]
        if faces and best.landmarks_px is not None:
            matrix = similarity_transform(best.landmarks_px, template_px(112, 0.0))
            side = 112 / math.sqrt(np.linalg.det(matrix[:, :2]))
            center = np.linalg.solve(matrix[:, :2], np.array([56, 56]) - matrix[:, 2])
            x_min, y_min, x_max, y_max = faces[0].box_xyxy_px
            x, y = (center - [(x_min + x_max) / 2, (y_min + y_max) / 2]) / side
            differences.append((x, y, (x_max - x_min) / side - 1))
    assert np.abs(np.median(differences, axis=0)).max() < 0.05


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
@pytest.mark.parametrize("name", ["haar", "yunet"])
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
@pytest.mark.parametrize("name", ["haar", "yunet"])
def test_huge_photo_detections_use_original_pixels(name: str, shared_data: Path, yunet_file: Path) -> None:
    rgb_u8 = load_photo(every_nth(shared_data / "lfw_photos_devtest", 30)[1]).rgb_u8
    scene = np.full((600, 1280, 3), 90, np.uint8)
    scene[200:392, 700:892] = rgb_u8
    huge = cv2.resize(scene, None, fx=3, fy=3, interpolation=cv2.INTER_CUBIC)
    detector = build_detector(name, yunet_file if name == "yunet" else None)
    small_best = detector.detect(Photo(scene, "scene", (1280, 600)))[0]
    huge_best = detector.detect(Photo(huge, "huge", (3840, 1800)))[0]
    # Interpolation moves boxes by a few pixels at the search size, three times as many in the photo.
    np.testing.assert_allclose(np.array(huge_best.box_xyxy_px) / 3, small_best.box_xyxy_px, atol=5)
    if name == "yunet":
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


@pytest.mark.shared_data
def test_haar_matches_opencv_cascade_on_luma(shared_data: Path) -> None:
    cascade = cv2.CascadeClassifier(haarcascades + "haarcascade_frontalface_default.xml")
    detector = build_detector("haar")
    for path in every_nth(shared_data / "lfw_photos_devtest", 5):
        photo = load_photo(path)
        luma = (photo.rgb_u8 @ np.array([0.299, 0.587, 0.114])).round().astype(np.uint8)  # ITU-R BT.601
        boxes = cascade.detectMultiScale(luma, scaleFactor=1.1, minNeighbors=3, minSize=(6, 6))
        expected = {(x, y, x + width, y + height) for x, y, width, height in boxes.tolist()}
        assert {face.box_xyxy_px for face in detector.detect(photo)} == expected


@pytest.mark.shared_data
def test_haar_detects_most_lfw_faces(shared_data: Path) -> None:
    detector = build_detector("haar")
    paths = every_nth(shared_data / "lfw_photos_devtest", 30)
    detections = [detector.detect(load_photo(path)) for path in paths]
    assert sum(map(bool, detections)) >= 28
    centered = [(96 - 45 < np.mean(faces[0].box_xyxy_px[::2]) < 96 + 45) for faces in detections if faces]
    assert np.mean(centered) > 0.9


@pytest.mark.exhaustive
@pytest.mark.shared_data
def test_haar_cat_detects_at_least_a_third_of_cats(shared_data: Path) -> None:
    detector = build_detector("haar-cat")
    hits = 0
    for path in every_nth(shared_data / "cats23_gpriamo", 30):
        rgb_u8 = cv2.copyMakeBorder(load_photo(path).rgb_u8, 40, 40, 40, 40, cv2.BORDER_CONSTANT, value=(128,) * 3)
        hits += bool(detector.detect(Photo(rgb_u8, path, rgb_u8.shape[1::-1])))
    assert hits >= 10


def test_rejects_missing_cascade() -> None:
    with pytest.raises(BadDetector, match=r"nosuch\.xml: OpenCV cannot read"):
        HaarFaces("nosuch.xml")
