import math
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from familiar.training.schedule import Schedule, decaying_rate, learning_rate


def test_learning_rate_matches_pet_embedder():
    """FACTS 5: 5e-4, linear warm-up over epochs 1 to 5 of 40, cosine to 1e-6."""

    def rate(at_epoch):
        return learning_rate(5e-4, 1e-6, 5, 40, at_epoch)

    assert rate(0) == 0.0
    assert rate(2.5) == pytest.approx(2.5e-4)
    assert rate(5) == pytest.approx(5e-4)
    assert rate(22.5) == pytest.approx((5e-4 + 1e-6) / 2)
    assert rate(5 + 35 / 3) == pytest.approx(1e-6 + (5e-4 - 1e-6) * 0.75)
    assert rate(40) == pytest.approx(1e-6)


def test_warmup_is_limited_to_run_length():
    assert learning_rate(1.0, 0.0, 10, 4, 2) == 0.5
    assert learning_rate(1.0, 0.0, 10, 4, 3.999) == pytest.approx(0.99975)
    assert learning_rate(1.0, 0.0, 10, 4, 4) == 1.0


def test_rate_starts_at_peak_without_warmup():
    assert learning_rate(1.0, 0.1, 0, 4, 0) == 1.0
    assert learning_rate(1.0, 0.1, 0, 4, 4) == pytest.approx(0.1)


def test_rate_stays_final_after_last_epoch():
    assert learning_rate(1.0, 0.1, 1, 4, 9) == pytest.approx(0.1)


RUNS = {
    "peak": st.floats(0, 10),
    "share": st.floats(0, 1),
    "warmup": st.floats(0, 50),
    "epochs": st.integers(1, 40),
    "progress": st.floats(0, 1),
}


@given(**RUNS)
def test_learning_rate_equals_closed_form(peak, share, warmup, epochs, progress):
    final, at_epoch = peak * share, progress * epochs
    warm = min(warmup, epochs)
    if at_epoch < warm:
        expected = peak * (at_epoch / warm)
    else:
        decayed = (at_epoch - warm) / (epochs - warm) if epochs > warm else 0.0
        expected = final + (peak - final) * (1 + math.cos(math.pi * decayed)) / 2
    assert learning_rate(peak, final, warmup, epochs, at_epoch) == pytest.approx(expected, rel=1e-9, abs=1e-12)


@given(**RUNS, later=st.floats(0, 1))
def test_rate_increases_to_peak_then_decreases_to_final(peak, share, warmup, epochs, progress, later):
    final, warm = peak * share, min(warmup, epochs)
    first, second = sorted((progress * epochs, later * epochs))
    rates = [learning_rate(peak, final, warmup, epochs, at_epoch) for at_epoch in (first, second)]
    assert all(0 <= rate <= peak * (1 + 1e-9) for rate in rates)
    if second <= warm:
        assert rates[0] <= rates[1] * (1 + 1e-9) + 1e-300
    elif first >= warm:
        assert rates[0] >= rates[1] * (1 - 1e-9)
        assert rates[1] >= final * (1 - 1e-9)


def values(text, epochs):
    return [Schedule.parse(text).value_at(epoch, epochs) for epoch in range(epochs)]


def test_margin_schedule_matches_pet_embedder():
    """FACTS 5: from 0 to 0.4 over the first third of 40 epochs, then constant."""
    margins = values("0 to 0.4 over 0.3333333333333333", 40)
    assert margins == pytest.approx([0.4 * min(1, epoch / (40 / 3)) for epoch in range(40)])
    assert margins[0] == 0.0
    assert margins[14:] == [0.4] * 26


