"""How well do groups of photos match the identities? From the contingency table's non-zero cells alone.

`labels` are the true identities, `groups` what was found; both are any whole numbers. A photo in no group
must have a group number of its own: -1 shared by many of them would be one group.
"""

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Float32, Float64, Int, Int64

from familiar.core.blockwise import blocks
from familiar.core.errors import NothingToMeasure
from familiar.core.vectors import check_unit_rows

_SAME_POINT = 1e-6  # squared distance of unit rows that float32 cannot tell from none
_LLOYD_STEPS = 100


@dataclass(frozen=True)
class PrecisionRecall:
    """All in [0, 1]. `precision` is None where there was nothing to be right or wrong about; `f` is 0 then."""

    precision: float | None
    recall: float
    f: float


@dataclass(frozen=True, eq=False)
class Contingency:
    """The cells of identities x groups that hold photos: at most as many as there are photos.

    Cell by cell its `identity` (place in `np.unique(labels)`), its `group` (likewise) and its `photos`.
    """

    identity: Int64[np.ndarray, " cells"]
    group: Int64[np.ndarray, " cells"]
    photos: Float64[np.ndarray, " cells"]
    identity_sizes: Int64[np.ndarray, " identities"]
    group_sizes: Int64[np.ndarray, " groups"]

    def bcubed(self, weights: Float[np.ndarray, " identities"] | None = None) -> PrecisionRecall:
        """B-cubed (Bagga and Baldwin 1998): every photo's precision and recall, itself counted, averaged.

        `weights`: how often each identity was drawn in a bootstrap. A photo of an identity drawn twice
        counts twice as itself and as another's stranger, never as a match of its own copy.
        """
        weights = self._weights(weights)
        photos = weights[self.identity] * self.photos
        strangers = np.bincount(self.group, photos)[self.group] - photos
        total = photos.sum()
        precision = float(photos @ (self.photos / (self.photos + strangers)) / total)
        recall = float(photos @ (self.photos / self.identity_sizes[self.identity]) / total)
        return PrecisionRecall(precision, recall, _harmonic_mean(precision, recall))

    def pairwise(self, weights: Float[np.ndarray, " identities"] | None = None) -> PrecisionRecall:
        """Of the pairs put into one group, the share of one identity; and of those, the share grouped.

        Where no pair was grouped, precision is None and F 0. `weights` as in `bcubed`: same pairs count
        w_i times, different ones w_i w_j times. Raises `NothingToMeasure` if no identity has two photos.
        """
        weights = self._weights(weights)
        same = float(weights @ _pairs(self.identity_sizes.astype(np.float64)))
        if not same > 0:
            raise NothingToMeasure("clustering: no identity has two photos, so there is no pair to find")
        right = float(weights[self.identity] @ _pairs(self.photos))
        photos = weights[self.identity] * self.photos
        together = np.bincount(self.group, photos)
        wrong = float((together @ together - photos @ photos) / 2)
        if right + wrong == 0:
            return PrecisionRecall(None, 0.0, 0.0)
        precision, recall = right / (right + wrong), right / same
        return PrecisionRecall(precision, recall, _harmonic_mean(precision, recall))

    def _weights(self, weights: Float[np.ndarray, " identities"] | None) -> Float64[np.ndarray, " identities"]:
        if weights is None:
            return np.ones(len(self.identity_sizes))
        if weights.min() < 0 or not 0 < weights.sum() < np.inf:
            raise ValueError("weights of identities must be finite, not negative, and not all zero")
        return weights.astype(np.float64)


def contingency(labels: Int[np.ndarray, " n"], groups: Int[np.ndarray, " n"]) -> Contingency:
    """Counts how many photos of each identity lie in each group. Raises `NothingToMeasure` without photos."""
    if not len(labels):
        raise NothingToMeasure("clustering: no photos")
    _, identity, identity_sizes = np.unique(labels, return_inverse=True, return_counts=True)
    _, group, group_sizes = np.unique(groups, return_inverse=True, return_counts=True)
    cells, photos = np.unique(identity * len(group_sizes) + group, return_counts=True)
    of_identity, of_group = np.divmod(cells, len(group_sizes))
    return Contingency(of_identity, of_group, photos.astype(np.float64), identity_sizes, group_sizes)


def bcubed(labels: Int[np.ndarray, " n"], groups: Int[np.ndarray, " n"]) -> PrecisionRecall:
    """B-cubed precision, recall and F of groups: `Contingency.bcubed`.

    >>> bcubed(np.array([0, 0, 1, 1]), np.array([5, 5, 5, 5]))
    PrecisionRecall(precision=0.5, recall=1.0, f=0.6666666666666666)
    """
    return contingency(labels, groups).bcubed()


