"""Attributes of identities or photos, read from a CSV with an `identity` or `photo` column."""

import csv
import logging
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from familiar.core.csv_rows import read_rows
from familiar.core.errors import BadDataset
from familiar.core.terminal_text import one_line
from familiar.datasets.identity_table import IdentityTable
from familiar.datasets.spellings import unify_identity

log = logging.getLogger(__name__)

KEY_COLUMNS = ("photo", "identity")  # the column that says which photos a row describes
MAX_DISTINCT_NUMBERS = 12  # a column of more distinct numbers is binned into quartiles

_RowsByKey = dict[str, dict[str, str]]


@dataclass(frozen=True)
class Attribute:
    """A column of the CSV: `values[i]` belongs to photo i of the table and is None if the CSV has no value for it."""

    name: str
    values: tuple[str | None, ...]

    def rows_by_value(self) -> dict[str, np.ndarray]:
        """Map each value, in sorted order, to its rows."""
        rows: dict[str, list[int]] = {}
        for row, value in enumerate(self.values):
            if value is not None:
                rows.setdefault(value, []).append(row)
        return {value: np.array(rows[value], np.int64) for value in sorted(rows)}


def read_attributes(path: Path, table: IdentityTable, names: Sequence[str] = ()) -> tuple[Attribute, ...]:
    """Read attributes of the photos of a table from a CSV.

    A column of more than twelve distinct numbers is binned into quartiles, with equally many rows in each. Rows about
    photos or identities that are not in the table are skipped; so are, with a warning, malformed ones and those that
    contradict an earlier one.

    Args:
        path: the CSV. Its first line names the columns, one of which is `identity` (the folder's name, or
            ROOT/IDENTITY) or `photo` (the file's name, which may follow IDENTITY/ or ROOT/IDENTITY/).
        table: the photos.
        names: the columns to read; empty for all.

    Returns:
        One attribute per column, in the order of the file.

    Raises:
        BadDataset: the file cannot be read, lacks a column, or has no row for any photo of the table.
    """
    header, rows = _read_csv(path)
    key = next((name for name in KEY_COLUMNS if name in header), None)
    if key is None:
        raise BadDataset(f"{path}: the CSV needs a column {' or '.join(KEY_COLUMNS)}")
    columns = [name for name in header if name not in KEY_COLUMNS and (not names or name in names)]
    if missing := sorted(set(names) - set(columns)):
        raise BadDataset(f"{path}: has no column {', '.join(missing)}; it has {', '.join(header)}")
    if not columns:
        raise BadDataset(f"{path}: has no other column than {key}")
    rows_by_key: _RowsByKey = {}
    for line_number, row in rows:
        row[key] = _unify_key(row[key])
        if rows_by_key.setdefault(row[key], row) != row:
            _warn(path, line_number, f"values for {row[key]} differ from those of an earlier line, which count")
    _check_photo_names_unique(path, rows_by_key, table, key)
    matches = [_matching_row(rows_by_key, table, photo, key) for photo in range(len(table))]
    if not any(row is not None for row in matches):
        raise BadDataset(f"{path}: no row is about {'a photo' if key == 'photo' else 'an identity'} in the data")
    return tuple(
        Attribute(name, _bin_into_quartiles([None if row is None else row[name] or None for row in matches]))
        for name in columns
    )


def _read_csv(path: Path) -> tuple[list[str], list[tuple[int, dict[str, str]]]]:
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.DictReader(file, strict=True)
            header = [name.strip() for name in reader.fieldnames or ()]
            rows: list[tuple[int, dict[str, str]]] = []
            for line, row in read_rows(reader):
                if isinstance(row, ValueError):
                    _warn(path, line, str(row))
                else:
                    rows.append((line, {name.strip(): value.strip() for name, value in row.items()}))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise BadDataset(f"{path}: cannot be read as a CSV ({error})") from error
    if len(set(header)) != len(header) or "" in header:
        raise BadDataset(f"{path}: column names must be unique and not empty; the first line has {header}")
    return header, rows


def _warn(path: Path, line: int, reason: str) -> None:
    log.warning("skipped %s", one_line(f"{path}:{line}: {reason}"))


def _matching_row(rows_by_key: _RowsByKey, table: IdentityTable, photo: int, key: str) -> dict[str, str] | None:
    """Find the CSV's row about a photo, None if it has none."""
    identity = table.names[table.labels[photo]]
    name = table.photos[photo].name
    full_name = identity if key == "identity" else _unify_key(f"{identity}/{name}")
    # The longest form that the file uses: ROOT/IDENTITY/PHOTO, IDENTITY/PHOTO, PHOTO.
    parts = full_name.split("/")
    forms = ("/".join(parts[start:]) for start in range(len(parts)))
    return next((rows_by_key[form] for form in forms if form in rows_by_key), None)


def _check_photo_names_unique(path: Path, keys: Collection[str], table: IdentityTable, key: str) -> None:
    """Raise BadDataset if the CSV uses a bare photo name that several identities have."""
    label_by_name: dict[str, int] = {}
    for photo, label in zip(table.photos, table.labels.tolist(), strict=True):
        name = unify_identity(photo.name.rpartition("/")[2])
        if key == "photo" and name in keys and label_by_name.setdefault(name, label) != label:
            raise BadDataset(
                f"{path}: several identities have a photo {name}; write IDENTITY/{name} in the column photo"
            )


def _unify_key(key: str) -> str:
    """Return a key in the one spelling of its names, so that a CSV of another system finds the photos of this one."""
    return "/".join(map(unify_identity, key.split("/")))


def _format_edges(edges: list[float]) -> list[str]:
    """Format numbers with as few digits as keep them distinct, at least six."""
    candidates = ([f"{edge:.{digits}g}" for edge in edges] for digits in range(6, 17))
    return next((texts for texts in candidates if len(set(texts)) == len(edges)), [repr(edge) for edge in edges])


def _bin_into_quartiles(values: list[str | None]) -> tuple[str | None, ...]:
    """Replace numbers by their quartile, as text, if there are more than `MAX_DISTINCT_NUMBERS` distinct ones."""
    given_values = [value for value in values if value is not None]
    try:
        numbers = np.array([float(value) for value in given_values])
    except ValueError:
        return tuple(values)
    if len(np.unique(numbers)) <= MAX_DISTINCT_NUMBERS or not np.isfinite(numbers).all():
        return tuple(values)
    edges = np.unique(np.quantile(numbers, [0, 0.25, 0.5, 0.75, 1]))
    quartile = np.clip(np.searchsorted(edges, numbers, "right") - 1, 0, len(edges) - 2)
    edge_texts = _format_edges(edges.tolist())
    bin_names = iter([f"{edge_texts[index]} to {edge_texts[index + 1]}" for index in quartile])
    return tuple(None if value is None else next(bin_names) for value in values)
