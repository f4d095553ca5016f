"""Is a gallery whole, and if not, what can be saved of it."""

import contextlib
import json
import os
import shutil
import sqlite3
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from familiar.core.errors import BadGallery, FamiliarError
from familiar.core.vectors import UNIT_NORM_TOLERANCE, check_unit_rows
from familiar.gallery.schema import VERSION, create_tables
from familiar.gallery.store import DATABASE, HIGH_WATER, Gallery

# Parents before children. The log of decisions is not among them: half a one cannot be taken back.
_TABLES = (
    "gallery",
    "photos",
    "identities",
    "faces",
    "assignments",
    "constraints",
    "rejections",
    "next_embeddings",
    "migration",
)


@dataclass(frozen=True)
class Checked:
    """What a check saw. `problems` is empty where the gallery is whole.

    `missing` photos are not where they were, and `changed` ones have another size than they had when enrolled: their
    faces are here still; enrol the folder they are in now.
    """

    photos: int
    faces: int
    problems: tuple[str, ...]
    missing: tuple[str, ...]
    changed: tuple[str, ...]


@dataclass(frozen=True)
class Repaired:
    """Rows saved of each table that had any, and the folder where the damaged file was put."""

    saved: dict[str, int]
    kept_in: Path


def check(gallery: Gallery) -> Checked:
    """Every page, every reference, every embedding, and where the photos are. Changes nothing."""
    problems: list[str] = []
    missing: list[str] = []
    changed: list[str] = []
    with gallery.reading() as connection:
        problems += [row[0] for row in connection.execute("PRAGMA integrity_check") if row[0] != "ok"]
        problems += [
            f"{table}, row {row}: what it refers to in {parent} is gone"
            for table, row, parent, _ in connection.execute("PRAGMA foreign_key_check")
        ]
        if connection.execute("SELECT erasure_due FROM gallery").fetchone()[0]:
            problems.append(
                "the bytes of what was forgotten are still on the disk: another process had it open"
            )
        for path, size in connection.execute("SELECT path, size_bytes FROM photos ORDER BY path"):
            if not size:  # known by a name only
                continue
            try:
                if os.stat(path).st_size != size:  # noqa: PTH116 - of a hundred thousand
                    changed.append(path)
            except OSError:
                missing.append(path)
        photos, faces = (
            connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in ("photos", "faces")
        )
        try:
            check_unit_rows(gallery.faces().unit_rows())
        except (FamiliarError, ValueError) as error:
            problems.append(f"embeddings: {error}")
    return Checked(photos, faces, tuple(problems), tuple(missing), tuple(changed))


def repair(folder: Path) -> Repaired:
    """Makes a whole gallery of what can still be read of a damaged one; the damaged file is kept beside it.

    Row by row, so a page that cannot be read costs the rows on it, and what referred to them. BadGallery where
    nothing at all can be read.
    """
    path = folder / DATABASE
    if not path.exists():
        raise BadGallery(f"{folder}: holds no gallery to repair")
    fresh = folder / f".{DATABASE}.repaired"
    fresh.unlink(missing_ok=True)
    with contextlib.closing(sqlite3.connect(fresh, isolation_level=None)) as target:
        target.text_factory = bytes
        target.execute("BEGIN IMMEDIATE")
        create_tables(target)
        try:
            saved = _copy_all(path, target)
        except sqlite3.DatabaseError as error:
            target.execute("ROLLBACK")
            fresh.unlink(missing_ok=True)
            raise BadGallery(
                f"{path}: nothing can be read of it ({error}); put a backup in its place, or make a new gallery"
            ) from error
        _mend(target)
        target.execute("COMMIT")
    kept_in = folder / f"damaged-{time.strftime('%Y%m%d-%H%M%S')}"
    kept_in.mkdir()
    for name in (DATABASE, f"{DATABASE}-wal", f"{DATABASE}-shm", HIGH_WATER):
        with contextlib.suppress(FileNotFoundError):
            shutil.move(folder / name, kept_in / name)
    fresh.rename(path)
    Gallery.open(folder).close()
    return Repaired({table: count for table, count in saved.items() if count}, kept_in)


