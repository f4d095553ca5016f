"""How far a figure may be trusted: 95 % intervals over resampled identities.

Photos of one individual are not independent, so identities are resampled, not photos or pairs. An
identity drawn w times weighs its pairs instead of being copied (a copy would be a perfect match of
itself): same pairs count w_i times, different ones w_i w_j times.
"""

from collections.abc import Callable, Iterator, Sequence

import numpy as np
from jaxtyping import Float, Float64, Int

from familiar.core.errors import NothingToMeasure
from familiar.metrics.retrieval import RankedQueries
from familiar.metrics.roc import RocCounts, roc_counts
from familiar.metrics.verification import (
    FARS,
    accuracy_at,
    average_precision,
    best_accuracy,
    equal_error_rate,
    point_at_far,
    roc_auc,
    tar_at_far,
)

Interval = tuple[float, float]

_FIGURES: dict[str, Callable[[RocCounts], float]] = {
    "auc": roc_auc,
    "average_precision": average_precision,
    "eer": lambda counts: equal_error_rate(counts)[0],
    "best_accuracy": lambda counts: best_accuracy(counts)[0],
    "best_balanced_accuracy": lambda counts: best_accuracy(counts, balanced=True)[0],
}


def verification_intervals(
    scores: Float[np.ndarray, " p"],
    left_labels: Int[np.ndarray, " p"],
    right_labels: Int[np.ndarray, " p"],
    threshold: float | None = None,
    replicates: int = 200,
    seed: int = 0,
) -> dict[str, Interval]:
    """95 % intervals of the figures of these pairs, named as in `Verification`.

    With `threshold` also `accuracy_at_threshold`, both kinds weighed alike; `tar_at_far_1e-3` and the
    like where the pairs are enough for it. A replicate that drew no same or no different pair is left
    out. Raises `NothingToMeasure` as `roc_counts` does.
    """
    same = left_labels == right_labels
    whole = roc_counts(scores[same], scores[~same])
    figures = dict(_FIGURES)
    if threshold is not None:
        figures["accuracy_at_threshold"] = lambda counts: accuracy_at(counts, threshold, balanced=True)
    for name, far in FARS.items():
        if tar_at_far(whole, far):
            figures[f"tar_at_far_{name}"] = lambda counts, far=far: point_at_far(counts, far).tar

    at = np.searchsorted(whole.scores, scores)
    identities, index = np.unique(np.concatenate([left_labels, right_labels]), return_inverse=True)
    left, right = np.split(index, 2)
    drawn: list[list[float]] = []
    for weight in _resampled(len(identities), replicates, seed):
        weights = np.where(same, weight[left], weight[left] * weight[right])
        try:
            counts = RocCounts(
                whole.scores,
                np.bincount(at[same], weights[same], len(whole.scores)),
                np.bincount(at[~same], weights[~same], len(whole.scores)),
                whole.different_between,
            )
        except NothingToMeasure:
            continue
        drawn.append([figure(counts) for figure in figures.values()])
    return _intervals(list(figures), drawn)


def retrieval_intervals(
    ranked: RankedQueries, ks: Sequence[int] = (1, 5, 10), replicates: int = 200, seed: int = 0
) -> dict[str, Interval]:
    """95 % intervals of recall_at_k, mrr and ndcg_at_10: the queries are resampled, the gallery stays."""
    figures = ranked.figures(ks)
    identities, index = np.unique(ranked.identity, return_inverse=True)
    queries = np.bincount(index)
    sums = np.stack([np.bincount(index, values) for values in figures.values()])
    weights = _resampled(len(identities), replicates, seed)
    return _intervals(list(figures), [(sums @ weight / (queries @ weight)).tolist() for weight in weights])


def _resampled(identities: int, replicates: int, seed: int) -> Iterator[Float64[np.ndarray, " c"]]:
    """How often each identity is drawn, in each replicate."""
    rng = np.random.default_rng(seed)
    for _ in range(replicates):
        drawn = rng.integers(identities, size=identities)
        yield np.bincount(drawn, minlength=identities).astype(np.float64)


def _intervals(names: list[str], drawn: list[list[float]]) -> dict[str, Interval]:
    if not drawn:
        raise NothingToMeasure("bootstrap: no replicate had both same and different pairs")
    low, high = np.quantile(np.array(drawn), [0.025, 0.975], axis=0)
    return {name: (float(low[i]), float(high[i])) for i, name in enumerate(names)}
