"""The probability curve of a calibration."""

import math

import numpy as np
import pytest

from familiar.core.calibration import Calibration, Threshold, sigmoid


def calibration(slope: float | None, intercept: float | None) -> Calibration:
    point = Threshold(0.5, 0.0, 1.0)
    return Calibration(point, point, point, slope, intercept, 0.0, 1, 1)


def test_sigmoid_equals_closed_form_and_is_accurate_in_both_tails():
    z = np.linspace(-30, 30, 601)
    np.testing.assert_allclose(sigmoid(z), [1 / (1 + math.exp(-each)) for each in z], rtol=1e-15)
    assert sigmoid(np.array([-1e6, 0.0, 1e6])).tolist() == [0.0, 0.5, 1.0]  # and no overflow, which would warn


def test_probability_equals_closed_form():
    assert calibration(20.0, -10.0).probability(0.5) == 0.5
    assert calibration(20.0, -10.0).probability(0.7) == pytest.approx(1 / (1 + math.exp(-4)))
    similarities = np.array([-0.25, 0.75], np.float32)
    expected = [calibration(2.0, -0.5).probability(each) for each in similarities.tolist()]
    assert calibration(2.0, -0.5).probabilities(similarities).tolist() == expected


def test_steep_curve_does_not_overflow():
    assert calibration(1e6, 0.0).probability(-1.0) == 0.0
    assert calibration(1e6, 0.0).probability(1.0) == 1.0


def test_without_a_curve_there_is_no_probability():
    assert calibration(None, None).probability(0.9) is None
    assert calibration(None, None).probabilities(np.array([0.9])) is None
