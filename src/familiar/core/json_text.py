"""Parsing of JSON that may come from anybody."""

import json
from typing import Any


def parse_json(text: str | bytes) -> Any:
    """Parse JSON. Whatever is wrong with it is a ValueError, also a nesting that is deeper than Python's stack.

    Args:
        text: the document; bytes are UTF-8, UTF-16 or UTF-32.

    Raises:
        ValueError: it is not JSON, nested too deeply, or has a number of thousands of digits.

    >>> parse_json("[" * 100_000)
    Traceback (most recent call last):
    ...
    ValueError: it is nested too deeply
    """
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
