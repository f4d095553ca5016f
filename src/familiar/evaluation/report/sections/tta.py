"""Report section: test-time augmentation."""

from collections.abc import Mapping
from typing import Any

from familiar.core.plural import pluralize
from familiar.evaluation.report.examples import Examples
from familiar.evaluation.report.tables import cell, grid, name, other_metrics

HEADINGS = ("", "recall@1 gained", "AUC gained", "passes", "ms per photo")


def tta(results: Mapping[str, Any], _: Examples, __: Mapping[str, str]) -> str:
    """Render gain and cost of each method, overall and by source folder if there are several."""
    metrics = results["tta"]
    plain = metrics["plain"]
    methods = {key: part for key, part in metrics.items() if isinstance(part, Mapping) and "passes" in part}
    plain_values = (f"{cell(key, plain.get(key))}<small>value</small>" for key in ("recall_at_1", "auc"))
    rows = [["photo only", *plain_values, "1", cell("ms_per_photo", plain.get("ms_per_photo"))]]
    for key, method in methods.items():
        costs = [cell("passes", method["passes"]), cell("ms_per_photo", method.get("ms_per_photo"))]
        rows.append([name(key.replace("_", " ")), *_gains(method), *costs])
        by_source = method.get("by_source") or {}
        if len(by_source) > 1:
            for source, part in by_source.items():
                source_label = f"<small>of {name(source)}, {pluralize(part['photos'], 'photo')}</small>"
                rows.append([source_label, *_gains(part), "", ""])
    return grid("Test-time augmentation", HEADINGS, rows) + other_metrics(
        metrics, "plain", "photos", "identities", *methods
    )


def _gains(part: Mapping[str, Any]) -> list[str]:
    interval = part.get("interval") or {}
    return [cell(key, part.get(key), interval.get(key)) for key in ("recall_at_1_gain", "auc_gain")]
