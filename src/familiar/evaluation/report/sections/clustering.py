"""Report section: clustering."""

from collections.abc import Mapping
from typing import Any

from familiar.evaluation.report.examples import Examples
from familiar.evaluation.report.tables import cell, grid, label, name, other_metrics

AGREEMENT_KEYS = ("nmi", "ami", "ari", "purity")
F_MEASURES = (
    ("pairwise", "pairwise", "over pairs of photos in one group"),
    ("bcubed", "B-cubed", "averaged over photos"),
)


def clustering(results: Mapping[str, Any], _: Examples, __: Mapping[str, str]) -> str:
    """Render the metrics of the groups found without the number of identities, and of k-means with it."""
    metrics = results["clustering"]
    groups, kmeans = metrics.get("groups") or {}, metrics.get("kmeans") or {}
    interval = metrics.get("interval") or {}
    agreement_rows = [[label(key), cell(key, groups.get(key)), cell(key, kmeans.get(key))] for key in AGREEMENT_KEYS]
    f_rows: list[list[str]] = []
    for measure, title, description in F_MEASURES:
        values = groups.get(measure) or {}
        paths = {key: f"groups.{measure}.{key}" for key in ("precision", "recall", "f")}
        cells = [cell(path, values.get(key), interval.get(path)) for key, path in paths.items()]
        f_rows.append([f"{title}<small>{description}</small>", *cells])
    text = (
        f"<p>At a similarity threshold of {cell('threshold', groups.get('threshold'))} "
        f"({name(str(groups.get('threshold_source')))}), {cell('groups', groups.get('groups'))} groups were found for "
        f"{cell('identities', groups.get('identities'))} identities. K-means was given the number of clusters, "
        f"{cell('k', kmeans.get('k'))}.</p>"
    )
    return (
        text
        + grid("Clustering", ["", "groups found", "k-means with<br>the true k"], agreement_rows)
        + grid("F measures of the groups found", ["groups found", "precision", "recall", "F"], f_rows)
        + other_metrics(metrics, "groups", "kmeans")
    )
