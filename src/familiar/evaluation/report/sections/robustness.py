"""Report section: robustness to image corruptions."""

from collections.abc import Mapping
from typing import Any

from familiar.core.plural import pluralize
from familiar.evaluation.report.charts import side_by_side
from familiar.evaluation.report.examples import Examples
from familiar.evaluation.report.tables import cell, grid, name, other_metrics

DROPS = ("recall_at_1_drop", "auc_drop", "similarity_drop")


def robustness(results: Mapping[str, Any], _: Examples, charts: Mapping[str, str]) -> str:
    """Render what each corruption costs, and the sweeps over severities."""
    metrics = results["robustness"]
    rows: list[list[str]] = []
    for key, corruption in metrics["corruptions"].items():
        severity = "" if corruption.get("severity") is None else f": {corruption['severity']:g}"
        interval = corruption.get("interval") or {}
        unit = f"<small>{name(corruption.get('unit') or '')}{severity}</small>"
        drops = (cell(drop, corruption.get(drop), interval.get(drop)) for drop in DROPS)
        rows.append([f"{name(key.replace('_', ' '))}{unit}", *drops])
    clean = metrics["clean"]
    text = (
        f"<p>{pluralize(metrics['photos'], 'photo')}, each corrupted and searched for among the clean ones. Clean "
        f"photos: recall@1 {cell('recall_at_1', clean.get('recall_at_1'))}, ROC AUC {cell('auc', clean.get('auc'))}."
        "</p>"
    )
    return (
        text
        + grid("Robustness", ["", "recall@1 lost", "AUC lost", "similarity lost"], rows)
        + other_metrics(metrics, "corruptions", "sweeps", "clean", "photos", "identities")
        + side_by_side(charts, "robustness", "sweeps")
    )
