"""Report sections: retrieval metrics, and the nearest neighbors of example photos."""

from collections.abc import Mapping
from typing import Any

from familiar.core.plural import pluralize
from familiar.evaluation.report.examples import Examples
from familiar.evaluation.report.photos import neighbor_grid
from familiar.evaluation.report.tables import cell, grid, label, name, other_metrics

KEYS = (
    "recall_at_1",
    "recall_at_5",
    "recall_at_10",
    "mrr",
    "ndcg_at_10",
    "map_at_r",
    "queries",
    "queries_without_match",
)


def retrieval(results: Mapping[str, Any], examples: Examples, _: Mapping[str, str]) -> str:
    """Render the retrieval metrics, and the identities that are confused most."""
    metrics = results["retrieval"]
    gallery = metrics.get("query_gallery") or {}
    headings = ["", "among all other photos", "half against half"] if gallery else ["", "value"]
    columns = [column for column in (metrics, gallery) if column]
    rows = [
        [
            label(key),
            *(cell(key, column.get(key), (column.get("interval") or {}).get(key)) for column in columns),
        ]
        for key in KEYS
        if key in metrics
    ]
    half = (
        "<p>Half against half: a random half of each identity's photos is the gallery, the others are the queries.</p>"
        if gallery
        else ""
    )
    return (
        grid("Retrieval", headings, rows)
        + half
        + _failing_identities(examples)
        + other_metrics(metrics, *KEYS, "query_gallery")
    )


def nearest_neighbors(_: Mapping[str, Any], examples: Examples, __: Mapping[str, str]) -> str:
    """Render example queries with their nearest neighbors."""
    return neighbor_grid(examples)


def _failing_identities(examples: Examples) -> str:
    if not examples.failing:
        return ""
    rows = [
        [name(failing.identity), f"{failing.missed:,} of {failing.photos:,}", name(failing.confused_with)]
        for failing in examples.failing
    ]
    title = "Most confused identities"
    return (
        f"<h3>{title}</h3><p>{examples.identities_without_miss:,} of "
        f"{pluralize(examples.searched_identities, 'identity')} are never confused. Identities whose number of misses "
        "is least likely to be chance come first.</p>"
        f"{grid(title, ['', 'photos nearest to another identity', 'most often'], rows)}"
    )
