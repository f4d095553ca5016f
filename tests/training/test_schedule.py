import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from familiar.training.schedule import learning_rate, warmed_margin


def test_the_pet_embedders_rates():
    """FACTS 5: 5e-4, linear warm-up over epochs 1 to 5 of 40, cosine to 1e-6."""

    def rate(at_epoch):
        return learning_rate(5e-4, 1e-6, 5, 40, at_epoch)

    assert rate(0) == 0.0
    assert rate(2.5) == pytest.approx(2.5e-4)
    assert rate(5) == pytest.approx(5e-4)
    assert rate(22.5) == pytest.approx((5e-4 + 1e-6) / 2)
    assert rate(5 + 35 / 3) == pytest.approx(1e-6 + (5e-4 - 1e-6) * 0.75)
    assert rate(40) == pytest.approx(1e-6)


def test_a_warm_up_longer_than_the_run_is_cut_to_it():
    assert learning_rate(1.0, 0.0, 10, 4, 2) == 0.5
    assert learning_rate(1.0, 0.0, 10, 4, 3.999) == pytest.approx(0.99975)
    assert learning_rate(1.0, 0.0, 10, 4, 4) == 1.0


def test_without_a_warm_up_it_starts_at_the_peak():
    assert learning_rate(1.0, 0.1, 0, 4, 0) == 1.0
    assert learning_rate(1.0, 0.1, 0, 4, 4) == pytest.approx(0.1)


def test_beyond_the_end_it_stays_at_the_final_rate():
    assert learning_rate(1.0, 0.1, 1, 4, 9) == pytest.approx(0.1)


RUNS = {
    "peak": st.floats(0, 10),
    "share": st.floats(0, 1),
    "warmup": st.floats(0, 50),
    "epochs": st.integers(1, 40),
    "at": st.floats(0, 1),
}


@settings(deadline=None, max_examples=100)
@given(**RUNS)
def test_agrees_with_the_formula_read_aloud(peak, share, warmup, epochs, at):
    final, at_epoch = peak * share, at * epochs
    warm = min(warmup, epochs)
    if at_epoch < warm:
        expected = peak * (at_epoch / warm)
    else:
        progress = (at_epoch - warm) / (epochs - warm) if epochs > warm else 0.0
        expected = final + (peak - final) * (1 + math.cos(math.pi * progress)) / 2
    assert learning_rate(peak, final, warmup, epochs, at_epoch) == pytest.approx(
        expected, rel=1e-9, abs=1e-12
    )


@settings(deadline=None, max_examples=100)
@given(**RUNS, later=st.floats(0, 1))
def test_rises_to_the_peak_then_falls_to_the_final_rate(peak, share, warmup, epochs, at, later):
    final, warm = peak * share, min(warmup, epochs)
    first, second = sorted((at * epochs, later * epochs))
    rates = [learning_rate(peak, final, warmup, epochs, when) for when in (first, second)]
    assert all(0 <= rate <= peak * (1 + 1e-9) for rate in rates)
    if second <= warm:
        assert rates[0] <= rates[1] * (1 + 1e-9) + 1e-300
    elif first >= warm:
        assert rates[0] >= rates[1] * (1 - 1e-9)
        assert rates[1] >= final * (1 - 1e-9)


def test_the_pet_embedders_margin():
    """From 0 to 0.4 over the first third of 40 epochs, then constant."""
    margins = [warmed_margin(0.4, 40 / 3, epoch) for epoch in range(40)]
    assert margins[0] == 0.0
    assert margins[5] == pytest.approx(0.15)
    assert margins[13] == pytest.approx(0.39)
    assert margins[14:] == [0.4] * 26


@settings(deadline=None, max_examples=60)
@given(st.floats(0, 2.33), st.floats(0, 40), st.floats(0, 40), st.floats(0, 40))
def test_the_margin_only_rises(margin, warmup, one, other):
    first, second = sorted((one, other))
    before, after = warmed_margin(margin, warmup, first), warmed_margin(margin, warmup, second)
    assert 0 <= before <= after <= margin or after == pytest.approx(before, rel=1e-12)
    assert warmed_margin(margin, warmup, warmup) == margin


def test_without_a_warm_up_the_margin_is_there_from_the_start():
    assert warmed_margin(0.4, 0, 0) == 0.4
