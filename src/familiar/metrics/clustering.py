"""Agreement of clusters with identities, computed from the nonzero cells of the contingency table; and k-means.

`labels` are the true identities, `groups` the clusters; both are any integers. A photo in no cluster must have a
number of its own: photos that share -1 would be one cluster.
"""

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Float32, Float64, Int, Int64

from familiar.core.blockwise import blocks
from familiar.core.errors import NothingToMeasure
from familiar.core.vectors import check_unit_rows
from familiar.metrics.validation import check_columns, check_finite_rows

_SAME_POINT = 1e-6  # squared distance of unit rows that float32 cannot distinguish from zero
_LLOYD_STEPS = 100


@dataclass(frozen=True)
class PrecisionRecall:
    """Agreement of clusters with identities, by photo (B-cubed) or by pair.

    Attributes:
        precision: mean share of a photo's cluster that shows its identity, or share of the pairs in one cluster that
            show one identity, in [0, 1]; None if no two photos share a cluster (pairs only).
        recall: mean share of a photo's identity that is in its cluster, or share of the pairs of one identity that are
            in one cluster, in [0, 1].
        f: harmonic mean of both, in [0, 1]; 0 if `precision` is None.
    """

    precision: float | None
    recall: float
    f: float


@dataclass(frozen=True, eq=False)
class Contingency:
    """The nonzero cells of the table of identities x groups: at most as many as there are photos.

    For each cell its `identity` (index into `np.unique(labels)`), its `group` (likewise) and its number of `photos`.
    """

    identity: Int64[np.ndarray, " cells"]
    group: Int64[np.ndarray, " cells"]
    photos: Float64[np.ndarray, " cells"]
    identity_sizes: Int64[np.ndarray, " identities"]
    group_sizes: Int64[np.ndarray, " groups"]

    def bcubed(self, weights: Float[np.ndarray, " identities"] | None = None) -> PrecisionRecall:
        """Compute B-cubed (Bagga and Baldwin 1998): each photo's precision and recall, itself included, averaged.

        Args:
            weights: how often each identity was drawn in a bootstrap. A photo of an identity drawn twice counts twice
                as itself and as a negative of others, never as a match of its own copy.
        """
        weights = self._weights(weights)
        photos = weights[self.identity] * self.photos
        negatives = np.bincount(self.group, photos)[self.group] - photos
        total = photos.sum()
        precision = float(photos @ (self.photos / (self.photos + negatives)) / total)
        recall = float(photos @ (self.photos / self.identity_sizes[self.identity]) / total)
        return PrecisionRecall(precision, recall, _harmonic_mean(precision, recall))

    def pairwise(self, weights: Float[np.ndarray, " identities"] | None = None) -> PrecisionRecall:
        """Compute the share of same pairs among grouped pairs (precision) and of grouped among same ones (recall).

        Args:
            weights: as in `bcubed`; same pairs count w_i times, different ones w_i w_j times.

        Returns:
            The rates; precision None and F 0 if no pair was grouped.

        Raises:
            NothingToMeasure: no identity has two photos.
        """
        weights = self._weights(weights)
        same = float(weights @ _pairs(self.identity_sizes.astype(np.float64)))
        if not same > 0:
            raise NothingToMeasure("clustering: no identity has two photos, so there is no pair to find")
        right = float(weights[self.identity] @ _pairs(self.photos))
        photos = weights[self.identity] * self.photos
        group_weights = np.bincount(self.group, photos)
        wrong = float((group_weights @ group_weights - photos @ photos) / 2)
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
    """Count the photos of each identity in each group.

    Raises:
        NothingToMeasure: there are no photos.
    """
    check_columns(integers={"labels": labels, "groups": groups})
    if not len(labels):
        raise NothingToMeasure("clustering: no photos")
    _, identity, identity_sizes = np.unique(labels, return_inverse=True, return_counts=True)
    _, group, group_sizes = np.unique(groups, return_inverse=True, return_counts=True)
    cells, photos = np.unique(identity * len(group_sizes) + group, return_counts=True)
    cell_identity, cell_group = np.divmod(cells, len(group_sizes))
    return Contingency(cell_identity, cell_group, photos.astype(np.float64), identity_sizes, group_sizes)


def bcubed(labels: Int[np.ndarray, " n"], groups: Int[np.ndarray, " n"]) -> PrecisionRecall:
    """Compute B-cubed precision, recall and F (Bagga and Baldwin 1998).

    A photo's precision is the share of its cluster that shows its identity, its recall the share of its identity that
    is in its cluster, the photo itself included; both are averaged over photos.

    Args:
        labels: the identity of each photo, "n".
        groups: the cluster of each photo, "n". A photo in no cluster must have a number of its own.

    Returns:
        The mean precision, the mean recall, and the harmonic mean of both, in (0, 1].

    Raises:
        NothingToMeasure: there are no photos.

    >>> bcubed(np.array([0, 0, 1, 1]), np.array([5, 5, 5, 5]))
    PrecisionRecall(precision=0.5, recall=1.0, f=0.6666666666666666)
    """
    return contingency(labels, groups).bcubed()


