import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from familiar.core.vectors import (
    UNIT_NORM_TOLERANCE,
    Bridge,
    check_unit_rows,
    cosine_similarity,
    normalize,
    orthogonal_bridge,
    pca_project,
    prefix,
    ridge_bridge,
)

FINITE = st.floats(width=32, allow_nan=False, allow_infinity=False)
matrices = npst.arrays(np.float32, st.tuples(st.integers(1, 4), st.integers(1, 6)), elements=FINITE)


def rows(*vectors: tuple[float, ...]) -> np.ndarray:
    return np.array(vectors, np.float32)


def directions(seed: int, count: int, dim: int) -> np.ndarray:
    return normalize(np.random.default_rng(seed).normal(size=(count, dim)).astype(np.float32))


def rotation(seed: int, dim: int) -> np.ndarray:
    """Draw a rotation in float64; half of them are reflections."""
    return np.linalg.qr(np.random.default_rng(seed).normal(size=(dim, dim)))[0]


def turned(vectors: np.ndarray, matrix: np.ndarray) -> np.ndarray:
    return (vectors.astype(np.float64) @ matrix).astype(np.float32)


def mean_cosine(left: np.ndarray, right: np.ndarray) -> float:
    return float(np.einsum("nd,nd->n", left, right).mean())


def related(seed: int, count: int, d_from: int, d_to: int, noise: float) -> tuple[np.ndarray, np.ndarray]:
    """Draw the same photos in two spaces: linear maps of the same traits, with an offset."""
    generator = np.random.default_rng(seed)
    traits = generator.normal(size=(count, max(d_from, d_to)))
    views = [
        traits @ generator.normal(size=(traits.shape[1], dim)) + 2 * generator.normal(size=dim)
        for dim in (d_from, d_to)
    ]
    source, target = (view + noise * view.std() * generator.normal(size=view.shape) for view in views)
    return normalize(source.astype(np.float32)), normalize(target.astype(np.float32))


# normalize


def test_normalize_equals_closed_form() -> None:
    assert normalize(rows((3, 4), (0, -2))) == pytest.approx(rows((0.6, 0.8), (0, -1)))


@given(matrices)
def test_normalize_matches_float64_reference(vectors: np.ndarray) -> None:
    assume(vectors.any(axis=1).all())
    for row, unit in zip(vectors, normalize(vectors), strict=True):
        length = math.hypot(*(float(value) for value in row))
        assert unit == pytest.approx([float(value) / length for value in row], abs=1e-6)


@pytest.mark.parametrize("size", [1e-45, 1.5e-22, 1e-10, 1e18, 1e30, 3e38])
def test_normalize_is_accurate_at_float32_extremes(size: float) -> None:
    assert normalize(rows((size, 0, -size))) == pytest.approx(rows((math.sqrt(0.5), 0, -math.sqrt(0.5))))


@pytest.mark.parametrize("bad", [(0.0, 0.0), (np.nan, 1.0), (np.inf, 1.0), (-np.inf, 1.0)])
def test_normalize_rejects_zero_and_non_finite_rows(bad: tuple[float, float]) -> None:
    with pytest.raises(ValueError, match="no direction"):
        normalize(rows((1, 0), bad))


def test_normalize_accepts_empty_matrix() -> None:
    assert normalize(np.empty((0, 3), np.float32)).shape == (0, 3)


def test_normalize_rejects_rows_with_zero_dimensions() -> None:
    with pytest.raises(ValueError, match="no direction"):
        normalize(np.empty((2, 0), np.float32))


def test_normalize_does_not_modify_input() -> None:
    vectors = rows((3, 4))
    normalize(vectors)
    assert vectors.tolist() == [[3, 4]]


# check_unit_rows


@pytest.mark.parametrize("length", [1 - 0.9 * UNIT_NORM_TOLERANCE, 1.0, 1 + 0.9 * UNIT_NORM_TOLERANCE])
def test_check_unit_rows_accepts_norms_within_tolerance(length: float) -> None:
    check_unit_rows(rows((1, 0), (0, length)))


def test_check_unit_rows_accepts_float16_rounding() -> None:
    check_unit_rows(directions(0, 500, 128).astype(np.float16).astype(np.float32))


