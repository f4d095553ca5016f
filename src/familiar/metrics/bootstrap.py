"""How far a figure may be trusted: 95 % intervals over resampled identities.

Photos of one individual are not independent, so identities are resampled, not photos or pairs. An
identity drawn w times weighs its pairs instead of being copied (a copy would be a perfect match of
itself): same pairs count w_i times, different ones w_i w_j times.
"""

from collections.abc import Callable, Collection, Iterator

import numpy as np
from jaxtyping import Float, Float64, Int

from familiar.core.errors import NothingToMeasure
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
Replicates = dict[str, Float64[np.ndarray, " r"]]
"""Each figure as it came out in every replicate. Two models judged by the same identities and seed have drawn the
same ones, so their replicates pair up."""

_FIGURES: dict[str, Callable[[RocCounts], float]] = {
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
    """The figures of these pairs, named as in `Verification`, in each replicate.

    `weights`: how many pairs each stands for, where some were sampled from more. With `threshold` also
    `accuracy_at_threshold`, both kinds weighed alike; `tar_at_far_1e-3` and the like where the pairs are enough
    for it. A replicate that drew no same or no different pair is left out. `only`: these figures and no others.
    Raises `NothingToMeasure` as `roc_counts` does.
    """
    same = left_labels == right_labels
    stands_for = np.ones(len(scores)) if weights is None else weights
    whole = roc_counts(scores[same], scores[~same], stands_for[same], stands_for[~same])
    figures = dict(_FIGURES)
    if threshold is not None:
        figures["accuracy_at_threshold"] = lambda counts: accuracy_at(counts, threshold, balanced=True)
    for name, far in FARS.items():
        if tar_at_far(whole, far):
            figures[f"tar_at_far_{name}"] = lambda counts, far=far: point_at_far(counts, far).tar
    if only is not None:
        figures = {name: figure for name, figure in figures.items() if name in only}

    at = np.searchsorted(whole.scores, scores)
    identities, index = np.unique(np.concatenate([left_labels, right_labels]), return_inverse=True)
    left, right = np.split(index, 2)
    drawn: list[list[float]] = []
    for weight in identity_weights(len(identities), replicates, seed):
        drawn_pairs = stands_for * np.where(same, weight[left], weight[left] * weight[right])
        try:
            counts = RocCounts(
                whole.scores,
                np.bincount(at[same], drawn_pairs[same], len(whole.scores)),
                np.bincount(at[~same], drawn_pairs[~same], len(whole.scores)),
                whole.different_between,
            )
        except NothingToMeasure:
            continue
        drawn.append([figure(counts) for figure in figures.values()])
    columns = np.array(drawn).reshape(len(drawn), len(figures))
    return {name: columns[:, column] for column, name in enumerate(figures)}


def mean_replicates(
    figures: dict[str, Float64[np.ndarray, " q"]],
    identity: Int[np.ndarray, " q"],
    weights: Float64[np.ndarray, " q"] | None = None,
    replicates: int = 200,
    seed: int = 0,
) -> Replicates:
    """Means of each figure over items (queries, photos) of the identities drawn, each item with its weight.

    For retrieval the items are queries, against a gallery that stays as it is. A replicate whose items weigh
    nothing is left out.
    """
    identities, index = np.unique(identity, return_inverse=True)
    weight = np.ones(len(identity)) if weights is None else weights
    totals = np.bincount(index, weight)
    sums = np.stack([np.bincount(index, weight * values) for values in figures.values()])
    drawn = np.stack(list(identity_weights(len(identities), replicates, seed)))
    weighed = drawn @ totals
    kept = weighed > 0
    means = (sums @ drawn[kept].T) / weighed[kept]
    return dict(zip(figures, means, strict=True))


def intervals(replicates: Replicates) -> dict[str, Interval]:
    """The middle 95 % of each figure's replicates. `NothingToMeasure` where there is none."""
    found: dict[str, Interval] = {}
    for name, values in replicates.items():
        if not len(values):
            raise NothingToMeasure("bootstrap: no replicate had both same and different pairs")
        low, high = np.quantile(values, [0.025, 0.975]).tolist()
        found[name] = (low, high)
    return found


def identity_weights(identities: int, replicates: int, seed: int) -> Iterator[Float64[np.ndarray, " c"]]:
    """How often each identity is drawn, in each replicate."""
    rng = np.random.default_rng(seed)
    for _ in range(replicates):
        drawn = rng.integers(identities, size=identities)
        yield np.bincount(drawn, minlength=identities).astype(np.float64)