def pairwise(labels: Int[np.ndarray, " n"], groups: Int[np.ndarray, " n"]) -> PrecisionRecall:
    """Compute pairwise precision, recall and F.

    Precision is the share of the pairs in one cluster that show one identity, recall the share of the pairs of one
    identity that are in one cluster.

    Args:
        labels: the identity of each photo, "n".
        groups: the cluster of each photo, "n". A photo in no cluster must have a number of its own.

    Returns:
        The rates, and the harmonic mean of both, in [0, 1]; precision None and F 0 if no two photos share a cluster.

    Raises:
        NothingToMeasure: there are no photos, or no identity has two.

    >>> pairwise(np.array([0, 0, 1, 1]), np.array([5, 5, 6, 7]))
    PrecisionRecall(precision=1.0, recall=0.5, f=0.6666666666666666)
    """
    return contingency(labels, groups).pairwise()


def purity(labels: Int[np.ndarray, " n"], groups: Int[np.ndarray, " n"]) -> float:
    """Compute the share of photos of their group's most frequent identity, in (0, 1]. 1 for groups of one photo.

    Manning, Raghavan and Schütze 2008, section 16.3.

    Args:
        labels: the identity of each photo, "n".
        groups: the cluster of each photo, "n". A photo in no cluster must have a number of its own.

    Raises:
        NothingToMeasure: there are no photos, or a single identity.
    """
    table = _checked_contingency(labels, groups)
    largest = np.zeros(len(table.group_sizes))
    np.maximum.at(largest, table.group, table.photos)
    return float(largest.sum() / table.photos.sum())


def ari(labels: Int[np.ndarray, " n"], groups: Int[np.ndarray, " n"]) -> float:
    """Compute the adjusted Rand index (Hubert and Arabie 1985): 0 by chance, 1 for equal partitions; may be below 0.

    Args:
        labels: the identity of each photo, "n".
        groups: the cluster of each photo, "n". A photo in no cluster must have a number of its own.

    Raises:
        NothingToMeasure: there are no photos, or a single identity.
    """
    table = _checked_contingency(labels, groups)
    both = float(_pairs(table.photos).sum())
    missed = float(_pairs(table.identity_sizes.astype(np.float64)).sum()) - both
    wrong = float(_pairs(table.group_sizes.astype(np.float64)).sum()) - both
    neither = len(labels) * (len(labels) - 1) / 2 - both - missed - wrong
    if missed == wrong == 0:
        return 1.0
    chance = (both + missed) * (missed + neither) + (both + wrong) * (wrong + neither)
    return 2 * (both * neither - missed * wrong) / chance


def nmi(labels: Int[np.ndarray, " n"], groups: Int[np.ndarray, " n"]) -> float:
    """Compute mutual information over the mean of both entropies, in [0, 1]. High by chance if groups are small.

    The normalized mutual information that Vinh, Epps and Bailey (2010) call NMI_sum.

    Args:
        labels: the identity of each photo, "n".
        groups: the cluster of each photo, "n". A photo in no cluster must have a number of its own.

    Raises:
        NothingToMeasure: there are no photos, or a single identity.
    """
    table = _checked_contingency(labels, groups)
    return _mutual_information(table) / _mean_entropy(table)


def ami(labels: Int[np.ndarray, " n"], groups: Int[np.ndarray, " n"]) -> float:
    """Compute adjusted mutual information: 0 by chance, 1 for equal partitions; may be below 0.

    Vinh, Epps and Bailey 2010, normalized by the mean of both entropies.

    Args:
        labels: the identity of each photo, "n".
        groups: the cluster of each photo, "n". A photo in no cluster must have a number of its own.

    Raises:
        NothingToMeasure: there are no photos, or a single identity.
    """
    table = _checked_contingency(labels, groups)
    if len(table.photos) == len(table.identity_sizes) == len(table.group_sizes):
        return 1.0
    chance = _expected_mutual_information(table.identity_sizes, table.group_sizes)
    return (_mutual_information(table) - chance) / (_mean_entropy(table) - chance)


def kmeans_groups(embeddings: Float32[np.ndarray, "n d"], k: int, seed: int = 0) -> Int64[np.ndarray, " n"]:
    """Cluster unit rows by Euclidean k-means: one k-means++ start, then Lloyd's algorithm until convergence.

    The start is that of Arthur and Vassilvitskii (2007).

    Args:
        embeddings: unit rows.
        k: number of clusters, in [1, n].
        seed: of the start.

    Returns:
        The cluster of each row. There are fewer than `k` clusters if there are fewer distinct rows, and in the rare
        case that a cluster loses its last row.

    Raises:
        ValueError: the rows are not unit vectors, or k is out of range.
    """
    check_finite_rows(embeddings)
    check_unit_rows(embeddings)
    if not 1 <= k <= len(embeddings):
        raise ValueError(f"k must be in [1, {len(embeddings)}], the number of photos, got {k}")
    centers = embeddings[_kmeans_plus_plus(embeddings, k, np.random.default_rng(seed))]
    groups = _assign_to_centers(embeddings, centers)
    for _ in range(_LLOYD_STEPS):
        centers = _group_means(embeddings, groups, centers)
        moved = _assign_to_centers(embeddings, centers)
        if np.array_equal(moved, groups):
            break
        groups = moved
    return groups


