"""An evaluation as a folder: `eval_results.json`, the pictures, and one page that holds it all."""

import base64
import json
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from familiar.core.files import write_atomically
from familiar.datasets.folders import open_photo
from familiar.evaluation.plots import example_queries, neighbour_picture, roc_picture, similarity_picture
from familiar.evaluation.suites import SEED, Measured, Verified
from familiar.faces.detect import Detector
from familiar.faces.embedder import crop_photo
from familiar.neighbors.exact import nearest

QUERIES, NEIGHBOURS = 10, 5

CAPTIONS = {
    "similarity.png": "Similarity of pairs. The further the two hills stand apart, the better; dashed lines are "
    "the bundle's thresholds.",
    "roc.png": "How many pairs of the same individual are accepted, for a given share of strangers accepted.",
    "neighbours.png": "Photos and their nearest others: green is the same individual, red another.",
}


def write_report(
    folder: Path,
    results: dict[str, Any],
    measured: Measured,
    verified: Verified | None,
    detector: Detector | None = None,
) -> Path:
    """Write everything into `folder` (made if missing); the path of the page, which needs no other file."""
    folder.mkdir(parents=True, exist_ok=True)
    pictures: dict[str, bytes] = {}
    if verified is not None:
        calibration = measured.embedder.metadata.calibration
        pictures["similarity.png"] = similarity_picture(verified.scores, verified.pairs.same, calibration)
        pictures["roc.png"] = roc_picture(verified.counts)
    if len(measured.table) > 1 and measured.table.photos_per_identity.max() > 1:
        pictures["neighbours.png"] = _neighbours(measured, detector)
    for name, picture in pictures.items():
        write_atomically(folder / name, picture)
    text = json.dumps(results, indent=1, ensure_ascii=False, allow_nan=False)
    write_atomically(folder / "eval_results.json", text.encode("utf-8", "backslashreplace"))
    write_atomically(folder / "report.html", render(results, pictures).encode("utf-8", "backslashreplace"))
    return folder / "report.html"


def render(results: dict[str, Any], pictures: dict[str, bytes]) -> str:
    """The page, its pictures inside."""
    data, model = results["data"], results["model"]
    sections = [_warnings(results), _verification(results), _retrieval(results)]
    for name, picture in pictures.items():
        encoded = base64.b64encode(picture).decode()
        sections.append(
            f'<figure><img src="data:image/png;base64,{encoded}" alt="{escape(CAPTIONS[name])}">'
            f"<figcaption>{escape(CAPTIONS[name])}</figcaption></figure>"
        )
    if data["skipped"]:
        listed = "".join(f"<li>{escape(reason)}</li>" for reason in data["skipped"][:50])
        sections.append(f"<h2>Left out</h2><p>{len(data['skipped'])} photos:</p><ul>{listed}</ul>")
    facts = (
        f"{escape(model['network'])}, {model['embedding_dim']}-d, {model['size_bytes'] / 1e6:.2f} MB, on "
        f"{data['photos']:,} photos of {data['identities']:,} identities ({escape(data['split'])} of "
        f"{escape(', '.join(data['sources']))})"
    )
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>familiar: evaluation</title><style>{_STYLE}</style>"
        f"<main><h1>How well it tells individuals apart</h1><p>{facts}</p>{''.join(sections)}"
        f"<footer>Intervals: 95 %, identities resampled {results['interval']['replicates']} times, seed "
        f"{results['interval']['seed']}. Model {escape(model['file_id'][:16])}, space "
        f"{escape(model['space_id'][:16])}.</footer></main></html>"
    )


def _warnings(results: dict[str, Any]) -> str:
    seen = results["data"]["identities_seen_in_training"]
    notes = [f"{suite} could not be computed: {reason}" for suite, reason in results["reasons"].items()]
    if seen:
        notes.append(f"{seen} of these identities were trained on: the figures flatter the model")
    return "".join(f'<p class="warning">{escape(note)}.</p>' for note in notes)


