"""Parsing of JSON that may come from anybody."""

import json
from collections.abc import Iterable
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
    values: list[Any] = [document]
    for _ in range(MAX_DEPTH + 1):
        containers: list[Any] = [value for value in values if isinstance(value, dict | list)]
        values = [child for container in containers for child in _children(container)]
        if not values:
            return False
    return True


def _children(container: dict[str, Any] | list[Any]) -> Iterable[Any]:
    return container.values() if isinstance(container, dict) else container
