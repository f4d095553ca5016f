"""Sections on what the figures hang on: photos, embedding length, whose photos; and how the embeddings lie."""

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from familiar.evaluation.report.charts import side_by_side
from familiar.evaluation.report.examples import Evidence
from familiar.evaluation.report.labels import counted
from familiar.evaluation.report.tables import absent, cell, figures, grid, label, name, others

Found = Mapping[str, Any]
Charts = Mapping[str, str]


def robustness(results: Found, _: Evidence, drawn: Charts) -> str:
    found = results["robustness"]
    rows: list[list[str]] = []
    for key, part in found["degradations"].items():
        severity = "" if part.get("severity") is None else f": {part['severity']:g}"
        interval = part.get("interval") or {}
        drops = (
            cell(one, part.get(one), interval.get(one)) for one in ("recall_at_1_drop", "auc_drop", "similarity_drop")
        )
        rows.append([f"{name(key.replace('_', ' '))}<small>{name(part.get('unit') or '')}{severity}</small>", *drops])
    clean = found["clean"]
    said = (
        f"<p>{counted(found['photos'], 'photo')}, each spoilt and searched for among the clean ones. Clean: recall@1 "
        f"{cell('recall_at_1', clean.get('recall_at_1'))}, ROC AUC {cell('auc', clean.get('auc'))}.</p>"
    )
    table = grid("Robustness", ["", "recall@1 lost", "AUC lost", "similarity lost"], rows)
    rest = others(found, "degradations", "sweeps", "clean", "photos", "identities")
    return said + table + rest + side_by_side(drawn, "robustness", "sweeps")


def tta(results: Found, _: Evidence, __: Charts) -> str:
    found = results["tta"]
    plain = found["plain"]
    headings = ["", "recall@1 gained", "AUC gained", "passes", "ms a photo"]
    ways = {key: part for key, part in found.items() if isinstance(part, Mapping) and "passes" in part}
    rows = [["the photo alone", "", "", "1", cell("ms_a_photo", plain.get("ms_a_photo"))]]
    for key, part in ways.items():
        interval = part.get("interval") or {}
        gained = [cell(one, part.get(one), interval.get(one)) for one in ("recall_at_1_gain", "auc_gain")]
        rows.append(
            [
                name(key.replace("_", " ")),
                *gained,
                cell("passes", part["passes"]),
                cell("ms_a_photo", part.get("ms_a_photo")),
            ]
        )
        by_source = part.get("by_source") or {}
        for source, own in by_source.items() if len(by_source) > 1 else ():
            interval = own.get("interval") or {}
            gained = [cell(one, own.get(one), interval.get(one)) for one in ("recall_at_1_gain", "auc_gain")]
            rows.append([f"<small>of {name(source)}, {counted(own['photos'], 'photo')}</small>", *gained, "", ""])
    rows[0][1:3] = [f"{cell(one, plain.get(one))}<small>as it is</small>" for one in ("recall_at_1", "auc")]
    return grid("Test-time augmentation", headings, rows) + others(found, "plain", "photos", "identities", *ways)


def harmonic(results: Found, _: Evidence, __: Charts) -> str:
    columns = [
        ("retrieval", "recall_at_1"),
        ("retrieval", "mrr"),
        ("verification", "auc"),
        ("verification", "eer"),
    ]
    rows = [
        [
            f"{part['components']:,}",
            cell("bytes", part.get("bytes")),
            cell("saved", part.get("saved")),
            *(
                cell(key, side.get(key), (side.get("interval") or {}).get(key))
                for suite, key in columns
                for side in [part.get(suite) or {}]
            ),
        ]
        for part in results["harmonic"]["prefixes"]
    ]
    return grid(
        "Prefixes",
        ["components", "bytes", "saved", *(label(key).partition("<")[0] for _, key in columns)],
        rows,
    )


