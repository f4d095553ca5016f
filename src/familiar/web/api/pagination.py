"""Pagination cursors: opaque to the client, valid for one list only."""

import re
import zlib
from collections.abc import Callable, Sequence
from typing import TypeVar

from familiar.core.field_types import LARGEST_NUMBER
from familiar.core.gallery_types import Page
from familiar.web.errors import HttpProblem

CURSOR = re.compile(r"[0-9]{1,16}(-[0-9]{1,16})*")
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
    if len(results) <= limit:
        return Page(tuple(items), None)
    return Page(tuple(items), "-".join(map(str, (zlib.crc32(list_name.encode()), *position(items[-1])))))


def parse_cursor(cursor: str | None, list_name: str, count: int) -> tuple[int, ...] | None:
    """Return the `count` numbers of a cursor; None if there is no cursor.

    Raises:
        HttpProblem: 422, the cursor belongs to another list.
    """
    if cursor is None:
        return None
    list_number, *numbers = map(int, cursor.split("-")) if CURSOR.fullmatch(cursor) else (0,)
    if list_number != zlib.crc32(list_name.encode()) or len(numbers) != count or max(numbers) > LARGEST_NUMBER:
        detail = "invalid cursor for this list; use `next` of its previous page, with the same filters"
        raise HttpProblem(422, "invalid-cursor", detail)
    return tuple(numbers)
