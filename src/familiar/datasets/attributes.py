"""What is known of identities or photos beside their names: a CSV with a column to tell whose, and others of facts."""

import csv
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from familiar.core.errors import BadDataset
from familiar.datasets.folders import IdentityTable

KEYS = ("photo", "identity")  # the column that tells whose facts a row holds
MAX_NUMBERS = 12  # a column of more different numbers is cut into quarters


@dataclass(frozen=True)
class Attribute:
    """A column of the CSV: `values[i]` is that of photo i of the table, None where it has none."""

    name: str
    values: tuple[str | None, ...]

    def rows_by_value(self) -> dict[str, np.ndarray]:
        """The rows of each value, the values sorted."""
        rows: dict[str, list[int]] = {}
        for row, value in enumerate(self.values):
            if value is not None:
                rows.setdefault(value, []).append(row)
        return {value: np.array(rows[value], np.int64) for value in sorted(rows)}


def read_attributes(path: Path, table: IdentityTable, names: Sequence[str] = ()) -> tuple[Attribute, ...]:
    """The columns of that name, or all, for each photo of the table.

    The CSV's first line names its columns; one is `identity` (a folder's name, or ROOT/IDENTITY) or `photo` (its name,
    also behind IDENTITY/ or ROOT/IDENTITY/). A column of more than twelve different numbers is cut into quarters of
    equally many rows. Rows of others are passed over.

    BadDataset where the file cannot be read, has no such column, tells two things of one, or nothing of any photo.
    """
    header, rows = _read(path)
    key = next((name for name in KEYS if name in header), None)
    if key is None:
        raise BadDataset(f"{path}: has no column {' or '.join(KEYS)}, so nobody can tell whose its rows are")
    columns = [name for name in header if name not in KEYS and (not names or name in names)]
    if missing := sorted(set(names) - set(columns)):
        raise BadDataset(f"{path}: has no column {', '.join(missing)}; it has {', '.join(header)}")
    if not columns:
        raise BadDataset(f"{path}: has no column beside {key}")
    told: dict[str, dict[str, str]] = {}
    for number, row in rows:
        if told.setdefault(row[key], row) != row:
            raise BadDataset(f"{path}:{number}: tells something else of {row[key]} than an earlier line")
    _require_one_photo_each(path, told, table, key)
    found = [_row_of(told, table, photo, key) for photo in range(len(table))]
    if not any(row is not None for row in found):
        raise BadDataset(f"{path}: none of its rows is of {'a photo' if key == 'photo' else 'an identity'} in the data")
    return tuple(
        Attribute(name, _quartered([None if row is None else row[name] or None for row in found])) for name in columns
    )


def _read(path: Path) -> tuple[list[str], list[tuple[int, dict[str, str]]]]:
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.DictReader(file, strict=True)
            rows: list[tuple[int, dict[str, str]]] = []
            for row in reader:
                if None in row or None in row.values():
                    raise BadDataset(f"{path}:{reader.line_num}: has more or fewer fields than the first line")
                rows.append((reader.line_num, {name.strip(): value.strip() for name, value in row.items()}))
            header = [name.strip() for name in reader.fieldnames or ()]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise BadDataset(f"{path}: cannot be read as a CSV ({error})") from error
    if len(set(header)) != len(header) or "" in header:
        raise BadDataset(f"{path}: each of its columns needs a name of its own; the first line has {header}")
    return header, rows


def _row_of(told: dict[str, dict[str, str]], table: IdentityTable, photo: int, key: str) -> dict[str, str] | None:
    identity = table.names[table.labels[photo]]
    name = table.photos[photo].name
    whole = identity if key == "identity" else f"{identity}/{name}"
    # ROOT/IDENTITY/PHOTO, IDENTITY/PHOTO, PHOTO: the longest form that the file uses.
    parts = whole.split("/")
    forms = ("/".join(parts[start:]) for start in range(len(parts)))
    return next((told[form] for form in forms if form in told), None)


def _require_one_photo_each(path: Path, told: Collection[str], table: IdentityTable, key: str) -> None:
    """A bare name is no photo's own where several identities have a photo of that name."""
    whose: dict[str, int] = {}
    for photo, label in zip(table.photos, table.labels.tolist(), strict=True):
        name = photo.name.rpartition("/")[2]
        if key == "photo" and name in told and whose.setdefault(name, label) != label:
            raise BadDataset(
                f"{path}: several identities have a photo {name}; write IDENTITY/{name} in the column photo"
            )


def _distinct(edges: list[float]) -> list[str]:
    """As few digits as tell all of them apart, six at least."""
    written = ([f"{edge:.{digits}g}" for edge in edges] for digits in range(6, 17))
    return next((names for names in written if len(set(names)) == len(edges)), [repr(edge) for edge in edges])


def _quartered(values: list[str | None]) -> tuple[str | None, ...]:
    known = [value for value in values if value is not None]
    try:
        numbers = np.array([float(value) for value in known])
    except ValueError:
        return tuple(values)
    if len(np.unique(numbers)) <= MAX_NUMBERS or not np.isfinite(numbers).all():
        return tuple(values)
    edges = np.unique(np.quantile(numbers, [0, 0.25, 0.5, 0.75, 1]))
    quarter = np.clip(np.searchsorted(edges, numbers, "right") - 1, 0, len(edges) - 2)
    names = _distinct(edges.tolist())
    named = iter([f"{names[place]} to {names[place + 1]}" for place in quarter])
    return tuple(None if value is None else next(named) for value in values)
