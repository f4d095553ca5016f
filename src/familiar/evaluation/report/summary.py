"""Three sentences: how good is it, on whom does it fail, which threshold to set."""

from collections.abc import Mapping
from typing import Any

from familiar.evaluation.report.examples import Evidence, identity_name
from familiar.evaluation.report.labels import counted, percent
from familiar.evaluation.report.tables import between, name

FEW_IDENTITIES = 50
NO_INTERVAL = 10  # below so many identities nothing is resampled
MOVED = 2.0  # a false accept rate that is this many times the promised one, or a fraction, did not travel
LOST_TAR = 0.05
TELLING = 10  # pairs accepted wrongly: fewer say little about a rate


def verdict(results: Mapping[str, Any], evidence: Evidence) -> list[str]:
    """Markup of the three sentences."""
    return [how_good(results), on_whom(results, evidence), which_threshold(results)]


def how_good(results: Mapping[str, Any]) -> str:
    """Recall@1 and ROC AUC in words, and the one thing that most limits what they say."""
    retrieval, verification = results.get("retrieval"), results.get("verification")
    parts: list[str] = []
    if retrieval and retrieval["recall_at_1"] is not None:
        recall = retrieval["recall_at_1"]
        parts.append(
            f"<strong>{percent(recall)}</strong> of the photos find another of the same individual first"
            f"{_interval(retrieval, 'recall_at_1')}"
        )
    if verification:
        parts.append(
            f"a pair of one individual is more similar than a pair of strangers "
            f"<strong>{percent(verification['auc'])}</strong> of the time{_interval(verification, 'auc')}"
        )
    caveat = next((clause for clause, _ in _caveats(results)), "") if parts else ""
    said = ", and ".join(parts) or "Neither retrieval nor verification was measured"
    return f"{said[0].upper()}{said[1:]}{caveat}."


def on_whom(results: Mapping[str, Any], evidence: Evidence) -> str:
    """The worst slice where slices were asked for, else the individuals that miss most, else the closest strangers."""
    return _worst_slice(results) or _failing(evidence) or _closest(evidence)


def which_threshold(results: Mapping[str, Any]) -> str:
    """The balanced threshold, what it does here beside what it promised, and the strict one."""
    found = results.get("verification")
    if not found:
        return "Which threshold to set cannot be said, since no pairs were judged."
    balanced, strict = (found["at_bundle_thresholds"][one] for one in ("balanced", "high_precision"))
    here = f"accepts {percent(balanced['tar'])} of the same and {percent(balanced['far'])} of the strangers here"
    if not found["thresholds_fitted"]:
        return (
            "No threshold was ever fitted for this model: the fixed "
            f"<strong>{balanced['similarity']:.3f}</strong> {here}, where errors are equal at "
            f"{found['eer_threshold']:.3f}; export the model with validation identities, or fit one on photos of "
            "your own."
        )
    if moved := has_moved(balanced, found["different_pairs"]):
        return (
            f"The bundle's thresholds do not travel to these photos: its balanced {balanced['similarity']:.3f} "
            f"{here}, {moved}; errors are equal at <strong>{found['eer_threshold']:.3f}</strong>, but fit your own on "
            "other photos of this kind before you rely on it."
        )
    return (
        f"Set <strong>{balanced['similarity']:.3f}</strong> (balanced), which {here}, or "
        f"<strong>{strict['similarity']:.3f}</strong> (high precision) where taking strangers for one costs more: it "
        f"accepts {percent(strict['tar'])} and {percent(strict['far'])}."
    )


def has_moved(at: Mapping[str, Any], different_pairs: int) -> str:
    """How a threshold fares otherwise than promised; empty where it does as it said, or too little is known."""
    far, tar = at["promised"]["far"], at["promised"]["tar"]
    if far is None or tar is None:
        return ""
    accepted, expected = at["far"] * different_pairs, far * different_pairs
    if accepted >= TELLING and at["far"] > MOVED * far:
        return f"{at['far'] / far:.1f} times the strangers it promised" if far else "where it promised none of them"
    if tar - at["tar"] > LOST_TAR:
        return f"where it promised {percent(tar)} of the same"
    if expected >= TELLING and at["far"] < far / MOVED:
        return f"where it promised {percent(far)} of the strangers, so it is stricter than need be"
    return ""


