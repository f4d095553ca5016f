"""What can be read of a damaged database, and putting another one in its place."""

import contextlib
import os
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Any

import apsw

from familiar.core.errors import BadGallery, CorruptGallery
from familiar.core.files import fsync_directory, fsync_file, held_lock, unused_path
from familiar.gallery.store.automatic_copies import copies, require_intact
from familiar.gallery.store.connection import BUSY_SECONDS, DATABASE, LOG, Connection, connect, connect_raw, find_damage
from familiar.gallery.store.face_table import load_face_table
from familiar.gallery.store.schema import check_format, create_tables, mend_references
from familiar.gallery.store.settings import Settings
from familiar.gallery.store.space import Space
from familiar.gallery.store.stored_embeddings import decode, stored_type_of

LOCK_FILE = "gallery.lock"  # shared by all who have the gallery open, so that nobody replaces the file under them
_UNREADABLE = (apsw.CorruptError, apsw.NotADBError, apsw.IOError, apsw.SQLError, UnicodeDecodeError)
_NO_ROOM = (apsw.SQLITE_IOERR_SHMOPEN, apsw.SQLITE_IOERR_SHMSIZE, apsw.SQLITE_IOERR_SHMMAP, apsw.SQLITE_IOERR_WRITE)
_UNDO_LOG = ("previous_faces", "changes", "decisions")


@dataclass
class Recovered:
    """What was read of a damaged database.

    Attributes:
        saved: the number of rows of each table that had any.
        lost: the rows that could not be read, by table and number. Some of the numbers may never have been given out.
    """

    saved: dict[str, int] = field(default_factory=dict[str, int])
    lost: list[str] = field(default_factory=list[str])


def _connect_to_damaged(path: Path) -> Connection:
    """Connect to a database whose definitions of tables may be damaged; what is read of the tables is verified."""
    connection = connect(path, verify=False)
    connection.set("writable_schema", True)  # go on where one cannot be read: the other tables can
    try:
        connection.rows("SELECT * FROM sqlite_schema")
    except _UNREADABLE as error:
        if getattr(error, "extendedresult", 0) in _NO_ROOM:  # it says nothing about what is in the file
            connection.close()
            raise
    connection.set("checksum_verification", "on")
    return connection


def accept(path: Path) -> tuple[str, ...] | None:
    """Accept what another program has written to a database, if SQLite and the schema find nothing wrong with it.

    Args:
        path: of the database, which others may have open.

    Returns:
        The rows on pages that had other checksums, by table and number; None if the file cannot be accepted.

    Raises:
        BadGallery: it is no gallery, or one of another version.
    """
    try:
        with contextlib.suppress(*_UNREADABLE), contextlib.closing(connect(path)) as connection:
            check_format(connection, path.parent)
        with contextlib.closing(_connect_to_damaged(path)) as connection:
            differing = _unreadable_rows(connection)
        if not _rewrite_checksums(path):
            return None
        if differing:  # what was cached or indexed of the gallery before is not of this one
            with contextlib.closing(connect(path)) as connection:
                Settings(connection).become_new()
        return tuple(differing)
    except _UNREADABLE:
        return None


def _rewrite_checksums(path: Path) -> bool:
    """Write all pages of a database anew, with checksums, unless something is wrong with it: then return False."""
    with contextlib.closing(connect(path, verify=False)) as connection:
        try:
            check_format(connection, path.parent)
            space, stored_type, revision = Settings(connection).embedding_format()
            load_face_table(connection, stored_type, space, revision, path.parent)
        except (BadGallery, CorruptGallery, TypeError, ValueError, KeyError):
            return False
        has_our_definitions = _definitions(connection) >= _definitions_of_galleries()
        if not has_our_definitions or _unreadable_rows(connection) or find_damage(connection):
            return False
        connection.run("VACUUM")
        with contextlib.suppress(apsw.BusyError):  # others read; the next checkpoint does it
            connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
    return True


def recover(path: Path, target: Path, space: Space | None) -> Recovered:
    """Write all rows of a damaged database that can be read into a new one.

    Rows that refer to lost ones are lost too, and if anything is lost, so is what `undo` would restore.

    Args:
        path: of the database.
        target: of the new one.
        space: of the gallery's model, for when the row that says so is lost.

    Raises:
        BadGallery: nothing can be read; or the row with the space is lost, and `space` is None.
    """
    recovered = Recovered()
    with (
        contextlib.closing(connect(target, create=True)) as new,
        contextlib.closing(_connect_to_damaged(path)) as connection,
    ):
        with new:
            create_tables(new)
            for table in _tables():
                rows, lost = _read(connection, table)
                recovered.lost += lost
                if not rows:
                    continue
                try:
                    new.run_many(f"INSERT INTO {table} VALUES ({', '.join('?' * len(rows[0]))})", rows)
                    recovered.saved[table] = len(rows)
                except apsw.SQLError:  # so many columns it has not
                    recovered.lost.append(f"{table}: all {len(rows):,} rows (the table's definition is damaged)")
            _complete(new, recovered, path, space)
        if problems := find_damage(new):
            raise BadGallery(f"{path.parent}: cannot be recovered ({'; '.join(problems[:3])}); restore a backup")
    return recovered


