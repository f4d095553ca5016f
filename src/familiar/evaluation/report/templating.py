"""Render the templates of the report: `templates/*.html`."""

from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment
from markupsafe import Markup

from familiar.core.templating import template_environment
from familiar.evaluation.plots.photos import SIGNS, jpeg
from familiar.evaluation.results.labels import find_label, format_figure, format_interval, format_percent
from familiar.evaluation.verification_pairs import THRESHOLDS


def render_template(name: str, **values: Any) -> Markup:
    """Render a template to markup, in which every value is escaped but markup."""
    return Markup(_environment().get_template(name).render(values).strip())


@cache
def _environment() -> Environment:
    environment = template_environment(Path(__file__).parent / "templates")
    environment.filters |= {
        "extract": lambda key, container: container[key],
        "jpeg": jpeg,
        "percent": format_percent,
        "prefixed": lambda text, start: f"{start}{text}",
    }
    environment.globals |= {
        "MAX_LISTED": 50,
        "SIGNS": SIGNS,
        "THRESHOLDS": THRESHOLDS,
        "find_label": find_label,
        "format_figure": format_figure,
        "format_interval": format_interval,
    }
    return environment