def _kmeans_plus_plus(rows: Float32[np.ndarray, "n d"], k: int, rng: np.random.Generator) -> Int64[np.ndarray, " c"]:
    """Choose rows by greedy k-means++: probability proportional to the squared distance to the nearest chosen row.

    Of 2 + log k rows drawn at a time, the one that leaves the least total distance is chosen: with two photos per
    identity, one draw at a time costs a third of AMI. Fewer than `k` if every row coincides with a chosen one.
    """
    draws = 2 + int(math.log(k))
    squares = np.square(rows).sum(axis=1)
    chosen = [int(rng.integers(len(rows)))]
    distance = np.square(rows - rows[chosen]).sum(axis=1)
    while len(chosen) < k:
        distance[distance < _SAME_POINT] = 0
        cumulative: Float64[np.ndarray, " n"] = np.cumsum(distance, dtype=np.float64)
        if cumulative[-1] == 0:
            break
        drawn = np.searchsorted(cumulative, rng.random(draws) * float(cumulative[-1]), "right")
        remaining = squares - 2 * (rows[drawn] @ rows.T) + squares[drawn, None]
        np.minimum(remaining, distance, out=remaining)
        best = int(remaining.sum(axis=1).argmin())
        chosen.append(int(drawn[best]))
        distance = remaining[best]
    return np.array(chosen)


def _assign_to_centers(
    rows: Float32[np.ndarray, "n d"], centers: Float32[np.ndarray, "k d"]
) -> Int64[np.ndarray, " n"]:
    """Return the index of each row's nearest center."""
    half_squares = np.square(centers).sum(axis=1) / 2
    nearest = np.empty(len(rows), np.int64)
    for part in blocks(len(rows), len(centers), None):
        scores = rows[part] @ centers.T
        scores -= half_squares
        nearest[part] = scores.argmax(axis=1)
    return nearest


def _group_means(
    rows: Float32[np.ndarray, "n d"], groups: Int64[np.ndarray, " n"], centers: Float32[np.ndarray, "k d"]
) -> Float32[np.ndarray, "k d"]:
    """Compute each group's mean; a group without rows keeps its center."""
    order = np.argsort(groups, kind="stable")
    filled, first, sizes = np.unique(groups[order], return_index=True, return_counts=True)
    means = centers.copy()
    means[filled] = np.add.reduceat(rows[order], first, axis=0, dtype=np.float64) / sizes[:, None]
    return means


def _checked_contingency(labels: Int[np.ndarray, " n"], groups: Int[np.ndarray, " n"]) -> Contingency:
    table = contingency(labels, groups)
    if len(table.identity_sizes) == 1:
        raise NothingToMeasure("clustering: needs two identities or more, got one")
    return table


def _mutual_information(table: Contingency) -> float:
    """Compute mutual information in nats; exactly 0 with a single group."""
    total = table.photos.sum()
    expected = table.identity_sizes[table.identity] * (table.group_sizes[table.group] / total)
    return max(0.0, float(table.photos @ np.log(table.photos / expected) / total))


def _mean_entropy(table: Contingency) -> float:
    """Compute the mean of both entropies in nats."""
    shares = (sizes / sizes.sum() for sizes in (table.identity_sizes, table.group_sizes))
    return sum(-float(share @ np.log(share)) for share in shares) / 2


def _expected_mutual_information(
    identity_sizes: Int64[np.ndarray, " identities"], group_sizes: Int64[np.ndarray, " groups"]
) -> float:
    """Compute the mean mutual information, in nats, of random partitions with these sizes (Vinh et al. 2010, Eq. 24a).

    A summand depends only on its two sizes, few of which are distinct: those of n photos sum to at most n.
    """
    total = int(identity_sizes.sum())
    log_factorial = np.array([math.lgamma(i + 1) for i in range(total + 1)])
    other_sizes, other_counts = np.unique(group_sizes, return_counts=True)
    expected = 0.0
    sizes, counts = np.unique(identity_sizes, return_counts=True)
    for size, count in zip(sizes.tolist(), counts.tolist(), strict=True):
        min_shared = np.maximum(1, size + other_sizes - total)
        max_shared = np.minimum(size, other_sizes)
        lengths = max_shared - min_shared + 1
        other = np.repeat(other_sizes, lengths)
        shared = np.arange(len(other)) + np.repeat(min_shared - (np.cumsum(lengths) - lengths), lengths)
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
        expected += count * float((np.repeat(other_counts, lengths) * information) @ np.exp(log_chance))
    return expected


def _pairs(photos: Float64[np.ndarray, " k"]) -> Float64[np.ndarray, " k"]:
    return photos * (photos - 1) / 2


def _harmonic_mean(precision: float, recall: float) -> float:
    return 2 * precision * recall / (precision + recall) if precision + recall > 0 else 0.0