def slices(results: Found, _: Evidence, drawn: Charts) -> str:
    return "".join(
        f"<h3>{name(column)}</h3>{_slice_table(column, rows)}{side_by_side(drawn, f'slices_{place}')}"
        for place, (column, rows) in enumerate(results["slices"]["columns"].items(), start=1)
    )


def _slice_table(column: str, rows: Sequence[Found]) -> str:
    columns = [
        (suite, key)
        for suite, key in (
            ("retrieval", "recall_at_1"),
            ("verification", "auc"),
            ("verification", "eer"),
            ("triplets", "violation_rate"),
        )
        if any(suite in row for row in rows)
    ]

    def measured(row: Found, suite: str, key: str) -> str:
        part = row.get(suite)
        if part is None:
            return absent(row.get("reasons", {}).get(suite, "not measured").removeprefix(f"{suite}: "))
        return cell(key, part.get(key), (part.get("interval") or {}).get(key))

    return grid(
        column,
        ["", "photos", "identities", *(label(key).partition("<")[0] for _, key in columns)],
        [
            [
                name(str(row["value"])),
                cell("photos", row["photos"]),
                cell("identities", row["identities"]),
                *(measured(row, suite, key) for suite, key in columns),
            ]
            for row in rows
        ],
    )


def overfitting(results: Found, _: Evidence, __: Charts) -> str:
    found = results["overfitting"]
    keys = ("train_recall_at_1", "test_recall_at_1", "gap", "identities", "photos_each", "draws")
    return figures("Overfitting", found, keys) + others(found, *keys)


def clustering(results: Found, _: Evidence, __: Charts) -> str:
    found = results["clustering"]
    groups, kmeans = found.get("groups") or {}, found.get("kmeans") or {}
    keys = ("nmi", "ami", "ari", "purity")
    rows = [[label(key), cell(key, groups.get(key)), cell(key, kmeans.get(key))] for key in keys]
    interval = found.get("interval") or {}
    kinds = [
        ("pairwise", "pairs", "of photos put together"),
        ("bcubed", "B-cubed", "as each photo sees its group"),
    ]
    parts = [
        [
            f"{title}<small>{note}</small>",
            *(
                cell(
                    f"groups.{kind}.{key}",
                    (groups.get(kind) or {}).get(key),
                    interval.get(f"groups.{kind}.{key}"),
                )
                for key in ("precision", "recall", "f")
            ),
        ]
        for kind, title, note in kinds
    ]
    said = (
        f"<p>Left to itself, at a similarity of {cell('threshold', groups.get('threshold'))} "
        f"({name(str(groups.get('threshold_from')))}), {cell('groups', groups.get('groups'))} groups were found where "
        f"there are {cell('identities', groups.get('identities'))} identities; k-means was told there are "
        f"{cell('k', kmeans.get('k'))}.</p>"
    )
    table = grid("Clustering", ["", "groups found", "k-means, told<br>their number"], rows)
    table += grid("Groups found", ["groups found, by", "precision", "recall", "F"], parts)
    return said + table + others(found, "groups", "kmeans")


def separation(results: Found, _: Evidence, __: Charts) -> str:
    found = results["separation"]
    keys = [
        "d_prime",
        "silhouette",
        "dunn.members",
        "dunn.centroids",
        "dunn.centroids_to_mean",
        "dunn.photos_dropped",
    ]
    sides = [("one individual", found.get("same") or {}), ("strangers", found.get("different") or {})]
    marks = list(dict.fromkeys(mark for _, side in sides for mark in (side.get("percentiles") or {})))
    rows = [
        [
            title,
            *(cell(one, side.get(one)) for one in ("mean", "std")),
            *(cell("mean", (side.get("percentiles") or {}).get(mark)) for mark in marks),
        ]
        for title, side in sides
    ]
    headings = ["similarity of", "mean", "std", *(f"{escape(mark)}&nbsp;%" for mark in marks)]
    return (
        figures("Separation", found, keys)
        + grid("Similarities", headings, rows)
        + others(found, *keys, "dunn", "same", "different", "photos", "identities")
    )