def pairwise(labels: Int[np.ndarray, " n"], groups: Int[np.ndarray, " n"]) -> PrecisionRecall:
    """Pairwise precision, recall and F of groups: `Contingency.pairwise`.

    >>> pairwise(np.array([0, 0, 1, 1]), np.array([5, 5, 6, 7]))
    PrecisionRecall(precision=1.0, recall=0.5, f=0.6666666666666666)
    """
    return contingency(labels, groups).pairwise()


def purity(labels: Int[np.ndarray, " n"], groups: Int[np.ndarray, " n"]) -> float:
    """Share of photos that are of their group's most frequent identity, in (0, 1]. 1 where each is alone."""
    table = _several_identities(labels, groups)
    largest = np.zeros(len(table.group_sizes))
    np.maximum.at(largest, table.group, table.photos)
    return float(largest.sum() / table.photos.sum())


def ari(labels: Int[np.ndarray, " n"], groups: Int[np.ndarray, " n"]) -> float:
    """Adjusted Rand index (Hubert and Arabie 1985): 0 by chance, 1 where both agree; may be below 0.

    Raises `NothingToMeasure` as `nmi`.
    """
    table = _several_identities(labels, groups)
    both = float(_pairs(table.photos).sum())
    missed = float(_pairs(table.identity_sizes.astype(np.float64)).sum()) - both
    wrong = float(_pairs(table.group_sizes.astype(np.float64)).sum()) - both
    neither = len(labels) * (len(labels) - 1) / 2 - both - missed - wrong
    if missed == wrong == 0:
        return 1.0
    chance = (both + missed) * (missed + neither) + (both + wrong) * (wrong + neither)
    return 2 * (both * neither - missed * wrong) / chance


def nmi(labels: Int[np.ndarray, " n"], groups: Int[np.ndarray, " n"]) -> float:
    """Mutual information over the mean of both entropies, in [0, 1]. High by chance where groups are small.

    Raises `NothingToMeasure` without photos or with a single identity.
    """
    table = _several_identities(labels, groups)
    return _mutual_information(table) / _mean_entropy(table)


def ami(labels: Int[np.ndarray, " n"], groups: Int[np.ndarray, " n"]) -> float:
    """Mutual information less what chance gives, over its largest excess: 0 by chance, 1 where both agree.

    Vinh, Epps and Bailey 2010, normalized by the mean of both entropies; may be below 0. Raises
    `NothingToMeasure` as `nmi`.
    """
    table = _several_identities(labels, groups)
    if len(table.photos) == len(table.identity_sizes) == len(table.group_sizes):
        return 1.0
    chance = _expected_mutual_information(table.identity_sizes, table.group_sizes)
    return (_mutual_information(table) - chance) / (_mean_entropy(table) - chance)


def kmeans_groups(embeddings: Float32[np.ndarray, "n d"], k: int, seed: int = 0) -> Int64[np.ndarray, " n"]:
    """Each unit row's group of at most `k`, by plain Euclidean k-means: one start, Lloyd until nothing moves.

    Starts from k-means++ (Arthur and Vassilvitskii 2007). There are fewer than `k` groups where there are
    fewer distinct rows, and in the rare case that a group loses its last one. `ValueError` on rows that are
    no unit vectors and unless 1 <= k <= n.
    """
    check_unit_rows(embeddings)
    if not 1 <= k <= len(embeddings):
        raise ValueError(f"{len(embeddings)} photos make 1 to that many groups, not {k}")
    centers = embeddings[_spread_rows(embeddings, k, np.random.default_rng(seed))]
    groups = _nearest(embeddings, centers)
    for _ in range(_LLOYD_STEPS):
        centers = _means(embeddings, groups, centers)
        moved = _nearest(embeddings, centers)
        if np.array_equal(moved, groups):
            break
        groups = moved
    return groups


