"""Tests of the digits' metrics: neighbors, the outlier, decision boundaries, intervals over seeds."""

import numpy as np
import pytest
from papers.digits import mean_over_trainings
from papers.figures import signed
from papers.planes import Plane, boundaries, neighbors, outlier, plane_figures


def on_grid(seed: int, rows: int = 40, classes: int = 3) -> tuple[np.ndarray, np.ndarray]:
    """Draw points with integer coordinates, so that many distances tie; never the origin, two or more per class."""
    generator = np.random.default_rng(seed)
    points = generator.integers(1, 6, (rows, 2)) * generator.choice([-1.0, 1.0], (rows, 2))
    return points, np.concatenate([np.repeat(range(classes), 2), generator.integers(classes, size=rows)])[:rows]


@pytest.mark.parametrize("seed", range(5))
def test_neighbors_match_exhaustive_search(seed: int) -> None:
    points, labels = on_grid(seed)
    nearest = neighbors(points, labels)
    for row in range(len(points)):
        away = [float(np.sum((points[row] - other) ** 2)) for other in points]
        negatives = [other for other in range(len(points)) if labels[other] != labels[row]]
        positives = [other for other in range(len(points)) if labels[other] == labels[row] and other != row]
        assert nearest.nearest_negative[row] == min(negatives, key=lambda other: away[other])
        assert nearest.nearest_positive[row] == min(positives, key=lambda other: away[other])
        assert nearest.farthest_positive[row] == max(positives, key=lambda other: away[other])


@pytest.mark.parametrize("seed", range(5))
def test_outlier_matches_exhaustive_search(seed: int) -> None:
    raw = np.random.default_rng(seed).normal(size=(30, 2)) + 1
    labels = np.arange(30) % 3
    best, expected = 0.0, None
    for a in range(30):
        cosines = [float(raw[a] @ b / np.linalg.norm(raw[a]) / np.linalg.norm(b)) for b in raw]
        b = max((row for row in range(30) if labels[row] != labels[a]), key=cosines.__getitem__)
        c = min((row for row in range(30) if labels[row] == labels[a]), key=cosines.__getitem__)
        nearer = np.linalg.norm(raw[a] - raw[b]) < np.linalg.norm(raw[a] - raw[c])
        if nearer and cosines[b] - cosines[c] > best:
            best, expected = cosines[b] - cosines[c], (a, b, c)
    assert outlier(raw, labels) == expected is not None


def test_outlier_is_none_for_classes_collapsed_to_points() -> None:
    assert outlier(np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0]]), np.array([0, 0, 1, 1])) is None


def test_outlier_must_be_nearer_by_distance_and_angle() -> None:
    inner = np.array([[1.0, 0.0], [1.0, 0.5]])
    outer = np.array([[50.0, 0.0], [50.0, 1.0]])  # one of them along the first of the inner
    assert outlier(np.vstack([inner, outer]), np.array([0, 0, 1, 1])) is None
    assert outlier(np.vstack([inner, outer / 50]), np.array([0, 0, 1, 1])) is not None


@pytest.mark.parametrize("bias_size", [0, 1])
@pytest.mark.parametrize("seed", range(5))
def test_boundaries_match_class_changes_on_dense_circle(seed: int, bias_size: float) -> None:
    generator = np.random.default_rng(seed)
    centers, bias = generator.normal(size=(5, 2)), bias_size * generator.normal(size=5)
    radius, reach = 3.0, 6.0
    angles = np.linspace(-np.pi, np.pi, 40_001)
    circle = radius * np.stack([np.cos(angles), np.sin(angles)], 1)
    classes = (circle @ centers.T + bias).argmax(1)
    crossings: list[float] = []
    for start, end in boundaries(centers, bias, reach):
        step = end - start  # |start + t step| = radius
        roots = np.roots([step @ step, 2 * start @ step, start @ start - radius**2])
        crossings += [float(np.arctan2(*(start + t * step)[::-1])) for t in roots.real[(roots >= 0) & (roots <= 1)]]
    np.testing.assert_allclose(sorted(crossings), angles[1:][classes[1:] != classes[:-1]], atol=2e-4)


