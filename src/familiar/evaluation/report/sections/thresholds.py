"""Report section: the bundle's thresholds and probability, on these photos and on its validation pairs."""

from collections.abc import Mapping
from typing import Any

from familiar.evaluation.report.examples import Examples
from familiar.evaluation.report.tables import cell, grid, metric_table
from familiar.evaluation.verification_pairs import THRESHOLDS


def thresholds(results: Mapping[str, Any], _: Examples, charts: Mapping[str, str]) -> str:
    """Render the rates at the bundle's thresholds, and the calibration of its probability."""
    metrics = results.get("verification")
    if not metrics:
        return ""
    rows: list[list[str]] = []
    for key in THRESHOLDS:
        at_threshold = metrics["at_bundle_thresholds"][key]
        on_validation = at_threshold["on_validation"]
        rows.append(
            [
                key.replace("_", " "),
                cell("similarity", at_threshold["similarity"]),
                *(
                    f"{cell(rate, at_threshold[rate])}<small>validation: {cell(rate, on_validation[rate])}</small>"
                    for rate in ("far", "tar")
                ),
                cell("accuracy", at_threshold["accuracy"]),
            ]
        )
    not_fitted = (
        ""
        if metrics["thresholds_fitted"]
        else '<p class="missing">No thresholds were fitted at export: these are fixed ones, which do not depend on '
        "the model.</p>"
    )
    headings = ["", "similarity", "false accepts (FAR)", "true accepts (TAR)", "accuracy"]
    best = (
        f"<p>On these same pairs the equal error rate is at {metrics['eer_threshold']:.3f} and the best accuracy at "
        f"{metrics['best_accuracy_threshold']:.3f}. Use these for comparison only: they were chosen knowing the "
        "answers.</p>"
    )
    return (
        not_fitted
        + grid("The bundle's thresholds on these photos", headings, rows)
        + best
        + _probability(metrics.get("probability"), charts)
    )


def _probability(metrics: Mapping[str, Any] | None, charts: Mapping[str, str]) -> str:
    title = "<h3>Probability calibration</h3>"
    if metrics is None:
        reason = "The bundle predicts no probability, since nothing was fitted at its export."
        return f'{title}<p class="missing">{reason}</p>'
    table = metric_table("Probability calibration", metrics, ["calibration_error", "validation_error"])
    return f'{title}<div class="charts"><div>{table}</div>{charts.get("reliability", "")}</div>'
