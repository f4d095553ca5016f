"""Number formats of the report."""

import pytest

from familiar.evaluation.results.labels import format_interval, format_metric, format_percent


@pytest.mark.parametrize(
    ("share", "text"),
    [(0.98123, "98.12"), (0.0, "0.00"), (1.0, "100.00"), (0.00004, "0.0040"), (-0.1, "−10.00")],
)
def test_format_percent_formats_with_sign_and_precision(share: float, text: str):
    assert format_percent(share) == f"{text}\u00a0%"


def test_format_metric_formats_metrics_by_type():
    assert format_metric("auc", 0.98765) == "0.9877"
    assert format_metric("tar_at_far.1e-2", 0.5) == "50.00\u00a0%"
    assert format_metric("gap", -0.1) == "−10.00\u00a0points"
    assert format_metric("same_pairs", 1234567) == "1,234,567"
    assert format_metric("unheard_of", float("inf")) == "inf"


def test_interval_states_its_unit_once():
    assert format_interval("recall_at_1", (0.5, 0.75)) == "50.00 to 75.00\u00a0%"
    assert format_interval("gap", (-0.1, 0.2)) == "−10.00 to +20.00\u00a0points"
    assert format_interval("auc", (0.5, 0.75)) == "0.5000 to 0.7500"
