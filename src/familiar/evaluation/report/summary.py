"""The summary in three sentences: how accurate, where it fails, which threshold to set; and the caveats."""

from dataclasses import dataclass
from typing import Literal

from markupsafe import Markup, escape

from familiar.evaluation.report.examples import Examples
from familiar.evaluation.report.templating import render_template
from familiar.evaluation.results import EvaluationResults
from familiar.evaluation.results.figures import slices_by_column
from familiar.evaluation.results.labels import format_percent
from familiar.evaluation.suites.pixels import pixels_warning

FEW_IDENTITIES = 50
MIN_INTERVAL_IDENTITIES = 10  # fewer are not resampled
FAR_RATIO_WARNING = 2.0  # a FAR by this factor above or below that on validation: the threshold does not transfer
TAR_DROP_WARNING = 0.05
MIN_FALSE_ACCEPTS = 10  # fewer say little about a rate


@dataclass(frozen=True)
class Caveat:
    """A limit of the metrics: `count` identities, collections that the model was trained on, or leaked pictures."""

    kind: Literal["trained", "selected", "collection", "leaks", "too few", "few"]
    count: int


def summary_sentences(results: EvaluationResults, examples: Examples) -> list[Markup]:
    """Render the three sentences."""
    return [accuracy_sentence(results), failure_sentence(results, examples), threshold_sentence(results)]


def accuracy_sentence(results: EvaluationResults) -> Markup:
    """State recall@1 and ROC AUC, and the most serious caveat."""
    recall = results.figures.get("retrieval.recall_at_1")
    return render_template(
        "summary/accuracy.html",
        recall=None if recall is None or recall.value is None else recall,
        auc=results.figures.get("verification.auc"),
        identities=results.data.identities,
        caveat=next(iter(_data_caveats(results)), None),
    )


def failure_sentence(results: EvaluationResults, examples: Examples) -> Markup:
    """Name the worst slice, else the identities that fail most, else the most similar pair of two identities."""
    if (worst_slice := _worst_slice(results)) is not None:
        column, worst = worst_slice
        return render_template("summary/worst_slice.html", results=results, column=column, worst=worst)
    if examples.searched_identities:
        return render_template("summary/failing_identities.html", examples=examples)
    return render_template("summary/most_similar_negatives.html", worst=next(iter(examples.negatives or ()), None))


def threshold_sentence(results: EvaluationResults) -> Markup:
    """Recommend the balanced and the strict threshold, with their rates here and on the validation pairs."""
    return render_template("summary/threshold.html", results=results, shift=threshold_shift(results))


def threshold_shift(results: EvaluationResults) -> str:
    """Describe how the rates at the balanced threshold differ from those on the bundle's validation pairs.

    Returns:
        A clause; empty if the rates agree, or too little is known.
    """
    at_threshold = "verification.at_bundle_thresholds.balanced"
    far, tar, far_before, tar_before, different_pairs = (
        results.number(path)
        for path in (
            f"{at_threshold}.far",
            f"{at_threshold}.tar",
            f"{at_threshold}.on_validation.far",
            f"{at_threshold}.on_validation.tar",
            "verification.different_pairs",
        )
    )
    if far is None or tar is None or far_before is None or tar_before is None or different_pairs is None:
        return ""
    false_accepts, expected = far * different_pairs, far_before * different_pairs
    if false_accepts >= MIN_FALSE_ACCEPTS and far > FAR_RATIO_WARNING * far_before:
        if not far_before:
            return "while it accepted no different pairs on its validation photos"
        return f"{far / far_before:.1f} times as many false accepts as on its validation photos"
    if tar_before - tar > TAR_DROP_WARNING:
        return f"while it accepted {format_percent(tar_before)} of same pairs on its validation photos"
    if expected >= MIN_FALSE_ACCEPTS and far < far_before / FAR_RATIO_WARNING:
        return (
            f"while it accepted {format_percent(far_before)} of different pairs on its validation photos, so it is "
            "stricter than necessary"
        )
    return ""


def caveats(results: EvaluationResults) -> list[Markup]:
    """Render all caveats but the one in the first sentence."""
    notes = [
        render_template("summary/caveat.html", caveat=caveat, identities=results.data.identities)
        for caveat in _data_caveats(results)[1:]
    ]
    if results.leaks is None:
        notes.append(Markup("The photos were not checked for train/test leakage."))
    if results.data.skipped:
        notes.append(render_template("summary/skipped.html", skipped=len(results.data.skipped)))
    if warning := pixels_warning(results):
        notes.append(escape(f"{warning[0].upper()}{warning[1:]}."))
    notes += [
        render_template("summary/unmeasured_suite.html", suite=suite, reason=reason.removeprefix(f"{suite}: "))
        for suite, reason in results.reasons.items()
    ]
    return notes


def _data_caveats(results: EvaluationResults) -> list[Caveat]:
    """List what limits the metrics, the most serious first."""
    data, leaks = results.data, results.leaks
    limits: list[Caveat] = []
    if data.identities_seen_in_training:
        limits.append(Caveat("trained", data.identities_seen_in_training))
    if data.identities_seen_in_validation:
        limits.append(Caveat("selected", data.identities_seen_in_validation))
    if data.collections_trained_on and not data.identities_seen_in_training:
        limits.append(Caveat("collection", len(data.collections_trained_on)))
    if leaks is not None and not leaks.excluded and (leaks.across_splits or leaks.across_identities):
        limits.append(Caveat("leaks", len(leaks.across_splits) + len(leaks.across_identities)))
    if data.identities < MIN_INTERVAL_IDENTITIES:
        limits.append(Caveat("too few", data.identities))
    elif data.identities < FEW_IDENTITIES:
        limits.append(Caveat("few", data.identities))
    return limits


def _worst_slice(results: EvaluationResults) -> tuple[str, str] | None:
    """Return the column and the path of the slice with the lowest recall@1."""
    recalls = {
        (column, path): recall
        for column, paths in slices_by_column(results.figures).items()
        for path in paths
        if (recall := results.number(f"{path}.retrieval.recall_at_1")) is not None
    }
    return min(recalls, key=lambda column_and_path: recalls[column_and_path], default=None)
