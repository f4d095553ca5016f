import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from familiar.core.errors import ParityFailed
from familiar.export.rounding import MAX_INT8, as_float16, quantize_rows, round_preserving_sum

SHAPES = ((7, 5), (4, 3, 1, 1), (6, 1, 3, 3), (5, 4, 3, 3), (3, 2, 5, 5), (4, 1), (1, 40), (2, 3, 1, 7))
SMALLEST = float(np.finfo(np.float16).smallest_subnormal)


def weights(seed, shape, scale=1.0):
    """Draw rows of very different ranges, as after folding batch norms into the layers before them."""
    generator = np.random.default_rng(seed)
    reach = 10 ** generator.uniform(-2, 2, (shape[0], *[1] * (len(shape) - 1)))
    return (generator.standard_normal(shape) * reach * scale).astype(np.float32)


def multiplied(steps, scale):
    return steps.astype(np.float64) * scale.astype(np.float64)


any_weights = st.builds(
    weights,
    st.integers(0, 2**32 - 1),
    st.sampled_from(SHAPES),
    st.sampled_from((1.0, 1e2, 1e-2, 1e-4, 1e-6, 1e-8, 1e-12, 1e-30, 1e-42)),
)


@given(any_weights)
@example(np.zeros((2, 3), np.float32))  # as numbers of 1e-42 may become
def test_error_is_at_most_one_step_and_half_for_1x1_kernels(values):
    steps, scale = quantize_rows(values)
    assert (steps.dtype, scale.dtype) == (np.int8, np.float16)
    assert steps.shape == values.shape
    assert scale.shape == (len(values), *[1] * (values.ndim - 1))
    assert np.abs(steps.astype(int)).max() <= MAX_INT8
    error_in_steps = np.abs(multiplied(steps, scale) - values) / np.where(scale > 0, scale, 1).astype(np.float64)
    without_kernel = values.ndim == 2 or values.shape[2:] == (1, 1)
    assert error_in_steps.max() <= (0.5 + 1e-9 if without_kernel else 1)


@given(any_weights)
def test_kernel_keeps_its_sum_within_half_a_step(values):
    steps, scale = quantize_rows(values)
    taps = tuple(range(2, values.ndim))
    lost = multiplied(steps, scale).sum(axis=taps) - values.astype(np.float64).sum(axis=taps)
    half = 0.5 * scale.astype(np.float64).reshape(-1, 1)
    assert (np.abs(lost) <= half * (1 + 1e-6)).all()


@given(any_weights)
def test_scale_is_smallest_float16_that_covers_row(values):
    _, scale = quantize_rows(values)
    largest = np.abs(values).reshape(len(values), -1).max(axis=1).astype(np.float64)
    scale = scale.ravel()
    below = np.nextafter(scale, np.float16(0))
    assert (scale.astype(np.float64) * MAX_INT8 >= largest).all(), "the largest is cut off"
    assert (below.astype(np.float64) * MAX_INT8 < largest)[largest > 0].all()


@pytest.mark.parametrize("shape", SHAPES)
def test_rounding_is_idempotent(shape):
    """So that rounding again, as ONNX Runtime does, finds the steps for which biases were corrected."""
    values = weights(0, shape)
    values *= np.maximum(1, 0.01 / np.abs(values).reshape(len(values), -1).max(axis=1)).reshape(
        -1, *[1] * (len(shape) - 1)
    )  # below that scales are subnormal in float16
    steps, scale = quantize_rows(values)
    again, same_scale = quantize_rows(multiplied(steps, scale).astype(np.float32))
    assert np.abs(steps.astype(int)).reshape(len(steps), -1).max(axis=1).tolist() == [MAX_INT8] * len(steps)
    np.testing.assert_array_equal(again, steps)
    np.testing.assert_array_equal(same_scale, scale)


def test_rounded_edge_detector_sums_to_zero():
    """Rounding each to the nearest would give a sum of one step: 127 - 41 - 41 - 44."""
    kernel = np.array([[1, -0.326], [-0.326, -0.348]], np.float32)
    steps, _ = quantize_rows(kernel[None, None])
    assert steps[0, 0].tolist() in ([[127, -42], [-41, -44]], [[127, -41], [-42, -44]])


