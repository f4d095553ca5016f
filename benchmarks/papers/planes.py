"""A plane of embedded digits: its figures, and who is nearer than they should be."""

from dataclasses import asdict, dataclass
from itertools import combinations

import numpy as np
from jaxtyping import Float, Float32, Int64

from familiar.metrics.roc import roc_counts_all_pairs
from familiar.metrics.separation import dunn
from familiar.metrics.verification import roc_auc
from papers.figures import number

KNOWN = 5  # digits below it are trained on
DUNNS = {"members": "members", "centroids": "centroids", "centroids_to_mean": "centroids to mean"}
SPACES = ("raw", "unit")
Figures = dict[str, float]  # of one run


@dataclass(frozen=True, eq=False)
class Plane:
    """MNIST's test digits in a run's plane. The largest of `raw @ centers.T` is the classifier's answer.

    `centers` are at unit length where the loss takes no notice of it; `place`: which image of the test file.
    """

    raw: Float32[np.ndarray, "n 2"]
    digits: Int64[np.ndarray, " n"]
    place: Int64[np.ndarray, " n"]
    centers: Float32[np.ndarray, "5 2"]

    @property
    def unit(self) -> Float32[np.ndarray, "n 2"]:
        return unit_rows(self.raw)

    @property
    def right(self) -> "Plane":
        """What the classifier answers right: known digits alone."""
        return self.rows((self.raw @ self.centers.T).argmax(1) == self.digits)

    def rows(self, rows: np.ndarray) -> "Plane":
        return Plane(self.raw[rows], self.digits[rows], self.place[rows], self.centers)


@dataclass(frozen=True, eq=False)
class Around:
    """By row: which one of another class is nearest, and which of its own class are nearest and farthest."""

    stranger: Int64[np.ndarray, " n"]
    mate: Int64[np.ndarray, " n"]
    farthest: Int64[np.ndarray, " n"]


def plane_figures(plane: Plane) -> Figures:
    """Accuracy on known digits, AUC on both halves, Dunn indices and what is nearer than it should be."""
    known = plane.rows(plane.digits < KNOWN)
    right = plane.right
    figures = {"accuracy": len(right.digits) / len(known.digits), **aucs(plane.unit, plane.digits)}
    for space in SPACES:
        indices = asdict(dunn(getattr(known, space), known.digits))
        figures |= {f"{space} {name}": indices[name] for name in DUNNS}
        points: np.ndarray = getattr(right, space)
        found = around(points, right.digits)
        stranger = lengths(points, found.stranger)
        figures[f"{space} nearer than nearest"] = float(np.mean(stranger < lengths(points, found.mate)))
        figures[f"{space} nearer than farthest"] = float(np.mean(stranger < lengths(points, found.farthest)))
    return figures


def around(points: Float[np.ndarray, "n d"], labels: Int64[np.ndarray, " n"]) -> Around:
    """By Euclidean distance, the first of several equally far. Every class has two rows or more."""
    points = points.astype(np.float64)
    found = np.empty((3, len(points)), np.int64)
    for row, point in enumerate(points):
        squared = np.square(points - point).sum(axis=1)
        own = labels == labels[row]
        found[0, row] = np.where(own, np.inf, squared).argmin()
        found[2, row] = np.where(own, squared, -1.0).argmax()
        squared[row] = np.inf
        found[1, row] = np.where(own, squared, np.inf).argmin()
    return Around(*found)


def outlier(raw: Float[np.ndarray, "n d"], labels: Int64[np.ndarray, " n"]) -> tuple[int, int, int] | None:
    """Rows A, B, C: A is nearer to B of another class than to C of its own, by length and by angle alike.

    Of each A, B is the nearest stranger and C the farthest mate by angle; the A whose two cosines are farthest
    apart is taken. None where there is no such row.
    """
    unit = unit_rows(raw)
    found = around(unit, labels)
    by_angle = lengths(unit, found.farthest) ** 2 - lengths(unit, found.stranger) ** 2  # twice the cosines' gap
    by_length = lengths(raw, found.farthest) - lengths(raw, found.stranger)
    gap = np.where((by_angle > 0) & (by_length > 0), by_angle, 0.0)
    row = int(gap.argmax())
    return (row, int(found.stranger[row]), int(found.farthest[row])) if gap[row] > 0 else None


def lengths(points: Float[np.ndarray, "n d"], other: Int64[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
    """Distance of each row to the one named, in float64."""
    points = points.astype(np.float64)
    return np.linalg.norm(points - points[other], axis=1)


def unit_rows(points: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "n d"]:
    return points / np.linalg.norm(points, axis=1, keepdims=True)


def boundaries(centers: Float[np.ndarray, "c 2"]) -> list[float]:
    """Where the largest of `x @ centers.T` changes hands: rays from the origin, as angles in (-pi, pi], ascending."""
    angles: list[float] = []
    for one, other in combinations(range(len(centers)), 2):
        x, y = (centers[one] - centers[other]).tolist()
        for ray in ((-y, x), (y, -x)):
            logits = centers @ np.array(ray)
            if np.delete(logits, [one, other]).max(initial=-np.inf) < logits[one]:
                angles.append(float(np.arctan2(ray[1], ray[0])))
    return sorted(angles)


def aucs(unit: Float32[np.ndarray, "n d"], digits: Int64[np.ndarray, " n"]) -> Figures:
    """Of the cosines of all pairs, within either half."""
    halves = {"auc known": digits < KNOWN, "auc unseen": digits >= KNOWN}
    return {name: roc_auc(roc_counts_all_pairs(unit[half], digits[half])) for name, half in halves.items()}


def apart(plane: Plane, one: int, other: int) -> str:
    length = float(np.linalg.norm(plane.raw[one] - plane.raw[other]))
    return f"distance {length:.1f}, cosine {number(float(plane.unit[one] @ plane.unit[other]))}"
