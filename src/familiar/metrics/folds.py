"""Cross-validated accuracy of pairs: the threshold of each fold is fitted on the other folds.

The protocol of Labeled Faces in the Wild, View 2 (Huang et al. 2007, section IV; Huang and Learned-Miller 2014).
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Float64, Int

from familiar.core.errors import NothingToMeasure
from familiar.metrics.roc import roc_counts
from familiar.metrics.validation import check_columns
from familiar.metrics.verification import best_accuracy


@dataclass(frozen=True, eq=False)
class FoldedAccuracy:
    """Accuracy of each fold at the threshold that is best on all others."""

    accuracies: Float64[np.ndarray, " folds"]
    thresholds: Float64[np.ndarray, " folds"]

    @property
    def mean(self) -> float:
        """Mean accuracy of the folds."""
        return float(self.accuracies.mean())

    @property
    def standard_error(self) -> float:
        """Standard error of the mean: the folds' standard deviation (n - 1 in the denominator) / sqrt(number)."""
        return float(self.accuracies.std(ddof=1) / np.sqrt(len(self.accuracies)))


def folded_accuracy(
    scores: Float[np.ndarray, " p"], same: Bool[np.ndarray, " p"], fold: Int[np.ndarray, " p"]
) -> FoldedAccuracy:
    """Compute the accuracy of each fold at the best threshold of the other folds.

    A pair is accepted if its score is at least the threshold. Of equally good thresholds the highest is taken, midway
    to the next lower score.

    Args:
        scores: similarity of each pair.
        same: whether its photos show the same identity.
        fold: the fold of each pair.

    Raises:
        NothingToMeasure: there are fewer than two folds, or the others of a fold are all same or all different pairs.

    >>> scores = np.array([0.9, 0.2, 0.8, 0.1])
    >>> folded_accuracy(scores, np.array([True, False, True, False]), np.array([0, 0, 1, 1])).mean
    1.0
    """
    check_columns(floats={"scores": scores}, flags={"same": same}, integers={"fold": fold})
    folds = np.unique(fold)
    if len(folds) < 2:
        raise NothingToMeasure("folds: a threshold from the other folds needs two folds or more")
    accuracies, thresholds = np.empty(len(folds)), np.empty(len(folds))
    for index, test_fold in enumerate(folds):
        fit_mask, test_mask = fold != test_fold, fold == test_fold
        counts = roc_counts(scores[fit_mask & same], scores[fit_mask & ~same])
        thresholds[index] = best_accuracy(counts)[1]
        accuracies[index] = np.mean((scores[test_mask] >= thresholds[index]) == same[test_mask])
    return FoldedAccuracy(accuracies, thresholds)
