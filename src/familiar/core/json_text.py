"""Parsing of JSON that may come from anybody."""

import json
from typing import Any

MAX_DEPTH = 100  # of lists and objects in each other; ours have less than ten


def parse_json(text: str | bytes) -> Any:
    """Parse JSON. Whatever is wrong with it is a ValueError, also a nesting that is deeper than anybody's stack.

    Args:
        text: the document; bytes are UTF-8, UTF-16 or UTF-32.

    Raises:
        ValueError: it is not JSON, nested more than `MAX_DEPTH` deep, or has an integer of thousands of digits.

    >>> parse_json("[" * 100_000)
    Traceback (most recent call last):
    ...
    ValueError: it is nested too deeply
    """
    try:
        document = json.loads(text)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    if _is_deep(document):
        raise ValueError("it is nested too deeply")
    return document


def _is_deep(document: Any) -> bool:
    """Whether a document is nested more than `MAX_DEPTH` deep, level by level, so that its depth is no matter here."""
    containers = [document]
    for _ in range(MAX_DEPTH + 1):
        children = (
            child
            for each in containers
            if isinstance(each, dict | list)
            for child in (each.values() if isinstance(each, dict) else each)
        )
        containers = [child for child in children if isinstance(child, dict | list)]
        if not containers:
            return False
    return True
