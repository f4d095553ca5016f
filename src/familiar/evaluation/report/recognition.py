"""Sections on telling individuals apart: tables of the suites, and where their charts go."""

from collections.abc import Mapping
from html import escape
from typing import Any

from familiar.evaluation.report.charts import side_by_side
from familiar.evaluation.report.examples import Evidence
from familiar.evaluation.report.labels import counted
from familiar.evaluation.report.tables import absent, cell, figures, grid, label, name, others
from familiar.evaluation.verification_pairs import THRESHOLDS

RETRIEVAL = ("recall_at_1", "recall_at_5", "recall_at_10", "mrr", "ndcg_at_10", "map_at_r")
VERIFICATION = (
    "auc",
    "eer",
    "at_bundle_thresholds.balanced.accuracy",
    "best_accuracy",
    "best_accuracy_threshold",
    "best_accuracy_as_listed",
    "average_precision",
    "spearman",
    "tar_at_far.1e-2",
    "tar_at_far.1e-3",
    "tar_at_far.1e-4",
)
WHICH_PAIRS = {
    "all": "every pair there is",
    "listed": "the pairs of the file given",
    "balanced": "drawn, half of each kind",
    "natural": "drawn as they come",
}

Found = Mapping[str, Any]
Charts = Mapping[str, str]


def retrieval(results: Found, evidence: Evidence, _: Charts) -> str:
    found = results["retrieval"]
    gallery = found.get("query_gallery") or {}
    headings = ["", "among all other photos", "among half of them"] if gallery else ["", "measured"]
    rows = [
        [
            label(key),
            *(cell(key, side.get(key), (side.get("interval") or {}).get(key)) for side in (found, gallery) if side),
        ]
        for key in (*RETRIEVAL, "queries", "queries_without_match")
        if key in found
    ]
    failing = [
        [
            name(one.identity),
            f"{one.missed:,} of {one.photos:,}",
            name(one.taken_for),
        ]
        for one in evidence.failing
    ]
    hardest = (
        f"<h3>Who is mistaken most</h3><p>{evidence.faultless:,} of {counted(evidence.searched, 'identity')} never "
        f"are. First come those of whom so many misses are least likely to be chance.</p>"
        f"{grid('Who is mistaken most', ['', 'photos that find a stranger first', 'taken for'], failing)}"
        if failing
        else ""
    )
    half = (
        "<p>Against half: half of each identity's photos, drawn by lot, are the gallery, the others are searched "
        "for.</p>"
        if gallery
        else ""
    )
    return (
        grid("Retrieval", headings, rows)
        + half
        + hardest
        + others(found, *RETRIEVAL, "queries", "queries_without_match", "query_gallery")
    )


def verification(results: Found, _: Evidence, drawn: Charts) -> str:
    found = results["verification"]
    pairs = (
        f"<p>{found['same_pairs']:,} pairs of one individual and {found['different_pairs']:,} of strangers: "
        f"{WHICH_PAIRS.get(found['pairs'], escape(str(found['pairs'])))}.</p>"
    )
    known = (*VERIFICATION, "pairs", "same_pairs", "different_pairs", "eer_threshold", "at_bundle_thresholds")
    rest = others(found, *known, "thresholds_fitted", "probability", "tar_at_far")
    return (
        pairs
        + figures("Verification", found, VERIFICATION)
        + rest
        + side_by_side(drawn, "similarity", "accuracy", "roc", "det")
    )


def thresholds(results: Found, _: Evidence, drawn: Charts) -> str:
    found = results.get("verification")
    if not found:
        return ""
    rows: list[list[str]] = []
    for key in THRESHOLDS:
        at = found["at_bundle_thresholds"][key]
        promised = at["promised"]
        rows.append(
            [
                key.replace("_", " "),
                cell("similarity_drop", at["similarity"]),
                *(
                    f"{cell(rate, at[rate])}<small>promised: {cell(rate, promised[rate])}</small>"
                    for rate in ("far", "tar")
                ),
                cell("accuracy", at["accuracy"]),
            ]
        )
    fitted = (
        ""
        if found["thresholds_fitted"]
        else '<p class="absent">Nothing was fitted at export: these are the fixed thresholds, which know nothing of '
        "this model.</p>"
    )
    headings = ["", "similarity", "strangers accepted", "same accepted", "accuracy"]
    best = (
        f"<p>On these very pairs errors are equal at {found['eer_threshold']:.3f} and accuracy is best at "
        f"{found['best_accuracy_threshold']:.3f}: to compare with, not to set, for they were chosen knowing the "
        "answers.</p>"
    )
    return (
        fitted
        + grid("The bundle's thresholds here", headings, rows)
        + best
        + _probability(found.get("probability"), drawn)
    )


def _probability(found: Found | None, drawn: Charts) -> str:
    if found is None:
        reason = "The bundle says no probability, since nothing was fitted at its export."
        return f'<h3>Probability</h3><p class="absent">{reason}</p>'
    table = figures("Probability", found, ["calibration_error", "promised_error"])
    return f'<h3>Probability</h3><div class="charts"><div>{table}</div>{drawn.get("reliability", "")}</div>'


def identification(results: Found, _: Evidence, __: Charts) -> str:
    found = results["identification"]
    keys = ["rank_1", "rank_5", "rank_10", "dir_at_far.1e-1", "dir_at_far.1e-2", "dir_at_far.1e-3"]
    keys += ["enrolled_identities", "enrolled_photos_each", "known_probes", "unknown_probes"]
    at = found.get("at_bundle_thresholds") or {}
    rows = [
        [
            key.replace("_", " "),
            *(cell(one, point.get(one)) for one in ("similarity", "dir", "misnamed", "refused", "far")),
        ]
        for key, point in at.items()
        if isinstance(point, Mapping)
    ]
    headings = [
        "threshold",
        "similarity",
        "known, named rightly",
        "as another",
        "as nobody",
        "unknown, named",
    ]
    table = f"<h3>At the bundle's thresholds</h3>{grid('At the thresholds', headings, rows)}" if rows else ""
    return figures("Identification", found, keys) + table + others(found, *keys, "at_bundle_thresholds", "dir_at_far")


def lfw(results: Found, _: Evidence, __: Charts) -> str:
    found = results["lfw"]
    said: list[str] = []
    titles = {"view_2": "View 2, to report by: ten folds", "view_1": "View 1, to choose a model by"}
    for key, title in titles.items():
        part = found.get(key)
        body = (
            absent((found.get("reasons") or {}).get(key, "not there"))
            if part is None
            else figures(title, part, ("accuracy", "standard_error", "threshold", "auc", "pairs"))
        )
        said.append(f"<h3>{title}</h3>{body}")
        if part and part.get("folds"):
            rows = [
                [f"{place}", cell("accuracy", fold["accuracy"]), cell("threshold", fold["threshold"])]
                for place, fold in enumerate(part["folds"], start=1)
            ]
            table = grid("Folds", ["fold", "accuracy", "threshold, from the other nine"], rows)
            said.append(f"<details><summary>Each fold</summary>{table}</details>")
    return "".join(said)


def triplets(results: Found, _: Evidence, __: Charts) -> str:
    found = results["triplets"]
    keys = ("violation_rate", "average_margin", "triplets")
    which = {"all": "Every triplet there is.", "sampled": "Drawn by lot."}.get(found.get("which"), "")
    return f"<p>{which}</p>" + figures("Triplets", found, keys) + others(found, *keys, "which")