def test_accepts_zero_rows_and_single_value_rows():
    steps, scale = quantize_rows(np.array([[0.0], [-3.0], [1e-45]], np.float32))
    assert steps.ravel().tolist() == [0, -127, 0]
    assert scale.ravel()[[0, 2]].tolist() == [0, SMALLEST]
    steps, scale = quantize_rows(np.zeros((2, 3, 3, 3), np.float32))
    assert not steps.any()
    assert not scale.any()


def test_row_does_not_depend_on_other_rows():
    values = weights(1, (6, 2, 3, 3))
    steps, scale = quantize_rows(values)
    for row in range(6):
        row_steps, row_scale = quantize_rows(values[row : row + 1])
        np.testing.assert_array_equal(row_steps[0], steps[row])
        assert row_scale[0] == scale[row]


@pytest.mark.parametrize("value", [65_520.0, -8e6, 1e30, np.inf, np.nan])
def test_rejects_rows_beyond_float16(value):
    values = np.ones((3, 20), np.float32)
    values[1, 7] = value
    with pytest.raises(
        ParityFailed, match=r"the weight 1f reaches .* float16's largest number, 65504; nothing was written"
    ):
        quantize_rows(values, "1f")


def test_accepts_largest_float16():
    steps, scale = quantize_rows(np.array([[65_504.0, -32_752.0]], np.float32))
    assert steps.tolist() == [[127, -63]] or steps.tolist() == [[127, -64]]
    np.testing.assert_allclose(multiplied(steps, scale), [[65_504, -32_752]], atol=float(scale[0, 0]) / 2)


numbers = st.floats(-130, 130, width=32)
row_lists = st.integers(1, 12).flatmap(
    lambda taps: st.lists(st.lists(numbers, min_size=taps, max_size=taps), min_size=1, max_size=4)
)


@pytest.mark.slow
@given(row_lists)
def test_rounded_to_the_sum_keeps_sum_within_half(rows):
    rows = np.array(rows, np.float64)
    rounded = round_preserving_sum(rows)
    assert (rounded == np.rint(rounded)).all()
    assert (np.abs(rounded - rows) < 1).all(), (
        "what is whole already stays, and nothing goes further than its neighbors"
    )
    off = np.abs(rounded.sum(axis=1) - rows.sum(axis=1))
    assert (off <= 0.5 + 1e-9).all()
    nearest = np.rint(rows)
    fits = np.abs(nearest.sum(axis=1) - rows.sum(axis=1)) < 0.5 - 1e-9
    np.testing.assert_array_equal(rounded[fits], nearest[fits])


@given(st.lists(numbers, min_size=1, max_size=6))
def test_rounded_to_the_sum_has_least_error(row):
    """Compared with every combination of rounding down or up."""
    exact = np.array(row, np.float64)
    (rounded,) = round_preserving_sum(exact[None])
    down = np.floor(exact)
    choices = (down + (code >> np.arange(len(row)) & 1) for code in range(2 ** len(row)))
    as_near = [choice for choice in choices if abs(choice.sum() - exact.sum()) <= 0.5 + 1e-9]
    least = min(np.abs(choice - exact).sum() for choice in as_near)
    assert np.abs(rounded - exact).sum() <= least + 1e-9


def test_as_float16_rounds_to_nearest_or_rejects():
    values = np.array([0.1, -65_504.0, 65_519.0, 1e-9, 0.0], np.float32)
    halved = as_float16(values, "w")
    assert halved.dtype == np.float16
    assert halved.tolist() == [float(np.float16(0.1)), -65_504.0, 65_504.0, 0.0, 0.0]
    for value in (65_520.0, -1e9, np.inf, -np.inf, np.nan):
        with pytest.raises(ParityFailed, match=r"the weight w reaches .*; nothing was written\. Export it in float32"):
            as_float16(np.array([1.0, value], np.float32), "w")
