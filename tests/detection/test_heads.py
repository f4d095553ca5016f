import math
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from familiar.core.errors import BadDetector
from familiar.core.types import Photo
from familiar.datasets.synthetic import SyntheticPhoto
from familiar.detection.heads import LABELS, SAME_HEAD_IOU, HeadDetector, _resize_for_network, distinct_boxes
from familiar.photos.decoding import load_photo
from familiar.photos.listing import find_photos

Build = Callable[[Sequence[tuple[Sequence[float], Sequence[float]]]], HeadDetector]
FACE = np.array([[0.3, 0.4], [0.7, 0.4], [0.5, 0.6], [0.35, 0.8], [0.65, 0.8]])  # in sides of the box


def landmarks_in(box: Sequence[float], landmarks: np.ndarray = FACE) -> np.ndarray:
    return np.array(box[:2]) + landmarks * (np.array(box[2:]) - np.array(box[:2]))


def photo_of(width: int, height: int, gray: int = 90) -> Photo:
    return Photo(np.full((height, width, 3), gray, np.uint8), "photo", (width, height))


def network_file(
    path: Path, boxes: Sequence[Sequence[float]], scores: Sequence[Sequence[float]], points: Sequence[np.ndarray]
) -> Path:
    """A network that says the same of every photo."""
    values = {"boxes": (boxes, (-1, 4)), "scores": (scores, (-1, 3)), "points": (points, (-1, 5, 2))}
    constants = [
        numpy_helper.from_array(np.array(value, np.float32).reshape(shape), name)
        for name, (value, shape) in values.items()
    ]
    graph = helper.make_graph(
        [helper.make_node("Identity", [each.name], [f"{each.name}_out"]) for each in constants],
        "constant",
        [helper.make_tensor_value_info("photo", TensorProto.UINT8, [1, "h", "w", 3])],
        [helper.make_tensor_value_info(f"{each.name}_out", TensorProto.FLOAT, None) for each in constants],
        constants,
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), path)
    return path


@pytest.fixture
def detector_saying(tmp_path: Path) -> Callable[..., HeadDetector]:
    """Build a detector whose network says the same of every photo: boxes in the resized photo, scores by label."""

    def build(
        *heads: tuple[Sequence[float], Sequence[float]], points: Sequence[np.ndarray] | None = None, **options: object
    ) -> HeadDetector:
        boxes, scores = [box for box, _ in heads], [score for _, score in heads]
        points = [landmarks_in(box) for box in boxes] if points is None else points
        number = len(list(tmp_path.iterdir()))
        return HeadDetector(network=network_file(tmp_path / f"{number}.onnx", boxes, scores, points), **options)  # pyright: ignore[reportArgumentType]

    return build


# What becomes of the network's answers


def test_boxes_and_landmarks_are_in_pixels_of_the_photo(detector_saying: Callable[..., HeadDetector]) -> None:
    """A photo of 640 px is halved for the network."""
    (head,) = detector_saying(((40, 30, 80, 90), (0.1, 0.9, 0.2))).detect(photo_of(640, 400))
    assert head.box_xyxy_px == (80, 60, 160, 180)
    assert (head.label, head.score) == ("dog", pytest.approx(0.9))
    np.testing.assert_allclose(head.landmarks_px, landmarks_in((80, 60, 160, 180))[:3], rtol=1e-6)


def test_boxes_are_clipped_to_the_photo(detector_saying: Callable[..., HeadDetector]) -> None:
    (head,) = detector_saying(((-20, -10, 400, 100), (0.9, 0, 0))).detect(photo_of(320, 200))
    assert head.box_xyxy_px == (0, 0, 320, 100)


@pytest.mark.parametrize("box", [(-40, 0, -5, 50), (10, 330, 60, 360), (50, 50, 50, 90)])
def test_boxes_beside_the_photo_are_no_heads(
    detector_saying: Callable[..., HeadDetector], box: tuple[float, ...]
) -> None:
    """The photo of 320 x 200 px is filled up to 224 px."""
    assert detector_saying((box, (0.9, 0, 0))).detect(photo_of(320, 200)) == []


# Second looks


