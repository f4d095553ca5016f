"""Photos that are crops of faces already are noticed."""

from collections.abc import Sequence

import numpy as np
import pytest

from familiar.core.errors import UnreadablePhoto
from familiar.core.types import Face, Photo
from familiar.detection.detectors import CenterSquare, WholePhoto
from familiar.detection.ready_crops import are_crops

WIDTH_PX, HEIGHT_PX = 100, 80


class Drawn:
    """A detector of faces that fill given shares of a photo, which its first pixel numbers."""

    def __init__(self, *shares: Sequence[float]) -> None:
        self.shares, self.searched = shares, list[int]()

    def detect(self, photo: Photo) -> list[Face]:
        number = int(photo.rgb_u8[0, 0, 0])
        self.searched.append(number)
        return [
            Face((0.0, 0.0, WIDTH_PX * share, float(HEIGHT_PX)), None, 0.9)
            for share in self.shares[number % len(self.shares)]
        ]


def open_drawn(number: int, /, *, min_side_px: int | None = None) -> Photo:  # noqa: ARG001
    if number < 0:
        raise UnreadablePhoto("damaged")
    return Photo(np.full((HEIGHT_PX, WIDTH_PX, 3), number, np.uint8), str(number), (WIDTH_PX, HEIGHT_PX))


@pytest.mark.parametrize(
    ("faces", "expected"),
    [
        ([(0.5,)], True),
        ([(0.4,)], False),
        ([(0.5,)] * 9 + [(0.2,)], True),
        ([(0.5,)] * 8 + [(0.2,)] * 2, False),
        ([(0.5,), (), ()], True),  # in crops a detector often misses the face
        ([()], False),
        ([(0.5, 0.5)], False),  # two faces are no crop of one
    ],
)
def test_crops_are_filled_by_one_face(faces: list[Sequence[float]], expected: bool) -> None:
    assert are_crops(range(30), Drawn(*faces), open_photo=open_drawn) is expected


def test_few_photos_are_no_set() -> None:
    assert not are_crops(range(7), Drawn((0.5,)), open_photo=open_drawn)
    assert are_crops(range(8), Drawn((0.5,)), open_photo=open_drawn)
    assert not are_crops([*range(7), -1], Drawn((0.5,)), open_photo=open_drawn)


def test_a_sample_of_many_photos_is_searched() -> None:
    detector = Drawn((0.5,))
    assert are_crops(range(200), detector, open_photo=open_drawn)
    assert detector.searched == list(range(0, 200, 5))


@pytest.mark.parametrize("detector", [WholePhoto(), CenterSquare()])
def test_detectors_that_look_for_nothing_are_not_asked(detector: WholePhoto | CenterSquare) -> None:
    assert not are_crops(range(30), detector, open_photo=open_drawn)