def _complete(new: Connection, recovered: Recovered, path: Path, space: Space | None) -> None:
    """Make a database of recovered rows consistent."""
    settings = Settings(new)
    try:
        settings.space()
    except (TypeError, ValueError, KeyError) as error:
        if space is None or "faces" not in recovered.saved:
            raise BadGallery(
                f"{path}: the row that says which model the gallery belongs to is lost; restore a backup, or name the "
                f"model: familiar gallery repair {path.parent} --model MODEL"
            ) from error
        length = new.value("SELECT length(embedding) FROM faces LIMIT 1")
        new.run("DELETE FROM gallery")
        settings.create(space, stored_type_of(length, space.embedding_dim))
    settings.become_new()  # what was indexed of the gallery before is not of this one
    _delete_damaged_embeddings(new, recovered)
    while orphans := _orphans(new):
        for table, row in orphans:
            recovered.lost.append(f"{table} {row}, which refers to a lost row")
            new.run(f"DELETE FROM {table} WHERE rowid = ?", (row,))
    if recovered.lost:
        for table in _UNDO_LOG:
            new.run(f"DELETE FROM {table}")
        new.run("UPDATE gallery SET open_decision = NULL")


def _delete_damaged_embeddings(new: Connection, recovered: Recovered) -> None:
    """Delete faces whose embeddings are no unit vectors: a foreign program's, or accepted by an earlier repair."""
    space, stored_type, _ = Settings(new).embedding_format()
    for face, embedding in new.rows("SELECT id, embedding FROM faces"):
        try:
            decode(embedding, stored_type, space.embedding_dim)
        except ValueError:
            recovered.lost.append(f"faces {face}, whose embedding is damaged")
            new.run("DELETE FROM faces WHERE id = ?", (face,))


def _orphans(new: Connection) -> list[tuple[str, int]]:
    """Mend references to faces and identities; return table and number of other rows that refer to nothing.

    A row of those may be referred to itself.
    """
    mend_references(new)
    return sorted({(table, row) for table, row, *_ in new.rows("PRAGMA foreign_key_check")})


def _empty_gallery() -> Connection:
    connection = Connection(":memory:")
    create_tables(connection)
    return connection


@cache
def _tables() -> dict[str, str | None]:
    """Return the key of each table that numbers its rows, in the order of their definitions; None for the others."""
    with contextlib.closing(_empty_gallery()) as connection:
        tables = connection.rows("SELECT name, wr FROM pragma_table_list WHERE name NOT LIKE 'sqlite%' ORDER BY 1")
        keys: dict[str, str | None] = {
            name: None
            if without_numbers
            else connection.value("SELECT name FROM pragma_table_info(?) WHERE pk", [name])
            for name, without_numbers in tables
        }
    return {"sqlite_sequence": None} | keys


def _definitions(connection: Connection) -> set[tuple[str, str]]:
    """Return the name and the definition of each table, index and trigger."""
    return set(connection.rows("SELECT name, sql FROM sqlite_schema WHERE sql IS NOT NULL"))


@cache
def _definitions_of_galleries() -> set[tuple[str, str]]:
    with contextlib.closing(_empty_gallery()) as connection:
        return _definitions(connection)


def _unreadable_rows(connection: Connection) -> list[str]:
    """Name the rows that cannot be read, by table and number: with other checksums than we wrote, or garbled texts."""
    return [name for table in _tables() for name in _read(connection, table)[1]]


def _read(connection: Connection, table: str) -> tuple[list[tuple[Any, ...]], list[str]]:
    """Read the rows of a table that can be read.

    Returns:
        The rows, and the names of those that cannot be read.
    """
    key = _tables()[table]
    try:
        return connection.rows(f"SELECT * FROM {table}"), []
    except _UNREADABLE:
        last_number = _last_number(connection, table, key)
    rows, unreadable = list[tuple[Any, ...]](), list[int]()
    if last_number is None:
        try:
            rows.extend(connection.each(f"SELECT * FROM {table}"))  # keeps what comes before the error
        except _UNREADABLE as error:
            return rows, [f"{table}: the rows after the first {len(rows):,} ({error})"]
        return rows, []
    ranges = [(1, last_number)]
    while ranges:
        first, last = ranges.pop()
        try:
            rows += connection.rows(f"SELECT * FROM {table} WHERE {key} BETWEEN ? AND ?", (first, last))
        except _UNREADABLE:
            if first == last:
                unreadable.append(first)
            else:
                middle = (first + last) // 2
                ranges += [(first, middle), (middle + 1, last)]
    return rows, [f"{table} {name}" for name in _ranges(sorted(unreadable))]


