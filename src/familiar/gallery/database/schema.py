"""The tables of a gallery, and how those of an older version become today's.

What a user decides changes `identities`, `assignments`, `kinds`, `constraints`, `rejections` and, by hand, `faces`.
While `gallery.open_decision` is set, triggers write what was there before into `changes`, so nothing that a decision
did escapes `undo`; a face as it was lies beside that in `faces_before`.
"""

import sqlite3
from collections.abc import Callable, Sequence

APPLICATION_ID = 0x66616D69  # "fami", at byte 68 of the file: whose database it is
VERSION = 2  # 1: no decision changed faces

_TABLES = """
CREATE TABLE gallery (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    uid TEXT NOT NULL,                      -- of this gallery alone
    space TEXT NOT NULL,                    -- JSON of `Space`
    element TEXT NOT NULL CHECK (element IN ('float16', 'float32')),
    own_calibration TEXT,                   -- JSON of `OwnCalibration`
    revision INTEGER NOT NULL DEFAULT 0,    -- of the whole: one more with every write
    faces_revision INTEGER NOT NULL DEFAULT 0,  -- `revision` when faces last came, went or changed
    judged_face INTEGER NOT NULL DEFAULT 0, -- the last face that `group` has seen
    open_decision INTEGER,
    erasure_due INTEGER NOT NULL DEFAULT 0  -- something was forgotten whose bytes may still lie in the file
) STRICT;
CREATE TABLE photos (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    sha256 BLOB NOT NULL UNIQUE,
    path TEXT NOT NULL,
    size_bytes INTEGER NOT NULL,
    modified_ns INTEGER NOT NULL,
    taken_at TEXT                           -- ISO 8601, local time, from EXIF
) STRICT;
CREATE INDEX photos_by_path ON photos (path);
CREATE TABLE faces (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    photo_id INTEGER NOT NULL REFERENCES photos ON DELETE CASCADE,
    left_px REAL NOT NULL, top_px REAL NOT NULL, right_px REAL NOT NULL, bottom_px REAL NOT NULL,
    landmarks_px BLOB,                      -- float32, 5 x 2
    score REAL NOT NULL,
    quality REAL NOT NULL,
    species TEXT,
    embedding BLOB NOT NULL                 -- `gallery.element`, little endian
) STRICT;
CREATE INDEX faces_by_photo ON faces (photo_id);
CREATE TABLE identities (
    id INTEGER PRIMARY KEY AUTOINCREMENT,   -- never used twice
    name TEXT UNIQUE
) STRICT;
CREATE TABLE assignments (
    face_id INTEGER PRIMARY KEY REFERENCES faces ON DELETE CASCADE,
    identity_id INTEGER NOT NULL REFERENCES identities,
    by_user INTEGER NOT NULL CHECK (by_user IN (0, 1))
) STRICT;
CREATE INDEX assignments_by_identity ON assignments (identity_id);
CREATE TABLE kinds (                        -- of faces among whom even strangers are alike: neighbors/kinds.py
    face_id INTEGER PRIMARY KEY REFERENCES faces ON DELETE CASCADE,
    kind INTEGER NOT NULL
) STRICT;
CREATE TABLE constraints (
    first_face INTEGER NOT NULL REFERENCES faces ON DELETE CASCADE,
    second_face INTEGER NOT NULL REFERENCES faces ON DELETE CASCADE,
    same INTEGER NOT NULL CHECK (same IN (0, 1)),
    PRIMARY KEY (first_face, second_face),
    CHECK (first_face < second_face)
) STRICT, WITHOUT ROWID;
CREATE INDEX constraints_by_second ON constraints (second_face);
CREATE TABLE rejections (                   -- this face is not this individual
    face_id INTEGER NOT NULL REFERENCES faces ON DELETE CASCADE,
    identity_id INTEGER NOT NULL REFERENCES identities ON DELETE CASCADE,
    PRIMARY KEY (face_id, identity_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX rejections_by_identity ON rejections (identity_id);
CREATE TABLE decisions (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    decided_at TEXT NOT NULL,               -- ISO 8601, UTC
    kind TEXT NOT NULL
) STRICT;
CREATE TABLE changes (                      -- what was there before: JSON of the other columns, NULL where nothing was
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    decision_id INTEGER NOT NULL REFERENCES decisions ON DELETE CASCADE,
    table_name TEXT NOT NULL,
    first INTEGER NOT NULL,                 -- the row's key
    second INTEGER,
    before TEXT
) STRICT;
CREATE INDEX changes_by_decision ON changes (decision_id);
CREATE INDEX changes_by_first ON changes (table_name, first);
CREATE TABLE next_embeddings (              -- of a migration under way
    face_id INTEGER PRIMARY KEY REFERENCES faces ON DELETE CASCADE,
    origin TEXT NOT NULL CHECK (origin IN ('photo', 'bridge')),
    embedding BLOB NOT NULL
) STRICT;
CREATE TABLE migration (                    -- one row while a migration is under way
    id INTEGER PRIMARY KEY CHECK (id = 1),
    space TEXT NOT NULL
) STRICT;
"""

_FACES_BEFORE = """
CREATE TABLE faces_before (                 -- of a change of `faces`; JSON keeps neither bytes nor the last digits
    change_id INTEGER PRIMARY KEY REFERENCES changes ON DELETE CASCADE,
    embedding BLOB NOT NULL,                -- first, so that `rescue` does not take these rows for those of `faces`
    photo_id INTEGER NOT NULL REFERENCES photos ON DELETE CASCADE,
    left_px REAL NOT NULL, top_px REAL NOT NULL, right_px REAL NOT NULL, bottom_px REAL NOT NULL,
    landmarks_px BLOB,
    score REAL NOT NULL,
    quality REAL NOT NULL,
    species TEXT
) STRICT;
CREATE INDEX faces_before_by_photo ON faces_before (photo_id);
"""
_OF_A_FACE = (
    "embedding",
    "photo_id",
    "left_px",
    "top_px",
    "right_px",
    "bottom_px",
    "landmarks_px",
    "score",
    "quality",
    "species",
)

