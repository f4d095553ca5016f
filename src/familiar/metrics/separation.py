"""How far apart are the identities, measured against how wide each is?

Dunn indices and silhouette are of Euclidean distances between any finite vectors, unit or not, computed
block by block. Distances come from float64 products: two rows nearer than 1e-7 of their size are one point.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Float64, Int, Int64

from familiar.core.blockwise import blocks
from familiar.core.errors import NothingToMeasure
from familiar.metrics.roc import RocCounts

DUNN_PERCENTILE = 95
PERCENTAGES = (5, 25, 50, 75, 95)
_ONE_POINT = 1e-6  # deviations from the mean, of the rows' size, that are rounding of float32
_NO_DISTANCE = 1e-14  # squared, of the squared norms: rounding of a float64 product
_ROUNDING = 1e-12  # of a distance between numbers up to 1: two photos are equally far from their centroid
_MIN_SPREAD = 1e-7  # float32 similarities that differ less are one and the same
_FLOATS_A_DISTANCE = 4  # two arrays of float64, where `blocks` reckons with one of float32


@dataclass(frozen=True)
class DunnIndices:
    """Three readings of "smallest distance between identities over largest within one"; higher is better.

    `members`: nearest photos of two identities / largest diameter (Dunn 1973). `centroids`: nearest
    centroids / largest diameter. `centroids_to_mean`: nearest centroids / mean distance of two photos of
    one identity. All are None where every identity is a single point: there they would be infinite.
    `dropped`: photos left out as outliers.
    """

    members: float | None
    centroids: float | None
    centroids_to_mean: float | None
    dropped: int


@dataclass(frozen=True)
class Distribution:
    """Of similarities: mean, standard deviation, and `percentiles` by their percentage."""

    mean: float
    std: float
    percentiles: dict[int, float]


@dataclass(frozen=True)
class SimilarityDistributions:
    """Of same and of different pairs.

    `d_prime`: difference of the means in standard deviations (root mean square of the two); None where
    neither varies.
    """

    same: Distribution
    different: Distribution
    d_prime: float | None


@dataclass(frozen=True, eq=False)
class _Sorted:
    """Centered rows, largest number 1, by identity: that changes no ratio of distances. `order`: where from."""

    rows: Float64[np.ndarray, "n d"]
    identity: Int64[np.ndarray, " n"]
    order: Int64[np.ndarray, " n"]


def dunn(
    embeddings: Float[np.ndarray, "n d"], labels: Int[np.ndarray, " n"], block_rows: int | None = None
) -> DunnIndices:
    """Dunn indices after dropping each identity's photos beyond the 95th percentile of distance to its centroid.

    The percentile is interpolated: identities of three to twenty photos lose the farthest one, those of one
    or two none. Centroids are then those of the photos kept. An identity of one photo counts between
    identities and has no width. Raises `NothingToMeasure` with a single identity, where none has two photos,
    or where all vectors are one point; `ValueError` on a row that is not finite.
    """
    whole = _sorted(embeddings, labels)
    kept = _without_outliers(whole)
    rows, identity = kept.rows, kept.identity
    ends = np.searchsorted(identity, identity, "right")
    nearest, widest, total, pairs = np.inf, 0.0, 0.0, 0
    for part in blocks(len(rows), _FLOATS_A_DISTANCE * len(rows), block_rows):
        block = _distances(rows[part], rows[part.start :])
        for row, end in enumerate((ends[part] - part.start).tolist()):
            within = block[row, row + 1 : end]
            widest = max(widest, float(within.max(initial=0)))
            total, pairs = total + float(within.sum()), pairs + len(within)
            block[row, :end] = np.inf
        nearest = min(nearest, float(block.min()))
    dropped = len(whole.rows) - len(rows)
    if widest == 0:
        return DunnIndices(None, None, None, dropped)
    apart = _nearest_two(_centroids(kept), block_rows)
    return DunnIndices(nearest / widest, apart / widest, apart / (total / pairs), dropped)


def silhouettes(
    embeddings: Float[np.ndarray, "n d"], labels: Int[np.ndarray, " n"], block_rows: int | None = None
) -> Float64[np.ndarray, " n"]:
    """Each photo's silhouette in [-1, 1] (Rousseeuw 1987); their mean is the silhouette of the set.

    (b - a) / max(a, b), where a is the mean distance to the other photos of its identity and b the mean
    distance to the nearest other identity's. 0 for the only photo of an identity, and where a and b are both
    0. Raises as `dunn`.
    """
    whole = _sorted(embeddings, labels)
    rows, identity = whole.rows, whole.identity
    first, sizes = _runs(identity)
    found = np.empty(len(rows))
    for part in blocks(len(rows), _FLOATS_A_DISTANCE * len(rows), block_rows):
        sums = np.add.reduceat(_distances(rows[part], rows), first, axis=1)
        own = np.arange(len(sums)), identity[part]
        others = sizes[identity[part]] - 1
        within = sums[own] / np.maximum(1, others)
        sums /= sizes
        sums[own] = np.inf
        between = sums.min(axis=1)
        larger = np.maximum(within, between)
        defined = (others > 0) & (larger > 0)
        found[whole.order[part]] = np.where(defined, (between - within) / np.where(defined, larger, 1), 0.0)
    return found


def silhouette(embeddings: Float[np.ndarray, "n d"], labels: Int[np.ndarray, " n"]) -> float:
    """Mean of the `silhouettes`, in [-1, 1].

    >>> round(silhouette(np.array([[0.0], [1.0], [4.0], [5.0]]), np.array([0, 0, 1, 1])), 4)
    0.746
    """
    return float(silhouettes(embeddings, labels).mean())


def similarity_distributions(counts: RocCounts) -> SimilarityDistributions:
    """How similarities of same and of different pairs spread.

    Exact for listed pairs. Of pairs counted in blocks, those of different identities that lie between two
    scores count as its middle for mean and deviation, and as evenly spread for percentiles: off by less than
    1/1024, in practice by far less.
    """
    same = _distribution(counts.scores, counts.same_at, np.zeros(len(counts.scores)))
    different = _distribution(counts.scores, counts.different_at, counts.different_between)
    spread = float(np.sqrt((same.std**2 + different.std**2) / 2))
    d_prime = (same.mean - different.mean) / spread if spread > _MIN_SPREAD else None
    return SimilarityDistributions(same, different, d_prime)


def _distribution(
    scores: Float64[np.ndarray, " k"], at: Float64[np.ndarray, " k"], between: Float64[np.ndarray, " k"]
) -> Distribution:
    low = np.repeat(scores, 2)  # a score, then the stretch up to the next
    high = np.append(low[1:], low[-1])
    pairs = np.stack([at, between], axis=1).reshape(-1)
    total = float(pairs.sum())
    middle = (low + high) / 2
    mean = float(pairs @ middle / total)
    std = float(np.sqrt(pairs @ (middle - mean) ** 2 / total))
    reached: Float64[np.ndarray, " m"] = np.cumsum(pairs)
    percentiles: dict[int, float] = {}
    for percentage in PERCENTAGES:
        wanted = percentage / 100 * total
        place = int(np.searchsorted(reached, wanted * (1 - 1e-12), "left"))
        share = 1 - max(0.0, float(reached[place] - wanted)) / float(pairs[place])
        percentiles[percentage] = float(low[place] + share * (high[place] - low[place]))
    return Distribution(mean, std, percentiles)


def _sorted(embeddings: Float[np.ndarray, "n d"], labels: Int[np.ndarray, " n"]) -> _Sorted:
    bad = np.flatnonzero(~np.isfinite(embeddings).all(axis=1))
    if bad.size:
        raise ValueError(f"{bad.size} of {len(embeddings)} rows are not finite, the first is row {bad[0]}")
    identities, identity, sizes = np.unique(labels, return_inverse=True, return_counts=True)
    if len(identities) < 2:
        raise NothingToMeasure(f"separation: needs two identities or more, not {len(identities)}")
    if sizes.max() < 2:
        raise NothingToMeasure("separation: no identity has two photos")
    rows = embeddings.astype(np.float64)
    size = np.abs(rows).max()
    rows /= size or 1.0
    rows -= rows.mean(axis=0)
    spread = np.abs(rows).max()
    if spread <= _ONE_POINT:
        raise NothingToMeasure("separation: all embeddings are one and the same point")
    order = np.argsort(identity, kind="stable")
    return _Sorted(rows[order] / spread, identity[order], order)


def _without_outliers(of: _Sorted) -> _Sorted:
    distance = np.linalg.norm(of.rows - _centroids(of)[of.identity], axis=1)
    first, sizes = _runs(of.identity)
    limits = [
        np.percentile(distance[start : start + size], DUNN_PERCENTILE)
        for start, size in zip(first.tolist(), sizes.tolist(), strict=True)
    ]
    keep = distance <= np.array(limits)[of.identity] + _ROUNDING
    return _Sorted(of.rows[keep], of.identity[keep], of.order[keep])


def _runs(identity: Int64[np.ndarray, " n"]) -> tuple[Int64[np.ndarray, " c"], Int64[np.ndarray, " c"]]:
    """First row and number of rows of each identity."""
    sizes = np.bincount(identity)
    return np.cumsum(sizes) - sizes, sizes


def _centroids(of: _Sorted) -> Float64[np.ndarray, "c d"]:
    first, sizes = _runs(of.identity)
    return np.add.reduceat(of.rows, first, axis=0) / sizes[:, None]


def _distances(left: Float64[np.ndarray, "n d"], right: Float64[np.ndarray, "m d"]) -> Float64[np.ndarray, "n m"]:
    left_squares = np.square(left).sum(axis=1)[:, None]
    right_squares = np.square(right).sum(axis=1)
    distances = left @ right.T
    distances *= -2
    distances += left_squares
    distances += right_squares
    distances[distances < _NO_DISTANCE * (left_squares + right_squares)] = 0.0
    return np.sqrt(distances, out=distances)


def _nearest_two(points: Float64[np.ndarray, "c d"], block_rows: int | None) -> float:
    """Distance of the two nearest points."""
    nearest = np.inf
    for part in blocks(len(points), _FLOATS_A_DISTANCE * len(points), block_rows):
        block = _distances(points[part], points[part.start :])
        block[np.tril_indices(len(block), 0, block.shape[1])] = np.inf
        nearest = min(nearest, float(block.min()))
    return nearest