@pytest.mark.parametrize("length", [0.0, 0.998, 1.002, -2.0, np.nan, np.inf])
def test_check_unit_rows_error_names_first_bad_row(length: float) -> None:
    with pytest.raises(ValueError, match=r"^2 of 4 rows .* row 1$"):
        check_unit_rows(rows((1, 0), (0, length), (0, 1), (length, 0)))


def test_check_unit_rows_accepts_empty_matrix() -> None:
    check_unit_rows(np.empty((0, 3), np.float32))


# cosine_similarity


def test_cosine_similarity_equals_closed_form() -> None:
    similarity = cosine_similarity(rows((1, 0)), rows((1, 0), (0, 1), (-1, 0), (0.5, math.sqrt(0.75))))
    assert similarity == pytest.approx(rows((1, 0, -1, 0.5)))


@given(st.integers(0, 2**32), st.integers(1, 5), st.integers(1, 5), st.integers(1, 8))
def test_cosine_is_symmetric_bounded_and_matches_distance(seed: int, n: int, m: int, dim: int) -> None:
    left, right = directions(seed, n, dim), directions(seed + 1, m, dim)
    similarity = cosine_similarity(left, right)
    assert similarity.shape == (n, m)
    assert np.abs(similarity).max() <= 1.0
    assert similarity == pytest.approx(cosine_similarity(right, left).T, abs=1e-6)
    distance = ((left[:, None].astype(np.float64) - right[None]) ** 2).sum(axis=2)
    assert 2 - 2 * similarity == pytest.approx(distance, abs=1e-5)


def test_cosine_similarity_stays_in_range_despite_rounding() -> None:
    vectors = directions(1, 200, 37)
    assert (np.einsum("nd,nd->n", vectors, vectors) > 1).any()  # else this test checks nothing
    assert cosine_similarity(vectors, vectors).max() == 1.0
    assert cosine_similarity(vectors, -vectors).min() == -1.0


# prefix


def test_prefix_is_truncated_and_normalized() -> None:
    assert prefix(rows((0.3, 0.4, math.sqrt(0.75))), 2) == pytest.approx(rows((0.6, 0.8)))


def test_full_length_prefix_equals_input() -> None:
    vectors = directions(2, 5, 8)
    assert prefix(vectors, 8) == pytest.approx(vectors, abs=1e-6)


@given(st.integers(0, 2**32), st.integers(1, 7), st.integers(0, 3))
def test_nested_prefix_equals_shorter_prefix(seed: int, length: int, more: int) -> None:
    vectors = directions(seed, 3, 10)
    check_unit_rows(prefix(vectors, length))
    assert prefix(prefix(vectors, length + more), length) == pytest.approx(prefix(vectors, length), abs=1e-6)


@pytest.mark.parametrize("length", [-1, 0, 4])
def test_rejects_prefix_length_outside_vector(length: int) -> None:
    with pytest.raises(ValueError, match=rf"prefix length must be in \[1, 3\], got {length}"):
        prefix(rows((1, 0, 0)), length)


def test_rejects_prefix_with_only_zeros() -> None:
    with pytest.raises(ValueError, match="no direction"):
        prefix(rows((0, 0, 1)), 2)


# Bridge


def test_bridge_is_an_affine_map_followed_by_normalization() -> None:
    bridge = Bridge(rows((0, 2), (1, 0), (5, 5)), np.array([0, 1], np.float32))
    assert bridge(rows((1, 0, 0), (3, 1, 0))) == pytest.approx(normalize(rows((0, 3), (1, 7))))
    assert bridge(np.empty((0, 3), np.float32)).shape == (0, 2)


@pytest.mark.usefixtures("unchecked_signatures")
@pytest.mark.parametrize(
    ("matrix", "offset"),
    [
        (np.zeros((3, 2), np.float32), np.zeros(3, np.float32)),
        (np.zeros((3, 2), np.float32), np.zeros((1, 2), np.float32)),
        (np.zeros(3, np.float32), np.zeros((), np.float32)),
        (np.zeros((0, 2), np.float32), np.zeros(2, np.float32)),
        (np.zeros((3, 0), np.float32), np.zeros(0, np.float32)),
        (np.zeros((3, 2), np.float64), np.zeros(2, np.float32)),
        (np.zeros((3, 2), np.float32), np.zeros(2, np.float64)),
        (np.full((3, 2), np.nan, np.float32), np.zeros(2, np.float32)),
        (np.zeros((3, 2), np.float32), np.full(2, np.inf, np.float32)),
    ],
)
def test_rejects_invalid_bridge_matrix_or_offset(matrix: np.ndarray, offset: np.ndarray) -> None:
    with pytest.raises(ValueError, match=r"^a bridge "):
        Bridge(matrix, offset)


