"""HTML from templates, in which every value is escaped."""

from __future__ import annotations

import base64
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from familiar.core.plural import pluralize
from familiar.core.terminal_text import printable

if TYPE_CHECKING:  # takes .05 s to import, which most commands do not need
    from jinja2 import Environment
    from markupsafe import Markup

_MAX_LETTERS = 120  # of a name or a path: longer ones would hide everything else


@cache
def template_environment(folder: Path) -> Environment:
    """Make the environment of the templates in a folder, which may import those of this package.

    Args:
        folder: of the templates.
    """
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader([folder, Path(__file__).parent / "templates"]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {  # pyright: ignore[reportUnknownMemberType]
        "base64": _base64,
        "pluralize": pluralize,
        "printable": printable,
        "short": _short,
    }
    return environment


def render_template(folder: Path, name: str, /, **values: Any) -> Markup:
    """Render a template to markup.

    Args:
        folder: of the templates.
        name: of the template's file.
        values: by the names that the template has for them; all are escaped but markup.
    """
    from markupsafe import Markup

    return Markup(template_environment(folder).get_template(name).render(values).strip())


def _base64(content: bytes) -> str:
    return base64.b64encode(content).decode()


def _short(text: str) -> str:
    """Shorten any text, and show characters that would change what is around it."""
    return printable(text if len(text) <= _MAX_LETTERS else f"{text[: _MAX_LETTERS - 1]}…")
