"""The charts of a report and their captions."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from familiar.evaluation.context import SEED, EvaluationContext
from familiar.evaluation.plots.bars import robustness_bars, share_bars, sizes_chart, sweep_chart
from familiar.evaluation.plots.chart import Chart
from familiar.evaluation.plots.curves import (
    accuracy_chart,
    det_chart,
    reliability_chart,
    roc_chart,
    similarity_chart,
)
from familiar.evaluation.plots.map import (
    MAX_PHOTOS_PER_IDENTITY,
    labeled_identities,
    layout,
    map_chart,
    sample_rows,
)
from familiar.evaluation.report.examples import identity_name
from familiar.evaluation.results import EvaluationResults, interval_at, metric_at
from familiar.evaluation.results.metrics import VerificationMetrics
from familiar.evaluation.results.variant_metrics import RobustnessMetrics, SliceMetrics
from familiar.evaluation.verification_pairs import THRESHOLDS, ScoredPairs

MAX_SLICES = 16  # in one chart


@dataclass(frozen=True)
class CaptionedChart:
    """A chart, its alternative text, its caption, and its legend: the identities of the map by number, from 1."""

    chart: Chart
    alt: str
    caption: str
    legend: tuple[str, ...] = ()


def draw_charts(
    results: EvaluationResults, context: EvaluationContext, scored_pairs: ScoredPairs | None
) -> dict[str, CaptionedChart]:
    """Draw the charts, by name. Those of suites that were not run, or could not be computed, are left out."""
    charts: dict[str, CaptionedChart] = {}
    if scored_pairs is not None and results.verification is not None:
        charts |= _verification(results.verification, scored_pairs)
    if results.robustness is not None:
        charts |= _robustness(results.robustness)
    columns = {} if results.slices is None else results.slices.columns
    for number, (column, rows) in enumerate(columns.items(), start=1):
        charts |= _slices(f"slices_{number}", column, rows, results)
    charts["map"] = _map(context)
    charts["sizes"] = CaptionedChart(
        sizes_chart(context.table.photos_per_identity),
        "Histogram: number of identities by number of photos",
        "Number of identities by their number of photos.",
    )
    return charts


def _verification(metrics: VerificationMetrics, scored_pairs: ScoredPairs) -> dict[str, CaptionedChart]:
    counts = scored_pairs.counts
    thresholds = {name.replace("_", " "): metrics.at_bundle_thresholds[name].similarity for name in THRESHOLDS}
    charts = {
        "similarity": CaptionedChart(
            similarity_chart(counts, thresholds),
            "Histogram of the similarities of same and of different pairs, with the thresholds",
            "Similarities of pairs of the same individual and of different individuals (hatched): the less the two "
            "histograms overlap, the better. Vertical lines are the bundle's thresholds.",
        ),
        "roc": CaptionedChart(
            roc_chart(counts),
            f"ROC curve; the area under the curve is {metrics.auc:.4f}",
            "ROC curve: the share of same pairs accepted (TAR) at each share of different pairs accepted (FAR). "
            "The higher on the left, the better.",
        ),
        "det": CaptionedChart(
            det_chart(counts),
            f"DET curve; the equal error rate is {100 * metrics.eer:.2f} %",
            "DET curve: the two error rates against each other, on axes that make normal distributions a straight "
            "line. The closer to the lower left, the better.",
        ),
        "accuracy": CaptionedChart(
            accuracy_chart(counts, thresholds),
            "Accuracy over the threshold, its best, and the bundle's thresholds",
            "Share of correct decisions at each threshold, same and different pairs with the same total weight.",
        ),
    }
    if metrics.probability is not None:
        charts["reliability"] = CaptionedChart(
            reliability_chart(metrics.probability.bins),
            "Reliability diagram: observed share of same pairs over the predicted probability",
            "Reliability diagram: where the bundle predicts 80 %, 80 % of the pairs should be the same individual. "
            "Above the dotted line the prediction is too low, below it too high. Larger points have more pairs.",
        )
    return charts


def _robustness(metrics: RobustnessMetrics) -> dict[str, CaptionedChart]:
    charts: dict[str, CaptionedChart] = {}
    recall_drops = [
        (name, corruption.recall_at_1_drop, corruption.interval.get("recall_at_1_drop"))
        for name, corruption in metrics.corruptions.items()
        if corruption.recall_at_1_drop is not None  # they all are if no identity has two photos
    ]
    similarity_drops = [
        (name, corruption.similarity_drop, corruption.interval.get("similarity_drop"))
        for name, corruption in metrics.corruptions.items()
    ]
    if similarity_drops:
        sort_by = {name: loss for name, loss, _ in recall_drops or similarity_drops}
        recall_drops, similarity_drops = (
            sorted(rows, key=lambda row: -sort_by.get(row[0], 0.0)) for rows in (recall_drops, similarity_drops)
        )
        charts["robustness"] = CaptionedChart(
            robustness_bars(recall_drops, similarity_drops),
            "Bars: recall@1 and similarity lost to each corruption, with intervals",
            "Recall@1 lost to each corruption, the worst first, and 1 - cosine between a photo and its corrupted self; "
            "thin lines are 95 % intervals.",
        )
    sweeps = {
        name: [(point.severity, point.recall_at_1) for point in points if point.recall_at_1 is not None]
        for name, points in metrics.sweeps.items()
    }
    sweeps = {name: points for name, points in sweeps.items() if points}
    if sweeps and metrics.clean.recall_at_1 is not None:
        units = {name: corruption.unit for name, corruption in metrics.corruptions.items()}
        charts["sweeps"] = CaptionedChart(
            sweep_chart(sweeps, units, metrics.clean.recall_at_1),
            "Recall@1 over the severity of each corruption",
            "Recall@1 over the severity of each corruption. The dotted line is that of the clean photos.",
        )
    return charts


def _slices(
    key: str, column: str, slices: Sequence[SliceMetrics], results: EvaluationResults
) -> dict[str, CaptionedChart]:
    choices = [("retrieval", "recall_at_1", "recall@1"), ("verification", "auc", "ROC AUC")]
    available = [choice for choice in choices if any(getattr(row, choice[0]) is not None for row in slices)]
    if not available:
        return {}
    suite, metric, label = available[0]
    measured_slices = [row for row in slices if getattr(row, suite) is not None]
    rows = [
        (row.value, metric_at(row, f"{suite}.{metric}"), interval_at(row, f"{suite}.{metric}"))
        for row in measured_slices[:MAX_SLICES]
    ]
    overall = metric_at(results, f"{suite}.{metric}") if getattr(results, suite) is not None else None
    omitted = len(measured_slices) - MAX_SLICES
    omitted_note = f" The {omitted} best are left out." if omitted > 0 else ""
    caption = (
        f"{label}, the worst first; thin lines are 95 % intervals, the dashed line is that of all photos.{omitted_note}"
    )
    return {key: CaptionedChart(share_bars(rows, label, overall), f"Bars: {label} by {column}", caption)}


def _map(context: EvaluationContext) -> CaptionedChart:
    rows = sample_rows(context.labels, SEED)
    labels = context.labels[rows]
    labeled = labeled_identities(labels)
    identities = len(np.unique(labels))
    notes = [
        "Each marker is a photo; photos with similar embeddings lie together. The number of an identity is at its "
        "center; distances between far clusters mean nothing."
    ]
    if identities > len(labeled):
        notes.append(f"The other {identities - len(labeled):,} identities are gray.")
    if len(rows) < len(context.table):
        notes.append(
            f"Shown are the {identities:,} identities with the most photos, at most {MAX_PHOTOS_PER_IDENTITY} photos "
            "of each."
        )
    return CaptionedChart(
        map_chart(layout(context.embeddings[rows], SEED), labels, labeled.tolist()),
        "Map of the embeddings with a marker for each photo",
        " ".join(notes),
        tuple(identity_name(context.table, label) for label in labeled.tolist()),
    )