@pytest.mark.usefixtures("unchecked_signatures")
@pytest.mark.parametrize("shape", [(4, 2), (3,), (1, 1, 3)])
def test_bridge_rejects_rows_with_wrong_shape(shape: tuple[int, ...]) -> None:
    bridge = Bridge(np.eye(3, dtype=np.float32), np.zeros(3, np.float32))
    with pytest.raises(ValueError, match="rows of 3 numbers"):
        bridge(np.ones(shape, np.float32))


def test_bridge_rejects_row_mapped_to_zero() -> None:
    bridge = Bridge(rows((1, 0), (0, 0)), np.zeros(2, np.float32))
    with pytest.raises(ValueError, match="no direction"):
        bridge(rows((0, 1)))


# orthogonal_bridge


@pytest.mark.parametrize("dim", [1, 2, 3, 64, 512])
def test_orthogonal_bridge_recovers_rotation(dim: int) -> None:
    source, matrix = directions(3, 2 * dim, dim), rotation(4, dim)
    bridge = orthogonal_bridge(source, turned(source, matrix))
    assert np.abs(bridge.matrix - matrix).max() < 1e-6
    assert not bridge.offset.any()
    new = directions(5, 20, dim)
    assert np.abs(bridge(new) - turned(new, matrix)).max() < 1e-6


def test_orthogonal_bridge_recovers_isometry_into_wider_space() -> None:
    source, isometry = directions(6, 40, 8), rotation(7, 20)[:8]
    bridge = orthogonal_bridge(source, turned(source, isometry))
    assert np.abs(bridge.matrix - isometry).max() < 1e-6


def test_orthogonal_bridge_recovers_projection_to_narrower_space() -> None:
    target, isometry = directions(8, 40, 8), rotation(9, 20)[:8]
    source = turned(target, isometry)
    bridge = orthogonal_bridge(source, target)
    assert np.abs(bridge.matrix - isometry.T).max() < 1e-6
    assert np.abs(bridge(source) - target).max() < 1e-6


@pytest.mark.parametrize(("d_from", "d_to"), [(12, 12), (5, 12), (12, 5)])
def test_orthogonal_bridge_matches_scipy(d_from: int, d_to: int) -> None:
    """SciPy needs equal dimensions, so the narrower space is padded with zeros."""
    scipy_linalg = pytest.importorskip("scipy.linalg")
    source, target = related(10, 60, d_from, d_to, 0.3)
    widest = max(d_from, d_to)
    wide = [np.pad(v.astype(np.float64), ((0, 0), (0, widest - v.shape[1]))) for v in (source, target)]
    expected = scipy_linalg.orthogonal_procrustes(*wide)[0][:d_from, :d_to]
    assert np.abs(orthogonal_bridge(source, target).matrix - expected).max() < 1e-6


@given(st.integers(0, 2**32), st.integers(1, 6), st.integers(1, 6), st.integers(0, 20))
def test_orthogonal_bridge_matrix_is_semi_orthogonal(seed: int, d_from: int, d_to: int, more: int) -> None:
    source, target = related(seed, min(d_from, d_to) + more, d_from, d_to, 0.3)
    bridge = orthogonal_bridge(source, target)
    matrix = bridge.matrix.astype(np.float64)
    shorter = matrix @ matrix.T if d_from <= d_to else matrix.T @ matrix
    assert np.abs(shorter - np.eye(min(d_from, d_to))).max() < 1e-6
    if d_from <= d_to:
        check_unit_rows(source @ bridge.matrix)
        carried = bridge(source)
        assert np.abs(carried @ carried.T - source @ source.T).max() < 1e-5


