"""Detectors for colored squares, in place of "pets" and "auto": red is a cat, green a dog and blue a person."""

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
import pytest

from familiar.core.types import Detection, Label, Photo
from familiar.detection.detectors import DETECTORS, DetectorSpec

LABEL_OF: dict[str, Label] = {"red": "cat", "green": "dog", "blue": "person"}


@dataclass(frozen=True)
class ColoredSquares:
    """A detector for squares of the photo's height: red cats, green dogs and blue people."""

    labels: Collection[Label]

    def detect(self, photo: Photo) -> list[Detection]:
        height = photo.rgb_u8.shape[0]
        found: list[Detection] = []
        for left in range(0, photo.rgb_u8.shape[1], height):
            color = photo.rgb_u8[:, left : left + height].mean(axis=(0, 1))
            label = [*LABEL_OF.values()][int(np.argmax(color))]
            if label in self.labels:
                found.append(Detection((float(left), 0.0, float(left + height), float(height)), None, 1.0, label))
        return found


def use_colored_squares(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, labels in (("pets", ("cat", "dog")), ("auto", ("cat", "dog", "person"))):
        monkeypatch.setitem(DETECTORS, name, DetectorSpec("", lambda labels=labels: ColoredSquares(labels)))
