"""Decision thresholds and probabilities for the similarities of one embedding space."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Threshold:
    """A decision threshold, with its false and true accept rates on validation identities.

    Attributes:
        similarity: the threshold, a cosine in [-1, 1]; a pair of this similarity or more is accepted as the same.
        far: false accept rate, the share of negative pairs that are accepted, in [0, 1]; None: not measured.
        tar: true accept rate, the share of positive pairs that are accepted, in [0, 1]; None: not measured.
    """

    similarity: float
    far: float | None
    tar: float | None


@dataclass(frozen=True)
class Calibration:
    """Thresholds and a probability curve for similarities, fitted on validation identities.

    The probability that a pair shows one individual is `1 / (1 + exp(-(slope * similarity + intercept)))`, if both
    answers are equally likely beforehand. With too few pairs to fit anything, the thresholds are fixed numbers and
    all other fields are None.

    Attributes:
        high_precision: threshold with few false accepts.
        balanced: threshold for general use.
        high_recall: threshold with few false rejects.
        slope: of the probability curve.
        intercept: of the probability curve.
        calibration_error: of the probability curve, in [0, 1].
        pairs_same: number of positive pairs the calibration was fitted on.
        pairs_different: number of negative pairs it was fitted on.
        target_far: false accept rate that `high_precision` was chosen for, the lowest that this many pairs support.
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
        """Whether there were enough pairs to fit the curve."""
        return self.slope is not None
