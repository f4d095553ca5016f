"""The results of an evaluation as HTML for notebooks: the most important metrics with their intervals."""

import math
from typing import Any

from familiar.core.html import HtmlTable, page_fragment, text
from familiar.core.plural import pluralize
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
_WIDTH, _HEIGHT, _LEFT, _BOTTOM = 300, 190, 44, 34  # of the chart, in CSS pixels


def results_html(results: Any) -> str:
    """Return the model, the data, the headline figures, and the verification rates as a chart."""
    model, data = results.model, results.data
    table = HtmlTable(("suite", "metric", "value", f"{100 * results.interval.confidence:.0f} % interval"), (2, 3))
    for path in HEADLINES:
        if (value := results.number(path)) is not None:
            interval = results.figures[path].interval
            shown = "–" if interval is None else format_interval(path, interval)
            # `text` would show a no-break space as an escape: to it, it is a control character.
            cells = (path.partition(".")[0], find_label(path).name, format_figure(path, value), shown)
            table.add(*(cell.replace("\u00a0", " ") for cell in cells))
    other = [name for name in results.suites if not any(path.startswith(f"{name}.") for path in HEADLINES)]
    reasons = "".join(f"<p><small>{text(name)}: {text(reason)}</small></p>" for name, reason in results.reasons.items())
    photos = f"{pluralize(data.photos, 'photo')} of {pluralize(data.identities, 'identity')} ({text(data.split)})"
    return page_fragment(
        f"<p><b>Evaluation of {text(model.network)}</b>, recipe {text(model.recipe)}, {model.embedding_dim} "
        f"components, on {photos} from {text(', '.join(data.sources))}, compared {model.comparison}</p>",
        table.html if table.rows else "",
        _chart(results),
        f"<p><small>also: {text(', '.join(other))}; <code>to_pandas()</code> has all metrics</small></p>"
        if other
        else "",
        reasons,
    )


def _chart(results: Any) -> str:
    """Draw the rate of true accepts over that of false accepts, with the intervals, as far as the results have them."""
    rates = {far: results.number(f"verification.tar_at_far.{far}") for far in FARS}
    points = sorted((math.log10(float(far)), far, tar) for far, tar in rates.items() if tar is not None)
    if len(points) < 2:
        return ""
    low, high = points[0][0], points[-1][0]

    def x(log_far: float) -> float:
        return _LEFT + 12 + (log_far - low) / (high - low) * (_WIDTH - _LEFT - 36)

    def y(tar: float) -> float:
        return 10 + (1 - tar) * (_HEIGHT - _BOTTOM - 10)

    parts = [_line(_LEFT, y(tar), _WIDTH - 8, y(tar), 0.2) + _label(_LEFT - 6, y(tar) + 4, f"{100 * tar:.0f} %", "end")
             for tar in (0.0, 0.5, 1.0)]  # fmt: skip
    for log_far, far, tar in points:
        interval = results.figures[f"verification.tar_at_far.{far}"].interval
        if interval is not None:
            parts.append(_line(x(log_far), y(interval[0]), x(log_far), y(interval[1]), 0.8))
        parts.append(f'<circle cx="{x(log_far):.1f}" cy="{y(tar):.1f}" r="3.5" fill="#3b82c4"/>')
        parts.append(_label(x(log_far), _HEIGHT - _BOTTOM + 16, f"{100 * 10**log_far:.3g} %", "middle"))
    corners = " ".join(f"{x(log_far):.1f},{y(tar):.1f}" for log_far, _, tar in points)
    parts.append(f'<polyline points="{corners}" fill="none" stroke="#3b82c4" stroke-width="2"/>')
    caption = "true accept rate over the false accept rate, with intervals"
    parts.append(_label(_WIDTH / 2, _HEIGHT - 3, "false accept rate", "middle"))
    return (
        f"<p><small>{caption}</small></p>"
        f'<svg width="{_WIDTH}" height="{_HEIGHT}" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" '
        f'aria-label="{caption}"><title>{caption}</title>{"".join(parts)}</svg>'
    )


def _line(x1: float, y1: float, x2: float, y2: float, opacity: float) -> str:
    ends = f'x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"'
    return f'<line {ends} stroke="currentColor" stroke-width="1.5" opacity="{opacity}"/>'


def _label(x: float, y: float, content: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="11" fill="currentColor">{content}</text>'
