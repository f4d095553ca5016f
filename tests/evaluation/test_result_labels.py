"""Number formats of the report."""

import pytest

from familiar.evaluation.results.labels import find_label, format_figure, format_interval, format_percent


@pytest.mark.parametrize(
    ("share", "text"),
    [(0.98123, "98.12"), (0.0, "0.00"), (1.0, "100.00"), (0.00004, "0.0040"), (-0.1, "−10.00")],
)
def test_format_percent_formats_with_sign_and_precision(share: float, text: str):
    assert format_percent(share) == f"{text}\u00a0%"


def test_figures_are_formatted_by_their_labels():
    assert format_figure("auc", 0.98765) == "0.9877"
    assert format_figure("tar_at_far.1e-2", 0.5) == "50.00\u00a0%"
    assert format_figure("gap", -0.1) == "−10.00\u00a0points"
    assert format_figure("same_pairs", 1234567) == "1,234,567"
    assert format_figure("unheard_of", float("inf")) == "inf"


def test_interval_states_its_unit_once():
    assert format_interval("recall_at_1", (0.5, 0.75)) == "50.00 to 75.00\u00a0%"
    assert format_interval("gap", (-0.1, 0.2)) == "−10.00 to +20.00\u00a0points"
    assert format_interval("auc", (0.5, 0.75)) == "0.5000 to 0.7500"


def test_label_is_that_of_the_longest_end_of_the_path():
    assert find_label("verification.auc").name == find_label("slices.columns.coat.0.verification.auc").name == "ROC AUC"
    assert find_label("separation.dunn.centroids").name == "Dunn index, centroids"
    assert (
        find_label("verification.at_bundle_thresholds.balanced.accuracy").printed
        == "accuracy at the bundle's threshold"
    )
    assert find_label("novel.measure_of").name == "novel, measure of"
    lower_is_better = ("verification.eer", "triplets.violation_rate", "robustness.corruptions.blur.auc_drop")
    assert all(find_label(path).lower_is_better for path in lower_is_better)
    assert not find_label("retrieval.recall_at_1").lower_is_better
