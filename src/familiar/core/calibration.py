"""What the similarities of one space mean: where to decide, and how probable an answer is."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Threshold:
    """A similarity to decide at, with the false and true accept rates it had on validation identities, if known."""

    similarity: float
    far: float | None
    tar: float | None


@dataclass(frozen=True)
class Calibration:
    """What similarities mean, fitted on validation identities.

    `probability = 1 / (1 + exp(-(slope * similarity + intercept)))` that a pair is one individual, where
    both answers are equally likely beforehand. `calibration_error` is that curve's own, in [0, 1];
    `pairs_same` and `pairs_different` say on how many pairs all this stands. `target_far`: the false accept rate
    that `high_precision` was held to, the lowest that so many pairs support.

    Where there were too few pairs to fit anything, the similarities are fixed ones and all else is None.
    """

    high_precision: Threshold
    balanced: Threshold
    high_recall: Threshold
    slope: float | None
    intercept: float | None
    calibration_error: float | None
    pairs_same: int
    pairs_different: int
    target_far: float | None = None

    @property
    def fitted(self) -> bool:
        """Whether anything is known of this model's similarities."""
        return self.slope is not None

    @staticmethod
    def from_dict(stored: Mapping[str, Any]) -> "Calibration":
        """What `dataclasses.asdict` made of one. KeyError or TypeError where something is missing."""
        restored: dict[str, Any] = {**stored}
        for name in ("high_precision", "balanced", "high_recall"):
            restored[name] = Threshold(**stored[name])
        return Calibration(**restored)