_LOGGED: dict[str, tuple[tuple[str, str | None], tuple[str, ...]]] = {  # table: (the key's columns, the others)
    "identities": (("id", None), ("name",)),
    "assignments": (("face_id", None), ("identity_id", "by_user")),
    "kinds": (("face_id", None), ("kind",)),
    "constraints": (("first_face", "second_face"), ("same",)),
    "rejections": (("face_id", "identity_id"), ()),
    "faces": (("id", None), ()),  # the others lie in `faces_before`
}


def create_tables(connection: sqlite3.Connection) -> None:
    """Within a transaction."""
    _execute(connection, _TABLES)
    for table in _LOGGED:
        if table != "faces":
            _log(connection, table)
    _log_faces(connection)
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {VERSION}")


def update_tables(connection: sqlite3.Connection, version: int) -> None:
    """Tables of an older version to today's. Within a transaction."""
    for older in range(version, VERSION):
        _MIGRATIONS[older](connection)
    connection.execute(f"PRAGMA user_version = {VERSION}")


def restore_change(connection: sqlite3.Connection, change: tuple[int, str, int, int | None, str | None]) -> None:
    """One row of `changes` put back: (id, table_name, first, second, before). Foreign keys must be deferred.

    A face whose photo is gone since, or has other content, stays as it is: `delete_orphan_rows` afterwards.
    """
    number, table, first, second, before = change
    keys, others = _LOGGED[table]
    key = [column for column in keys if column]
    at = [first] if second is None else [first, second]
    if before is None:
        where = " AND ".join(f"{column} = ?" for column in key)
        connection.execute(f"DELETE FROM {table} WHERE {where}", at)
        return
    if table == "faces":
        _restore_face(connection, number, first)
        return
    columns = ", ".join([*key, *others])
    values = ["?" for _ in key] + [f"json_extract(?, '$[{place}]')" for place in range(len(others))]
    # Not deleted first: what refers to the row would go with it.
    connection.execute(
        f"INSERT INTO {table} ({columns}) VALUES ({', '.join(values)}) "
        f"ON CONFLICT ({', '.join(key)}) DO {f'UPDATE SET {_excluded(others)}' if others else 'NOTHING'}",
        [*at, *([before] * len(others))],
    )


def delete_orphan_rows(connection: sqlite3.Connection) -> None:
    """Rows about faces that are not there, where foreign keys are deferred or off."""
    for table in ("assignments", "kinds", "rejections", "next_embeddings"):
        connection.execute(f"DELETE FROM {table} WHERE face_id NOT IN (SELECT id FROM faces)")
    connection.execute(
        "DELETE FROM constraints WHERE first_face NOT IN (SELECT id FROM faces) "
        "OR second_face NOT IN (SELECT id FROM faces)"
    )


def _restore_face(connection: sqlite3.Connection, change: int, face: int) -> None:
    columns = ", ".join(_OF_A_FACE)
    connection.execute(
        f"INSERT INTO faces (id, {columns}) SELECT ?, {columns} FROM faces_before WHERE change_id = ? "
        f"ON CONFLICT (id) DO UPDATE SET {_excluded(_OF_A_FACE)}",
        (face, change),
    )
    # What a migration under way has made of it was made of the face as it was.
    connection.execute("DELETE FROM next_embeddings WHERE face_id = ?", (face,))


def _excluded(columns: Sequence[str]) -> str:
    return ", ".join(f"{column} = excluded.{column}" for column in columns)


def _execute(connection: sqlite3.Connection, statements: str) -> None:
    """Unlike `executescript`, without ending the transaction."""
    for statement in statements.split(";\n"):
        if statement.strip():
            connection.execute(statement)


def _log_faces(connection: sqlite3.Connection) -> None:
    _execute(connection, _FACES_BEFORE)
    old = ", ".join(f"old.{column}" for column in _OF_A_FACE)
    _log(
        connection,
        "faces",
        f"    INSERT INTO faces_before (change_id, {', '.join(_OF_A_FACE)}) VALUES (last_insert_rowid(), {old});\n",
    )


def _log(connection: sqlite3.Connection, table: str, keep: str = "") -> None:
    """Triggers that write down each change of a table; `keep`: a statement more, where a row was there before."""
    keys, others = _LOGGED[table]
    for event, row, before in (
        ("INSERT", "new", False),
        ("UPDATE", "old", True),
        ("DELETE", "old", True),
    ):
        first, second = (f"{row}.{column}" if column else "NULL" for column in keys)
        held = f"json_array({', '.join(f'old.{column}' for column in others)})" if before else "NULL"
        connection.execute(
            f"CREATE TRIGGER {table}_{event.lower()} AFTER {event} ON {table}\n"
            "WHEN (SELECT open_decision FROM gallery) IS NOT NULL BEGIN\n"
            "    INSERT INTO changes (decision_id, table_name, first, second, before)\n"
            f"    VALUES ((SELECT open_decision FROM gallery), '{table}', {first}, {second}, {held});\n"
            f"{keep if before else ''}"
            "END"
        )


_MIGRATIONS: dict[int, Callable[[sqlite3.Connection], None]] = {1: _log_faces}  # from this version to the next
