"""The report of an evaluation: one page that needs no other file, and its pictures as PNG beside it."""

from pathlib import Path
from typing import Any

from familiar.core.files import write_atomically
from familiar.evaluation.context import EvaluationContext
from familiar.evaluation.plots.photos import sheet
from familiar.evaluation.report.charts import draw_charts
from familiar.evaluation.report.examples import Evidence, gather
from familiar.evaluation.report.page import render
from familiar.evaluation.report.photos import mistake_sheet, neighbor_sheet
from familiar.evaluation.verification_pairs import ScoredPairs


def write_report(
    folder: Path, results: dict[str, Any], measured: EvaluationContext, judged: ScoredPairs | None
) -> Path:
    """Write page and pictures into `folder` (made if missing); the path of the page.

    `results` is the whole of `eval_results.json`; `judged` None where there were no pairs of both kinds.
    """
    folder.mkdir(parents=True, exist_ok=True)
    evidence = gather(measured, results)
    drawn = draw_charts(results, measured, judged)
    pictures = {key: one.chart.light for key, one in drawn.items()} | _sheets(evidence)
    for key, picture in pictures.items():
        write_atomically(folder / f"{key}.png", picture)
    # A file's name may hold bytes that are no UTF-8; whatever slipped through unescaped must not stop the page.
    page = render(results, evidence, drawn).encode("utf-8", "backslashreplace")
    write_atomically(folder / "report.html", page)
    return folder / "report.html"


def _sheets(evidence: Evidence) -> dict[str, bytes]:
    sheets: dict[str, bytes] = {}
    if evidence.neighbors is not None:
        sheets["neighbors"] = sheet(neighbor_sheet(evidence))
    if evidence.mistakes is not None:
        for key in ("strangers", "selves"):
            if len(pairs := getattr(evidence.mistakes, key)):
                sheets[key] = sheet(mistake_sheet(evidence, pairs))
    return sheets
