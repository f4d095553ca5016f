"""Render the templates of the report: `templates/*.html`."""

import base64
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from familiar.core.plural import pluralize
from familiar.core.terminal_text import printable
from familiar.evaluation.results.labels import find_label, format_figure, format_interval, format_percent


def render_template(name: str, **values: Any) -> Markup:
    """Render a template to markup, in which every value is escaped but markup."""
    return Markup(_ENVIRONMENT.get_template(name).render(values).strip())


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
        "extract": lambda key, container: container[key],
        "percent": format_percent,
        "pluralize": pluralize,
        "prefixed": lambda text, start: f"{start}{text}",
        "printable": printable,
    }
    environment.globals |= {
        "find_label": find_label,
        "format_figure": format_figure,
        "format_interval": format_interval,
    }
    return environment


_ENVIRONMENT = _make_environment()
