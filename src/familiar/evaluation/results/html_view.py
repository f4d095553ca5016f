"""The results of an evaluation as HTML for notebooks: the most important metrics with their intervals."""

import math
from operator import itemgetter
from pathlib import Path
from typing import Any

from familiar.core.notebook import notebook_html
from familiar.evaluation.results.labels import find_label, format_figure, format_interval
from familiar.metrics.verification import FARS

HEADLINES = (
    "retrieval.recall_at_1",
    "retrieval.recall_at_5",
    "retrieval.map_at_r",
    "verification.auc",
    "verification.eer",
    "verification.best_accuracy",
    "verification.at_bundle_thresholds.balanced.accuracy",
    "verification.tar_at_far.1e-2",
    "verification.tar_at_far.1e-3",
    "verification.tar_at_far.1e-4",
    "identification.rank_1",
    "identification.dir_at_far.1e-1",
    "identification.dir_at_far.1e-2",
    "clustering.groups.bcubed.f",
    "clustering.groups.ari",
    "clustering.kmeans.nmi",
    "separation.d_prime",
    "separation.silhouette",
    "triplets.violation_rate",
    "overfitting.gap",
    "tta.flip.recall_at_1_gain",
    "lfw.view_2.accuracy",
    "lfw.view_1.accuracy",
)
TEMPLATES = Path(__file__).parent / "templates"


def results_html(results: Any) -> str:
    """Return the model, the data, the headline figures, and the verification rates as a chart."""
    rows: list[tuple[str, ...]] = []
    for path in HEADLINES:
        if (value := results.number(path)) is not None:
            interval = results.figures[path].interval
            ends = "–" if interval is None else format_interval(path, interval)
            cells = (path.partition(".")[0], find_label(path).name, format_figure(path, value), ends)
            # `short` would show a no-break space as an escape: to it, it is a control character.
            rows.append(tuple(cell.replace("\u00a0", " ") for cell in cells))
    other = [name for name in results.suites if not any(path.startswith(f"{name}.") for path in HEADLINES)]
    return notebook_html(TEMPLATES, "results.html", results=results, rows=rows, other=other, points=_points(results))


def _points(results: Any) -> list[dict[str, Any]]:
    """Return the rates of true accepts by that of false accepts in px of the chart; none if there are fewer than two.

    `x` and `y`: of the point. `low` and `high`: y of the ends of its interval. `far`: the rate of false accepts.
    """
    figures = [(float(far), results.figures.get(f"verification.tar_at_far.{far}")) for far in FARS]
    points = sorted(
        ((math.log10(far), figure) for far, figure in figures if figure and figure.value is not None), key=itemgetter(0)
    )
    if len(points) < 2:
        return []
    first, last = points[0][0], points[-1][0]

    def y(tar: float | None) -> float | None:
        return None if tar is None else round(10 + (1 - tar) * 146, 1)

    return [
        {
            "x": round(56 + (log_far - first) / (last - first) * 220, 1),
            "y": y(figure.value),
            "low": y(figure.low),
            "high": y(figure.high),
            "far": f"{100 * 10**log_far:.3g} %",
        }
        for log_far, figure in points
    ]
