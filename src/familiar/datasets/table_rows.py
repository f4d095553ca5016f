"""Rows of labeled photos as a file or another library has them, and the table that they become."""

import logging
import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from familiar.core.data_table import Column, texts
from familiar.core.errors import BadDataset
from familiar.core.terminal_text import one_line
from familiar.core.types import Box
from familiar.datasets.identity_table import IdentityTable, build_table
from familiar.datasets.photo_references import BoxedPhoto, LazyPhotos, PhotoRef, select_photos
from familiar.datasets.shards.storage import is_url
from familiar.datasets.stored_photo import UrlPhoto
from familiar.photos.listing import describe_counts

log = logging.getLogger(__name__)

PATH_COLUMNS = ("path", "file_name", "photo", "image", "file", "filename")
IDENTITY_COLUMNS = ("identity", "label", "cls", "individual", "individual_id", "id", "name")
TEXT_COLUMNS = ("species", "split", "encounter")
BOX_COLUMNS = {"box": False, "bbox": True}  # whether the last two numbers are width and height, as in COCO
KNOWN_COLUMNS = {*PATH_COLUMNS, *IDENTITY_COLUMNS, *TEXT_COLUMNS, *BOX_COLUMNS, "date", "collection"}
MAX_ROWS_SHOWN = 10  # that cannot be read


@dataclass(frozen=True)
class Rows:
    """Rows of a table: columns of the same length.

    Attributes:
        columns: cells by the column's name.
        numbers: of each row, for messages; None: they are counted from 0.
        unit: what a row is called in messages.
        photos: of each row; None: a column has their paths.
        problems: of rows that are in no column.
    """

    columns: dict[str, list[Any]]
    numbers: Sequence[int] | None = None
    unit: str = "row"
    photos: Sequence[PhotoRef] | None = None
    problems: list[str] = field(default_factory=list)


def merge_rows(parts: Sequence[Rows]) -> Rows:
    """Put the rows of several files after each other."""
    if len(parts) == 1:
        return parts[0]
    columns: dict[str, list[Any]] = {name: [] for part in parts for name in part.columns}
    for part in parts:
        count = len(next(iter(part.columns.values()), []))
        for name, cells in columns.items():
            cells += part.columns.get(name, [None] * count)
    with_photos = [part.photos for part in parts if part.photos is not None]
    if with_photos and len(with_photos) < len(parts):
        raise BadDataset("some of the files have photos and others only paths; name them as two sources")
    return Rows(columns, photos=[photo for photos in with_photos for photo in photos] if with_photos else None)


def table_from_rows(location: str, root: str, rows: Rows, folder: str, ignored: Counter[str]) -> IdentityTable:
    """Make a table of rows. Those without an identity, or that cannot be read, are left out, with a warning.

    Args:
        location: of the data, for messages.
        root: that the names of the identities begin with, where the column `collection` does not say.
        rows: with a column of identities, and one of paths unless they have photos; `box`, `bbox`, `date` and
            `TEXT_COLUMNS` if there are any.
        folder: or URL that relative paths begin from.
        ignored: counts what is left out, by reason.

    Raises:
        BadDataset: a column is missing, or no row can be read.
    """
    columns = rows.columns
    problems: dict[int, str] = {}
    identities = _texts(columns[_find_column(columns, IDENTITY_COLUMNS, location, "identities")])
    boxes = _boxes(columns, problems)
    photos = rows.photos
    if photos is None:
        paths = _texts(columns[_find_column(columns, PATH_COLUMNS, location, "photos' paths")])
        problems |= {row: "has no path" for row, path in enumerate(paths) if path is None}
        file_names = [(path or "").replace("\\", "/").rpartition("/")[2] for path in paths]
        photos = _lazy_photos(paths, boxes, folder)
    else:
        file_names = [photo.name for photo in photos]
        photos = [_boxed(photo, boxes.get(row)) for row, photo in enumerate(photos)] if boxes else photos
    known: dict[str, Column] = {name: texts(_texts(columns[name])) for name in TEXT_COLUMNS if name in columns}
    if "date" in columns:
        known["date"] = _dates(_texts(columns["date"]), problems)
    readable = [row for row, identity in enumerate(identities) if identity is not None and row not in problems]
    numbers = rows.numbers or range(len(identities))
    reasons = [*rows.problems, *(f"{rows.unit} {numbers[row]}: {problem}" for row, problem in sorted(problems.items()))]
    left_out = Counter({"rows that cannot be read": len(reasons), "photos without an identity": identities.count(None)})
    ignored.update(+left_out)
    for reason in reasons[:MAX_ROWS_SHOWN]:
        log.warning("skipped %s", one_line(f"{location}: {reason}"))
    if not readable:
        counts = describe_counts(left_out)
        first = f"; the first: {reasons[0]}" if reasons else ""
        raise BadDataset(f"{location}: has no photo with an identity{f'; left out: {counts}' if counts else ''}{first}")
    chosen = np.array(readable, np.int64)
    collections = _texts(columns["collection"]) if "collection" in columns else None
    return build_table(
        location,
        root if collections is None else [collections[row] or root for row in readable],
        [identities[row] or "" for row in readable],
        select_photos(photos, chosen),
        [file_names[row] for row in readable],
        {name: values[chosen] for name, values in known.items()},
    )


