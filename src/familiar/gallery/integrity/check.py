"""Is a gallery whole, and if not, what can be saved of it."""

import contextlib
import os
import shutil
import sqlite3
import time
from dataclasses import dataclass
from pathlib import Path

from familiar.core.errors import BadGallery, CannotWrite, CorruptGallery
from familiar.gallery.clustering.calibration import calibration, reset_calibration
from familiar.gallery.database.connection import DATABASE, HIGH_WATER, Gallery, Space, translate_sqlite_errors
from familiar.gallery.database.schema import VERSION, create_tables, delete_orphan_rows
from familiar.gallery.integrity.recovery import TABLES, recover_rows

_MAX_BYTES = 2**40  # of a gallery; a damaged header may claim more
_PLAUSIBLE = 100  # versions; a damaged header may claim more


ERASURE_DUE = (
    "the bytes of what was forgotten are still on the disk, since another process had the gallery open; "
    "close it there, and open it again"
)


@dataclass(frozen=True)
class CheckResult:
    """What a check saw. `problems` is empty where the gallery is whole.

    `missing` photos are not where they were, and `changed` ones have another size than they had when enrolled: their
    faces are here still; enroll the folder they are in now.
    """

    photos: int
    faces: int
    problems: tuple[str, ...]
    missing: tuple[str, ...]
    changed: tuple[str, ...]


@dataclass(frozen=True)
class RepairResult:
    """Rows saved of each table that had any, and the folder where the damaged file was put."""

    saved: dict[str, int]
    kept_in: Path


def check(gallery: Gallery) -> CheckResult:
    """Every page, every reference, every embedding, and where the photos are."""
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
            problems.append(ERASURE_DUE)
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
        for read in (Gallery.faces, calibration):
            try:
                read(gallery)
            except CorruptGallery as error:
                problems.append(str(error))
    return CheckResult(photos, faces, tuple(problems), tuple(missing), tuple(changed))


def repair(folder: Path, space: Space | None = None) -> RepairResult:
    """Makes a whole gallery of what can still be read of a damaged one; the damaged file is kept as it is.

    What is lost are the rows on damaged pages, what referred to them, and the log of decisions. `space` is that of the
    gallery's model, for where the one row that tells it is lost. BadGallery where there is no gallery, or where that
    row is lost and `space` is not given. Nobody else may have it open.
    """
    path = folder / DATABASE
    if not path.is_file():
        raise BadGallery(f"{folder}: holds no gallery to repair")
    with path.open("rb") as file:
        version = int.from_bytes(file.read(64)[60:], "big")
    if VERSION < version < VERSION + _PLAUSIBLE:
        raise BadGallery(f"{path}: was made by a newer version of familiar, which alone can repair it")
    fresh, damaged = folder / f".{DATABASE}.repaired", folder / f".{DATABASE}.damaged"
    try:
        fresh.unlink(missing_ok=True)
        _copy_file(path, damaged)
        saved = _made_anew(damaged, fresh, folder, space)
        kept_in = _folder_beside(folder)
        for name in (DATABASE, f"{DATABASE}-wal", f"{DATABASE}-shm", HIGH_WATER):
            with contextlib.suppress(FileNotFoundError):
                shutil.move(folder / name, kept_in / name)
        fresh.rename(path)
    except OSError as error:
        raise CannotWrite(f"{folder}: cannot be repaired there ({error.strerror or error})") from error
    finally:
        for name in (fresh.name, damaged.name):
            for left in folder.glob(f"{name}*"):
                left.unlink()
    with Gallery.open(folder) as gallery:
        try:
            calibration(gallery)
        except CorruptGallery:
            reset_calibration(gallery)
    return RepairResult(saved, kept_in)


def _copy_file(path: Path, to: Path) -> None:
    """With its log. One cut short is filled up with zeros: SQLite reads nothing of a file without its end."""
    shutil.copyfile(path, to)
    with contextlib.suppress(FileNotFoundError):
        shutil.copyfile(f"{path}-wal", f"{to}-wal")
    with to.open("r+b") as file:
        head = file.read(32)
        length = int.from_bytes(head[16:18], "big") * int.from_bytes(head[28:32], "big")
        if to.stat().st_size < length <= _MAX_BYTES:
            file.truncate(length)


def _made_anew(damaged: Path, fresh: Path, folder: Path, space: Space | None) -> dict[str, int]:
    """Rows saved of each table that had any."""
    with translate_sqlite_errors(folder), contextlib.closing(sqlite3.connect(fresh, isolation_level=None)) as target:
        target.text_factory = bytes
        target.execute("BEGIN IMMEDIATE")
        create_tables(target)
        try:
            recover_rows(damaged, target, space)
        except KeyError as error:
            raise BadGallery(
                f"{folder / DATABASE}: the row that says which model it belongs to is lost, if it is a gallery at all; "
                f"say it: familiar gallery repair {folder} --model MODEL, or put a backup in its place"
            ) from error
        saved = {table: target.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in TABLES}
        _mend(target)
        target.execute("COMMIT")
    return {table: count for table, count in saved.items() if count}


def _folder_beside(folder: Path) -> Path:
    """A new one for the damaged file."""
    now = time.strftime("%Y%m%d-%H%M%S")
    for again in range(1000):
        kept_in = folder / (f"damaged-{now}-{again}" if again else f"damaged-{now}")
        with contextlib.suppress(FileExistsError):
            kept_in.mkdir()
            return kept_in
    raise AssertionError("a thousand repairs in one second")


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
    delete_orphan_rows(target)
    target.execute(
        # Another gallery, so that no index of the damaged one is taken for its own.
        "UPDATE gallery SET uid = lower(hex(randomblob(16))), open_decision = NULL, "
        "faces_revision = revision + 1, revision = revision + 1"
    )