@pytest.fixture
def detector_looking(detector_saying: Callable[..., HeadDetector], monkeypatch: pytest.MonkeyPatch):
    """Build a detector whose network says something else of each size and color, and keeps what it was shown."""

    def build(says: Callable[[np.ndarray], Sequence[tuple[Sequence[float], Sequence[float]]]]) -> tuple:
        detector, shown = detector_saying(), list[np.ndarray]()

        class Network:
            @staticmethod
            def run(_: None, inputs: dict[str, np.ndarray]) -> list[np.ndarray]:
                shown.append(inputs["photo"][0])
                heads = says(inputs["photo"][0])
                boxes = np.array([box for box, _ in heads], np.float32).reshape(-1, 4)
                scores = np.array([score for _, score in heads], np.float32).reshape(-1, 3)
                points = np.array([landmarks_in(box) for box, _ in heads], np.float32).reshape(-1, 5, 2)
                return [boxes, scores, points]

        monkeypatch.setattr(detector, "_session", Network())
        return detector, shown

    return build


CAT, DOG, PERSON = (0.9, 0, 0), (0, 0.9, 0), (0, 0, 0.9)


@pytest.mark.parametrize(
    ("size", "sides"), [((3000, 1500), []), ((3750, 1500), [500]), ((1500, 6000), [800]), ((12_000, 900), [1024])]
)
def test_large_photos_are_looked_at_twice(detector_looking, size: tuple[int, int], sides: list[int]) -> None:
    detector, shown = detector_looking(lambda _: [((10, 10, 40, 40), PERSON)])
    detector.detect(photo_of(*size))
    assert [max(each.shape) // 32 for each in shown] == [-(-side // 32) for side in (320, *sides)]


def test_second_look_adds_small_heads(detector_looking) -> None:
    """A photo of 4,800 x 3,600 px is looked at with 320 and with 640 px; each box of the second is half as large."""

    def says(pixels: np.ndarray) -> list:
        if max(pixels.shape) < 640:
            return [((100, 100, 200, 200), CAT), ((20, 20, 59, 50), CAT)]  # the second may be a whole pet
        return [
            ((20, 30, 60, 60), DOG),
            ((400, 100, 600, 300), DOG),  # too large: the first look would have found it
            ((300, 300, 340, 340), DOG),  # on the cat
            ((600, 40, 630, 70), PERSON),
        ]

    detector, _ = detector_looking(says)
    heads = detector.detect(photo_of(4800, 3600))
    assert [(head.label, head.box_xyxy_px) for head in heads] == [
        ("cat", pytest.approx((1500, 1500, 3000, 3000))),
        ("dog", pytest.approx((150, 225, 450, 450))),
    ]
    np.testing.assert_allclose(heads[1].landmarks_px, landmarks_in((150, 225, 450, 450))[:3], rtol=1e-6)


@pytest.mark.parametrize("turns", [1, 3])
def test_photo_without_heads_is_looked_at_on_its_side(detector_looking, turns: int) -> None:
    """A photo whose only red part is a head, found only where it is in the upper half."""
    pixels = np.zeros((200, 320, 3), np.uint8)
    box = (260, 20, 310, 80) if turns == 1 else (10, 20, 60, 80)
    pixels[box[1] : box[3], box[0] : box[2], 0] = 255

    def says(shown: np.ndarray) -> list:
        if shown.shape[0] <= shown.shape[1]:
            return []
        rows, columns = np.nonzero(shown[..., 0] > 128)
        if rows.max() > shown.shape[0] / 2:
            return []
        return [((columns.min(), rows.min(), columns.max() + 1, rows.max() + 1), CAT)]

    detector, shown = detector_looking(says)
    (head,) = detector.detect(Photo(pixels, "on its side", (320, 200)))
    assert [max(each.shape) for each in shown] == [320, 160, 320, 416, 320, 416]
    assert head.box_xyxy_px == box
    left, top, right, bottom = box
    width, height = right - left, bottom - top
    across = [(right - y * width, top + x * height) for x, y in FACE[:3]]
    if turns == 3:
        across = [(left + y * width, bottom - x * height) for x, y in FACE[:3]]
    np.testing.assert_allclose(head.landmarks_px, across, rtol=1e-5)


def side_look(shown: np.ndarray, first: float, second: float) -> list:
    """Say that there is a dog in photos that are higher than wide, with another score at the larger size."""
    if shown.shape[0] <= shown.shape[1]:
        return []
    scale, score = (1, first) if shown.shape[0] == 320 else (416 / 320, second)
    return [((9 * scale, 9 * scale, 60 * scale, 60 * scale), (0, score, 0))]


@pytest.mark.parametrize(
    ("first", "second", "expected"), [(0.7, 0.7, []), (0.9, 0.5, []), (0.9, 0.7, [0.8]), (0.9, 0, [])]
)
def test_heads_on_their_side_must_be_surer(detector_looking, first: float, second: float, expected: list) -> None:
    """Their score is the mean of two looks."""
    detector, _ = detector_looking(lambda shown: side_look(shown, first, second))
    assert [head.score for head in detector.detect(photo_of(320, 200))] == pytest.approx(expected)


@pytest.mark.parametrize(("upright", "expected", "runs"), [(0.6, "dog", 5), (0.74, "cat", 5), (0.76, "cat", 1)])
def test_photo_is_turned_if_its_heads_are_much_surer_then(
    detector_looking, upright: float, expected: str, runs: int
) -> None:
    """The dog on its side has a score of .8: enough against a cat of .6, not against one of .74."""

    def says(shown: np.ndarray) -> list:
        return side_look(shown, 0.8, 0.8) or [((100, 60, 160, 120), (upright, 0, 0))]

    detector, shown = detector_looking(says)
    assert [head.label for head in detector.detect(photo_of(320, 200))] == [expected]
    assert len(shown) == runs


def test_sure_person_is_no_reason_to_look_again(detector_looking) -> None:
    """Even if pets are looked for."""
    detector, shown = detector_looking(lambda _: [((9, 9, 60, 60), PERSON)])
    assert detector.detect(photo_of(320, 200)) == []
    assert len(shown) == 1


@pytest.mark.parametrize(("side", "score", "expected"), [(110, 0.7, 1), (60, 0.7, 0), (110, 0.6, 0)])
def test_head_that_fills_the_photo_is_found_in_a_smaller_copy(
    detector_looking, side: int, score: float, expected: int
) -> None:
    """There, smaller heads are not: they would have been found at the first look."""
    detector, _ = detector_looking(
        lambda shown: [((20, 20, 20 + side, 20 + side), (score, 0, 0))] if max(shown.shape) == 160 else []
    )
    heads = detector.detect(photo_of(320, 320))
    assert [head.box_xyxy_px for head in heads] == [(40, 40, 40 + 2 * side, 40 + 2 * side)] * expected


@pytest.mark.parametrize("corner", [(400, 300), (-20, -10), (1140, 840)])
def test_landmarks_of_a_person_are_those_of_two_enlarged_looks(detector_looking, corner: tuple[int, int]) -> None:
    """The face reaches over the photo's edges, too. In the mirror image the left eye is the right one."""
    x, y = corner
    box = tuple(np.clip((x, y, x + 80, y + 80), 0, (1200, 900, 1200, 900)).tolist())
    side, middle_xy = 1.5 * max(box[2] - box[0], box[3] - box[1]), np.array([box[0] + box[2], box[1] + box[3]]) / 2

    def says(shown: np.ndarray) -> list:
        if max(shown.shape) == 320:
            return [(tuple(value * 320 / 1200 for value in box), PERSON)]
        return [((30, 40, 130, 140), PERSON)]

    detector, shown = detector_looking(says)
    detector.labels = frozenset(LABELS)
    (face,) = detector.detect(photo_of(1200, 900))
    assert [max(each.shape) for each in shown] == [320, 160, 160]
    points = landmarks_in((30, 40, 130, 140))
    mirrored = np.array([160, 0]) + points[[1, 0, 2, 4, 3]] * (-1, 1)
    expected = (points + mirrored) / 2 * side / 160 + middle_xy - side / 2
    np.testing.assert_allclose(face.landmarks_px, expected, atol=1)
    assert face.box_xyxy_px == pytest.approx(box, abs=1e-3)


def test_person_who_is_not_seen_enlarged_has_the_landmarks_of_the_first_look(detector_looking) -> None:
    detector, _ = detector_looking(lambda shown: [((80, 80, 160, 160), PERSON)] if max(shown.shape) == 320 else [])
    detector.labels = frozenset(LABELS)
    (face,) = detector.detect(photo_of(320, 240))
    np.testing.assert_allclose(face.landmarks_px, landmarks_in((80, 80, 160, 160)), rtol=1e-6)


def test_low_scores_are_no_heads(detector_saying: Callable[..., HeadDetector]) -> None:
    heads = ((0, 0, 50, 50), (0.499, 0.1, 0)), ((100, 100, 150, 150), (0.501, 0.1, 0))
    assert len(detector_saying(*heads).detect(photo_of(320, 320))) == 1
    assert len(detector_saying(*heads, min_score=0.4).detect(photo_of(320, 320))) == 2


def test_person_is_no_pet(detector_saying: Callable[..., HeadDetector]) -> None:
    """People's faces suppress pets of a lower score in the same place, also if people are not asked for."""
    heads = ((0, 0, 100, 100), (0, 0, 0.9)), ((5, 0, 105, 100), (0.8, 0, 0)), ((200, 0, 300, 100), (0, 0.7, 0))
    assert [head.label for head in detector_saying(*heads).detect(photo_of(320, 320))] == ["dog"]
    everyone = detector_saying(*heads, labels=LABELS).detect(photo_of(320, 320))
    assert [head.label for head in everyone] == ["person", "dog"]
    assert everyone[0].landmarks_px is not None
    assert everyone[0].landmarks_px.shape == (5, 2)


def test_best_first_by_score_times_area(detector_saying: Callable[..., HeadDetector]) -> None:
    heads = ((0, 0, 20, 20), (0.99, 0, 0)), ((100, 100, 200, 200), (0.6, 0, 0))
    assert [round(head.score, 2) for head in detector_saying(*heads).detect(photo_of(320, 320))] == [0.6, 0.99]


@pytest.mark.parametrize(
    ("landmarks", "seen"),
    [
        (FACE, True),
        (FACE[:, ::-1], False),  # a face on its side: the eyes are one above the other, the nose beside them
        (FACE * [0.2, 1] + [0.4, 0], False),  # in profile
        (FACE - [0.5, 0], False),  # outside the box
        (FACE * [1, -1] + [0, 1], False),  # the nose above the eyes
        (np.full((5, 2), 0.5), False),
    ],
)
def test_landmarks_are_those_of_a_face_from_the_front(
    detector_saying: Callable[..., HeadDetector], landmarks: np.ndarray, seen: bool
) -> None:
    box = (40, 40, 140, 140)
    (head,) = detector_saying((box, (0.9, 0, 0)), points=[landmarks_in(box, landmarks)]).detect(photo_of(320, 320))
    assert (head.landmarks_px is not None) == seen


@given(
    st.lists(
        st.tuples(st.integers(0, 40), st.integers(0, 40), st.integers(1, 40), st.integers(1, 40), st.floats(0.01, 1)),
        max_size=12,
    )
)
def test_suppression_keeps_the_best_of_boxes_that_overlap(
    rows: list[tuple[int, int, int, int, float]],
) -> None:
    """None of the chosen overlap, and each that is not chosen overlaps a chosen one with at least its score."""
    boxes = np.array([(x, y, x + width, y + height) for x, y, width, height, _ in rows], np.float32).reshape(-1, 4)
    scores = np.array([row[4] for row in rows], np.float32)
    chosen = distinct_boxes(boxes, scores).tolist()

    def overlap(first: np.ndarray, second: np.ndarray) -> float:
        cells = [
            {(x, y) for x in range(int(box[0]), int(box[2])) for y in range(int(box[1]), int(box[3]))}
            for box in (first, second)
        ]
        return len(cells[0] & cells[1]) / len(cells[0] | cells[1])

    assert scores[chosen].tolist() == sorted(scores[chosen].tolist(), reverse=True)
    for row in range(len(rows)):
        rivals = [other for other in chosen if other != row and overlap(boxes[row], boxes[other]) > SAME_HEAD_IOU]
        if row in chosen:
            assert not rivals
        else:
            assert any(scores[other] >= scores[row] for other in rivals)


@given(st.integers(1, 3000), st.integers(1, 3000))
def test_network_gets_sides_that_are_multiples(width: int, height: int) -> None:
    pixels = _resize_for_network(np.full((height, width, 3), 255, np.uint8), 320)
    assert all(side % 32 == 0 and side >= 64 for side in pixels.shape[:2])
    scale = 320 / max(width, height)
    filled = np.array(pixels[..., 0] > 0)
    assert filled[: max(1, round(height * scale)), : max(1, round(width * scale))].all()
    assert filled.sum() == max(1, round(height * scale)) * max(1, round(width * scale))


def test_rejects_damaged_network(tmp_path: Path) -> None:
    damaged = tmp_path / "heads.onnx"
    damaged.write_bytes(b"no network")
    with pytest.raises(BadDetector, match=r"heads\.onnx: ONNX Runtime .* cannot open the detector's network"):
        HeadDetector(network=damaged)


# The package's network


@pytest.mark.parametrize("size", [(1, 1), (5, 900), (900, 5), (64, 48), (2000, 1500)])
def test_finds_nothing_in_blank_photos(size: tuple[int, int]) -> None:
    assert HeadDetector(LABELS).detect(photo_of(*size)) == []


def drawn(species: str, identity: int, size_px: int = 224) -> np.ndarray:
    return SyntheticPhoto(species, identity, 0, size_px=size_px).draw().rgb_u8  # pyright: ignore[reportArgumentType]


def on_canvas(width: int, height: int, *pets: tuple[np.ndarray, int, int]) -> Photo:
    canvas = np.full((height, width, 3), 130, np.uint8)
    for pixels, x, y in pets:
        canvas[y : y + pixels.shape[0], x : x + pixels.shape[1]] = pixels
    return Photo(canvas, "canvas", (width, height))


def test_finds_drawn_pets_and_tells_what_they_are() -> None:
    photo = on_canvas(700, 320, (drawn("cats", 1), 40, 50), (drawn("dogs", 2), 420, 60))
    heads = sorted(HeadDetector().detect(photo), key=lambda head: head.box_xyxy_px)
    assert [head.label for head in heads] == ["cat", "dog"]
    for head, (x, y) in zip(heads, [(40, 50), (420, 60)], strict=True):
        left, top, right, bottom = head.box_xyxy_px
        assert x - 25 < left < right < x + 224 + 25
        assert y - 25 < top < bottom < y + 224 + 25
        assert 80 < math.sqrt(head.box_xyxy_px.area) < 240


def test_finds_most_drawn_crops() -> None:
    """Crops that are nothing but a head are photos, too."""
    detector = HeadDetector()
    results = [
        [head.label for head in detector.detect(SyntheticPhoto(species, identity, 1).draw())] == [label]
        for species, label in (("cats", "cat"), ("dogs", "dog"))
        for identity in range(30)
    ]
    assert sum(results) >= 57


def test_mirrored_photo_gives_mirrored_heads() -> None:
    photo = on_canvas(640, 320, (drawn("cats", 4), 60, 40))
    mirrored = Photo(np.ascontiguousarray(photo.rgb_u8[:, ::-1]), "mirrored", photo.size_px)
    (head,), (other,) = (HeadDetector().detect(each) for each in (photo, mirrored))
    left, top, right, bottom = other.box_xyxy_px
    np.testing.assert_allclose(head.box_xyxy_px, (640 - right, top, 640 - left, bottom), atol=15)


def test_threads_share_one_network() -> None:
    photos = [on_canvas(500, 300, (drawn("cats", identity), 30, 40)) for identity in range(6)]
    detector = HeadDetector()
    expected = [detector.detect(photo) for photo in photos]
    with ThreadPoolExecutor(4) as pool:
        for detections, heads in zip(pool.map(detector.detect, photos), expected, strict=True):
            assert [head.box_xyxy_px for head in detections] == [head.box_xyxy_px for head in heads]


@pytest.mark.shared_data
@pytest.mark.slow
def test_finds_no_pets_among_people_of_lfw(shared_data: Path) -> None:
    photos = find_photos(shared_data / "lfw_photos_devtest")[::15]
    assert sum(len(HeadDetector().detect(load_photo(path))) for path in photos) <= len(photos) / 20
