"""A griffe extension for the documentation site: doctests of docstrings as code, and default values of settings.

Python-Markdown would take a doctest's `>>>` for quotations.
"""

import re
from typing import Any

import griffe

DOCTEST = re.compile(r"^( *)>>> .*(?:\n\1\S.*)*", re.MULTILINE)


class SiteExtension(griffe.Extension):
    """Put a fence around each doctest, and show a setting's default instead of its declaration."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Change the docstring of an object."""
        if obj.docstring is not None:
            obj.docstring.value = DOCTEST.sub(_fenced, obj.docstring.value)

    def on_attribute_instance(self, *, attr: griffe.Attribute, **_: Any) -> None:
        """Replace `setting(0.2, 0, 4, "...")` by `0.2`, before griffe makes the signature of the dataclass."""
        value = attr.value
        if isinstance(value, griffe.ExprCall) and value.canonical_path == "familiar.core.settings.setting":
            attr.value = value.arguments[0]


def _fenced(match: re.Match[str]) -> str:
    return f"{match[1]}```pycon\n{match[0]}\n{match[1]}```"
