"""Bootstrap: 95 % intervals of metrics over resampled identities.

Photos of one individual are not independent, so identities are resampled, not photos or pairs. An identity drawn w
times weights its pairs instead of being copied (a copy would be a perfect match of itself): same pairs count w_i
times, different ones w_i w_j times.
"""

from collections.abc import Callable, Collection, Iterator

import numpy as np
from jaxtyping import Float, Float64, Int

from familiar.core.errors import NothingToMeasure
from familiar.metrics.roc import RocCounts, roc_counts
from familiar.metrics.validation import check_columns
from familiar.metrics.verification import (
    FARS,
    accuracy_at,
    average_precision,
    best_accuracy,
    equal_error_rate,
    rates_at,
    roc_auc,
    similarity_at_far,
    tar_at_far,
)

Interval = tuple[float, float]
Replicates = dict[str, Float64[np.ndarray, " r"]]
"""Each metric's value in every replicate. Two models evaluated on the same identities with the same seed have the same
draws, so their replicates can be compared pairwise."""

_METRICS: dict[str, Callable[[RocCounts], float]] = {
    "auc": roc_auc,
    "average_precision": average_precision,
    "eer": lambda counts: equal_error_rate(counts)[0],
    "best_accuracy": lambda counts: best_accuracy(counts)[0],
    "best_balanced_accuracy": lambda counts: best_accuracy(counts, balanced=True)[0],
}


def verification_replicates(
    scores: Float[np.ndarray, " p"],
    left_labels: Int[np.ndarray, " p"],
    right_labels: Int[np.ndarray, " p"],
    threshold: float | None = None,
    weights: Float[np.ndarray, " p"] | None = None,
    replicates: int = 200,
    seed: int = 0,
    only: Collection[str] | None = None,
) -> Replicates:
    """Compute the verification metrics of pairs in each replicate.

    Args:
        scores: similarity of each pair.
        left_labels: the identity of each pair's first photo.
        right_labels: the identity of its second photo.
        threshold: if given, `accuracy_at_threshold` is computed too, same and different pairs with equal total weight.
        weights: number of pairs that each represents, if they were sampled from more.
        replicates: number of bootstrap draws.
        seed: of the draws.
        only: compute only these metrics.

    Returns:
        The metrics by name, as in `Verification`; `tar_at_far_1e-3` and the like if there are enough pairs for it. A
        replicate without same or without different pairs is left out.

    Raises:
        NothingToMeasure: there are no same pairs or no different ones.
    """
    same = left_labels == right_labels
    pair_weights = np.ones(len(scores)) if weights is None else weights
    all_counts = roc_counts(scores[same], scores[~same], pair_weights[same], pair_weights[~same])
    metrics = dict(_METRICS)
    if threshold is not None:
        metrics["accuracy_at_threshold"] = lambda counts: accuracy_at(counts, threshold, balanced=True)
    for name, far in FARS.items():
        if tar_at_far(all_counts, far):
            metrics[f"tar_at_far_{name}"] = lambda counts, far=far: rates_at(counts, similarity_at_far(counts, far))[1]
    if only is not None:
        metrics = {name: metric for name, metric in metrics.items() if name in only}

    score_index = np.searchsorted(all_counts.scores, scores)
    identities, index = np.unique(np.concatenate([left_labels, right_labels]), return_inverse=True)
    left, right = np.split(index, 2)
    rows: list[list[float]] = []
    for weight in identity_weights(len(identities), replicates, seed):
        replicate_weights = pair_weights * np.where(same, weight[left], weight[left] * weight[right])
        try:
            counts = RocCounts(
                all_counts.scores,
                np.bincount(score_index[same], replicate_weights[same], len(all_counts.scores)),
                np.bincount(score_index[~same], replicate_weights[~same], len(all_counts.scores)),
                all_counts.different_between,
            )
        except NothingToMeasure:
            continue
        rows.append([metric(counts) for metric in metrics.values()])
    columns = np.array(rows).reshape(len(rows), len(metrics))
    return {name: columns[:, column] for column, name in enumerate(metrics)}


def mean_replicates(
    values_by_metric: dict[str, Float64[np.ndarray, " q"]],
    identity: Int[np.ndarray, " q"],
    weights: Float64[np.ndarray, " q"] | None = None,
    replicates: int = 200,
    seed: int = 0,
) -> Replicates:
    """Compute weighted means of each metric over the items (queries, photos) of the identities drawn.

    For retrieval the items are queries; the gallery is not resampled.

    Args:
        values_by_metric: the value of each item, by metric.
        identity: of each item.
        weights: of each item; None means equal ones.
        replicates: number of bootstrap draws.
        seed: of the draws.

    Returns:
        The means in each replicate. A replicate whose items have no weight in total is left out.
    """
    identities, index = np.unique(identity, return_inverse=True)
    weight = np.ones(len(identity)) if weights is None else weights
    totals = np.bincount(index, weight)
    sums = np.stack([np.bincount(index, weight * values) for values in values_by_metric.values()])
    draws = np.stack(list(identity_weights(len(identities), replicates, seed)))
    total_weights = draws @ totals
    nonzero = total_weights > 0
    means = (sums @ draws[nonzero].T) / total_weights[nonzero]
    return dict(zip(values_by_metric, means, strict=True))


def intervals(replicates: Replicates) -> dict[str, Interval]:
    """Compute the central 95 % of each metric's replicates (percentile interval, Efron and Tibshirani 1993).

    Args:
        replicates: by metric, its value in each bootstrap replicate, "r".

    Returns:
        By metric, the 2.5th and the 97.5th percentile.

    Raises:
        NothingToMeasure: a metric has no replicates.
    """
    result: dict[str, Interval] = {}
    for name, values in replicates.items():
        if not len(values):
            raise NothingToMeasure("bootstrap: no replicate had both same and different pairs")
        check_columns(floats={name: values})
        low, high = np.quantile(values, [0.025, 0.975]).tolist()
        result[name] = (low, high)
    return result


def identity_weights(identities: int, replicates: int, seed: int) -> Iterator[Float64[np.ndarray, " c"]]:
    """Yield for each replicate how often each identity is drawn, with replacement."""
    rng = np.random.default_rng(seed)
    for _ in range(replicates):
        drawn = rng.integers(identities, size=identities)
        yield np.bincount(drawn, minlength=identities).astype(np.float64)