@given(st.integers(0, 2**32), st.integers(1, 6), st.integers(1, 6), st.floats(-3, 3))
def test_orthogonal_bridge_is_optimal_among_orthogonal_matrices(seed: int, d_from: int, d_to: int, step: float) -> None:
    """Compare inner products before scaling; if no length is lost, that is cosine and squared error too."""
    source, target = related(seed, 10, d_from, d_to, 0.5)
    best = orthogonal_bridge(source, target).matrix
    moved_by = np.eye(d_from) - step * (rotation(seed, d_from) - rotation(seed, d_from).T)
    other = turned(np.linalg.qr(moved_by)[0], best) if d_from <= d_to else rotation(seed, d_from)[:, :d_to]
    assert mean_cosine(source @ best, target) >= mean_cosine(source @ other.astype(np.float32), target) - 1e-6
    if d_from <= d_to:
        errors = [np.square(source @ matrix - target).sum() for matrix in (best, other)]
        assert errors[0] <= errors[1] + 1e-5


@given(st.integers(0, 2**32), st.integers(2, 8), st.floats(0, 0.3))
def test_bridges_recover_noisy_rotation_on_new_rows(seed: int, dim: int, noise: float) -> None:
    generator = np.random.default_rng(seed)
    source, matrix = directions(seed, 300, dim), rotation(seed + 1, dim)
    noisy = turned(source, matrix) + noise * generator.normal(size=source.shape) / math.sqrt(dim)
    target = normalize(noisy.astype(np.float32))
    learn, new = slice(200), slice(200, None)
    for bridge in (
        orthogonal_bridge(source[learn], target[learn]),
        ridge_bridge(source[learn], target[learn]),
    ):
        assert mean_cosine(bridge(source[new]), target[new]) > 0.9
    without = mean_cosine(source[learn], target[learn])
    bridged = mean_cosine(orthogonal_bridge(source[learn], target[learn])(source[learn]), target[learn])
    assert bridged >= without - 1e-6


@given(st.integers(0, 2**32), st.integers(2, 6), st.integers(2, 6))
def test_bridges_are_equivariant_to_rotation(seed: int, d_from: int, d_to: int) -> None:
    source, view = directions(seed, 100, d_from), rotation(seed + 3, 6)[:d_from, :d_to]
    target = normalize(turned(source, view) + 0.3 * directions(seed + 4, 100, d_to))
    turn_from, turn_to = rotation(seed + 1, d_from), rotation(seed + 2, d_to)
    for build in (orthogonal_bridge, ridge_bridge):
        bridge, turned_bridge = (
            build(source, target),
            build(turned(source, turn_from), turned(target, turn_to)),
        )
        expected = turn_from.T @ bridge.matrix @ turn_to
        assert turned_bridge.matrix == pytest.approx(expected, abs=1e-3)
        assert turned_bridge.offset == pytest.approx(bridge.offset @ turn_to, abs=1e-3)


def test_forward_and_backward_orthogonal_bridges_cancel() -> None:
    source, target = related(11, 50, 8, 8, 0.5)
    there, back = orthogonal_bridge(source, target), orthogonal_bridge(target, source)
    assert np.abs(back(there(source)) - source).max() < 1e-5


def test_orthogonal_bridge_maps_identical_rows_to_their_target() -> None:
    source, target = (np.repeat(directions(seed, 1, 6), 9, axis=0) for seed in (12, 13))
    assert orthogonal_bridge(source, target)(source) == pytest.approx(target, abs=1e-6)


def test_orthogonal_bridge_is_orthogonal_for_low_rank_rows() -> None:
    source = np.pad(directions(14, 30, 3), ((0, 0), (0, 5)))
    target = turned(source, rotation(15, 8))
    bridge = orthogonal_bridge(source, target)
    assert np.abs(bridge.matrix @ bridge.matrix.T - np.eye(8)).max() < 1e-6
    assert bridge(source) == pytest.approx(target, abs=1e-6)


# ridge_bridge


@pytest.mark.parametrize(("d_from", "d_to"), [(1, 1), (6, 6), (3, 8), (8, 3)])
@pytest.mark.parametrize("scale", [1e-12, 1.0, 1e12])
def test_ridge_bridge_recovers_affine_map(d_from: int, d_to: int, scale: float) -> None:
    generator = np.random.default_rng(16)
    matrix, offset = generator.normal(size=(d_from, d_to)), generator.normal(size=d_to)
    source = generator.normal(size=(500, d_from)).astype(np.float32)
    target = (source @ matrix + offset).astype(np.float32)
    bridge = ridge_bridge((source * scale).astype(np.float32), target, penalty=1e-9)
    assert bridge.matrix * scale == pytest.approx(matrix, abs=1e-6)
    assert bridge.offset == pytest.approx(offset, abs=1e-6)


