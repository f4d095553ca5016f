"""The summary in three sentences: how accurate, where it fails, which threshold to set; and the caveats."""

from collections.abc import Mapping
from typing import Any

from familiar.core.plural import pluralize
from familiar.evaluation.report.examples import Examples, identity_name
from familiar.evaluation.report.labels import format_percent
from familiar.evaluation.report.tables import format_interval, name

FEW_IDENTITIES = 50
MIN_INTERVAL_IDENTITIES = 10  # fewer are not resampled
FAR_RATIO_WARNING = 2.0  # a FAR by this factor above or below that on validation: the threshold does not transfer
TAR_DROP_WARNING = 0.05
MIN_FALSE_ACCEPTS = 10  # fewer say little about a rate


def summary_sentences(results: Mapping[str, Any], examples: Examples) -> list[str]:
    """Return the markup of the three sentences."""
    return [accuracy_sentence(results), failure_sentence(results, examples), threshold_sentence(results)]


def accuracy_sentence(results: Mapping[str, Any]) -> str:
    """State recall@1 and ROC AUC, and the most serious caveat."""
    retrieval, verification = results.get("retrieval"), results.get("verification")
    clauses: list[str] = []
    if retrieval and retrieval["recall_at_1"] is not None:
        recall = retrieval["recall_at_1"]
        clauses.append(
            f"for <strong>{format_percent(recall)}</strong> of the photos the nearest other photo shows the same "
            f"individual{_interval(retrieval, 'recall_at_1')}"
        )
    if verification:
        clauses.append(
            "a pair of the same individual is more similar than a pair of different individuals "
            f"<strong>{format_percent(verification['auc'])}</strong> of the time{_interval(verification, 'auc')}"
        )
    caveat = next((clause for clause, _ in _data_caveats(results)), "") if clauses else ""
    text = ", and ".join(clauses) or "Neither retrieval nor verification was measured"
    return f"{text[0].upper()}{text[1:]}{caveat}."


def failure_sentence(results: Mapping[str, Any], examples: Examples) -> str:
    """Name the worst slice, else the identities that fail most, else the most similar pair of two identities."""
    return _worst_slice(results) or _failing_identities(examples) or _most_similar_negatives(examples)


def threshold_sentence(results: Mapping[str, Any]) -> str:
    """Recommend the balanced and the strict threshold, with their rates here and on the validation pairs."""
    metrics = results.get("verification")
    if not metrics:
        return "No threshold can be recommended, since verification was not measured."
    balanced, strict = (metrics["at_bundle_thresholds"][key] for key in ("balanced", "high_precision"))
    rates = (
        f"accepts {format_percent(balanced['tar'])} of same pairs and {format_percent(balanced['far'])} of different "
        "pairs here"
    )
    if not metrics["thresholds_fitted"]:
        return (
            "No threshold was ever fitted for this model: the fixed "
            f"<strong>{balanced['similarity']:.3f}</strong> {rates}, and the equal error rate is at "
            f"{metrics['eer_threshold']:.3f}; export the model with validation identities, or fit a threshold on "
            "photos of your own."
        )
    if shift := threshold_shift(balanced, metrics["different_pairs"]):
        return (
            "The bundle's thresholds do not transfer to these photos: its balanced threshold "
            f"{balanced['similarity']:.3f} {rates}, {shift}; the equal error rate is at "
            f"<strong>{metrics['eer_threshold']:.3f}</strong>, but fit your own threshold on other photos of this "
            "kind before you rely on it."
        )
    return (
        f"Set the threshold to <strong>{balanced['similarity']:.3f}</strong> (balanced), which {rates}, or to "
        f"<strong>{strict['similarity']:.3f}</strong> (high precision) if false accepts cost more: it "
        f"accepts {format_percent(strict['tar'])} and {format_percent(strict['far'])}."
    )


def threshold_shift(at_threshold: Mapping[str, Any], different_pairs: int) -> str:
    """Describe how the rates at a threshold differ from those on the bundle's validation pairs.

    Args:
        at_threshold: `far` and `tar` here, and `on_validation`.
        different_pairs: number of different pairs here.

    Returns:
        A clause; empty if the rates agree, or too little is known.
    """
    far, tar = at_threshold["on_validation"]["far"], at_threshold["on_validation"]["tar"]
    if far is None or tar is None:
        return ""
    false_accepts, expected = at_threshold["far"] * different_pairs, far * different_pairs
    if false_accepts >= MIN_FALSE_ACCEPTS and at_threshold["far"] > FAR_RATIO_WARNING * far:
        if not far:
            return "while it accepted no different pairs on its validation photos"
        return f"{at_threshold['far'] / far:.1f} times as many false accepts as on its validation photos"
    if tar - at_threshold["tar"] > TAR_DROP_WARNING:
        return f"while it accepted {format_percent(tar)} of same pairs on its validation photos"
    if expected >= MIN_FALSE_ACCEPTS and at_threshold["far"] < far / FAR_RATIO_WARNING:
        return (
            f"while it accepted {format_percent(far)} of different pairs on its validation photos, so it is stricter "
            "than necessary"
        )
    return ""


