"""The charts of a report and their captions."""

from collections.abc import Mapping

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
from familiar.evaluation.results import EvaluationResults
from familiar.evaluation.results.figures import names_between, slices_by_column
from familiar.evaluation.results.labels import find_label
from familiar.evaluation.verification_pairs import THRESHOLDS
from familiar.metrics.bootstrap import Interval
from familiar.metrics.roc import RocCounts

MAX_SLICES = 16  # in one chart


def draw_charts(results: EvaluationResults, context: EvaluationContext) -> dict[str, Chart]:
    """Draw the charts, by name. Those of suites that were not run, or could not be computed, are left out."""
    charts: dict[str, Chart] = {}
    if "verification" in results.suites:
        charts |= _verification(results, context.scored_pairs.counts)
    charts |= _robustness(results)
    for number, (column, paths) in enumerate(slices_by_column(results.figures).items(), start=1):
        charts |= _slices(f"slices_{number}", column, paths, results)
    charts["map"] = _map(context)
    charts["sizes"] = sizes_chart(context.table.photos_per_identity).captioned(
        "Histogram: number of identities by number of photos",
        "Number of identities by their number of photos.",
    )
    return charts


def _verification(results: EvaluationResults, counts: RocCounts) -> dict[str, Chart]:
    similarities = {name: results.number(f"verification.at_bundle_thresholds.{name}.similarity") for name in THRESHOLDS}
    thresholds = {name.replace("_", " "): value for name, value in similarities.items() if value is not None}
    charts = {
        "similarity": similarity_chart(counts, thresholds).captioned(
            "Histogram of the similarities of same and of different pairs, with the thresholds",
            "Similarities of pairs of the same individual and of different individuals (hatched): the less the two "
            "histograms overlap, the better. Vertical lines are the bundle's thresholds.",
        ),
        "roc": roc_chart(counts).captioned(
            f"ROC curve; the area under the curve is {results.number('verification.auc'):.4f}",
            "ROC curve: the share of same pairs accepted (TAR) at each share of different pairs accepted (FAR). "
            "The higher on the left, the better.",
        ),
        "det": det_chart(counts).captioned(
            f"DET curve; the equal error rate is {100 * (results.number('verification.eer') or 0):.2f} %",
            "DET curve: the two error rates against each other, on axes that make normal distributions a straight "
            "line. The closer to the lower left, the better.",
        ),
        "accuracy": accuracy_chart(counts, thresholds).captioned(
            "Accuracy over the threshold, its best, and the bundle's thresholds",
            "Share of correct decisions at each threshold, same and different pairs with the same total weight.",
        ),
    }
    bins = names_between(results.figures, "verification.probability.bins", "weight")
    if bins:
        predicted, observed, weight = (
            [results.number(f"verification.probability.bins.{each}.{key}") or 0.0 for each in bins]
            for key in ("predicted", "observed", "weight")
        )
        charts["reliability"] = reliability_chart(predicted, observed, weight).captioned(
            "Reliability diagram: observed share of same pairs over the predicted probability",
            "Reliability diagram: where the bundle predicts 80 %, 80 % of the pairs should be the same individual. "
            "Above the dotted line the prediction is too low, below it too high. Larger points have more pairs.",
        )
    return charts


def _robustness(results: EvaluationResults) -> dict[str, Chart]:
    charts: dict[str, Chart] = {}
    corruptions = names_between(results.figures, "robustness.corruptions", "severity")
    recall_drops, similarity_drops = (
        _bars(results, {name: f"robustness.corruptions.{name}.{key}" for name in corruptions})
        for key in ("recall_at_1_drop", "similarity_drop")  # none has a recall if no identity has two photos
    )
    if similarity_drops:
        sort_by = {name: loss for name, loss, _ in recall_drops or similarity_drops}
        recall_drops, similarity_drops = (
            sorted(rows, key=lambda row: -sort_by.get(row[0], 0.0)) for rows in (recall_drops, similarity_drops)
        )
        charts["robustness"] = robustness_bars(recall_drops, similarity_drops).captioned(
            "Bars: recall@1 and similarity lost to each corruption, with intervals",
            "Recall@1 lost to each corruption, the worst first, and 1 - cosine between a photo and its corrupted self; "
            "thin lines are 95 % intervals.",
        )
    sweeps: dict[str, list[tuple[float, float]]] = {}
    for path in names_between(results.figures, "robustness.sweeps", "severity"):
        severity, recall = (results.number(f"robustness.sweeps.{path}.{key}") for key in ("severity", "recall_at_1"))
        if severity is not None and recall is not None:
            sweeps.setdefault(path.rpartition(".")[0], []).append((severity, recall))
    clean = results.number("robustness.clean.recall_at_1")
    if sweeps and clean is not None:
        units = {name: str(results.value(f"robustness.corruptions.{name}.unit")) for name in corruptions}
        charts["sweeps"] = sweep_chart(sweeps, units, clean).captioned(
            "Recall@1 over the severity of each corruption",
            "Recall@1 over the severity of each corruption. The dotted line is that of the clean photos.",
        )
    return charts


def _bars(results: EvaluationResults, paths: Mapping[str, str]) -> list[tuple[str, float, Interval | None]]:
    """Return name, value and interval of the figures that have a value."""
    numbers = {name: results.number(path) for name, path in paths.items()}
    return [
        (name, value, results.figures[paths[name]].interval) for name, value in numbers.items() if value is not None
    ]


def _slices(key: str, column: str, slices: list[str], results: EvaluationResults) -> dict[str, Chart]:
    choices = ("retrieval.recall_at_1", "verification.auc")
    figure = next(
        (each for each in choices if any(results.value(f"{path}.{each}") is not None for path in slices)), None
    )
    if figure is None:
        return {}
    label, overall = find_label(figure).name, results.number(figure)
    rows = _bars(results, {str(results.value(f"{path}.value")): f"{path}.{figure}" for path in slices})
    omitted = len(rows) - MAX_SLICES
    omitted_note = f" The {omitted} best are left out." if omitted > 0 else ""
    caption = (
        f"{label}, the worst first; thin lines are 95 % intervals, the dashed line is that of all photos.{omitted_note}"
    )
    return {key: share_bars(rows[:MAX_SLICES], label, overall).captioned(f"Bars: {label} by {column}", caption)}


def _map(context: EvaluationContext) -> Chart:
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
    return map_chart(layout(context.embeddings[rows], SEED), labels, labeled.tolist()).captioned(
        "Map of the embeddings with a marker for each photo",
        " ".join(notes),
        tuple(identity_name(context.table, label) for label in labeled.tolist()),
    )
