"""Detectors for colored squares, in place of "pets" and "auto": red is a cat, green a dog and blue a person."""

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
import pytest

from familiar.core.types import Face, Label, Photo
from familiar.detection.detectors import DETECTORS, DetectorSpec

LABELS: tuple[Label, ...] = ("cat", "dog", "person")  # of red, green and blue


@dataclass(frozen=True)
class ColoredSquares:
    """A detector for squares of the photo's height: red cats, green dogs and blue people."""

    labels: Collection[Label]

    def detect(self, photo: Photo) -> list[Face]:
        height = photo.rgb_u8.shape[0]
        detections: list[Face] = []
        for x in range(0, photo.rgb_u8.shape[1], height):
            color = photo.rgb_u8[:, x : x + height].mean(axis=(0, 1))
            label = LABELS[int(np.argmax(color))]
            if label in self.labels:
                detections.append(Face((float(x), 0.0, float(x + height), float(height)), None, 1.0, label=label))
        return detections


def use_colored_squares(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, labels in (("pets", LABELS[:2]), ("auto", LABELS)):
        monkeypatch.setitem(DETECTORS, name, DetectorSpec("", lambda labels=labels: ColoredSquares(labels)))