def doubts(results: Mapping[str, Any]) -> list[str]:
    """Whatever else makes the figures worth less than they look; markup."""
    notes = [note for _, note in _caveats(results)[1:]]
    if results.get("leaks") is None:
        notes.append("Whether photos give the answer away was not checked.")
    if skipped := len(results["data"]["skipped"]):
        notes.append(f'{counted(skipped, "photo")} could <a href="#left-out">not be judged</a>.')
    for suite, reason in results["reasons"].items():
        why = name(reason.removeprefix(f"{suite}: "))
        notes.append(f"{name(suite)} could not be computed: {why}.")
    return notes


def _caveats(results: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What limits the figures, the gravest first: as a clause of the verdict, and as a sentence."""
    data, leaks = results["data"], results.get("leaks") or {}
    identities = counted(data["identities"], "identity")
    found: list[tuple[str, str]] = []
    if seen := data["identities_seen_in_training"]:
        found.append(
            (
                f", but {seen:,} of the {identities} were trained on, which flatters",
                f"{seen:,} of the {identities} were trained on: the figures flatter the model.",
            )
        )
    if chosen_by := data.get("identities_validated_on"):
        found.append(
            (
                f", but by {chosen_by:,} of the {identities} it was chosen, which flatters",
                f"Epoch and thresholds were chosen by {chosen_by:,} of the {identities}: that flatters, too.",
            )
        )
    leaking = len(leaks.get("across_splits") or ()) + len(leaks.get("across_identities") or ())
    if leaking and not leaks.get("excluded"):
        link = f'<a href="#leaks">{counted(leaking, "picture")}</a>'
        found.append((f", but {link} may give the answer away", f"{link} may give the answer away, and still count."))
    if data["identities"] < NO_INTERVAL:
        found.append(
            (
                f"; with {identities} that says nothing about others",
                f"{identities} are too few to say anything about others, so there are no intervals.",
            )
        )
    elif data["identities"] < FEW_IDENTITIES:
        found.append(
            (
                f"; with only {identities} take that as a rough figure",
                f"These are {identities} only; others may fare quite differently.",
            )
        )
    return found


def _worst_slice(results: Mapping[str, Any]) -> str:
    columns = (results.get("slices") or {}).get("columns") or {}
    suite, figure, said = "retrieval", "recall_at_1", "recall@1"
    worst = [
        (rows[0][suite][figure], column, rows[0])
        for column, rows in columns.items()
        if rows and (rows[0].get(suite) or {}).get(figure) is not None
    ]
    if not worst:
        return ""
    value, column, row = min(worst, key=lambda one: one[0])
    overall = (results.get(suite) or {}).get(figure)
    against = f", against {percent(overall)} of all" if overall is not None else ""
    return (
        f"It fails most where {name(column)} is <strong>{name(str(row['value']))}</strong>: {said} {percent(value)}"
        f"{_interval(row[suite], figure)} over {counted(row['photos'], 'photo')} of "
        f"{counted(row['identities'], 'identity')}{against}."
    )


def _failing(evidence: Evidence) -> str:
    if not evidence.searched:
        return ""
    if not evidence.failing:
        return f"It fails on nobody here: all photos of {counted(evidence.searched, 'identity')} find their own first."
    worst = [
        f"<strong>{name(one.identity)}</strong> ({one.missed} of {counted(one.photos, 'photo')} find a stranger "
        f"first, most often {name(one.taken_for)})"
        for one in evidence.failing[:2]
    ]
    return (
        f"It fails most on {' and '.join(worst)}; {evidence.faultless:,} of {counted(evidence.searched, 'identity')} "
        "are never mistaken."
    )


def _closest(evidence: Evidence) -> str:
    if evidence.mistakes is None or not len(evidence.mistakes.strangers):
        return "On whom it fails cannot be said from what was measured."
    pairs, table = evidence.mistakes.strangers, evidence.table
    left, right = (identity_name(table, int(table.labels[side[0]])) for side in (pairs.left, pairs.right))
    return (
        f"The two strangers it holds to be most alike are <strong>{name(left)}</strong> and "
        f"<strong>{name(right)}</strong>, at a similarity of {pairs.similarity[0]:.3f}."
    )


def _interval(found: Mapping[str, Any], path: str) -> str:
    interval = (found.get("interval") or {}).get(path)
    if not interval:
        return ""
    return f" (95 % interval {between('share', interval)})"