@given(
    seed=st.integers(0, 2**32),
    count=st.integers(2, 20),
    d_from=st.integers(1, 8),
    d_to=st.integers(1, 8),
    penalty=st.floats(1e-3, 1e3),
)
def test_ridge_bridge_matches_augmented_least_squares(
    seed: int, count: int, d_from: int, d_to: int, penalty: float
) -> None:
    """Append a row per dimension with weight sqrt(w) and target 0, and a column of ones."""
    source, target = related(seed, count, d_from, d_to, 0.3)
    assume(np.ptp(source, axis=0).any())
    centered = source.astype(np.float64) - source.astype(np.float64).mean(axis=0)
    weight = penalty * np.mean([row @ row for row in centered])
    design = np.block([[source, np.ones((count, 1))], [math.sqrt(weight) * np.eye(d_from, d_from + 1)]])
    augmented = np.vstack([target, np.zeros((d_from, d_to))])
    solution = np.linalg.lstsq(design, augmented, rcond=None)[0]
    bridge = ridge_bridge(source, target, penalty)
    assert bridge.matrix == pytest.approx(solution[:-1], abs=1e-5)
    assert bridge.offset == pytest.approx(solution[-1], abs=1e-5)


def test_ridge_penalty_ignores_scale_and_scales_with_row_count() -> None:
    source, target = related(17, 30, 6, 4, 0.3)
    bridge = ridge_bridge(source, target)
    for changed in (
        ridge_bridge(8 * source, 8 * target),
        ridge_bridge(np.tile(source, (5, 1)), np.tile(target, (5, 1)), 5 * 0.25),
    ):
        assert changed.matrix == pytest.approx(bridge.matrix, abs=1e-6)


def test_ridge_bridge_with_large_penalty_returns_target_mean() -> None:
    source, target = related(18, 30, 6, 4, 0.3)
    bridge = ridge_bridge(source, target, penalty=1e9)
    assert np.abs(bridge.matrix).max() < 1e-6
    assert bridge.offset == pytest.approx(target.mean(axis=0), abs=1e-6)


@pytest.mark.parametrize("count", [40, 100, 1000])
def test_default_penalty_is_near_optimal_on_new_rows(count: int) -> None:
    """With fewer, about as many, and many more photos than dimensions."""
    source, target = related(19, count + 500, 64, 64, 0.3)

    def cosine_on_new(bridge: Bridge) -> float:
        return mean_cosine(bridge(source[count:]), target[count:])

    best = max(cosine_on_new(ridge_bridge(source[:count], target[:count], 10.0**power)) for power in range(-6, 4))
    assert cosine_on_new(ridge_bridge(source[:count], target[:count])) > best - 0.02


@pytest.mark.parametrize("build", [orthogonal_bridge, ridge_bridge])
@pytest.mark.parametrize(("d_from", "d_to"), [(6, 6), (3, 7), (7, 3), (1, 4), (4, 1)])
def test_bridges_return_float32_unit_rows(
    build: Callable[[np.ndarray, np.ndarray], Bridge], d_from: int, d_to: int
) -> None:
    source, target = related(20, 40, d_from, d_to, 0.3)
    carried = build(source, target)(source)
    assert carried.shape == (40, d_to)
    assert carried.dtype == np.float32
    check_unit_rows(carried)


def test_ridge_bridge_accepts_fewer_rows_than_dimensions() -> None:
    source, target = directions(21, 5, 40), directions(22, 5, 30)
    bridge = ridge_bridge(source, target, penalty=1e-6)
    assert bridge(source) == pytest.approx(target, abs=1e-4)


def test_ridge_bridge_accepts_low_rank_rows() -> None:
    source = np.pad(directions(23, 30, 3), ((0, 0), (0, 5)))
    target = turned(source, rotation(24, 8))
    assert ridge_bridge(source, target, penalty=1e-6)(source) == pytest.approx(target, abs=1e-4)


def test_ridge_bridge_rejects_identical_source_rows() -> None:
    source, target = np.repeat(directions(25, 1, 6), 9, axis=0), directions(26, 9, 6)
    with pytest.raises(ValueError, match=r"all source vectors are the same; use"):
        ridge_bridge(source, target)


@pytest.mark.parametrize("penalty", [0.0, -1.0, math.nan, math.inf])
def test_ridge_bridge_rejects_non_positive_or_non_finite_penalty(penalty: float) -> None:
    with pytest.raises(ValueError, match="penalty must be a finite number above 0"):
        ridge_bridge(directions(27, 9, 4), directions(28, 9, 4), penalty)


