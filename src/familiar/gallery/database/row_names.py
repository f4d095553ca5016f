"""What a row of the database is about, in words."""

import contextlib
import os
import sqlite3
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

_COLUMNS = {  # in words, where the name of a column does not say enough
    "sha256": "content hash",
    "modified_ns": "modification time",
    "size_bytes": "size",
    "taken_at": "capture time",
    "landmarks_px": "landmarks",
    "photo_id": "photo",
    "identity_id": "individual",
    "by_user": "origin",
}


def row_name(connection: sqlite3.Connection, table: str, values: Sequence[Any]) -> str:
    """Describe a row, such as "face 12 of photo.jpg".

    Args:
        connection: to a database in which the photo of a face, for one, can be looked up.
        table: the row's table.
        values: of the row, in the order of its columns; texts may be bytes.
    """
    decoded = [
        os.fsdecode(value) if isinstance(value, bytes) and table in _WITH_TEXT_KEY else value for value in values
    ]
    first, second = decoded[0], decoded[1] if len(decoded) > 1 else None
    if table == "photos":
        return f"photo {first} ({_as_text(values[2])})"
    if table == "faces":
        return f"face {first} of {_photo(connection, second)}"
    name = _NAMES.get(table)
    return f"{table}, row {first}" if name is None else name.format(first, second)


def describe_rows(database: Path, rows: Iterable[tuple[str, Sequence[Any]]]) -> tuple[str, ...]:
    """Describe rows, each given by its table and its values, once each.

    Args:
        database: in which the photo of a face is looked up.
        rows: to describe.
    """
    with contextlib.closing(sqlite3.connect(database)) as connection:
        connection.text_factory = os.fsdecode
        return tuple(dict.fromkeys(row_name(connection, *row) for row in rows))


def column_name(column: str) -> str:
    """Return a column's name in words."""
    return _COLUMNS.get(column, column.removesuffix("_px"))


_WITH_TEXT_KEY = ("skipped_files", "watch_deliveries")
_NAMES = {  # by table; {0} and {1} are its first two columns
    "gallery": "the row of the gallery itself",
    "identities": "the name of individual {0}",
    "assignments": "the individual of face {0}",
    "domains": "the domain of face {0}",
    "constraints": "the decision whether faces {0} and {1} are the same individual",
    "rejections": "the decision that face {0} is not individual {1}",
    "decisions": "decision {0} of the undo log",
    "changes": "change {0} (of decision {1}) of the undo log",
    "previous_faces": "the previous version of the face in change {0} of the undo log",
    "learned_faces": "that the gallery learned from face {0}",
    "deleted_boxes": "where a face was deleted in photo {0}",
    "reports": "the report on individual {0}",
    "next_embeddings": "the new embedding of face {0}, of an unfinished migration",
    "migration": "the model of an unfinished migration",
    "missing_photos": "that photo {0} is missing, as noticed by familiar watch",
    "skipped_files": "that {0} cannot be read, as noticed by familiar watch",
    "watch_events": "event {0} of familiar watch",
    "watch_deliveries": "what familiar watch has delivered to {0}",
    "watch": "the last individual that familiar watch has reported",
}


def _photo(connection: sqlite3.Connection, photo: Any) -> str:
    try:
        row = connection.execute("SELECT path FROM photos WHERE id = ?", (photo,)).fetchone()
    except (sqlite3.Error, UnicodeDecodeError):
        row = None
    return f"photo {photo}" if row is None else _as_text(row[0])


def _as_text(value: Any) -> str:
    return os.fsdecode(value) if isinstance(value, bytes | str) else repr(value)