def test_step_schedules_match_circle_coursework():
    """FACTS 3: m = min(1, 0.2 + 0.02 floor(epoch / 5)), gamma = 64 (1 + 0.5 floor(epoch / 5))."""
    margins, gammas = values("0.2 + 0.02 every 5 to 1", 300), values("64 + 32 every 5", 300)
    assert margins == pytest.approx([min(1, 0.2 + 0.02 * math.floor(epoch / 5)) for epoch in range(300)])
    assert gammas == [64 * (1 + 0.5 * math.floor(epoch / 5)) for epoch in range(300)]
    assert max(margins) == 1.0


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0.4", [0.4] * 6),
        ("1 to 0 over 0.5", [1, 2 / 3, 1 / 3, 0, 0, 0]),
        ("1 to 0 over 1", [1, 5 / 6, 4 / 6, 3 / 6, 2 / 6, 1 / 6]),
        ("1 to 0 over 0", [0] * 6),
        ("3 - 1 every 2", [3, 3, 2, 2, 1, 1]),
        ("3 - 1 every 1 to 0.5", [3, 2, 1, 0.5, 0.5, 0.5]),
        ("3 + -1 every 2", [3, 3, 2, 2, 1, 1]),
        ("1 + 1 every 4 to 1", [1] * 6),
        ("1 + 0 every 2", [1] * 6),
        ("1 + 1 every 7", [1] * 6),
    ],
)
def test_schedule_values_match_text(text, expected):
    assert values(text, 6) == pytest.approx(expected)


def test_varies_is_false_only_for_constant_schedule():
    assert not Schedule.parse("0.4").varies
    assert Schedule.parse("0 to 1 over 0.5").varies
    assert Schedule.parse("0 + 1 every 5").varies


def test_single_epoch_uses_start_value():
    assert [values(text, 1) for text in ("0.4", "0 to 1 over 0.3", "2 + 1 every 1")] == [[0.4], [0.0], [2.0]]


def schedules(numbers):
    """Draw all forms that can be written."""
    shares, periods = st.floats(0, 1), st.integers(1, 999_999_999)

    def steps_between(start, end, step, every):
        return Schedule(start, end, step=math.copysign(step, end - start), every=every)

    return st.one_of(
        st.builds(Schedule, numbers),
        st.builds(Schedule, numbers, numbers, over=shares),
        st.builds(Schedule, numbers, step=numbers, every=periods),
        st.builds(steps_between, numbers, numbers, numbers.map(abs).filter(bool), periods | st.integers(1, 9)),
    )


ANY_NUMBER = st.floats(allow_nan=False, allow_infinity=False)
MODERATE = st.floats(-1e6, 1e6)


@given(schedules(ANY_NUMBER))
def test_schedule_round_trips_through_text(schedule):
    assert Schedule.parse(str(schedule)) == schedule


@given(schedules(MODERATE), st.integers(1, 60))
def test_schedule_is_monotonic_between_extremes(schedule, epochs):
    differences = np.diff([schedule.value_at(epoch, epochs) for epoch in range(epochs)])
    rounding = 1e-9 * max(map(abs, schedule.extremes))
    assert (differences >= -rounding).all() or (differences <= rounding).all()
    if schedule.end is not None or not schedule.varies:
        low, high = min(schedule.extremes) - rounding, max(schedule.extremes) + rounding
        assert all(low <= schedule.value_at(epoch, epochs) <= high for epoch in range(epochs))
    if not schedule.varies:
        assert not differences.any()


@given(MODERATE, MODERATE, st.floats(0.001, 1), st.integers(1, 60))
def test_ramp_matches_interpolation(start, end, over, epochs):
    expected = np.interp(range(epochs), [0, over * epochs], [start, end])
    actual = [Schedule(start, end, over=over).value_at(epoch, epochs) for epoch in range(epochs)]
    assert actual == pytest.approx(expected, abs=1e-6)
    assert all(value == end for epoch, value in enumerate(actual) if epoch >= over * epochs)


