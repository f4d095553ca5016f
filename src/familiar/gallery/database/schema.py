"""SQL schema of a gallery, and the migrations from older versions of it.

A user's decisions change `identities`, `assignments`, `domains`, `constraints`, `rejections`, `learned_faces`,
`reports` and, for manual edits, `faces`. While `gallery.open_decision` is set, triggers record the previous content of
every changed row in `changes`, so `undo` restores everything that a decision did. The previous version of a face is
kept in `previous_faces`.

The column `checksum` of each table is computed from the others (see `database.checksums`).
"""

import re
import sqlite3
from collections.abc import Callable, Iterable, Sequence

from familiar.gallery.database.checksums import (
    COLUMN,
    add_function,
    checksum_call,
    data_columns,
    schema_checksum,
    sequence_checksum,
    tables,
)

APPLICATION_ID = 0x66616D69  # "fami", at byte 68 of the file: marks the database as this program's
VERSION = 7  # of the schema
# 1: no decision could change faces; 2: other names; 3: nothing was learned; 4: no reports; 5: no checksums;
# 6: the model and the detector were not remembered, nor where faces were deleted

_TABLES = """
CREATE TABLE gallery (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    uid TEXT NOT NULL,                      -- random, unique to this gallery
    space TEXT NOT NULL,                    -- JSON of `Space`
    embedding_dtype TEXT NOT NULL CHECK (embedding_dtype IN ('float16', 'float32')),
    own_calibration TEXT,                   -- JSON of `OwnCalibration`: fitted on confirmed faces
    revision INTEGER NOT NULL DEFAULT 0,    -- incremented by every write
    faces_revision INTEGER NOT NULL DEFAULT 0,  -- `revision` when faces were last added, deleted or changed
    last_clustered_face_id INTEGER NOT NULL DEFAULT 0,  -- clustering has processed the faces up to this one
    open_decision INTEGER,                  -- the decision being made: its changes are recorded
    erasure_due INTEGER NOT NULL DEFAULT 0, -- not 0: the write whose forgotten content may still be in the file's bytes
    writes INTEGER NOT NULL DEFAULT 0,      -- incremented by every write, also by those that leave `revision` as it is
    model TEXT,                             -- JSON of `ModelReference`: its file and the detector
    repaired_from TEXT,                     -- `uid` of each damaged gallery that this one was recovered from
    schema_checksum INTEGER,                -- of the definitions of all tables: checksums.py
    sequence_checksum INTEGER,              -- of `sqlite_sequence`
    checksum INTEGER
) STRICT;
CREATE TABLE photos (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    sha256 BLOB NOT NULL UNIQUE,
    path TEXT NOT NULL,
    size_bytes INTEGER NOT NULL,
    modified_ns INTEGER NOT NULL,
    taken_at TEXT,                          -- ISO 8601, local time, from EXIF
    checksum INTEGER
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
    embedding BLOB NOT NULL,                -- `gallery.embedding_dtype`, little endian
    checksum INTEGER
) STRICT;
CREATE INDEX faces_by_photo ON faces (photo_id);
CREATE TABLE identities (
    id INTEGER PRIMARY KEY AUTOINCREMENT,   -- never reused
    name TEXT UNIQUE,
    checksum INTEGER
) STRICT;
CREATE TABLE assignments (
    face_id INTEGER PRIMARY KEY REFERENCES faces ON DELETE CASCADE,
    identity_id INTEGER NOT NULL REFERENCES identities,
    by_user INTEGER NOT NULL CHECK (by_user IN (0, 1)),
    checksum INTEGER
) STRICT;
CREATE INDEX assignments_by_identity ON assignments (identity_id);
CREATE TABLE domains (                      -- the domain of a face outside the main one: neighbors/domains.py
    face_id INTEGER PRIMARY KEY REFERENCES faces ON DELETE CASCADE,
    domain INTEGER NOT NULL,
    checksum INTEGER
) STRICT;
CREATE TABLE constraints (
    first_face INTEGER NOT NULL REFERENCES faces ON DELETE CASCADE,
    second_face INTEGER NOT NULL REFERENCES faces ON DELETE CASCADE,
    same INTEGER NOT NULL CHECK (same IN (0, 1)),
    checksum INTEGER,
    PRIMARY KEY (first_face, second_face),
    CHECK (first_face < second_face)
) STRICT, WITHOUT ROWID;
CREATE INDEX constraints_by_second ON constraints (second_face);
CREATE TABLE rejections (                   -- this face does not show this individual
    face_id INTEGER NOT NULL REFERENCES faces ON DELETE CASCADE,
    identity_id INTEGER NOT NULL REFERENCES identities ON DELETE CASCADE,
    checksum INTEGER,
    PRIMARY KEY (face_id, identity_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX rejections_by_identity ON rejections (identity_id);
CREATE TABLE decisions (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    decided_at TEXT NOT NULL,               -- ISO 8601, UTC
    kind TEXT NOT NULL,                     -- the command that made it
    checksum INTEGER
) STRICT;
CREATE TABLE changes (                      -- previous rows: JSON of the other columns, NULL for a new row
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    decision_id INTEGER NOT NULL REFERENCES decisions ON DELETE CASCADE,
    table_name TEXT NOT NULL,
    first_key INTEGER NOT NULL,             -- the row's key
    second_key INTEGER,
    previous TEXT,
    checksum INTEGER
) STRICT;
CREATE INDEX changes_by_decision ON changes (decision_id);
CREATE INDEX changes_by_key ON changes (table_name, first_key);
CREATE TABLE next_embeddings (              -- of an unfinished migration
    face_id INTEGER PRIMARY KEY REFERENCES faces ON DELETE CASCADE,
    origin TEXT NOT NULL CHECK (origin IN ('photo', 'bridge')),
    embedding BLOB NOT NULL,
    checksum INTEGER
) STRICT;
CREATE TABLE migration (                    -- one row during a migration
    id INTEGER PRIMARY KEY CHECK (id = 1),
    space TEXT NOT NULL,
    checksum INTEGER
) STRICT;
"""

