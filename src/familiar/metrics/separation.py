"""Separation of identities: Dunn indices, silhouette and distributions of similarities.

Dunn indices and silhouette use Euclidean distances between any finite vectors, unit or not, computed in blocks.
Distances come from float64 products: two rows closer than 1e-7 of their size are one point.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Float64, Int, Int64

from familiar.core.blockwise import blocks
from familiar.core.errors import NothingToMeasure
from familiar.metrics.roc import RocCounts
from familiar.metrics.validation import check_rows

DUNN_PERCENTILE = 95
PERCENTAGES = (5, 25, 50, 75, 95)
_SAME_POINT_TOLERANCE = 1e-6  # deviations from the mean, relative to the rows' size, that are float32 rounding
_ZERO_DISTANCE_TOLERANCE = 1e-14  # squared, relative to the squared norms: rounding of a float64 product
_DISTANCE_TOLERANCE = 1e-12  # two photos of an identity are equally far from their centroid
_MIN_SPREAD = 1e-7  # float32 similarities that differ less are equal
_FLOATS_PER_DISTANCE = 4  # two arrays of float64, while `blocks` assumes one of float32


@dataclass(frozen=True)
class DunnIndices:
    """Three variants of "smallest distance between identities / largest within one"; higher is better.

    All three are None if every identity is a single point, since they would be infinite.

    Attributes:
        members: distance of the nearest photos of two identities / largest diameter of an identity (Dunn 1973).
        centroids: distance of the nearest centroids / largest diameter of an identity.
        centroids_to_mean: distance of the nearest centroids / mean distance of two photos of one identity.
        photos_dropped: number of photos left out as outliers.
    """

    members: float | None
    centroids: float | None
    centroids_to_mean: float | None
    photos_dropped: int


@dataclass(frozen=True)
class Distribution:
    """Mean, standard deviation, smallest and largest of similarities, and their `percentiles` by percentage."""

    mean: float
    std: float
    minimum: float
    maximum: float
    percentiles: dict[int, float]


@dataclass(frozen=True)
class SimilarityDistributions:
    """Distributions of the similarities of same and of different pairs.

    `d_prime`: difference of the means in standard deviations (root mean square of the two); None if neither varies.
    """

    same: Distribution
    different: Distribution
    d_prime: float | None


@dataclass(frozen=True, eq=False)
class _SortedRows:
    """Rows centered, scaled to a largest number of 1 (which changes no ratio of distances), and sorted by identity.

    `order`: their original indices.
    """

    rows: Float64[np.ndarray, "n d"]
    identity: Int64[np.ndarray, " n"]
    order: Int64[np.ndarray, " n"]


def dunn(
    embeddings: Float[np.ndarray, "n d"], labels: Int[np.ndarray, " n"], block_rows: int | None = None
) -> DunnIndices:
    """Compute the Dunn indices without each identity's photos beyond the 95th percentile of distance to its centroid.

    The percentile is interpolated: identities of three to twenty photos lose the farthest one, those of one or two
    none. Centroids are then those of the remaining photos. An identity of one photo counts for distances between
    identities, but has no diameter.

    Args:
        embeddings: finite rows.
        labels: the identity of each row.
        block_rows: rows compared at a time.

    Raises:
        NothingToMeasure: there is a single identity, none has two photos, or all vectors are one point.
        ValueError: a row is not finite.
    """
    all_rows = _sort_rows(embeddings, labels)
    inliers = _without_outliers(all_rows)
    rows, identity = inliers.rows, inliers.identity
    ends = np.searchsorted(identity, identity, "right")
    nearest, widest, total, pairs = np.inf, 0.0, 0.0, 0
    for part in blocks(len(rows), _FLOATS_PER_DISTANCE * len(rows), block_rows):
        block = _distances(rows[part], rows[part.start :])
        for row, end in enumerate((ends[part] - part.start).tolist()):
            within = block[row, row + 1 : end]
            widest = max(widest, float(within.max(initial=0)))
            total, pairs = total + float(within.sum()), pairs + len(within)
            block[row, :end] = np.inf
        nearest = min(nearest, float(block.min()))
    dropped = len(all_rows.rows) - len(rows)
    if widest == 0:
        return DunnIndices(None, None, None, dropped)
    centroid_distance = _min_distance(_centroids(inliers), block_rows)
    return DunnIndices(nearest / widest, centroid_distance / widest, centroid_distance / (total / pairs), dropped)


def silhouettes(
    embeddings: Float[np.ndarray, "n d"], labels: Int[np.ndarray, " n"], block_rows: int | None = None
) -> Float64[np.ndarray, " n"]:
    """Compute each photo's silhouette in [-1, 1] (Rousseeuw 1987); their mean is the silhouette of the set.

    (b - a) / max(a, b), with a the mean distance to the other photos of its identity and b the mean distance to the
    photos of the nearest other identity. 0 for the only photo of an identity, and if a and b are both 0.

    Args:
        embeddings: finite rows, "n d", unit or not; distances are Euclidean.
        labels: the identity of each row, "n".
        block_rows: rows compared at a time; None: as many as fit into some 64 MB.

    Returns:
        The silhouette of each row, "n".

    Raises:
        NothingToMeasure: there is a single identity, none has two photos, or all vectors are one point.
        ValueError: a row is not finite.
    """
    all_rows = _sort_rows(embeddings, labels)
    rows, identity = all_rows.rows, all_rows.identity
    first, sizes = _identity_slices(identity)
    values = np.empty(len(rows))
    for part in blocks(len(rows), _FLOATS_PER_DISTANCE * len(rows), block_rows):
        sums = np.add.reduceat(_distances(rows[part], rows), first, axis=1)
        own_identity = np.arange(len(sums)), identity[part]
        others = sizes[identity[part]] - 1
        within = sums[own_identity] / np.maximum(1, others)
        sums /= sizes
        sums[own_identity] = np.inf
        between = sums.min(axis=1)
        larger = np.maximum(within, between)
        defined = (others > 0) & (larger > 0)
        values[all_rows.order[part]] = np.where(defined, (between - within) / np.where(defined, larger, 1), 0.0)
    return values


def silhouette(embeddings: Float[np.ndarray, "n d"], labels: Int[np.ndarray, " n"]) -> float:
    """Compute the mean of the `silhouettes`, in [-1, 1].

    >>> round(silhouette(np.array([[0.0], [1.0], [4.0], [5.0]]), np.array([0, 0, 1, 1])), 4)
    0.746
    """
    return float(silhouettes(embeddings, labels).mean())


def similarity_distributions(counts: RocCounts) -> SimilarityDistributions:
    """Describe the distributions of the similarities of same and of different pairs.

    Exact for listed pairs. If all pairs were counted in blocks, different pairs between two scores are taken to be at
    the midpoint for mean and deviation, and evenly spread for percentiles: the error is below 1/1024, in practice far
    less. Minimum and maximum are then bounds, of the same error.

    Args:
        counts: numbers of pairs by similarity, from `roc_counts` or `roc_counts_all_pairs`.

    Returns:
        Mean, standard deviation, minimum, maximum and the percentiles 5, 25, 50, 75 and 95 of both, and their distance
        d'.
    """
    same = _distribution(counts.scores, counts.same_at, np.zeros(len(counts.scores)))
    different = _distribution(counts.scores, counts.different_at, counts.different_between)
    spread = float(np.sqrt((same.std**2 + different.std**2) / 2))
    d_prime = (same.mean - different.mean) / spread if spread > _MIN_SPREAD else None
    return SimilarityDistributions(same, different, d_prime)


def _distribution(
    scores: Float64[np.ndarray, " k"], count_at: Float64[np.ndarray, " k"], count_between: Float64[np.ndarray, " k"]
) -> Distribution:
    low = np.repeat(scores, 2)  # a score, then the interval up to the next
    high = np.append(low[1:], low[-1])
    pairs = np.stack([count_at, count_between], axis=1).reshape(-1)
    total = float(pairs.sum())
    middle = (low + high) / 2
    mean = float(pairs @ middle / total)
    std = float(np.sqrt(pairs @ (middle - mean) ** 2 / total))
    cumulative: Float64[np.ndarray, " m"] = np.cumsum(pairs)
    percentiles: dict[int, float] = {}
    for percentage in PERCENTAGES:
        target = percentage / 100 * total
        index = int(np.searchsorted(cumulative, target * (1 - 1e-12), "left"))
        share = 1 - max(0.0, float(cumulative[index] - target)) / float(pairs[index])
        percentiles[percentage] = float(low[index] + share * (high[index] - low[index]))
    occupied = np.flatnonzero(pairs)
    return Distribution(mean, std, float(low[occupied[0]]), float(high[occupied[-1]]), percentiles)


def _sort_rows(embeddings: Float[np.ndarray, "n d"], labels: Int[np.ndarray, " n"]) -> _SortedRows:
    check_rows(embeddings, labels)
    identities, identity, sizes = np.unique(labels, return_inverse=True, return_counts=True)
    if len(identities) < 2:
        raise NothingToMeasure(f"separation: needs two identities or more, got {len(identities)}")
    if sizes.max() < 2:
        raise NothingToMeasure("separation: no identity has two photos")
    rows = embeddings.astype(np.float64)
    size = np.abs(rows).max()
    rows /= size or 1.0
    rows -= rows.mean(axis=0)
    spread = np.abs(rows).max()
    if spread <= _SAME_POINT_TOLERANCE:
        raise NothingToMeasure("separation: all embeddings are the same point")
    order = np.argsort(identity, kind="stable")
    return _SortedRows(rows[order] / spread, identity[order], order)


def _without_outliers(sorted_rows: _SortedRows) -> _SortedRows:
    distance = np.linalg.norm(sorted_rows.rows - _centroids(sorted_rows)[sorted_rows.identity], axis=1)
    first, sizes = _identity_slices(sorted_rows.identity)
    limits = [
        np.percentile(distance[start : start + size], DUNN_PERCENTILE)
        for start, size in zip(first.tolist(), sizes.tolist(), strict=True)
    ]
    mask = distance <= np.array(limits)[sorted_rows.identity] + _DISTANCE_TOLERANCE
    return _SortedRows(sorted_rows.rows[mask], sorted_rows.identity[mask], sorted_rows.order[mask])


def _identity_slices(identity: Int64[np.ndarray, " n"]) -> tuple[Int64[np.ndarray, " c"], Int64[np.ndarray, " c"]]:
    """Return the first row and the number of rows of each identity."""
    sizes = np.bincount(identity)
    return np.cumsum(sizes) - sizes, sizes


def _centroids(sorted_rows: _SortedRows) -> Float64[np.ndarray, "c d"]:
    first, sizes = _identity_slices(sorted_rows.identity)
    return np.add.reduceat(sorted_rows.rows, first, axis=0) / sizes[:, None]


def _distances(left: Float64[np.ndarray, "n d"], right: Float64[np.ndarray, "m d"]) -> Float64[np.ndarray, "n m"]:
    left_squares = np.square(left).sum(axis=1)[:, None]
    right_squares = np.square(right).sum(axis=1)
    distances = left @ right.T
    distances *= -2
    distances += left_squares
    distances += right_squares
    distances[distances < _ZERO_DISTANCE_TOLERANCE * (left_squares + right_squares)] = 0.0
    return np.sqrt(distances, out=distances)


def _min_distance(points: Float64[np.ndarray, "c d"], block_rows: int | None) -> float:
    """Compute the distance of the two nearest points."""
    nearest = np.inf
    for part in blocks(len(points), _FLOATS_PER_DISTANCE * len(points), block_rows):
        block = _distances(points[part], points[part.start :])
        block[np.tril_indices(len(block), 0, block.shape[1])] = np.inf
        nearest = min(nearest, float(block.min()))
    return nearest
