"""A griffe extension for the documentation site: show the doctests of docstrings as code.

Python-Markdown would take their `>>>` for quotations.
"""

import re
from typing import Any

import griffe

DOCTEST = re.compile(r"^( *)>>> .*(?:\n\1\S.*)*", re.MULTILINE)


class DoctestBlocks(griffe.Extension):
    """Put a fence around each doctest."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Change the docstring of an object."""
        if obj.docstring is not None:
            obj.docstring.value = DOCTEST.sub(_fenced, obj.docstring.value)


def _fenced(match: re.Match[str]) -> str:
    return f"{match[1]}```pycon\n{match[0]}\n{match[1]}```"