def _verification(results: dict[str, Any]) -> str:
    found = results.get("verification")
    if not found:
        return ""
    interval = found["interval"]
    rows = [
        ("ROC AUC", found["auc"], interval.get("auc")),
        ("equal error rate", found["eer"], interval.get("eer")),
        (
            "best accuracy (threshold chosen on these pairs)",
            found["best_accuracy"],
            interval.get("best_accuracy"),
        ),
        (
            "accuracy at the bundle's balanced threshold",
            found["at_bundle_thresholds"]["balanced"]["accuracy"],
            interval.get("accuracy_at_balanced"),
        ),
        ("PR AUC (average precision)", found["average_precision"], interval.get("average_precision")),
        *(
            (f"true accepts at {far} false accepts", tar, interval.get(f"tar_at_far_{far}"))
            for far, tar in found["tar_at_far"].items()
        ),
    ]
    thresholds = "".join(
        f"<tr><td>{escape(name.replace('_', ' '))}</td><td>{at['similarity']:.3f}</td>"
        f"<td>{at['far']:.2%} (promised {at['promised']['far']:.2%})</td>"
        f"<td>{at['tar']:.2%} (promised {at['promised']['tar']:.2%})</td></tr>"
        for name, at in found["at_bundle_thresholds"].items()
    )
    pairs = (
        f"{found['same_pairs']:,} same and {found['different_pairs']:,} different pairs ({found['pairs']})"
    )
    return (
        f"<h2>Same or different?</h2><p>{pairs}.</p>{_table(rows)}"
        "<h2>The bundle's thresholds here</h2><table><tr><th>threshold</th><th>similarity</th>"
        f"<th>strangers accepted</th><th>same accepted</th></tr>{thresholds}</table>"
    )


def _retrieval(results: dict[str, Any]) -> str:
    found = results.get("retrieval")
    if not found:
        return ""
    names = {"recall_at_1": "recall@1", "recall_at_5": "recall@5", "recall_at_10": "recall@10", "mrr": "MRR"}
    names["ndcg_at_10"] = "NDCG@10"
    rows = [(label, found[name], found["interval"].get(name)) for name, label in names.items()]
    left_out = f"; {found['queries_without_match']:,} without another photo left out"
    return f"<h2>Who is nearest?</h2><p>{found['queries']:,} queries{left_out}.</p>{_table(rows)}"


def _table(rows: list[tuple[str, float | None, tuple[float, float] | None]]) -> str:
    body = "".join(
        f"<tr><td>{escape(name)}</td><td>{'too few pairs' if value is None else f'{value:.4f}'}</td>"
        f"<td>{'' if interval is None else f'{interval[0]:.4f} to {interval[1]:.4f}'}</td></tr>"
        for name, value, interval in rows
    )
    return f"<table><tr><th></th><th>measured</th><th>95 % interval</th></tr>{body}</table>"


def _neighbours(measured: Measured, detector: Detector | None) -> bytes:
    table, preprocessing = measured.table, measured.embedder.metadata.preprocessing
    queries = example_queries(table.labels, QUERIES, SEED)
    found, similarities = nearest(measured.embeddings, min(NEIGHBOURS, len(table) - 1), queries)

    def crop(row: int) -> np.ndarray:
        return crop_photo(table.photos[row], preprocessing, detector, open_photo=open_photo).rgb_u8

    return neighbour_picture(
        [crop(int(row)) for row in queries],
        [[crop(int(row)) for row in rows] for rows in found],
        similarities,
        table.labels[found] == table.labels[queries][:, None],
    )


_STYLE = """
:root { color-scheme: light dark; --line: #8884; --warning: #b4530922; }
body { font: 16px/1.5 system-ui, sans-serif; margin: 0; }
main { max-width: 60rem; margin: auto; padding: 1rem; }
table { border-collapse: collapse; width: 100%; margin: .5rem 0 1.5rem; font-variant-numeric: tabular-nums; }
th, td { text-align: left; padding: .3rem .6rem; border-bottom: 1px solid var(--line); }
figure { margin: 1.5rem 0; } img { max-width: 100%; border-radius: 6px; background: white; }
figcaption, footer { font-size: .875rem; opacity: .8; }
.warning { background: var(--warning); padding: .5rem .75rem; border-radius: 6px; }
"""