def _last_number(connection: Connection, table: str, key: str | None) -> int | None:
    """Return a number that no row of a table is above; None if its rows have none, or it is not known."""
    if key is None:
        return None
    for query in (
        f"SELECT max({key}) FROM {table}",
        f"SELECT max(seq) FROM sqlite_sequence WHERE name = '{table}'",
        "SELECT max(seq) FROM sqlite_sequence",  # most other tables have the numbers of faces, photos or identities
    ):
        with contextlib.suppress(*_UNREADABLE):
            number = connection.value(query)
            if number:  # 0 is the last number of a table whose rows are all deleted, or not written yet
                return number
    return None


def _ranges(numbers: Sequence[int]) -> Iterator[str]:
    """Name runs of rising numbers: "3", "5 to 9"."""
    for _, run in groupby(enumerate(numbers), key=lambda pair: pair[1] - pair[0]):
        members = [number for _, number in run]
        first, last = members[0], members[-1]
        yield str(first) if first == last else f"{first} to {last}"


def better_copy(folder: Path) -> Path | None:
    """Return the newest automatic copy that is intact, if it has more photos, faces or names than the gallery."""
    for copy in copies(folder):
        try:
            require_intact(copy)
        except _UNREADABLE:
            continue
        here, there = _count_rows(folder / DATABASE), _count_rows(copy)
        return copy if any(more > less for less, more in zip(here, there, strict=True)) else None
    return None


def names_in_copies(folder: Path) -> dict[Path, int]:
    """Count the names in each automatic copy that can be read, the newest first."""
    names: dict[Path, int] = {}
    for copy in copies(folder):
        with contextlib.suppress(*_UNREADABLE):
            names[copy] = _count_rows(copy)[-1]
    return names


def _count_rows(path: Path) -> tuple[int, ...]:
    with contextlib.closing(connect(path)) as connection:
        return connection.row(
            "SELECT (SELECT count(*) FROM photos), (SELECT count(*) FROM faces), "
            "(SELECT count(*) FROM identities WHERE name IS NOT NULL)"
        )


def copy_damaged(folder: Path) -> Path | None:
    """Copy a gallery's damaged database as it is into a new folder; None if SQLite cannot open it.

    Through SQLite, since others may be writing, and what they have written may be in the log only.
    """
    kept_in = _new_folder(folder)
    path = kept_in / DATABASE
    try:
        with (  # raw, or the copy would have checksums that agree with the damage
            contextlib.closing(connect_raw(folder / DATABASE)) as damaged,
            contextlib.closing(connect_raw(path)) as copy,
            copy.backup("main", damaged, "main") as backup,
        ):
            backup.step(-1)
        fsync_file(path)
    except _UNREADABLE:
        shutil.rmtree(kept_in)
        return None
    fsync_directory(kept_in)
    return kept_in


def overwrite(path: Path, source: Path) -> None:
    """Replace the content of a database by that of another file, also while others have it open.

    Raises:
        apsw.Error: the database cannot be opened, or the system refuses. It has its old content.
    """
    with (
        contextlib.closing(connect(path, verify=False)) as target,  # its pages may be damaged
        contextlib.closing(connect(source)) as copy,
        target.backup("main", copy, "main") as backup,
    ):
        backup.step(-1)


def replace(folder: Path, finished: Path) -> Path:
    """Put a database in place of one that cannot be opened, and move the files of that one to a new folder.

    Args:
        folder: the gallery's folder.
        finished: the new database, a closed file in that folder.

    Returns:
        The new folder.

    Raises:
        GalleryBusy: another program has the gallery open.
        OSError: the system refuses.
    """
    busy = f"{folder}: another program has the gallery open; end it (familiar serve, familiar watch) and try again"
    with held_lock(folder / LOCK_FILE, BUSY_SECONDS, busy):
        fsync_file(finished)
        kept_in = _new_folder(folder)
        try:
            os.link(folder / DATABASE, kept_in / DATABASE)  # so there is a database at any time
        except OSError:  # a file system without hard links
            shutil.copyfile(folder / DATABASE, kept_in / DATABASE)
        for name in (LOG, f"{DATABASE}-shm"):  # SQLite would take the old log for the new database's
            with contextlib.suppress(FileNotFoundError):
                (folder / name).replace(kept_in / name)
        fsync_directory(kept_in)
        fsync_directory(folder)
        finished.replace(folder / DATABASE)
        fsync_directory(folder)
        return kept_in


def _new_folder(folder: Path) -> Path:
    """Make a folder for the files of a damaged database."""
    new = unused_path(folder, f"damaged-{datetime.now():%Y%m%d-%H%M%S}")
    new.mkdir()
    return new
