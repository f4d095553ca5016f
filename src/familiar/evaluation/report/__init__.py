"""The report of an evaluation: one self-contained HTML page, and its pictures as PNG files."""

from pathlib import Path

from familiar.core.files import make_folder, write_atomically
from familiar.evaluation.context import EvaluationContext
from familiar.evaluation.plots.photos import contact_sheet
from familiar.evaluation.report.charts import draw_charts
from familiar.evaluation.report.examples import Examples, collect_examples
from familiar.evaluation.report.page import render
from familiar.evaluation.results import EvaluationResults


def write_report(folder: Path, results: EvaluationResults, context: EvaluationContext) -> Path:
    """Write `report.html` and its pictures.

    Args:
        folder: where to write; created if missing.
        results: what the page shows.
        context: the embedded photos.

    Returns:
        The path of the page.
    """
    make_folder(folder)
    examples = collect_examples(context, results)
    charts = draw_charts(results, context)
    pictures = {key: chart.light for key, chart in charts.items()} | _contact_sheets(examples)
    for key, picture in pictures.items():
        write_atomically(folder / f"{key}.png", picture)
    # The name of a file may hold bytes that are not UTF-8; one that was not escaped must not stop the page.
    page = render(results, examples, charts).encode("utf-8", "backslashreplace")
    write_atomically(folder / "report.html", page)
    return folder / "report.html"


def _contact_sheets(examples: Examples) -> dict[str, bytes]:
    # The names of the PNG files, unchanged since the first reports.
    sheets = {"neighbors": examples.neighbors}
    for key, mistakes in (("strangers", examples.negatives), ("selves", examples.positives)):
        tiles = [tile for mistake in mistakes or () for tile in (mistake.left, mistake.right)]
        sheets[key] = [tiles[start : start + 4] for start in range(0, len(tiles), 4)]  # two pairs in a row
    return {key: contact_sheet(rows) for key, rows in sheets.items() if rows}
