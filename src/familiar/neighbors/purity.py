"""Clusters that show two individuals: found without labels, and split."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Float64, Int64

from familiar.neighbors.labels import relabel_by_first_appearance

# All three chosen on cats23, dogs29 and ORL (docs/explanation/clustering.md).
MIN_SIZE, MIN_PART = 10, 3
"""Faces of a cluster that is split, and of each part."""
MAX_ACROSS = -0.7
"""Mean similarity of the faces of two individuals, in uncertainties of the threshold above it, at most."""
MIN_GAP = 1.5
"""By so many uncertainties the faces within each part are more similar than those across."""
_POWER_STEPS, _MEANS_STEPS = 10, 20


@dataclass(frozen=True, eq=False)
class Halves:
    """A cluster divided in two.

    Attributes:
        is_second: whether each face is in the second part; the first has the first face.
        across: mean similarity of two faces of different parts.
        within: mean similarity of two faces of one part, of the part where it is lower; 1 for parts of one face.
    """

    is_second: Bool[np.ndarray, " n"]
    across: float
    within: float

    @property
    def smaller(self) -> int:
        """Number of faces of the smaller part."""
        second = int(self.is_second.sum())
        return min(second, len(self.is_second) - second)


def halve(rows: Float[np.ndarray, "n d"]) -> Halves | None:
    """Divide a cluster where its faces differ most: two-means, begun from its principal direction.

    Args:
        rows: unit rows.

    Returns:
        Both parts; None if there is only one, as of equal rows.
    """
    if len(rows) < 2:
        return None
    vectors = rows.astype(np.float64)
    centered = vectors - vectors.mean(axis=0)
    direction = centered[np.square(centered).sum(axis=1).argmax()]
    for _ in range(_POWER_STEPS):
        direction = centered.T @ (centered @ direction)
        direction /= max(float(np.linalg.norm(direction)), np.finfo(np.float64).tiny)
    is_second = centered @ direction > 0
    for _ in range(_MEANS_STEPS):
        first, second = vectors[~is_second].sum(axis=0), vectors[is_second].sum(axis=0)
        lengths = [max(float(np.linalg.norm(each)), np.finfo(np.float64).tiny) for each in (first, second)]
        nearer = vectors @ second / lengths[1] > vectors @ first / lengths[0]
        if (nearer == is_second).all():
            break
        is_second = nearer
    if is_second[0]:
        is_second = ~is_second
    if not is_second.any():
        return None
    parts = vectors[~is_second], vectors[is_second]
    across = float(parts[0].mean(axis=0) @ parts[1].mean(axis=0))
    return Halves(is_second, across, min(mean_similarity(part) for part in parts))


def split_mixed(
    rows: Float[np.ndarray, "n d"],
    clusters: Int64[np.ndarray, " n"],
    threshold: float,
    uncertainty: float,
    may_split: Bool[np.ndarray, " n"] | None = None,
) -> Int64[np.ndarray, " n"]:
    """Split clusters whose halves look like two individuals, and their parts again.

    They do if the faces across are less similar than the threshold by `.7` of its uncertainty or more, and those within
    each half are more similar than those across by 1.5 of it.

    Args:
        rows: unit rows.
        clusters: the cluster of each row.
        threshold: similarity that the clusters were made at.
        uncertainty: standard deviation of the best threshold.
        may_split: rows whose clusters may be split, which are all of a cluster's or none; None: all.

    Returns:
        The cluster of each row, numbered by first appearance.
    """
    result = relabel_by_first_appearance(clusters)
    order = np.argsort(result, kind="stable")
    members = np.split(order, np.cumsum(np.bincount(result))[:-1]) if len(order) else []
    waiting = [each for each in members if may_split is None or may_split[each[0]]]
    unused = len(members)
    while waiting:
        faces = waiting.pop()
        halves = halve(rows[faces]) if len(faces) >= MIN_SIZE else None
        if halves is None or not _are_two(halves, threshold, uncertainty):
            continue
        second = faces[halves.is_second]
        result[second] = unused
        unused += 1
        waiting += [faces[~halves.is_second], second]
    return relabel_by_first_appearance(result)


def _are_two(halves: Halves, threshold: float, uncertainty: float) -> bool:
    return (
        halves.smaller >= MIN_PART
        and halves.across < threshold + MAX_ACROSS * uncertainty
        and halves.within - halves.across > MIN_GAP * uncertainty
    )


def mean_similarity(rows: Float64[np.ndarray, "n d"]) -> float:
    """Return the mean similarity of two different rows; 1 for a single row."""
    if len(rows) == 1:
        return 1.0
    total = rows.sum(axis=0)
    return (float(total @ total) - float(np.square(rows).sum())) / (len(rows) * (len(rows) - 1))
