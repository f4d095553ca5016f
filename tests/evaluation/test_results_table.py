"""Evaluation results as a table, and in a notebook."""

from dataclasses import replace

import numpy as np
import pytest

from familiar.evaluation.results import EvaluationResults, Figure
from familiar.evaluation.results.figures import make_figures
from support.evaluation_results import empty_results
from support.html import Page

FIGURES = {
    "verification": {
        "pairs": "all",
        "seed": 7,
        "interval_pairs": 99,
        "same_pairs": 100,
        "auc": Figure(0.97, 0.95, 0.98),
        "eer": 0.1,
        "tar_at_far": {"1e-2": Figure(0.75, 0.5, 0.875), "1e-3": 0.25, "1e-4": None},
        "thresholds_fitted": False,
    },
    "triplets": {"sampling": "all", "triplets": 1_000, "seed": 0, "violation_rate": Figure(0.25, 0.125, 0.5)},
}


@pytest.fixture
def results() -> EvaluationResults:
    reasons = {"retrieval": "no identity has two photos <script>"}
    return empty_results(figures=make_figures(FIGURES), reasons=reasons)


def test_every_number_is_a_row_with_its_interval(results: EvaluationResults) -> None:
    frame = results.to_pandas()
    assert frame.columns.tolist() == ["suite", "metric", "label", "value", "low", "high"]
    assert frame["suite"].unique().tolist() == ["verification", "triplets"]
    for suite, metric, _, value, low, high in frame.itertuples(index=False):
        figure = results.figures[f"{suite}.{metric}"]
        assert value == figure.value
        np.testing.assert_array_equal([low, high], figure.interval or [np.nan, np.nan])
    by_metric = frame.set_index(["suite", "metric"])
    assert by_metric.loc[("verification", "tar_at_far.1e-2"), ["value", "low", "high"]].tolist() == [0.75, 0.5, 0.875]
    assert by_metric.loc[("triplets", "violation_rate"), "label"] == "violation rate"
    metrics = set(frame["metric"])
    assert not metrics & {"seed", "interval_pairs", "pairs", "tar_at_far.1e-4", "thresholds_fitted"}
    assert not any(metric.startswith("interval") for metric in metrics)
    assert results.to_arrow()["value"].to_pylist() == frame["value"].tolist()


def test_results_without_suites_have_an_empty_table() -> None:
    empty = empty_results()
    assert empty.to_pandas().empty
    assert "no suite" in repr(empty)
    assert Page(empty._repr_html_()).open == []


def test_notebook_shows_headlines_with_intervals(results: EvaluationResults) -> None:
    html = results._repr_html_()
    page = Page(html)
    assert page.open == []
    for text in ("ROC AUC", "0.9700", "0.9500 to 0.9800", "75.00 %", "95 % interval", "no identity has two photos"):
        assert text in html, text
    assert len(page.all("circle")) == 2  # TAR at FAR 1e-2 and 1e-3
    assert "\\xa0" not in html
    assert repr(results).endswith("verification, triplets)")


def test_notebook_escapes_what_results_name(results: EvaluationResults) -> None:
    hostile = "<script>alert(1)</script>"
    data = replace(results.data, sources=(hostile,))
    model = replace(results.model, network=hostile, recipe=hostile)
    html = replace(results, data=data, model=model)._repr_html_()
    assert "<script" not in html
    assert html.count("&lt;script&gt;") == 4  # with the reason
