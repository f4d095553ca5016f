"""The tables of a gallery, and the triggers that record what `undo` restores.

A user's decisions change `identities`, `assignments`, `constraints`, `rejections`, `learned_faces`,
the attributes of photos and, for manual edits, `faces`. While `gallery.open_decision` is set, triggers
record the previous content of every changed row in `changes`. The previous version of a face is in `previous_faces`.
"""

from collections.abc import Sequence
from pathlib import Path

from familiar.core.errors import BadGallery
from familiar.gallery.store.connection import DATABASE, Connection

APPLICATION_ID = 0x66616D31  # "fam1", at byte 68 of the file: marks the database as this program's
_DEVELOPMENT_ID = 0x66616D69  # of versions before 0.1
FORMAT = 1

_TABLES = """
CREATE TABLE gallery (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    format TEXT NOT NULL DEFAULT 'familiar-gallery/1',
    uid TEXT NOT NULL,                      -- random, unique to this gallery
    space TEXT NOT NULL,                    -- JSON of `Space`
    model TEXT,                             -- JSON of `ModelReference`: its file and the detector
    embedding_dtype TEXT NOT NULL CHECK (embedding_dtype IN ('float16', 'float32', 'int8')),
    revision INTEGER NOT NULL DEFAULT 0,    -- incremented by every write
    faces_revision INTEGER NOT NULL DEFAULT 0,  -- `revision` when faces were last added, deleted or changed
    last_clustered_face_id INTEGER NOT NULL DEFAULT 0,  -- clustering has processed the faces up to this one
    open_decision INTEGER,                  -- the decision being made: its changes are recorded
    next_space TEXT,                        -- JSON of `Space`: of the model that a migration moves the gallery to
    copied_days INTEGER NOT NULL DEFAULT 3, -- automatic copies: automatic_copies.py
    copied_weeks INTEGER NOT NULL DEFAULT 3
) STRICT;
CREATE TABLE photos (
    id INTEGER PRIMARY KEY AUTOINCREMENT,   -- never reused, as those of faces and identities
    sha256 BLOB NOT NULL UNIQUE,
    path BLOB NOT NULL,                     -- absolute, in the file system's bytes, which may not be UTF-8
    size_bytes INTEGER NOT NULL,            -- 0: enrolled as an embedding, without a file
    modified_ns INTEGER NOT NULL,
    taken_at TEXT,                          -- ISO 8601, local time, from EXIF
    attributes TEXT NOT NULL DEFAULT '{}' CHECK (json_valid(attributes))
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
    embedding BLOB NOT NULL                 -- as `gallery.embedding_dtype`: stored_embeddings.py
) STRICT;
CREATE INDEX faces_by_photo ON faces (photo_id);
CREATE TABLE deleted_boxes (                -- where a face was deleted, moved or forgotten: it is not detected again
    photo_id INTEGER NOT NULL REFERENCES photos ON DELETE CASCADE,
    left_px REAL NOT NULL, top_px REAL NOT NULL, right_px REAL NOT NULL, bottom_px REAL NOT NULL,
    PRIMARY KEY (photo_id, left_px, top_px, right_px, bottom_px)
) STRICT, WITHOUT ROWID;
CREATE TABLE identities (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    name TEXT UNIQUE,
    attributes TEXT NOT NULL DEFAULT '[]' CHECK (json_type(attributes) = 'array')  -- what other programs note of it
) STRICT;
CREATE TABLE assignments (
    face_id INTEGER PRIMARY KEY REFERENCES faces ON DELETE CASCADE,
    identity_id INTEGER NOT NULL REFERENCES identities,
    by_user INTEGER NOT NULL CHECK (by_user IN (0, 1))
) STRICT;
CREATE INDEX assignments_by_identity ON assignments (identity_id);
CREATE TABLE constraints (
    first_face INTEGER NOT NULL REFERENCES faces ON DELETE CASCADE,
    second_face INTEGER NOT NULL REFERENCES faces ON DELETE CASCADE,
    same INTEGER NOT NULL CHECK (same IN (0, 1)),
    PRIMARY KEY (first_face, second_face),
    CHECK (first_face < second_face)
) STRICT, WITHOUT ROWID;
CREATE INDEX constraints_by_second ON constraints (second_face);
CREATE TABLE rejections (                   -- this face does not show this individual
    face_id INTEGER NOT NULL REFERENCES faces ON DELETE CASCADE,
    identity_id INTEGER NOT NULL REFERENCES identities ON DELETE CASCADE,
    PRIMARY KEY (face_id, identity_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX rejections_by_identity ON rejections (identity_id);
CREATE TABLE learned_faces (                -- confirmed faces that the gallery learned from: same/learning.py
    face_id INTEGER PRIMARY KEY REFERENCES faces ON DELETE CASCADE
) STRICT;
CREATE TABLE decisions (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    decided_at TEXT NOT NULL,               -- ISO 8601, UTC
    kind TEXT NOT NULL                      -- the command that made it
) STRICT;
CREATE TABLE changes (                      -- previous rows: JSON of the other columns, NULL for a new row
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    decision_id INTEGER NOT NULL REFERENCES decisions ON DELETE CASCADE,
    table_name TEXT NOT NULL,
    first_key INTEGER NOT NULL,             -- the row's key
    second_key INTEGER,
    previous TEXT
) STRICT;
CREATE INDEX changes_by_decision ON changes (decision_id);
CREATE INDEX changes_by_key ON changes (table_name, first_key);
CREATE TABLE previous_faces (               -- previous versions of faces; JSON loses bytes and the last digits
    change_id INTEGER PRIMARY KEY REFERENCES changes ON DELETE CASCADE,
    photo_id INTEGER NOT NULL REFERENCES photos ON DELETE CASCADE,
    left_px REAL NOT NULL, top_px REAL NOT NULL, right_px REAL NOT NULL, bottom_px REAL NOT NULL,
    landmarks_px BLOB,
    score REAL NOT NULL,
    quality REAL NOT NULL,
    species TEXT,
    embedding BLOB NOT NULL
) STRICT;
CREATE INDEX previous_faces_by_photo ON previous_faces (photo_id);
CREATE TABLE events (                       -- what happened, for programs that report it
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    happened_at TEXT NOT NULL,              -- ISO 8601, UTC
    kind TEXT NOT NULL,
    photo_id INTEGER,                       -- no references: an event outlasts what it is about
    identity_id INTEGER,
    body TEXT NOT NULL CHECK (json_valid(body))
) STRICT;
CREATE TABLE forgotten (                    -- whose bytes may still be in the file, in copies or in an index
    kind TEXT NOT NULL CHECK (kind IN ('photo', 'face', 'identity')),
    number INTEGER NOT NULL,
    PRIMARY KEY (kind, number)
) STRICT, WITHOUT ROWID;
CREATE TABLE next_embeddings (              -- of an unfinished migration
    face_id INTEGER PRIMARY KEY REFERENCES faces ON DELETE CASCADE,
    origin TEXT NOT NULL CHECK (origin IN ('photo', 'bridge')),
    embedding BLOB NOT NULL
) STRICT;
CREATE TABLE notes (                        -- what other programs keep with the gallery
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    topic TEXT NOT NULL,
    photo_id INTEGER,                       -- no reference: a note outlasts the photo, unless that is forgotten
    body TEXT NOT NULL CHECK (json_valid(body)),
    faces TEXT CHECK (json_valid(faces))    -- what it tells of the photo's faces: a list; NULL: to be told again
) STRICT;
CREATE INDEX notes_by_topic ON notes (topic);
CREATE INDEX notes_by_photo ON notes (photo_id);
"""
_FACE_COLUMNS = (
    "photo_id",
    "left_px",
    "top_px",
    "right_px",
    "bottom_px",
    "landmarks_px",
    "score",
    "quality",
    "species",
    "embedding",
)

