"""Metrics of digits embedded in the plane, and photos nearer to another class than to their own."""

from dataclasses import asdict, dataclass
from itertools import combinations

import numpy as np
from jaxtyping import Float, Float32, Float64, Int64

from familiar.metrics.roc import roc_counts_all_pairs
from familiar.metrics.separation import dunn
from familiar.metrics.verification import roc_auc
from papers.figures import number

KNOWN = 5  # digits below this are trained on
DUNNS = {"members": "members", "centroids": "centroids", "centroids_to_mean": "centroids to mean"}
SPACES = ("raw", "unit")
PARALLEL = 1e-12  # slopes of half planes along a line that are zero but for rounding
Figures = dict[str, float]  # of one run


@dataclass(frozen=True, eq=False)
class Plane:
    """MNIST's test digits embedded by a run; the classifier's prediction is the largest of `raw @ centers.T + bias`.

    `centers` have unit length if the loss ignores their length; `image_index` is the position in MNIST's test file;
    `bias` is zero for a classifier without.
    """

    raw: Float32[np.ndarray, "n 2"]
    digits: Int64[np.ndarray, " n"]
    image_index: Int64[np.ndarray, " n"]
    centers: Float32[np.ndarray, "5 2"]
    bias: Float32[np.ndarray, " 5"]

    @property
    def unit(self) -> Float32[np.ndarray, "n 2"]:
        return unit_rows(self.raw)

    @property
    def correctly_classified(self) -> "Plane":
        """Rows that are classified correctly, which are digits trained on."""
        return self.rows((self.raw @ self.centers.T + self.bias).argmax(1) == self.digits)

    def rows(self, rows: np.ndarray) -> "Plane":
        return Plane(self.raw[rows], self.digits[rows], self.image_index[rows], self.centers, self.bias)


@dataclass(frozen=True, eq=False)
class Neighbors:
    """For each row, the nearest row of another class, and the nearest and farthest of its own class."""

    nearest_negative: Int64[np.ndarray, " n"]
    nearest_positive: Int64[np.ndarray, " n"]
    farthest_positive: Int64[np.ndarray, " n"]


def plane_figures(plane: Plane) -> Figures:
    """Compute accuracy on known digits, AUC on both halves, Dunn indices, and shares nearer to another class."""
    known = plane.rows(plane.digits < KNOWN)
    correct = plane.correctly_classified
    figures = {"accuracy": len(correct.digits) / len(known.digits), **aucs(plane.unit, plane.digits)}
    for space in SPACES:
        indices = asdict(dunn(getattr(known, space), known.digits))
        figures |= {f"{space} {name}": indices[name] for name in DUNNS}
        points: np.ndarray = getattr(correct, space)
        nearest = neighbors(points, correct.digits)
        nearest_negative = lengths(points, nearest.nearest_negative)
        figures[f"{space} nearer than nearest"] = float(
            np.mean(nearest_negative < lengths(points, nearest.nearest_positive))
        )
        figures[f"{space} nearer than farthest"] = float(
            np.mean(nearest_negative < lengths(points, nearest.farthest_positive))
        )
    return figures


def neighbors(points: Float[np.ndarray, "n d"], labels: Int64[np.ndarray, " n"]) -> Neighbors:
    """Find nearest and farthest rows by Euclidean distance; ties go to the first. A class needs two rows or more."""
    points = points.astype(np.float64)
    rows = np.empty((3, len(points)), np.int64)
    for row, point in enumerate(points):
        squared = np.square(points - point).sum(axis=1)
        same = labels == labels[row]
        rows[0, row] = np.where(same, np.inf, squared).argmin()
        rows[2, row] = np.where(same, squared, -1.0).argmax()
        squared[row] = np.inf
        rows[1, row] = np.where(same, squared, np.inf).argmin()
    return Neighbors(*rows)


def outlier(raw: Float[np.ndarray, "n d"], labels: Int64[np.ndarray, " n"]) -> tuple[int, int, int] | None:
    """Find a row nearer to another class than to its own, both by distance and by angle.

    Returns:
        Rows A, B, C: by angle, B is A's nearest negative and C its farthest positive; among all such A the one with the
        largest difference of the two cosines. None if there is no such row.
    """
    unit = unit_rows(raw)
    nearest = neighbors(unit, labels)
    by_angle = (
        lengths(unit, nearest.farthest_positive) ** 2 - lengths(unit, nearest.nearest_negative) ** 2
    )  # twice the difference of cosines
    by_length = lengths(raw, nearest.farthest_positive) - lengths(raw, nearest.nearest_negative)
    gap = np.where((by_angle > 0) & (by_length > 0), by_angle, 0.0)
    row = int(gap.argmax())
    return (row, int(nearest.nearest_negative[row]), int(nearest.farthest_positive[row])) if gap[row] > 0 else None


def lengths(points: Float[np.ndarray, "n d"], other: Int64[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
    """Compute the distance from each row to the row given for it, in float64."""
    points = points.astype(np.float64)
    return np.linalg.norm(points - points[other], axis=1)


def unit_rows(points: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "n d"]:
    return points / np.linalg.norm(points, axis=1, keepdims=True)


def boundaries(
    centers: Float[np.ndarray, "c 2"], bias: Float[np.ndarray, " c"], reach: float
) -> Float64[np.ndarray, "k 2 2"]:
    """Compute the decision boundaries of `x @ centers.T + bias` in the square of +-reach, as segments (start, end).

    Without a bias each of them starts at the origin or passes through it.
    """
    segments: list[np.ndarray] = []
    square = np.array([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]])
    for first, second in combinations(range(len(centers)), 2):
        normal = (centers[first] - centers[second]).astype(np.float64)
        if not normal.any():
            continue
        foot = -float(bias[first] - bias[second]) * normal / (normal @ normal)
        direction = np.array([-normal[1], normal[0]]) / np.linalg.norm(normal)
        others = np.delete(np.arange(len(centers)), [first, second])
        # Half planes `slopes * t + offsets >= 0` along `foot + t * direction`: `first` beats others; the square.
        half_planes = np.concatenate([centers[first] - centers[others], -square])
        constants = np.concatenate([bias[first] - bias[others], np.full(4, reach)])
        slopes, offsets = half_planes @ direction, half_planes @ foot + constants
        parallel = np.abs(slopes) < PARALLEL
        if (offsets[parallel] < 0).any():
            continue
        ends = -offsets[~parallel] / slopes[~parallel]
        low = ends[slopes[~parallel] > 0].max(initial=-np.inf)
        high = ends[slopes[~parallel] < 0].min(initial=np.inf)
        if low < high:
            segments.append(np.stack([foot + low * direction, foot + high * direction]))
    return np.array(segments).reshape(-1, 2, 2)


def aucs(unit: Float32[np.ndarray, "n d"], digits: Int64[np.ndarray, " n"]) -> Figures:
    """Compute the AUC of the cosines of all pairs, within the known and within the unseen digits."""
    halves = {"auc known": digits < KNOWN, "auc unseen": digits >= KNOWN}
    return {name: roc_auc(roc_counts_all_pairs(unit[half], digits[half])) for name, half in halves.items()}


def describe_distance(plane: Plane, first: int, second: int) -> str:
    length = float(np.linalg.norm(plane.raw[first] - plane.raw[second]))
    return f"distance {length:.1f}, cosine {number(float(plane.unit[first] @ plane.unit[second]))}"
