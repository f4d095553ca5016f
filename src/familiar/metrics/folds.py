"""Accuracy of pairs in folds: the threshold comes from the other folds, so no pair chooses the one it is judged by.

The protocol of Labeled Faces in the Wild, View 2 (Huang et al. 2007, section IV; Huang and Learned-Miller 2014).
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Float64, Int

from familiar.core.errors import NothingToMeasure
from familiar.metrics.roc import roc_counts
from familiar.metrics.verification import best_accuracy


@dataclass(frozen=True, eq=False)
class FoldedAccuracy:
    """Fold by fold: the share of its pairs judged right, at the threshold that was best on all others."""

    accuracies: Float64[np.ndarray, " folds"]
    thresholds: Float64[np.ndarray, " folds"]

    @property
    def mean(self) -> float:
        return float(self.accuracies.mean())

    @property
    def standard_error(self) -> float:
        """Of the mean: the folds' deviation (n - 1 in the denominator) over the root of their number."""
        return float(self.accuracies.std(ddof=1) / np.sqrt(len(self.accuracies)))


def folded_accuracy(
    scores: Float[np.ndarray, " p"], same: Bool[np.ndarray, " p"], fold: Int[np.ndarray, " p"]
) -> FoldedAccuracy:
    """`fold[i]` is the fold of pair i; a pair is accepted from the threshold on.

    Of equally good thresholds the highest, midway to the next lower score. `NothingToMeasure` with fewer than two
    folds, or where the others of a fold hold pairs of one kind only.

    >>> scores = np.array([0.9, 0.2, 0.8, 0.1])
    >>> folded_accuracy(scores, np.array([True, False, True, False]), np.array([0, 0, 1, 1])).mean
    1.0
    """
    folds = np.unique(fold)
    if len(folds) < 2:
        raise NothingToMeasure("folds: a threshold from the other folds needs two folds or more")
    accuracies, thresholds = np.empty(len(folds)), np.empty(len(folds))
    for place, judged in enumerate(folds):
        others, own = fold != judged, fold == judged
        counts = roc_counts(scores[others & same], scores[others & ~same])
        thresholds[place] = best_accuracy(counts)[1]
        accuracies[place] = np.mean((scores[own] >= thresholds[place]) == same[own])
    return FoldedAccuracy(accuracies, thresholds)