def _spread_rows(rows: Float32[np.ndarray, "n d"], k: int, rng: np.random.Generator) -> Int64[np.ndarray, " c"]:
    """Greedy k-means++: rows drawn with probability as their squared distance to the nearest row chosen.

    Of 2 + log k drawn at a time the one that leaves the least distance is chosen: with two photos an
    identity, one draw at a time costs a third of AMI. Fewer than `k` where every row lies on one of them.
    """
    draws = 2 + int(math.log(k))
    squares = np.square(rows).sum(axis=1)
    chosen = [int(rng.integers(len(rows)))]
    distance = np.square(rows - rows[chosen]).sum(axis=1)
    while len(chosen) < k:
        distance[distance < _SAME_POINT] = 0
        reach: Float64[np.ndarray, " n"] = np.cumsum(distance, dtype=np.float64)
        if reach[-1] == 0:
            break
        drawn = np.searchsorted(reach, rng.random(draws) * float(reach[-1]), "right")
        left = squares - 2 * (rows[drawn] @ rows.T) + squares[drawn, None]
        np.minimum(left, distance, out=left)
        best = int(left.sum(axis=1).argmin())
        chosen.append(int(drawn[best]))
        distance = left[best]
    return np.array(chosen)


def _nearest(rows: Float32[np.ndarray, "n d"], centers: Float32[np.ndarray, "k d"]) -> Int64[np.ndarray, " n"]:
    """Each row's nearest center."""
    half_squares = np.square(centers).sum(axis=1) / 2
    nearest = np.empty(len(rows), np.int64)
    for part in blocks(len(rows), len(centers), None):
        closeness = rows[part] @ centers.T
        closeness -= half_squares
        nearest[part] = closeness.argmax(axis=1)
    return nearest


def _means(
    rows: Float32[np.ndarray, "n d"], groups: Int64[np.ndarray, " n"], centers: Float32[np.ndarray, "k d"]
) -> Float32[np.ndarray, "k d"]:
    """Each group's mean. The center of a group without rows stays where it is."""
    order = np.argsort(groups, kind="stable")
    filled, first, sizes = np.unique(groups[order], return_index=True, return_counts=True)
    means = centers.copy()
    means[filled] = np.add.reduceat(rows[order], first, axis=0, dtype=np.float64) / sizes[:, None]
    return means


def _several_identities(labels: Int[np.ndarray, " n"], groups: Int[np.ndarray, " n"]) -> Contingency:
    table = contingency(labels, groups)
    if len(table.identity_sizes) == 1:
        raise NothingToMeasure("clustering: a single identity, so there is nothing to tell apart")
    return table


def _mutual_information(table: Contingency) -> float:
    """In nats. Exactly 0 with a single group."""
    total = table.photos.sum()
    expected = table.identity_sizes[table.identity] * (table.group_sizes[table.group] / total)
    return max(0.0, float(table.photos @ np.log(table.photos / expected) / total))


def _mean_entropy(table: Contingency) -> float:
    """In nats."""
    shares = (sizes / sizes.sum() for sizes in (table.identity_sizes, table.group_sizes))
    return sum(-float(share @ np.log(share)) for share in shares) / 2


def _expected_mutual_information(
    identity_sizes: Int64[np.ndarray, " identities"], group_sizes: Int64[np.ndarray, " groups"]
) -> float:
    """Mean mutual information, in nats, of random partitions with these sizes (Vinh et al. 2010, Eq. 24a).

    A summand depends on its two sizes alone, of which few are distinct: those of n photos sum to at most n.
    """
    total = int(identity_sizes.sum())
    log_factorial = np.array([math.lgamma(i + 1) for i in range(total + 1)])
    others, times = np.unique(group_sizes, return_counts=True)
    expected = 0.0
    sizes, counts = np.unique(identity_sizes, return_counts=True)
    for size, count in zip(sizes.tolist(), counts.tolist(), strict=True):
        least = np.maximum(1, size + others - total)
        most = np.minimum(size, others)
        lengths = most - least + 1
        other = np.repeat(others, lengths)
        shared = np.arange(len(other)) + np.repeat(least - (np.cumsum(lengths) - lengths), lengths)
        log_chance = (
            log_factorial[size]
            + log_factorial[other]
            + log_factorial[total - size]
            + log_factorial[total - other]
            - log_factorial[total]
            - log_factorial[shared]
            - log_factorial[size - shared]
            - log_factorial[other - shared]
            - log_factorial[total - size - other + shared]
        )
        information = shared / total * np.log(total * shared / (size * other))
        expected += count * float((np.repeat(times, lengths) * information) @ np.exp(log_chance))
    return expected


def _pairs(photos: Float64[np.ndarray, " k"]) -> Float64[np.ndarray, " k"]:
    return photos * (photos - 1) / 2


def _harmonic_mean(precision: float, recall: float) -> float:
    return 2 * precision * recall / (precision + recall) if precision + recall > 0 else 0.0
