"""Pagination cursors: opaque to the client, valid for one list only."""

import base64
import json
from collections.abc import Callable, Sequence
from http import HTTPStatus
from typing import TypeVar

from familiar.core.field_types import LARGEST_NUMBER
from familiar.core.gallery_types import Page
from familiar.core.json_text import parse_json
from familiar.web.errors import HttpProblem

Item = TypeVar("Item")


def page(
    results: Sequence[Item], limit: int, list_name: str, position: Callable[[Item], tuple[int, ...]]
) -> Page[Item]:
    """Build a page.

    Args:
        results: read with a limit of one more than `limit`.
        list_name: identifies the list and its filters.
        position: returns the numbers from which the list continues after an item.
    """
    items = results[:limit]
    more = len(results) > limit
    return Page(tuple(items), _encode([list_name, *position(items[-1])]) if more else None)


def parse_cursor(cursor: str | None, list_name: str, count: int) -> tuple[int, ...] | None:
    """Return the `count` numbers of a cursor; None if there is no cursor.

    Raises:
        HttpProblem: 422, the cursor belongs to another list.
    """
    if cursor is None:
        return None
    values = _decode(cursor)
    if not (
        isinstance(values, list) and len(values) == 1 + count and values[0] == list_name and _all_numbers(values[1:])
    ):
        raise HttpProblem(
            HTTPStatus.UNPROCESSABLE_ENTITY,
            "invalid-cursor",
            "invalid cursor for this list; use `next` of its previous page, with the same filters",
        )
    return tuple(values[1:])


def _encode(values: list[str | int]) -> str:
    return base64.urlsafe_b64encode(json.dumps(values).encode()).decode().rstrip("=")


def _decode(cursor: str) -> object:
    try:
        return parse_json(base64.b64decode(cursor + "=" * (-len(cursor) % 4), b"-_", validate=True))
    except ValueError:
        return None


def _all_numbers(values: Sequence[object]) -> bool:
    return all(type(value) is int and 0 <= value <= LARGEST_NUMBER for value in values)
