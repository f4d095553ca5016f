"""The table of labeled photos, which every reader of data makes."""

import csv
import hashlib
import io
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import repeat
from pathlib import Path

import numpy as np
from jaxtyping import Int64

from familiar.core.data_table import Column, DataTable, TableSource, texts
from familiar.core.files import write_atomically
from familiar.core.plural import pluralize
from familiar.datasets.photo_references import (
    BoxedPhoto,
    PhotoRef,
    box_text,
    file_of,
    join_photos,
    photo_path,
    select_photos,
)
from familiar.datasets.spellings import Spellings, unify_identity


@dataclass(frozen=True, eq=False)
class IdentityTable(TableSource):
    """Photos and their identities, in an order that does not depend on the file system.

    Attributes:
        photos: the photos.
        labels: `labels[i]` is the index in `names` of the identity of `photos[i]`.
        names: the distinct identities, sorted, each as `ROOT/IDENTITY`.
        ignored: number of files and folders that the scan skipped, by reason.
        columns: what else is known of each photo, by name: `date` (datetime64[D], NaT where unknown), and texts such as
            `species`, `split` and `encounter` (None where unknown).
    """

    photos: Sequence[PhotoRef]
    labels: Int64[np.ndarray, " n"]
    names: tuple[str, ...]
    ignored: dict[str, int] = field(default_factory=dict)
    columns: Mapping[str, Column] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.photos)

    def __repr__(self) -> str:
        return f"IdentityTable({pluralize(len(self), 'photo')} of {pluralize(len(self.names), 'identity')})"

    def _repr_html_(self) -> str:
        from familiar.datasets.html_view import table_html  # which opens photos, and so needs this module

        return table_html(self)

    def table(self) -> DataTable:
        """Return a table as `read_table` reads it: path, identity and root of each photo, its box, and `columns`."""
        roots, identities = zip(*(name.split("/", 1) for name in self.names), strict=True) if self.names else ((), ())
        columns: dict[str, Column] = {
            "path": texts(photo_path(photo.photo if isinstance(photo, BoxedPhoto) else photo) for photo in self.photos),
            "identity": texts(identities)[self.labels],
            "collection": texts(roots)[self.labels],
        }
        boxes = [box_text(photo.box_xyxy_px) if isinstance(photo, BoxedPhoto) else None for photo in self.photos]
        return DataTable({**columns, **({"box": texts(boxes)} if any(boxes) else {}), **self.columns})

    def write_csv(self, path: Path) -> bool:
        """Write the table with absolute paths, for `read_table`.

        Args:
            path: the file.

        Returns:
            Whether it was written: not if photos are in no files of their own.

        Raises:
            CannotWrite: the file cannot be written.
        """
        if not all(map(file_of, self.photos)):
            return False
        columns = dict(self.table().columns)
        columns["path"] = texts(os.path.abspath(name) for name in columns["path"])  # noqa: PTH100 - keeps links
        text = io.StringIO(newline="")
        writer = csv.writer(text)
        writer.writerow(columns)
        cells = [["" if value is None or str(value) == "NaT" else value for value in each] for each in columns.values()]
        writer.writerows(zip(*cells, strict=True))
        write_atomically(path, os.fsencode(text.getvalue()))
        return True

    @cached_property
    def photos_per_identity(self) -> Int64[np.ndarray, " identities"]:
        """Number of photos of each identity, by label."""
        return np.bincount(self.labels, minlength=len(self.names)).astype(np.int64)

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 over the names and sizes in bytes of all photos, independent of their order.

        Changes when a photo is added, removed or renamed, or when its file's size changes.
        """
        lines: list[bytes] = []
        for photo, label in zip(self.photos, self.labels, strict=True):
            lines.append(_encode_name(f"{self.names[label]}\0{photo.name}\0{_size_bytes(photo)}\n"))
        return hashlib.sha256(b"".join(sorted(lines))).hexdigest()

    def select_identities(self, names: Iterable[str]) -> "IdentityTable":
        """Select the photos of some identities.

        Args:
            names: each as `ROOT/IDENTITY`; those that are not in the table are ignored.

        Returns:
            Their photos, in the order of this table.
        """
        selected = set(map(unify_identity, names))
        keep = np.array([name in selected for name in self.names], bool)
        return self.select_rows(np.flatnonzero(keep[self.labels]))

    def with_min_photos(self, photos: int) -> "IdentityTable":
        """Select the identities that have enough photos.

        Args:
            photos: smallest number of photos per identity.

        Returns:
            All photos of these identities, in the order of this table.
        """
        return self.select_rows(np.flatnonzero(self.photos_per_identity[self.labels] >= photos))

    def with_max_photos(self, photos: int) -> "IdentityTable":
        """Limit the photos of each identity; the same ones are selected on every machine.

        Args:
            photos: largest number of photos per identity.

        Returns:
            The selected photos, one identity after the other.
        """
        by_label = np.argsort(self.labels, kind="stable")
        rows_of = np.split(by_label, np.cumsum(self.photos_per_identity)[:-1]) if self.names else []
        selected = [self._cap_photos(name, rows, photos) for name, rows in zip(self.names, rows_of, strict=True)]
        return self.select_rows(np.concatenate([np.empty(0, np.int64), *selected]))

    def _cap_photos(self, identity: str, rows: Int64[np.ndarray, " r"], count: int) -> Int64[np.ndarray, " c"]:
        """Select `count` of an identity's photos by hash."""
        if len(rows) <= count:
            return rows
        # The identity's name is hashed too: otherwise all identities would keep the same of their numbered photos.
        by_name: dict[str, list[int]] = {}  # two folders of one identity may have photos of the same name
        for row in rows.tolist():
            by_name.setdefault(f"{identity}/{self.photos[row].name}", []).append(row)
        return np.sort([row for name in sort_by_hash(by_name) for row in by_name[name]][:count])

    def select_rows(self, rows: Int64[np.ndarray, " k"]) -> "IdentityTable":
        """Select photos by their index.

        Args:
            rows: indices of the photos, in the order of the new table.

        Returns:
            A table without the identities that have no photo in it; the labels of the others are renumbered.
        """
        present, labels = np.unique(self.labels[rows], return_inverse=True)
        return IdentityTable(
            select_photos(self.photos, rows),
            labels.astype(np.int64),
            tuple(self.names[label] for label in present),
            self.ignored,
            {name: values[rows] for name, values in self.columns.items()},
        )