@pytest.mark.parametrize("seed", range(5))
def test_largest_logits_tie_along_boundaries(seed: int) -> None:
    generator = np.random.default_rng(seed)
    centers, bias = generator.normal(size=(5, 2)), generator.normal(size=5)
    for start, end in boundaries(centers, bias, 4.0):
        assert max(np.abs(start).max(), np.abs(end).max()) <= 4 + 1e-9
        logits = np.sort(np.linspace(start, end, 5) @ centers.T + bias, axis=1)
        np.testing.assert_allclose(logits[:, -1], logits[:, -2], atol=1e-9)


def test_boundaries_without_bias_are_rays_and_center_inside_hull_adds_none() -> None:
    square = np.array([[1.0, 1.0], [-1.0, 1.0], [-1.0, -1.0], [1.0, -1.0]])
    segments = boundaries(np.vstack([square, [[0.1, 0.2]]]), np.zeros(5), 2.0)
    np.testing.assert_allclose(np.abs(segments).min(axis=(1, 2)), 0, atol=1e-12)
    ends = sorted(tuple(max(segment.round(9).tolist(), key=np.linalg.norm)) for segment in segments)
    assert ends == [(-2, 0), (0, -2), (0, 2), (2, 0)]


def test_equal_centers_have_no_boundary() -> None:
    assert len(boundaries(np.ones((2, 2)), np.array([0.0, 1.0]), 2.0)) == 0


def test_bias_decides_classification_of_plane() -> None:
    centers = np.array([[1, 0], [0, 1], [-9, -9], [-9, -9], [-9, -9]], np.float32)
    raw, digits = np.array([[2, 1], [1, 2]], np.float32), np.array([1, 1])
    for bias, expected in ((0, [1]), (2, [0, 1])):
        plane = Plane(raw, digits, np.arange(2), centers, np.array([0, bias, 0, 0, 0], np.float32))
        assert plane.correctly_classified.image_index.tolist() == expected


def test_interval_over_seeds_equals_student_t_closed_form() -> None:
    half = 2.7764451 * np.sqrt(2.5) / np.sqrt(5)  # of five values, four degrees of freedom; variance of 1 to 5
    text, certain = mean_over_trainings([1.0, 2.0, 3.0, 4.0, 5.0])
    assert (text, certain) == (f"3.000 [{3 - half:.3f}, {3 + half:.3f}]", True)
    assert mean_over_trainings([-0.1, 0.1], signed) == ("+.000 [-1.271, +1.271]", False)


def test_plane_figures_equal_closed_form() -> None:
    angles = np.arange(5) * 2 * np.pi / 5
    centers = np.stack([np.cos(angles), np.sin(angles)], 1).astype(np.float32)
    known = np.concatenate([centers, 2 * centers, 3 * centers])  # one direction each, three lengths
    unseen = np.tile(np.array([[1, 0], [0, 1]], np.float32), (10, 1))
    unseen[1] = unseen[3] = unseen[0]  # all photos of the first unseen digit, 5, lie on one point
    digits = np.concatenate([np.tile(np.arange(5), 3), 5 + np.arange(20) // 4])
    figures = plane_figures(
        Plane(np.concatenate([known, unseen]), digits, np.arange(35), centers, np.zeros(5, np.float32))
    )
    assert (figures["accuracy"], figures["auc known"]) == (1.0, 1.0)
    # 14 of the 30 same pairs and half of the others are one point, the rest a right angle.
    assert figures["auc unseen"] == pytest.approx(14 / 30 * 1 / 2 + (14 / 30 * 1 / 2 + 16 / 30 * 1 / 2) / 2)
    # At length 1 negatives are 1.18 apart and the farthest positive 2; from length 2 on positives are nearer.
    assert figures["raw nearer than farthest"] == pytest.approx(1 / 3)
    assert figures["unit nearer than farthest"] == 0.0
    assert figures["raw nearer than nearest"] == 0.0