# Invalid input of both


@pytest.mark.usefixtures("unchecked_signatures")
@pytest.mark.parametrize("build", [orthogonal_bridge, ridge_bridge])
def test_bridges_reject_unequal_row_counts(build: Callable[[np.ndarray, np.ndarray], Bridge]) -> None:
    with pytest.raises(ValueError, match=r"9 source and 8 target vectors .* embed the same photos"):
        build(directions(29, 9, 4), directions(30, 8, 4))


@pytest.mark.parametrize(
    ("build", "count", "d_from", "d_to", "needed"),
    [
        (orthogonal_bridge, 0, 4, 4, 4),
        (orthogonal_bridge, 1, 4, 4, 4),
        (orthogonal_bridge, 3, 4, 9, 4),
        (orthogonal_bridge, 3, 9, 4, 4),
        (ridge_bridge, 0, 4, 4, 2),
        (ridge_bridge, 1, 4, 4, 2),
    ],
)
def test_bridges_reject_too_few_rows(
    build: Callable[[np.ndarray, np.ndarray], Bridge], count: int, d_from: int, d_to: int, needed: int
) -> None:
    with pytest.raises(ValueError, match=rf"^{count} pairs are too few .* embed {needed} photos"):
        build(directions(31, count, d_from), directions(32, count, d_to))


@pytest.mark.parametrize("build", [orthogonal_bridge, ridge_bridge])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("side", [0, 1])
def test_bridges_reject_non_finite_rows(
    build: Callable[[np.ndarray, np.ndarray], Bridge], bad: float, side: int
) -> None:
    pair = [directions(33, 9, 4), directions(34, 9, 4)]
    pair[side][[2, 5], 1] = bad
    with pytest.raises(ValueError, match=rf"2 of 9 {('source', 'target')[side]} .* row 2; leave"):
        build(*pair)


def test_orthogonal_bridge_from_1d_needs_one_row() -> None:
    source, target = rows((1.0,)), directions(35, 1, 5)
    assert orthogonal_bridge(source, target)(source) == pytest.approx(target, abs=1e-6)


def test_bridges_do_not_modify_input() -> None:
    source, target = related(36, 30, 6, 4, 0.3)
    before = source.copy(), target.copy()
    orthogonal_bridge(source, target)(source)
    ridge_bridge(source, target)(source)
    assert (source == before[0]).all()
    assert (target == before[1]).all()


def test_pca_project_preserves_similarities_of_planar_rows() -> None:
    flat = normalize(directions(0, 9, 2) @ directions(1, 2, 7))
    short = pca_project(flat, 2)
    assert short.shape == (9, 2)
    np.testing.assert_allclose(short @ short.T, flat @ flat.T, atol=1e-5)


def test_pca_project_keeps_the_principal_directions() -> None:
    """Two rows along the first axis and one near the second; the third direction is dropped."""
    projected = pca_project(rows((1, 0, 0), (1, 0, 0), (0, 0.8, 0.6)), 2)
    np.testing.assert_allclose(projected, [[1, 0], [1, 0], [0, 1]], atol=1e-6)


def test_pca_project_rejects_row_outside_principal_directions() -> None:
    with pytest.raises(ValueError, match="no direction"):
        pca_project(rows((1, 0), (1, 0), (0, 1)), 1)


@given(st.integers(0, 10_000), st.integers(1, 6))
def test_random_projection_keeps_no_more_squared_norm_than_svd(seed: int, length: int) -> None:
    vectors = normalize(directions(seed, 12, 6))
    _, values, _ = np.linalg.svd(vectors.astype(np.float64))
    most = float((values[:length] ** 2).sum())
    projected = vectors @ np.linalg.qr(directions(seed + 1, 6, length))[0]
    assert (projected**2).sum() <= most + 1e-4
    assert pca_project(vectors, length).shape == (12, min(length, 6))


def test_pca_project_keeps_short_rows_and_rejects_too_few_rows() -> None:
    vectors = normalize(directions(0, 3, 5))
    assert pca_project(vectors, 5) is vectors
    assert pca_project(vectors, 9) is vectors
    with pytest.raises(ValueError, match="3 vectors span fewer than 4 directions"):
        pca_project(vectors, 4)
