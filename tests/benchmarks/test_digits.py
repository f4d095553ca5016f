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


@pytest.mark.parametrize("seed", range(5))
def test_boundaries_match_class_changes_on_dense_angle_grid(seed: int) -> None:
    centers = np.random.default_rng(seed).normal(size=(5, 2))
    angles = np.linspace(-np.pi, np.pi, 40_001)
    answers = (np.stack([np.cos(angles), np.sin(angles)], 1) @ centers.T).argmax(1)
    changes = angles[1:][answers[1:] != answers[:-1]]
    np.testing.assert_allclose(boundaries(centers), changes, atol=2e-4)


def test_center_inside_hull_adds_no_boundary() -> None:
    square = np.array([[1.0, 1.0], [-1.0, 1.0], [-1.0, -1.0], [1.0, -1.0]])
    corners = [-np.pi / 2, 0.0, np.pi / 2, np.pi]
    np.testing.assert_allclose(boundaries(np.vstack([square, [[0.1, 0.2]]])), corners, atol=1e-12)


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
    figures = plane_figures(Plane(np.concatenate([known, unseen]), digits, np.arange(35), centers))
    assert (figures["accuracy"], figures["auc known"]) == (1.0, 1.0)
    # 14 of the 30 same pairs and half of the others are one point, the rest a right angle.
    assert figures["auc unseen"] == pytest.approx(14 / 30 * 1 / 2 + (14 / 30 * 1 / 2 + 16 / 30 * 1 / 2) / 2)
    # At length 1 negatives are 1.18 apart and the farthest positive 2; from length 2 on positives are nearer.
    assert figures["raw nearer than farthest"] == pytest.approx(1 / 3)
    assert figures["unit nearer than farthest"] == 0.0
    assert figures["raw nearer than nearest"] == 0.0
