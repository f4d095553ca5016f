"""Render the templates of the report: `templates/*.html`."""

import base64
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from familiar.core.plural import pluralize
from familiar.core.terminal_text import printable
from familiar.evaluation.missing import missing_reason
from familiar.evaluation.results.labels import describe_metric, format_interval, format_metric, format_percent
from familiar.evaluation.results.paths import metric_at


def render_template(name: str, **values: Any) -> Markup:
    """Render a template to markup, in which every value is escaped but markup."""
    return Markup(_ENVIRONMENT.get_template(name).render(values).strip())


def metric_or_none(metrics: Any, path: str) -> Any:
    """Return the value at a dotted path, as `metric_at`; None if there is none."""
    try:
        return metric_at(metrics, path)
    except KeyError:
        return None


def _make_environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "base64": lambda content: base64.b64encode(content).decode(),
        "percent": format_percent,
        "pluralize": pluralize,
        "printable": printable,
    }
    environment.globals |= {
        "describe_metric": describe_metric,
        "format_interval": format_interval,
        "format_metric": format_metric,
        "metric_or_none": metric_or_none,
        "missing_reason": missing_reason,
    }
    return environment


_ENVIRONMENT = _make_environment()