def caveats(results: Mapping[str, Any]) -> list[str]:
    """Return the markup of all caveats but the one in the first sentence."""
    notes = [note for _, note in _data_caveats(results)[1:]]
    if results.get("leaks") is None:
        notes.append("The photos were not checked for train/test leakage.")
    if skipped := len(results["data"]["skipped"]):
        notes.append(f'{pluralize(skipped, "photo")} could <a href="#left-out">not be evaluated</a>.')
    for suite, reason in results["reasons"].items():
        notes.append(f"{name(suite)} could not be computed: {name(reason.removeprefix(f'{suite}: '))}.")
    return notes


def _data_caveats(results: Mapping[str, Any]) -> list[tuple[str, str]]:
    """List what limits the metrics, the most serious first: as a clause of the first sentence, and as a sentence."""
    data, leaks = results["data"], results.get("leaks") or {}
    identities = pluralize(data["identities"], "identity")
    notes: list[tuple[str, str]] = []
    if trained := data["identities_seen_in_training"]:
        notes.append(
            (
                f", but {trained:,} of the {identities} were trained on, which makes the result too good",
                f"{trained:,} of the {identities} were trained on: the metrics are too good.",
            )
        )
    if validated := data.get("identities_seen_in_validation"):
        notes.append(
            (
                f", but {validated:,} of the {identities} were used to select the model, which makes the result too "
                "good",
                f"Epoch and thresholds were chosen by {validated:,} of the {identities}: that makes the metrics too "
                "good, too.",
            )
        )
    leaking = len(leaks.get("across_splits") or ()) + len(leaks.get("across_identities") or ())
    if leaking and not leaks.get("excluded"):
        link = f'<a href="#leaks">{pluralize(leaking, "picture")}</a>'
        notes.append((f", but {link} may be leaked", f"{link} may be leaked, and are still included."))
    if data["identities"] < MIN_INTERVAL_IDENTITIES:
        notes.append(
            (
                f"; with {identities} that says nothing about others",
                f"{identities} are too few to say anything about others, so there are no intervals.",
            )
        )
    elif data["identities"] < FEW_IDENTITIES:
        notes.append(
            (
                f"; with only {identities} take that as a rough estimate",
                f"These are {identities} only; the results for others may be quite different.",
            )
        )
    return notes


def _worst_slice(results: Mapping[str, Any]) -> str:
    columns = (results.get("slices") or {}).get("columns") or {}
    suite, metric, label = "retrieval", "recall_at_1", "recall@1"
    candidates = [
        (rows[0][suite][metric], column, rows[0])
        for column, rows in columns.items()
        if rows and (rows[0].get(suite) or {}).get(metric) is not None
    ]
    if not candidates:
        return ""
    value, column, row = min(candidates, key=lambda candidate: candidate[0])
    overall = (results.get(suite) or {}).get(metric)
    comparison = f", against {format_percent(overall)} overall" if overall is not None else ""
    return (
        f"It fails most where {name(column)} is <strong>{name(str(row['value']))}</strong>: {label} "
        f"{format_percent(value)}{_interval(row[suite], metric)} over {pluralize(row['photos'], 'photo')} of "
        f"{pluralize(row['identities'], 'identity')}{comparison}."
    )


def _failing_identities(examples: Examples) -> str:
    if not examples.searched_identities:
        return ""
    searched = pluralize(examples.searched_identities, "identity")
    if not examples.failing:
        return f"It fails for no identity here: every photo of {searched} is nearest to one of its own identity."
    worst = [
        f"<strong>{name(failing.identity)}</strong> ({failing.missed} of {pluralize(failing.photos, 'photo')} are "
        f"nearest to another identity, most often {name(failing.confused_with)})"
        for failing in examples.failing[:2]
    ]
    return (
        f"It fails most for {' and '.join(worst)}; {examples.identities_without_miss:,} of {searched} "
        "are never confused."
    )


def _most_similar_negatives(examples: Examples) -> str:
    if examples.mistakes is None or not len(examples.mistakes.negatives):
        return "Where it fails is unknown, since neither retrieval nor verification was measured."
    pairs, table = examples.mistakes.negatives, examples.table
    left, right = (identity_name(table, int(table.labels[side[0]])) for side in (pairs.left, pairs.right))
    return (
        f"The most similar pair of different identities is <strong>{name(left)}</strong> and "
        f"<strong>{name(right)}</strong>, with a similarity of {pairs.similarity[0]:.3f}."
    )


def _interval(metrics: Mapping[str, Any], path: str) -> str:
    interval = (metrics.get("interval") or {}).get(path)
    if not interval:
        return ""
    return f" (95 % interval {format_interval('share', interval)})"