def build_table(
    location: object,
    roots: str | Sequence[str],
    identities: Sequence[str],
    photos: Sequence[PhotoRef],
    file_names: Sequence[str],
    columns: Mapping[str, Column] | None = None,
) -> IdentityTable:
    """Make the table of photos that a reader has listed, sorted by identity and name. Spellings are unified.

    Args:
        location: of the data, for the warning of identities that have several spellings.
        roots: that the names of the identities begin with: one, or one for each photo.
        identities: of each photo.
        photos: in any order.
        file_names: of each photo, by which those of an identity are sorted.
        columns: as for `IdentityTable`.
    """
    codes: dict[tuple[str, str], int] = {}
    pairs = zip(repeat(roots, len(identities)) if isinstance(roots, str) else roots, identities, strict=True)
    coded = np.fromiter((codes.setdefault(pair, len(codes)) for pair in pairs), np.int64, len(identities))
    spellings: dict[str, Spellings] = {}
    unified = [f"{root}/{spellings.setdefault(root, Spellings()).unify(identity)}" for root, identity in codes]
    for each in spellings.values():
        each.warn(location)
    names = sorted(set(unified))
    label_by_name = {name: label for label, name in enumerate(names)}
    labels = np.array([label_by_name[name] for name in unified], np.int64)[coded]
    by_file_name = np.array(sorted(range(len(labels)), key=file_names.__getitem__), np.int64)
    order = by_file_name[np.argsort(labels[by_file_name], kind="stable")]
    sorted_columns = {name: values[order] for name, values in (columns or {}).items()}
    return IdentityTable(select_photos(photos, order), labels[order], tuple(names), columns=sorted_columns)


def join_tables(tables: Sequence[IdentityTable]) -> IdentityTable:
    """Join tables into one, sorted by identity; `ignored` is left out."""
    if len(tables) == 1:
        return tables[0]
    names = sorted({name for table in tables for name in table.names})
    label_by_name = {name: label for label, name in enumerate(names)}
    labels = [
        np.array([label_by_name[name] for name in table.names], np.int64)[table.labels]
        for table in tables
        if len(table)
    ]
    joined = np.concatenate([np.empty(0, np.int64), *labels])
    columns: dict[str, Column] = {}
    for name in dict.fromkeys(name for table in tables for name in table.columns):
        missing = np.datetime64("NaT", "D") if name == "date" else None
        columns[name] = np.concatenate([table.columns.get(name, np.full(len(table), missing)) for table in tables])
    order = np.argsort(joined, kind="stable")
    photos = join_photos([table.photos for table in tables])
    sorted_columns = {name: values[order] for name, values in columns.items()}
    return IdentityTable(select_photos(photos, order), joined[order], tuple(names), columns=sorted_columns)


def sort_by_hash(names: Iterable[str], seed: int = 0) -> list[str]:
    """Shuffle names by their hash with `seed`; adding a name does not change the order of the others."""
    return sorted(names, key=lambda name: hashlib.sha256(_encode_name(f"{seed}\0{name}")).digest())


def _size_bytes(photo: PhotoRef) -> int:
    path = file_of(photo)
    try:
        return 0 if path is None else path.stat().st_size
    except OSError:  # deleted since, or in a folder without permission to enter
        return 0


def _encode_name(name: str) -> bytes:
    """Encode a file name, which need not be valid UTF-8."""
    return name.encode("utf-8", "surrogateescape")
