from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from familiar.core.errors import NothingToMeasure
from familiar.metrics.folds import folded_accuracy


def slow_folded_accuracy(scores: np.ndarray, same: np.ndarray, fold: np.ndarray) -> list[float]:
    """The published protocol: try every threshold on the other folds and take the highest of the best."""
    accuracies = []
    for test_fold in sorted(set(fold.tolist())):
        others = fold != test_fold
        values = sorted(set(scores[others].tolist()))
        tried = [values[0], float(np.nextafter(np.float32(values[-1]), np.float32(2)))]
        tried += [(low + high) / 2 for low, high in pairwise(values)]
        right = {t: int(((scores[others] >= t) == same[others]).sum()) for t in tried}
        best = max(t for t in tried if right[t] == max(right.values()))
        held_out = ~others
        accuracies.append(np.mean([(s >= best) == y for s, y in zip(scores[held_out], same[held_out], strict=True)]))
    return accuracies


@given(seed=st.integers(0, 10_000), folds=st.integers(2, 10), each=st.integers(2, 6))
def test_agrees_with_the_published_protocol(seed: int, folds: int, each: int):
    generator = np.random.default_rng(seed)
    fold = np.repeat(np.arange(folds), 2 * each)
    same = np.tile(np.repeat([True, False], each), folds)
    # Multiples of 1/64 are exact in float32, and so are the midpoints between them.
    scores = np.clip(np.round((generator.normal(size=len(same)) * 0.3 + 0.4 * same) * 64) / 64, -1, 1)
    result = folded_accuracy(scores, same, fold)
    assert result.accuracies.tolist() == pytest.approx(slow_folded_accuracy(scores, same, fold), abs=1e-12)
    assert result.mean == pytest.approx(result.accuracies.mean())
    deviation = np.sqrt(((result.accuracies - result.mean) ** 2).sum() / (folds - 1))
    assert result.standard_error == pytest.approx(deviation / np.sqrt(folds))


def test_the_threshold_never_comes_from_the_fold_itself():
    # Fold 1 alone would choose .5 and be right throughout; fold 0's threshold of .85 fails its same pair.
    scores = np.array([0.9, 0.8, 0.6, 0.4])
    same = np.array([True, False, True, False])
    result = folded_accuracy(scores, same, np.array([0, 0, 1, 1]))
    assert result.thresholds == pytest.approx([0.5, 0.85])
    assert result.accuracies.tolist() == [0.5, 0.5]
    assert result.standard_error == 0.0


def test_rejects_single_fold_and_fold_without_different_pairs():
    with pytest.raises(NothingToMeasure, match="two folds"):
        folded_accuracy(np.array([0.9, 0.1]), np.array([True, False]), np.array([0, 0]))
    with pytest.raises(NothingToMeasure, match="different"):
        folded_accuracy(np.array([0.9, 0.1, 0.2]), np.array([True, True, False]), np.array([0, 1, 1]))