def _find_column(columns: Iterable[str], known: Sequence[str], location: str, what: str) -> str:
    names = list(columns)
    if (column := next((name for name in known if name in names), None)) is None:
        listed = ", ".join(names) or "none"
        raise BadDataset(f"{location}: has no column of {what}; it has {listed}, and one must be named {known[0]}")
    return column


def _texts(cells: Sequence[Any]) -> list[str | None]:
    """Return cells as texts, None where one is empty; whole numbers that a library made decimal are whole again."""
    return [(cell.strip() or None) if type(cell) is str else _text(cell) for cell in cells]


def _text(cell: Any) -> str | None:
    if cell is None or cell != cell:  # NaN or NaT
        return None
    return f"{cell:.0f}" if isinstance(cell, float) and cell.is_integer() else str(cell)


def _lazy_photos(paths: Sequence[str | None], boxes: dict[int, Box], folder: str) -> LazyPhotos:
    keys = texts(paths)
    for row, box in boxes.items():
        keys[row] = (paths[row], box)
    return LazyPhotos(keys, partial(_photo_at, folder))


def _photo_at(folder: str, key: str | tuple[str, Box]) -> PhotoRef:
    """Return the photo of a path, which may be a URL, and a box."""
    path, box = key if isinstance(key, tuple) else (key, None)
    if is_url(folder) and not is_url(path):
        path = f"{folder}/{path}"
    return _boxed(UrlPhoto(path, path.rpartition("/")[2]) if is_url(path) else Path(folder, path), box)


def _boxed(photo: Any, box: Box | None) -> PhotoRef:
    return photo if box is None else BoxedPhoto(photo, box)


def _boxes(columns: dict[str, list[Any]], problems: dict[int, str]) -> dict[int, Box]:
    """Parse the boxes of rows; a row without one is of the whole photo."""
    boxes: dict[int, Box] = {}
    for name, has_size in BOX_COLUMNS.items():
        for row, cell in enumerate(columns.get(name, ())):
            try:
                if (box := _parse_box(cell, has_size)) is not None:
                    boxes[row] = box
            except (TypeError, ValueError):
                form = "[left, top, width, height]" if has_size else "left,top,right,bottom"
                problems[row] = f"{name} is {str(cell)[:60]!r}, not {form} in pixels"
    return boxes


def _parse_box(cell: Any, has_size: bool) -> Box | None:
    if not hasattr(cell, "__len__"):
        if _text(cell) is None:
            return None
        raise ValueError("a number")
    numbers = re.split(r"[\s,;]+", cell.strip("[]() ")) if isinstance(cell, str) else list(cell)
    if numbers == [""]:
        return None
    left, top, right, bottom = map(float, numbers)
    box = Box(left, top, left + right, top + bottom) if has_size else Box(left, top, right, bottom)
    if box.is_empty or not all(map(math.isfinite, box)):
        raise ValueError("an empty box")
    return box


def _dates(cells: Sequence[str | None], problems: dict[int, str]) -> Column:
    """Parse dates in ISO 8601, of which the day counts; a year or a month stands for its first day."""
    dates: dict[str | None, str | None] = {None: "NaT"}
    for row, cell in enumerate(cells):
        if cell not in dates:
            try:
                is_day = len(cell or "") >= 8
                dates[cell] = str(np.datetime64(datetime.fromisoformat(cell or "").date() if is_day else cell, "D"))
            except ValueError:
                dates[cell] = None
        if dates[cell] is None:
            problems[row] = f"date is {cell!r}, not as 2026-05-31"
    return np.array([dates[cell] or "NaT" for cell in cells], "datetime64[D]")
