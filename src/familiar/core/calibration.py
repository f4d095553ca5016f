"""Decision thresholds and probabilities for the similarities of one embedding space."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Float64

HIGH_PRECISION_FAR = 1e-4
"""What `high_precision` promises where there are enough pairs to measure it."""


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

    The probability that a pair shows one individual is `sigmoid(slope * similarity + intercept)`, if both answers are
    equally likely beforehand: it rises with the similarity. With too few pairs to fit anything, the thresholds are
    fixed numbers and all other fields are None.

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

    @staticmethod
    def fixed(similarity: float) -> "Calibration":
        """Return a calibration that was not fitted, and of which all thresholds are the same.

        Args:
            similarity: in [-1, 1].
        """
        threshold = Threshold(similarity, None, None)
        return Calibration(threshold, threshold, threshold, None, None, None, 0, 0)

    @property
    def fitted(self) -> bool:
        """Whether there were enough pairs to fit the curve."""
        return self.slope is not None

    def probabilities(self, similarities: Float[np.ndarray, " p"]) -> Float64[np.ndarray, " p"] | None:
        """Compute the probabilities that pairs show the same individual, if both answers are equally likely beforehand.

        Args:
            similarities: cosine of the embeddings of each pair, in [-1, 1].

        Returns:
            A probability in [0, 1] for each pair; None if there is no curve.
        """
        if self.slope is None or self.intercept is None:
            return None
        return sigmoid(self.slope * similarities.astype(np.float64) + self.intercept)

    def probability(self, similarity: float) -> float | None:
        """Compute the probability of one pair, as `probabilities`.

        Args:
            similarity: cosine of its embeddings, in [-1, 1].
        """
        probabilities = self.probabilities(np.array([similarity]))
        return None if probabilities is None else float(probabilities[0])


def sigmoid(z: Float64[np.ndarray, "..."]) -> Float64[np.ndarray, "..."]:
    """Compute 1 / (1 + exp(-z)) without overflow, and accurately also where it is small.

    Args:
        z: any numbers.
    """
    small = np.exp(-np.abs(z))
    return np.where(z >= 0, 1.0, small) / (1.0 + small)
