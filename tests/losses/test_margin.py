import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from familiar.losses.margin import arcface_cosine, combined_cosine, equivalent_margin_rad
from support.classifier_reference import arcface_angle, combined_angle


def cosines_of(*thetas):
    return torch.tensor(thetas, dtype=torch.float64).cos()


@given(
    theta=st.floats(1e-3, math.pi - 1e-3),
    factor=st.floats(1, 5),
    margin_rad=st.floats(0, 3),
    branch=st.sampled_from(["penalty", "continuous"]),
)
def test_combined_matches_angle_formula(theta, factor, margin_rad, branch):
    actual = combined_cosine(cosines_of(theta), factor, margin_rad, 0.2, branch).item()
    expected = combined_angle(theta, factor, margin_rad, 0.2, branch)
    switch_angles = [(k * math.pi - margin_rad) / factor for k in range(1, 7)]
    if min(abs(theta - switch_angle) for switch_angle in switch_angles) > 1e-9:
        assert actual == pytest.approx(expected, abs=1e-9)


@given(
    theta=st.floats(0, math.pi),
    margin_rad=st.floats(0, 2.33),
    branch=st.sampled_from(["penalty", "continuous"]),
)
def test_combined_with_only_angle_margin_equals_arcface(theta, margin_rad, branch):
    cosines = cosines_of(theta)
    if abs(theta + margin_rad - math.pi) > 1e-6:
        actual = combined_cosine(cosines, 1.0, margin_rad, 0.0, branch)
        torch.testing.assert_close(actual, arcface_cosine(cosines, margin_rad, branch), rtol=0, atol=1e-7)


@pytest.mark.parametrize("branch", ["penalty", "continuous"])
@pytest.mark.parametrize(("factor", "margin_rad"), [(1, 0), (1, 0.3), (1, 2.3), (1.5, 0.4), (2, 0), (2, 1), (3, 0.2)])
def test_combined_decreases_with_angle(factor, margin_rad, branch):
    if branch == "penalty" and equivalent_margin_rad(factor, margin_rad) > 2.33:
        pytest.skip("refused by CombinedMargin")
    thetas = torch.linspace(1e-3, math.pi - 1e-3, 4001, dtype=torch.float64)
    assert (combined_cosine(thetas.cos(), factor, margin_rad, 0.2, branch).diff() < 0).all()


@pytest.mark.parametrize("margin_rad", [0.1, 0.4, 1.5, 3.0])
def test_continuous_branch_keeps_value_and_slope_at_switch_angle(margin_rad):
    switch_angle = math.pi - margin_rad
    cosines = cosines_of(switch_angle - 1e-6, switch_angle + 1e-6).requires_grad_()
    values = arcface_cosine(cosines, margin_rad, "continuous")
    (slopes,) = torch.autograd.grad(values.sum(), cosines)
    assert values.tolist() == pytest.approx([-1.0, -1.0], abs=1e-10)
    assert slopes.tolist() == pytest.approx([0.0, 0.0], abs=1e-4)
    assert arcface_cosine(cosines_of(math.pi - 1e-3), margin_rad, "continuous").item() == pytest.approx(
        arcface_angle(math.pi - 1e-3, margin_rad, "continuous"), abs=1e-9
    )


def test_margins_equal_hand_computed_values():
    assert arcface_cosine(cosines_of(math.pi / 2), 0.4).item() == pytest.approx(-math.sin(0.4))
    assert combined_cosine(cosines_of(math.pi / 6), 2.0, math.pi / 6, 0.1).item() == pytest.approx(-0.1)
    # Two half turns and a quarter of one: the third piece of SphereFace's staircase.
    assert combined_cosine(cosines_of(math.pi / 2), 4.5, 0.0, 0.0, "continuous").item() == pytest.approx(
        math.cos(2.25 * math.pi) - 4
    )


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("branch", ["penalty", "continuous"])
def test_values_and_slopes_are_finite_at_and_past_poles(dtype, branch):
    cosines = torch.tensor([1.0, -1.0, 1.01, -1.01], dtype=dtype, requires_grad=True)
    for values in (
        arcface_cosine(cosines, 0.4, branch),
        combined_cosine(cosines, 1.0, 0.3, 0.2, branch),
        combined_cosine(cosines, 2.0, 0.0, 0.0, branch),
    ):
        (slopes,) = torch.autograd.grad(values.sum(), cosines)
        assert values.isfinite().all()
        assert slopes.isfinite().all()


@pytest.mark.parametrize("branch", ["penalty", "continuous"])
def test_passes_gradcheck(branch):
    cosines = torch.tensor([-0.99, -0.7, -0.1, 0.5, 0.9], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda cos: arcface_cosine(cos, 0.4, branch), cosines)
    assert torch.autograd.gradcheck(lambda cos: combined_cosine(cos, 1.5, 0.4, 0.1, branch), cosines)