# Recorded tables: (key columns, other columns) of each.
_RECORDED: dict[str, tuple[tuple[str, str | None], tuple[str, ...]]] = {
    "identities": (("id", None), ("name", "attributes")),
    "assignments": (("face_id", None), ("identity_id", "by_user")),
    "constraints": (("first_face", "second_face"), ("same",)),
    "rejections": (("face_id", "identity_id"), ()),
    "faces": (("id", None), ()),  # the other columns are in `previous_faces`
    "learned_faces": (("face_id", None), ()),
}


def create_tables(connection: Connection) -> None:
    """Create all tables and triggers in an empty database, within a transaction."""
    connection.run(_TABLES)
    for table in _RECORDED:
        _create_triggers(connection, table)
    connection.run(
        "CREATE TRIGGER photos_update AFTER UPDATE OF attributes ON photos\n"
        "WHEN (SELECT open_decision FROM gallery) IS NOT NULL BEGIN\n"
        "    INSERT INTO changes (decision_id, table_name, first_key, previous)\n"
        "    VALUES ((SELECT open_decision FROM gallery), 'photos', old.id, json_array(old.attributes));\n"
        "END"
    )
    connection.set("application_id", APPLICATION_ID)
    connection.set("user_version", FORMAT)


def check_format(connection: Connection, folder: Path) -> None:
    """Check that a database is a gallery that this version reads.

    Raises:
        BadGallery: it is another program's, or one of another version.
    """
    application, version = connection.get("application_id"), connection.get("user_version")
    if application == _DEVELOPMENT_ID:
        raise BadGallery(f"{folder}: was made by a development version of familiar; create it again")
    if application != APPLICATION_ID:
        raise BadGallery(
            f"{folder / DATABASE}: is a database, but not a familiar gallery; move it away, or name another folder"
        )
    if version != FORMAT:
        raise BadGallery(f"{folder}: was made by a newer version of familiar (format {version}); update familiar")