@given(MODERATE, MODERATE.filter(bool), st.integers(1, 20), st.none() | st.floats(0, 1e6), st.integers(1, 60))
def test_steps_match_slow_reference(start, step, every, distance, epochs):
    end = None if distance is None else start + math.copysign(distance, step)
    value, expected = start, []
    for epoch in range(epochs):
        if epoch and epoch % every == 0:
            value += step
            if end is not None and abs(value - start) > abs(end - start):
                value = end
        expected.append(value)
    actual = [Schedule(start, end, step=step, every=every).value_at(epoch, epochs) for epoch in range(epochs)]
    assert actual == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(
    ("text", "short"),
    [
        ("0.40", "0.4"),
        (" 64.0 ", "64"),
        ("1E3 to 1e+2 over 1", "1000 to 100 over 1"),
        ("0.000001", "1e-06"),
        ("1e16 to 1e-6  over  .5", "1e+16 to 1e-06 over 0.5"),
        ("0.2+0.02 every 5 to 1.", "0.2 + 0.02 every 5 to 1"),
        ("1e-3-1e-4 every 2", "0.001 - 0.0001 every 2"),
        ("-1 - -2 every 3", "-1 + 2 every 3"),
    ],
)
def test_text_is_normalized_to_short_form(text, short):
    assert str(Schedule.parse(text)) == short
    assert Schedule.parse(text) == Schedule.parse(short)


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "fast",
        "nan",
        "inf",
        "-inf",
        "1e400",
        "1.2.3",
        "0 to 0.4",
        "0.4 over 0.3",
        "to 0.4 over 0.3",
        "0 to 0.4 over 2",
        "0 to 0.4 over -0.1",
        "0 to 0.4 over 1/3",
        "0 to nan over 0.5",
        "0 to 1e400 over 0.5",
        "0 to 1.2.3 over 0.5",
        ". to 1 over 0.5",
        "0 to 0.4 over 0.33 of the epochs",
        "0.2 + 0.02",
        "0.2 + 0.02 every 0",
        "0.2 + 0.02 every -5",
        "0.2 + 0.02 every 2.5",
        "0.2 + 1e400 every 5",
        "0.2 + 1.2.3 every 5",
        "0.2 + 0.02 every 5 to inf",
        "0.2 + 0.02 every 5 over 0.3",
        "0.2 + 0.02 every " + "9" * 5000,
        "0.2 - 0.02 every 5 to 1",
        "0.2 + 0.02 every 5 to 0.1",
        "0.2 + 0 every 5 to 1",
        "0.2 + 0 every 5 to 0.1",
    ],
)
def test_invalid_text_error_lists_schedule_forms(text):
    forms = r"use a form such as 0\.4, or 0 to 0\.4 over 0\.33 \(of the epochs\), or 0\.2 \+ 0\.02 every 5 to 1$"
    with pytest.raises(ValueError, match=f"^{re.escape(repr(text))} is .*schedule: {forms}"):
        Schedule.parse(text)


def test_decaying_rate_matches_circle_coursework():
    """FACTS 3: constant to epoch 10, then down by a factor of a thousand until epoch 30."""
    rates = [decaying_rate(1e-3, 1e-6, 0, (10, 30), at_epoch) for at_epoch in (0, 5, 10, 15, 20, 25, 30, 31, 100)]
    falling = [1e-3 * 0.001 ** ((at_epoch - 10) / 20) for at_epoch in (15, 20, 25)]
    assert rates == pytest.approx([1e-3, 1e-3, 1e-3, *falling, 1e-6, 1e-6, 1e-6], rel=1e-12)


@given(
    st.floats(1e-6, 10), st.floats(1e-4, 1), st.floats(0, 20), st.floats(0, 50), st.floats(0, 50), st.floats(0, 99)
)  # fmt: skip
def test_decaying_rate_equals_closed_form(peak, share, warmup, start, length, at_epoch):
    end = start + length
    rate = decaying_rate(peak, share * peak, warmup, (start, end), at_epoch)
    if at_epoch < min(warmup, end):
        assert rate == pytest.approx(peak * at_epoch / min(warmup, end))
    elif at_epoch <= start:
        assert rate == peak
    elif at_epoch >= end:
        assert rate == share * peak
    else:
        progress = (at_epoch - start) / (end - start)
        assert math.log(rate) == pytest.approx(math.log(peak) + progress * math.log(share), abs=1e-9)
    assert 0 <= rate <= peak


def test_decaying_rate_accepts_zero_rate():
    assert decaying_rate(0.0, 0.0, 0, (0, 10), 5) == 0.0
