"""Which charts a report draws, each with its caption."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from familiar.evaluation.context import SEED, EvaluationContext
from familiar.evaluation.plots.bars import share_bars, sizes_chart, sweep_chart
from familiar.evaluation.plots.chart import Chart
from familiar.evaluation.plots.curves import (
    accuracy_chart,
    det_chart,
    reliability_chart,
    roc_chart,
    similarity_chart,
)
from familiar.evaluation.plots.map import MOST_OF_ONE, layout, map_chart, mapped_rows, named_identities
from familiar.evaluation.report.examples import identity_name
from familiar.evaluation.verification_pairs import THRESHOLDS, ScoredPairs

SLICES_DRAWN = 16


@dataclass(frozen=True)
class Drawn:
    """A chart, `alt` for who does not see it, and `caption` for who does. `key`: names by number, of the map."""

    chart: Chart
    alt: str
    caption: str
    key: tuple[str, ...] = ()


def draw_charts(
    results: Mapping[str, Any], measured: EvaluationContext, judged: ScoredPairs | None
) -> dict[str, Drawn]:
    """By name; those of suites that were not run, or could not be computed, are not there."""
    drawn = _verification(results, judged) if judged is not None and results.get("verification") else {}
    drawn |= _robustness(results.get("robustness") or {})
    for place, (column, rows) in enumerate(((results.get("slices") or {}).get("columns") or {}).items(), start=1):
        drawn |= _slices(f"slices_{place}", column, rows, results)
    drawn["map"] = _map(measured)
    drawn["sizes"] = Drawn(
        sizes_chart(measured.table.photos_per_identity),
        "Bars: how many identities have how many photos",
        "How many identities have how many photos.",
    )
    return drawn


def side_by_side(markup: Mapping[str, str], *keys: str) -> str:
    """The charts of these names that were drawn, where there is room beside one another."""
    shown = "".join(markup[key] for key in keys if key in markup)
    return f'<div class="charts">{shown}</div>' if shown else ""


def _verification(results: Mapping[str, Any], judged: ScoredPairs) -> dict[str, Drawn]:
    found, counts = results["verification"], judged.counts
    thresholds = {name.replace("_", " "): found["at_bundle_thresholds"][name]["similarity"] for name in THRESHOLDS}
    drawn = {
        "similarity": Drawn(
            similarity_chart(counts, thresholds),
            "Histogram of the similarities of same and of different pairs, with the thresholds",
            "How similar pairs of one individual and pairs of strangers (hatched) are: the further the hills stand "
            "apart, the better. Lines are the bundle's thresholds.",
        ),
        "roc": Drawn(
            roc_chart(counts),
            f"ROC curve; the area beneath it is {found['auc']:.4f}",
            "ROC: how many pairs of one individual are accepted, for a given share of strangers accepted. "
            "The higher on the left, the better.",
        ),
        "det": Drawn(
            det_chart(counts),
            f"DET curve; both errors are equal at {100 * found['eer']:.2f} %",
            "DET: the two kinds of error against each other, on axes that make normal hills a straight line. "
            "The further down and left, the better.",
        ),
        "accuracy": Drawn(
            accuracy_chart(counts, thresholds),
            "Accuracy over the threshold, its best, and the bundle's thresholds",
            "Pairs judged rightly, both kinds weighed alike, for every threshold one could set.",
        ),
    }
    if found.get("probability"):
        drawn["reliability"] = Drawn(
            reliability_chart(found["probability"]["bins"]),
            "Reliability diagram: share of same pairs over the probability said",
            "Where the bundle says 80 %, 80 % should be of one individual. Points above the dotted line: it says "
            "too little; below: too much. Larger points hold more pairs.",
        )
    return drawn


def _robustness(found: Mapping[str, Any]) -> dict[str, Drawn]:
    drawn: dict[str, Drawn] = {}
    rows = [
        (name, part["recall_at_1_drop"], (part.get("interval") or {}).get("recall_at_1_drop"))
        for name, part in (found.get("degradations") or {}).items()
        if part.get("recall_at_1_drop") is not None
    ]
    if rows:
        drawn["robustness"] = Drawn(
            share_bars(sorted(rows, key=lambda row: -row[1]), "recall@1 lost"),
            "Bars: recall@1 lost by each degradation, with intervals",
            "What each degradation costs, the worst first; thin lines are 95 % intervals.",
        )
    sweeps = {
        name: [point for point in points if point.get("recall_at_1") is not None]
        for name, points in (found.get("sweeps") or {}).items()
    }
    sweeps = {name: points for name, points in sweeps.items() if points}
    if sweeps:
        units = {name: part.get("unit") or "" for name, part in found["degradations"].items()}
        drawn["sweeps"] = Drawn(
            sweep_chart(sweeps, units, found["clean"]["recall_at_1"]),
            "Recall@1 over the severity of each degradation",
            "Recall@1 as each degradation grows. The dotted line is that of the clean photos.",
        )
    return drawn


def _slices(key: str, column: str, slices: list[dict[str, Any]], results: Mapping[str, Any]) -> dict[str, Drawn]:
    choices = [("retrieval", "recall_at_1", "recall@1"), ("verification", "auc", "ROC AUC")]
    found = [choice for choice in choices if any(part.get(choice[0]) for part in slices)]
    if not found:
        return {}
    suite, figure, label = found[0]
    measured = [part for part in slices if part.get(suite)]
    rows = [
        (str(part["value"]), part[suite][figure], (part[suite].get("interval") or {}).get(figure))
        for part in measured[:SLICES_DRAWN]
    ]
    overall = (results.get(suite) or {}).get(figure)
    left = f" The {len(measured) - SLICES_DRAWN} best are left out." if len(measured) > SLICES_DRAWN else ""
    chart = share_bars(rows, label, overall)
    caption = f"{label}, the worst first; thin lines are 95 % intervals, the dashed line is that of all photos.{left}"
    return {key: Drawn(chart, f"Bars: {label} by {column}", caption)}


def _map(measured: EvaluationContext) -> Drawn:
    rows = mapped_rows(measured.labels, SEED)
    labels = measured.labels[rows]
    named = named_identities(labels)
    shown = len(np.unique(labels))
    notes = [
        "Each mark is a photo; photos that the network holds to be alike lie together. A number stands in the midst of "
        "an identity; distances between far groups say nothing."
    ]
    if shown > len(named):
        notes.append(f"The other {shown - len(named):,} identities are gray.")
    if len(rows) < len(measured.table):
        notes.append(f"These are the {shown:,} identities with the most photos, of each {MOST_OF_ONE} photos at most.")
    return Drawn(
        map_chart(layout(measured.embeddings[rows], SEED), labels, named.tolist()),
        "Map of the embeddings, a mark for each photo",
        " ".join(notes),
        tuple(identity_name(measured.table, label) for label in named.tolist()),
    )
