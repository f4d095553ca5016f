"""Report section: Labeled Faces in the Wild."""

from collections.abc import Mapping
from typing import Any

from familiar.evaluation.report.examples import Examples
from familiar.evaluation.report.tables import cell, grid, metric_table, missing

TITLES = {"view_2": "View 2 (for reporting): ten folds", "view_1": "View 1 (for model selection)"}
PATHS = ("accuracy", "standard_error", "threshold", "auc", "pairs")


def lfw(results: Mapping[str, Any], _: Examples, __: Mapping[str, str]) -> str:
    """Render both views, or the reasons why they are missing."""
    metrics = results["lfw"]
    parts: list[str] = []
    for key, title in TITLES.items():
        view = metrics.get(key)
        body = (
            missing((metrics.get("reasons") or {}).get(key, "not measured"))
            if view is None
            else metric_table(title, view, PATHS)
        )
        parts.append(f"<h3>{title}</h3>{body}")
        if view and view.get("folds"):
            rows = [
                [f"{number}", cell("accuracy", fold["accuracy"]), cell("threshold", fold["threshold"])]
                for number, fold in enumerate(view["folds"], start=1)
            ]
            table = grid("Folds", ["fold", "accuracy", "threshold from the other nine"], rows)
            parts.append(f"<details><summary>Each fold</summary>{table}</details>")
    return "".join(parts)
