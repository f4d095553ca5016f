"""Where a list goes on: what a client hands back unread, and what list it is of."""

import base64
import json
from collections.abc import Callable, Sequence
from http import HTTPStatus
from typing import Any, TypeVar

from familiar.web.api.responses import LARGEST_NUMBER
from familiar.web.errors import HttpProblem

Item = TypeVar("Item")


def page(found: Sequence[Item], limit: int, of: str, numbers: Callable[[Item], tuple[int, ...]]) -> dict[str, Any]:
    """As `shapes.Page`, where one more than `limit` was asked for. After an item a list goes on from its `numbers`."""
    items = found[:limit]
    more = len(found) > limit
    return {"items": items, "next": _encode([of, *numbers(items[-1])]) if more else None}


def parse_cursor(cursor: str | None, of: str, count: int) -> tuple[int, ...] | None:
    """The `count` numbers of a cursor; None where there is none. Refused with 422 where it is of another list."""
    if cursor is None:
        return None
    said = _decode(cursor)
    if not (isinstance(said, list) and len(said) == 1 + count and said[0] == of and _all_numbers(said[1:])):
        raise HttpProblem(
            HTTPStatus.UNPROCESSABLE_ENTITY,
            "wrong-cursor",
            "this cursor is none of this list; give one as it was answered in `next`, with the same filters",
        )
    return tuple(said[1:])


def _encode(said: list[str | int]) -> str:
    return base64.urlsafe_b64encode(json.dumps(said).encode()).decode().rstrip("=")


def _decode(cursor: str) -> object:
    try:
        return json.loads(base64.b64decode(cursor + "=" * (-len(cursor) % 4), b"-_", validate=True))
    except (ValueError, RecursionError):
        return None


def _all_numbers(values: Sequence[object]) -> bool:
    return all(type(value) is int and 0 <= value <= LARGEST_NUMBER for value in values)