def _copy_all(path: Path, target: sqlite3.Connection) -> dict[str, int]:
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as source:
        source.text_factory = bytes
        if source.execute("PRAGMA user_version").fetchone()[0] > VERSION:
            raise BadGallery(f"{path}: was made by a newer version of familiar, which alone can repair it")
        saved = {"gallery": _copy(source, target, "gallery")}
        if not saved["gallery"]:
            raise sqlite3.DatabaseError("the row that says which model it belongs to is lost")
        return saved | {table: _copy(source, target, table) for table in _TABLES[1:]}


def _copy(source: sqlite3.Connection, target: sqlite3.Connection, table: str) -> int:
    """The rows of one table that can be read and are what they should be."""
    facts = target.execute(f"PRAGMA table_info({table})").fetchall()
    columns = [row[1].decode() for row in facts]
    # What is read as bytes may be a path in any encoding.
    values = ["CAST(? AS TEXT)" if row[2] == b"TEXT" else "?" for row in facts]
    put = f"INSERT OR IGNORE INTO {table} ({', '.join(columns)}) VALUES ({', '.join(values)})"
    before = target.total_changes
    for row in _readable(source, table, columns, [row[1].decode() for row in facts if row[5]]):
        if table in ("faces", "next_embeddings") and not _is_whole(target, row[columns.index("embedding")]):
            continue
        with contextlib.suppress(sqlite3.IntegrityError):
            target.execute(put, row)
    return target.total_changes - before


def _readable(
    source: sqlite3.Connection, table: str, columns: list[str], key: list[str]
) -> Iterator[tuple[Any, ...]]:
    """From the front up to what cannot be read, from the back down to it, and what lies between one by one."""
    wanted = ", ".join(columns)
    ends: list[int] = []
    for direction in ("ASC", "DESC"):
        order = ", ".join(f"{column} {direction}" for column in key)
        last = 0
        try:
            for row in source.execute(f"SELECT {wanted} FROM {table} ORDER BY {order}"):
                yield row
                last = int(row[columns.index(key[0])])
            return
        except sqlite3.DatabaseError:
            ends.append(last)
    if len(key) > 1:  # no way to ask for one row without passing the damaged ones
        return
    for number in range(ends[0] + 1, ends[1]):
        with contextlib.suppress(sqlite3.DatabaseError):
            yield from source.execute(
                f"SELECT {wanted} FROM {table} WHERE {key[0]} = ?", (number,)
            ).fetchall()


def _is_whole(target: sqlite3.Connection, embedding: bytes) -> bool:
    """A unit vector of the gallery's width."""
    space, element = target.execute("SELECT space, element FROM gallery").fetchone()
    kept_as = np.dtype(element.decode()).newbyteorder("<")
    if len(embedding) != json.loads(space)["embedding_dim"] * kept_as.itemsize:
        return False
    values = np.frombuffer(embedding, kept_as).astype(np.float32)
    return abs(float(np.linalg.norm(values)) - 1) <= UNIT_NORM_TOLERANCE


def _mend(target: sqlite3.Connection) -> None:
    """What others refer to is put back, as far as its number tells; what refers to a lost face goes."""
    target.execute(
        "INSERT INTO photos (id, sha256, path, size_bytes, modified_ns) SELECT DISTINCT photo_id, randomblob(32), "
        "'(lost)', 0, 0 FROM faces WHERE photo_id NOT IN (SELECT id FROM photos)"
    )
    for table in ("assignments", "rejections"):
        target.execute(
            f"INSERT INTO identities (id) SELECT DISTINCT identity_id FROM {table} "
            "WHERE identity_id NOT IN (SELECT id FROM identities)"
        )
        target.execute(f"DELETE FROM {table} WHERE face_id NOT IN (SELECT id FROM faces)")
    target.execute("DELETE FROM next_embeddings WHERE face_id NOT IN (SELECT id FROM faces)")
    target.execute(
        "DELETE FROM constraints WHERE first_face NOT IN (SELECT id FROM faces) "
        "OR second_face NOT IN (SELECT id FROM faces)"
    )
    target.execute(
        "UPDATE gallery SET open_decision = NULL, faces_revision = revision + 1, revision = revision + 1"
    )
