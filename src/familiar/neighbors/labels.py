"""Integer labels for rows: distinct values, sums and renumbering."""

import numpy as np
from jaxtyping import Float, Int64

_SUMMED_BY_RANK = 64  # the first rows of all labels at once, then the rest of each long one


def sum_by_label(rows: Float[np.ndarray, "n d"], labels: Int64[np.ndarray, " n"]) -> Float[np.ndarray, "g d"]:
    """Sum the rows of each label, in their order; many times as fast as np.add.reduceat for short runs.

    Args:
        rows: of any length.
        labels: from 0 on, without gaps.

    Returns:
        A row for each label, in the dtype of `rows`.
    """
    order = np.argsort(labels, kind="stable")
    sizes = np.bincount(labels)
    starts = np.cumsum(sizes) - sizes
    sums = rows[order[starts]]
    by_size = np.argsort(-sizes, kind="stable")
    for rank in range(1, min(int(sizes.max(initial=0)), _SUMMED_BY_RANK)):
        longer = by_size[: np.searchsorted(-sizes[by_size], -rank)]
        sums[longer] += rows[order[starts[longer] + rank]]
    for label in np.flatnonzero(sizes > _SUMMED_BY_RANK):
        rest = order[starts[label] + _SUMMED_BY_RANK : starts[label] + sizes[label]]
        sums[label] += rows[rest].sum(axis=0)
    return sums


def relabel_by_first_appearance(clusters: Int64[np.ndarray, " n"]) -> Int64[np.ndarray, " n"]:
    """Renumber clusters from 0 on in the order of their first rows."""
    _, first_row, index = np.unique(clusters, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first_row))[index]