def restore_change(connection: Connection, change: tuple[int, str, int, int | None, str | None]) -> None:
    """Restore the row that one row of `changes` recorded. Foreign keys must be deferred.

    A face whose photo has been deleted since, or has other content by now, is not restored: call `mend_references`
    afterwards.

    Args:
        connection: within a transaction.
        change: (id, table_name, first_key, second_key, previous).
    """
    change_id, table, first_key, second_key, previous = change
    if table == "photos":
        connection.run("UPDATE photos SET attributes = json_extract(?, '$[0]') WHERE id = ?", (previous, first_key))
        return
    key_columns, other_columns = _RECORDED[table]
    key = [column for column in key_columns if column]
    key_values = [first_key] if second_key is None else [first_key, second_key]
    if previous is None:
        where = " AND ".join(f"{column} = ?" for column in key)
        connection.run(f"DELETE FROM {table} WHERE {where}", key_values)
        return
    if table == "faces":
        _restore_face(connection, change_id, first_key)
        return
    columns = ", ".join([*key, *other_columns])
    values = ["?" for _ in key] + [f"json_extract(?, '$[{index}]')" for index in range(len(other_columns))]
    # An upsert rather than delete and insert: deleting would cascade to the rows that refer to this one.
    on_conflict = f"UPDATE SET {_assign_excluded(other_columns)}" if other_columns else "NOTHING"
    connection.run(
        f"INSERT INTO {table} ({columns}) VALUES ({', '.join(values)}) ON CONFLICT ({', '.join(key)}) DO {on_conflict}",
        [*key_values, *([previous] * len(other_columns))],
    )


def mend_references(connection: Connection) -> None:
    """Delete rows that refer to missing faces, and add the identities that faces are assigned to, without names.

    For use while foreign keys are deferred or off. Rejections from other missing identities go, too.
    """
    for table in ("assignments", "rejections", "learned_faces", "next_embeddings"):
        connection.run(f"DELETE FROM {table} WHERE face_id NOT IN (SELECT id FROM faces)")
    connection.run(
        "DELETE FROM constraints WHERE first_face NOT IN (SELECT id FROM faces) "
        "OR second_face NOT IN (SELECT id FROM faces)"
    )
    connection.run("INSERT OR IGNORE INTO identities (id) SELECT identity_id FROM assignments")
    connection.run("DELETE FROM rejections WHERE identity_id NOT IN (SELECT id FROM identities)")


def _restore_face(connection: Connection, change_id: int, face: int) -> None:
    columns = ", ".join(_FACE_COLUMNS)
    connection.run(
        f"INSERT INTO faces (id, {columns}) SELECT ?, {columns} FROM previous_faces WHERE change_id = ? "
        f"ON CONFLICT (id) DO UPDATE SET {_assign_excluded(_FACE_COLUMNS)}",
        (face, change_id),
    )
    # An unfinished migration may have embedded the other version of the face.
    connection.run("DELETE FROM next_embeddings WHERE face_id = ?", (face,))


def _assign_excluded(columns: Sequence[str]) -> str:
    """Return the assignments of an upsert: each column gets the value that was to be inserted."""
    return ", ".join(f"{column} = excluded.{column}" for column in columns)


def _create_triggers(connection: Connection, table: str) -> None:
    """Create the triggers that record each change of a table of `_RECORDED`."""
    key_columns, other_columns = _RECORDED[table]
    copy_face = (
        f"    INSERT INTO previous_faces (change_id, {', '.join(_FACE_COLUMNS)}) "
        f"VALUES (last_insert_rowid(), {', '.join(f'old.{column}' for column in _FACE_COLUMNS)});\n"
    )
    for event, row in (("INSERT", "new"), ("UPDATE", "old"), ("DELETE", "old")):
        has_previous_row = row == "old"
        first_key, second_key = (f"{row}.{column}" if column else "NULL" for column in key_columns)
        old_values = ", ".join(f"old.{column}" for column in other_columns)
        previous = f"json_array({old_values})" if has_previous_row else "NULL"
        connection.run(
            f"CREATE TRIGGER {table}_{event.lower()} AFTER {event} ON {table}\n"
            "WHEN (SELECT open_decision FROM gallery) IS NOT NULL BEGIN\n"
            "    INSERT INTO changes (decision_id, table_name, first_key, second_key, previous)\n"
            f"    VALUES ((SELECT open_decision FROM gallery), '{table}', {first_key}, {second_key}, {previous});\n"
            f"{copy_face if table == 'faces' and has_previous_row else ''}"
            "END"
        )