_PREVIOUS_FACES = """
CREATE TABLE previous_faces (               -- previous versions of faces; JSON loses bytes and the last digits
    change_id INTEGER PRIMARY KEY REFERENCES changes ON DELETE CASCADE,
    embedding BLOB NOT NULL,                -- first, so that salvage.py does not take them for `faces`
    photo_id INTEGER NOT NULL REFERENCES photos ON DELETE CASCADE,
    left_px REAL NOT NULL, top_px REAL NOT NULL, right_px REAL NOT NULL, bottom_px REAL NOT NULL,
    landmarks_px BLOB,
    score REAL NOT NULL,
    quality REAL NOT NULL,
    species TEXT,
    checksum INTEGER
) STRICT;
CREATE INDEX previous_faces_by_photo ON previous_faces (photo_id);
"""
_LEARNED_FACES = """
CREATE TABLE learned_faces (                -- confirmed faces that the gallery learned from: clustering/learning.py
    face_id INTEGER PRIMARY KEY REFERENCES faces ON DELETE CASCADE,
    checksum INTEGER
) STRICT, WITHOUT ROWID;                    -- so that salvage.py does not take them for identities
"""
_DELETED_BOXES = """
CREATE TABLE deleted_boxes (                -- where a face was deleted, moved or forgotten: it is not detected again
    photo_id INTEGER NOT NULL REFERENCES photos ON DELETE CASCADE,
    left_px REAL NOT NULL, top_px REAL NOT NULL, right_px REAL NOT NULL, bottom_px REAL NOT NULL,
    checksum INTEGER,
    PRIMARY KEY (photo_id, left_px, top_px, right_px, bottom_px)
) STRICT, WITHOUT ROWID;
"""
_REPORT_TABLES = """
CREATE TABLE reports (                      -- lost and found pets: register/reports.py; a text is empty if not known
    identity_id INTEGER PRIMARY KEY REFERENCES identities ON DELETE CASCADE,
    status TEXT NOT NULL CHECK (status IN ('lost', 'found', 'home')),
    species TEXT NOT NULL,                  -- never NULL, so that salvage.py does not take the rows for identities
    location TEXT NOT NULL,
    reported_on TEXT NOT NULL,              -- ISO 8601 day: lost or found on
    contact TEXT NOT NULL,
    note TEXT NOT NULL,
    checksum INTEGER
) STRICT;
"""
_WATCH_TABLES = """
CREATE TABLE missing_photos (               -- photos whose files are gone, as `familiar watch` noticed.
    -- As in all these tables but `watch_events`, no rowid, so that salvage.py does not take the rows for others'
    photo_id INTEGER PRIMARY KEY REFERENCES photos ON DELETE CASCADE,
    noticed_at TEXT NOT NULL,               -- ISO 8601, UTC
    checksum INTEGER
) STRICT, WITHOUT ROWID;
CREATE TABLE skipped_files (                -- files that could not be read, and were reported
    path TEXT PRIMARY KEY,
    size_bytes INTEGER NOT NULL,
    modified_ns INTEGER NOT NULL,
    changed_ns INTEGER NOT NULL,            -- also changed by new permissions
    checksum INTEGER
) STRICT, WITHOUT ROWID;
CREATE TABLE watch_events (                 -- what `familiar watch` has not reported everywhere yet
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    happened_at TEXT NOT NULL,              -- ISO 8601, UTC
    kind TEXT NOT NULL,
    photo_id INTEGER,                       -- no reference: an event outlasts the photo, unless that is forgotten
    body TEXT NOT NULL,                     -- JSON
    is_complete INTEGER NOT NULL CHECK (is_complete IN (0, 1)),  -- 0: who is in the photo is added after clustering
    token TEXT NOT NULL,                    -- random: a restored backup counts from the same id again
    checksum INTEGER
) STRICT;
CREATE INDEX watch_events_by_photo ON watch_events (photo_id);
CREATE TABLE watch_deliveries (
    destination TEXT PRIMARY KEY,           -- "stdout", or the SHA-256 of a URL, which may contain a password
    last_event INTEGER NOT NULL,            -- the last one that it does not need any more
    checksum INTEGER
) STRICT, WITHOUT ROWID;
CREATE TABLE watch (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    last_identity INTEGER NOT NULL,         -- the highest number of an identity when events were last completed
    checksum INTEGER
) STRICT, WITHOUT ROWID;
"""
_FACE_COLUMNS = (
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

# Recorded tables: (key columns, other columns) of each.
_LOGGED: dict[str, tuple[tuple[str, str | None], tuple[str, ...]]] = {
    "identities": (("id", None), ("name",)),
    "assignments": (("face_id", None), ("identity_id", "by_user")),
    "domains": (("face_id", None), ("domain",)),
    "constraints": (("first_face", "second_face"), ("same",)),
    "rejections": (("face_id", "identity_id"), ()),
    "faces": (("id", None), ()),  # the other columns are in `previous_faces`
    "learned_faces": (("face_id", None), ()),
    "reports": (("identity_id", None), ("status", "species", "location", "reported_on", "contact", "note")),
}


def create_tables(connection: sqlite3.Connection) -> None:
    """Create all tables and triggers of the current version in an empty database, within a transaction."""
    add_function(connection)
    for statements in (_TABLES, _PREVIOUS_FACES, _LEARNED_FACES, _DELETED_BOXES, _REPORT_TABLES, _WATCH_TABLES):
        _execute_all(connection, _with_checksums(statements))
    _create_all_triggers(connection, _LOGGED)
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {VERSION}")


def update_tables(connection: sqlite3.Connection, version: int) -> None:
    """Migrate the tables of an older version to the current one, within a transaction."""
    for older_version in range(version, VERSION):
        if older_version in _MIGRATIONS:
            _MIGRATIONS[older_version](connection)
    connection.execute(f"PRAGMA user_version = {VERSION}")
    store_checksums(connection)


def store_checksums(connection: sqlite3.Connection) -> None:
    """Store the checksums of the definitions and of the numbers given out, within a transaction."""
    connection.execute(
        "UPDATE gallery SET schema_checksum = ?, sequence_checksum = ?",
        (schema_checksum(connection), sequence_checksum(connection)),
    )


def restore_change(connection: sqlite3.Connection, change: tuple[int, str, int, int | None, str | None]) -> None:
    """Restore the row that one row of `changes` recorded. Foreign keys must be deferred.

    A face whose photo has been deleted since, or has other content by now, is not restored: call
    `delete_orphan_rows` afterwards.

    Args:
        connection: within a transaction.
        change: (id, table_name, first_key, second_key, previous).
    """
    change_id, table, first_key, second_key, previous = change
    key_columns, other_columns = _LOGGED[table]
    key = [column for column in key_columns if column]
    key_values = [first_key] if second_key is None else [first_key, second_key]
    if previous is None:
        where = " AND ".join(f"{column} = ?" for column in key)
        connection.execute(f"DELETE FROM {table} WHERE {where}", key_values)
        return
    if table == "faces":
        _restore_face(connection, change_id, first_key)
        return
    columns = ", ".join([*key, *other_columns])
    values = ["?" for _ in key] + [f"json_extract(?, '$[{index}]')" for index in range(len(other_columns))]
    # An upsert rather than delete and insert: deleting would cascade to the rows that refer to this one.
    on_conflict = f"UPDATE SET {_assign_excluded(other_columns)}" if other_columns else "NOTHING"
    connection.execute(
        f"INSERT INTO {table} ({columns}) VALUES ({', '.join(values)}) ON CONFLICT ({', '.join(key)}) DO {on_conflict}",
        [*key_values, *([previous] * len(other_columns))],
    )


def delete_orphan_rows(connection: sqlite3.Connection) -> None:
    """Delete rows that refer to missing faces, for use while foreign keys are deferred or off."""
    for table in ("assignments", "domains", "rejections", "learned_faces", "next_embeddings"):
        connection.execute(f"DELETE FROM {table} WHERE face_id NOT IN (SELECT id FROM faces)")
    connection.execute(
        "DELETE FROM constraints WHERE first_face NOT IN (SELECT id FROM faces) "
        "OR second_face NOT IN (SELECT id FROM faces)"
    )


def _restore_face(connection: sqlite3.Connection, change_id: int, face: int) -> None:
    columns = ", ".join(_FACE_COLUMNS)
    connection.execute(
        f"INSERT INTO faces (id, {columns}) SELECT ?, {columns} FROM previous_faces WHERE change_id = ? "
        f"ON CONFLICT (id) DO UPDATE SET {_assign_excluded(_FACE_COLUMNS)}",
        (face, change_id),
    )
    # An unfinished migration may have embedded the other version of the face.
    connection.execute("DELETE FROM next_embeddings WHERE face_id = ?", (face,))


def _assign_excluded(columns: Sequence[str]) -> str:
    """Return the assignments of an upsert: each column gets the value that was to be inserted."""
    return ", ".join(f"{column} = excluded.{column}" for column in columns)


def _execute_all(connection: sqlite3.Connection, statements: str) -> None:
    """Execute statements separated by semicolons. Unlike `executescript`, does not end the transaction."""
    for statement in statements.split(";\n"):
        if statement.strip():
            connection.execute(statement)


def _with_checksums(statements: str) -> str:
    """Let the column `checksum` of each table be computed from the others."""
    scratch = sqlite3.connect(":memory:")
    _execute_all(scratch, statements)
    for table in re.findall(r"CREATE TABLE (\w+)", statements):
        definition = f"{COLUMN} INTEGER AS ({checksum_call(table, data_columns(scratch, table))}) STORED"
        statements = re.sub(
            rf"(CREATE TABLE {table} .*?)\b{COLUMN} INTEGER\b", rf"\1{definition}", statements, count=1, flags=re.DOTALL
        )
    scratch.close()
    return statements


def _create_all_triggers(connection: sqlite3.Connection, tables: Iterable[str]) -> None:
    """Create the triggers that record the changes of tables of `_LOGGED`."""
    old_values = ", ".join(f"old.{column}" for column in _FACE_COLUMNS)
    copy_face = (
        f"    INSERT INTO previous_faces (change_id, {', '.join(_FACE_COLUMNS)}) "
        f"VALUES (last_insert_rowid(), {old_values});\n"
    )
    for table in tables:
        _create_triggers(connection, table, copy_face if table == "faces" else "")


def _create_triggers(connection: sqlite3.Connection, table: str, extra_statement: str = "") -> None:
    """Create triggers that record each change of a table.

    Args:
        connection: within a transaction.
        table: one of `_LOGGED`.
        extra_statement: also executed for an update or deletion, which have a previous row.
    """
    key_columns, other_columns = _LOGGED[table]
    for event, row, has_previous_row in (
        ("INSERT", "new", False),
        ("UPDATE", "old", True),
        ("DELETE", "old", True),
    ):
        first_key, second_key = (f"{row}.{column}" if column else "NULL" for column in key_columns)
        old_columns = ", ".join(f"old.{column}" for column in other_columns)
        previous = f"json_array({old_columns})" if has_previous_row else "NULL"
        connection.execute(
            f"CREATE TRIGGER {table}_{event.lower()} AFTER {event} ON {table}\n"
            "WHEN (SELECT open_decision FROM gallery) IS NOT NULL BEGIN\n"
            "    INSERT INTO changes (decision_id, table_name, first_key, second_key, previous)\n"
            f"    VALUES ((SELECT open_decision FROM gallery), '{table}', {first_key}, {second_key}, {previous});\n"
            f"{extra_statement if has_previous_row else ''}"
            "END"
        )


def _migrate_from_1(connection: sqlite3.Connection) -> None:
    """Add the table of previous faces, under the name that it had in version 2."""
    _execute_all(connection, _PREVIOUS_FACES.replace("previous_faces", "faces_before"))


def _migrate_from_2(connection: sqlite3.Connection) -> None:
    """Rename tables, columns, and what the undo log calls them."""
    _drop_all(connection, "trigger")
    _execute_all(connection, _RENAME_FROM_2)


def _migrate_from_5(connection: sqlite3.Connection) -> None:
    """Copy a gallery without checksums, which also adds what versions 3 and 4 lacked."""
    _copy_into_new_tables(connection)
    connection.execute("UPDATE gallery SET writes = revision")


def _copy_into_new_tables(connection: sqlite3.Connection) -> None:
    """Copy all rows into tables of the current version, unless they are that already."""
    if "deleted_boxes" in tables(connection):
        return
    _drop_all(connection, "trigger")
    _drop_all(connection, "index")
    old_tables = tables(connection)
    for table in old_tables:
        connection.execute(f"ALTER TABLE {table} RENAME TO old_{table}")
    create_tables(connection)
    for table in tables(connection):
        if table in old_tables:
            names = [name for name, _ in data_columns(connection, f"old_{table}")]
            columns = ", ".join(name for name, _ in data_columns(connection, table) if name in names)
            connection.execute(f"INSERT INTO {table} ({columns}) SELECT {columns} FROM old_{table}")
    connection.execute("DELETE FROM sqlite_sequence WHERE name NOT LIKE 'old!_%' ESCAPE '!'")
    connection.execute("INSERT INTO sqlite_sequence (name, seq) SELECT substr(name, 5), seq FROM sqlite_sequence")
    for table in reversed(old_tables):  # children before the parents that they refer to
        connection.execute(f"DROP TABLE old_{table}")


def _drop_all(connection: sqlite3.Connection, kind: str) -> None:
    """Drop all triggers, or all indexes except those of keys."""
    names = connection.execute("SELECT name FROM sqlite_schema WHERE type = ? AND sql IS NOT NULL", (kind,)).fetchall()
    for (name,) in names:
        connection.execute(f"DROP {kind} {name}")


_RENAME_FROM_2 = """
ALTER TABLE kinds RENAME TO domains;
ALTER TABLE domains RENAME COLUMN kind TO domain;
ALTER TABLE gallery RENAME COLUMN element TO embedding_dtype;
ALTER TABLE gallery RENAME COLUMN judged_face TO last_clustered_face_id;
DROP INDEX changes_by_first;
ALTER TABLE changes RENAME COLUMN first TO first_key;
ALTER TABLE changes RENAME COLUMN second TO second_key;
ALTER TABLE changes RENAME COLUMN before TO previous;
CREATE INDEX changes_by_key ON changes (table_name, first_key);
UPDATE changes SET table_name = 'domains' WHERE table_name = 'kinds';
DROP INDEX faces_before_by_photo;
ALTER TABLE faces_before RENAME TO previous_faces;
CREATE INDEX previous_faces_by_photo ON previous_faces (photo_id);
UPDATE decisions SET kind = 'cluster' WHERE kind = 'group';
UPDATE decisions SET kind = 'mark different' WHERE kind = 'tell apart';
"""

# Of older versions: the migration to the next one. From 3 and 4 there is none: `_migrate_from_5` adds their tables.
_MIGRATIONS: dict[int, Callable[[sqlite3.Connection], None]] = {
    1: _migrate_from_1,
    2: _migrate_from_2,
    5: _migrate_from_5,
    6: _copy_into_new_tables,
}

OLD_NAMES: dict[str, tuple[str, dict[str, str]]] = {
    "domains": ("kinds", {"domain": "kind"}),
    "gallery": ("gallery", {"embedding_dtype": "element", "last_clustered_face_id": "judged_face"}),
}
"""Names until version 2: of each renamed table, and of its renamed columns. Without those of the undo log."""
