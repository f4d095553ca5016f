import numpy as np
import pytest
from pet_detector.judging import Findings, enlarged, kind_of_head, match, turned_by_exif
from pet_detector.labels import Head, LabeledPhoto

from familiar.core.types import Face, Photo

CAT = Head("cat", [10, 10, 60, 60], tight_box=[20, 25, 50, 60])
DOG = Head("dog", [100, 10, 160, 70])
PERSON = Head("person", [200, 10, 240, 60])


def detection(box: tuple[float, float, float, float], label: str = "cat", score: float = 0.9) -> Face:
    return Face(box, None, score, label=label)  # pyright: ignore[reportArgumentType]


def photo(*heads: Head, ignored: tuple[tuple[float, ...], ...] = (), file: str = "a.jpg") -> LabeledPhoto:
    return LabeledPhoto(file, "oxford", True, list(heads), [list(box) for box in ignored])


def test_each_head_is_matched_with_one_detection() -> None:
    on_cat, twice, on_dog = detection((12, 10, 60, 62)), detection((5, 5, 62, 65)), detection((98, 12, 158, 70), "dog")
    pairs, false = match(photo(CAT, DOG, PERSON), [on_dog, twice, on_cat])
    assert pairs == [(CAT, on_cat), (DOG, on_dog)]
    assert false == []  # the second one on the cat is no find, but it is on a head


def test_detection_of_half_the_head_is_none() -> None:
    assert match(photo(CAT), [detection((10, 10, 34, 60))])[0] == [(CAT, None)]
    assert match(photo(CAT), [detection((10, 10, 36, 60))])[0][0][1] is not None


def test_tight_boxes_are_matched_where_asked_for() -> None:
    on_face = detection((20, 25, 50, 60))
    assert match(photo(CAT), [on_face])[0] == [(CAT, None)]
    assert match(photo(CAT), [on_face], tight=True)[0] == [(CAT, on_face)]
    assert match(photo(DOG), [], tight=True)[0] == [(DOG, None)]


def test_false_detections_are_on_nothing() -> None:
    boxes = [(300, 10, 340, 50), (205, 12, 236, 60), (400, 0, 420, 20), (500, 0, 540, 40)]
    people = detection((600, 0, 640, 40), "person")
    _, false = match(photo(PERSON, ignored=((398, 0, 425, 22),)), [*map(detection, boxes), people])
    assert [each.box_xyxy_px for each in false] == [boxes[0], boxes[3]]


def test_recall_counts_heads_above_the_threshold() -> None:
    heads = [("cat", "oxford", 0.3, 0.9, "cat"), ("cat", "oxford", 0.1, 0.4, "cat"), ("dog", "x", 0.3, 0.5, "cat")]
    findings = Findings(heads, [[("cat", 0.6)], [], [("dog", 0.4), ("dog", 0.7)]])
    assert findings.recall("cat") == "0.500 of 2"
    assert findings.recall(side=(0, 0.2)) == "0.000 of 1"
    assert findings.recall("dog", "oxford") == "none"
    assert findings.false_share() == pytest.approx(2 / 3)
    assert Findings().false_share() == 0


@pytest.mark.parametrize(
    ("box", "gray", "kind"),
    [
        ((100, 100, 130, 120), 120, "small"),
        ((0, 50, 80, 150), 120, "cut off by the photo's edge"),
        ((100, 60, 180, 150), 20, "dark"),
        ((100, 60, 180, 150), 120, "turned away, hidden, or for no reason that can be measured"),
    ],
)
def test_missed_heads_are_counted_by_kind(box: tuple[int, ...], gray: int, kind: str) -> None:
    pixels = np.full((200, 300, 3), gray, np.uint8)
    assert kind_of_head(Photo(pixels, "p", (300, 200)), box) == kind


def test_changed_photos_show_the_same() -> None:
    pixels = np.zeros((64, 96, 3), np.uint8)
    pixels[:32, :48] = 250
    shown = Photo(pixels, "p", (96, 64))
    turned = turned_by_exif(shown)
    assert turned.size_px == (96, 64)
    assert np.abs(turned.rgb_u8.astype(int) - pixels).mean() < 3
    large = enlarged(shown)
    assert 99_000_000 < large.size_px[0] * large.size_px[1] <= 100_000_000
    assert large.rgb_u8[100, 100, 0] == 250
