"""A record of all that is committed to a gallery, in its order and by whom, to check what many writers did.

Triggers write each change of a row into a table of the same database, within the transaction that makes it: the record
has all that was committed, and nothing else. A state between two operations is what the record says up to a revision.
"""

import contextlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from familiar.gallery.store.connection import DATABASE, Connection, connect

TABLES = {  # of each table: the columns of its key, and others that are compared
    "photos": (("id",), "hex(sha256), CAST(path AS TEXT)"),
    "faces": (("id",), "photo_id, left_px, top_px, right_px, bottom_px"),
    "identities": (("id",), "name, attributes"),
    "assignments": (("face_id",), "identity_id, by_user"),
    "constraints": (("first_face", "second_face"), "same"),
    "rejections": (("face_id", "identity_id"), ""),
    "decisions": (("id",), "kind"),
    "gallery": (("id",), "revision"),
}
Key = tuple[int, ...]
Row = tuple[Any, ...]
State = dict[str, dict[Key, Row]]


def set_writer(connection: Connection, name: Callable[[], str]) -> None:
    """Let a connection say who writes: every connection that writes must."""
    connection.create_scalar_function("history_writer", name, 0)


def record_history(folder: Path) -> None:
    """Begin to record what is committed to a gallery."""
    with contextlib.closing(connect(folder / DATABASE)) as connection:
        set_writer(connection, lambda: "start")
        connection.execute("BEGIN IMMEDIATE")
        for table in ("previous_faces", "changes", "decisions"):  # nobody can undo what is not in the record
            connection.execute(f"DELETE FROM {table}")
        connection.execute("CREATE TABLE history (id INTEGER PRIMARY KEY, writer, table_name, key, row)")
        for table, (key, others) in TABLES.items():
            columns = ", ".join(key)
            for event, version in (("INSERT", "NEW"), ("UPDATE", "NEW"), ("DELETE", "OLD")):
                changed = ", ".join(f"{version}.{column}" for column in key)
                connection.execute(
                    f"CREATE TRIGGER history_{table}_{event} AFTER {event} ON {table} BEGIN "
                    "INSERT INTO history (writer, table_name, key, row) "
                    f"VALUES (history_writer(), '{table}', json_array({changed}), "
                    f"(SELECT json_array({others}) FROM {table} WHERE ({columns}) = ({changed}))); END"
                )
            connection.execute(
                "INSERT INTO history (writer, table_name, key, row) "
                f"SELECT history_writer(), '{table}', json_array({columns}), json_array({others}) FROM {table}"
            )
        connection.execute("UPDATE gallery SET revision = revision + 1")
        connection.execute("COMMIT")


@dataclass(frozen=True)
class Commit:
    """One write: who made it, and all rows before and after."""

    writer: str
    before: State
    after: State

    @property
    def revision(self) -> int:
        return self.after["gallery"][(1,)][0]

    @cached_property
    def changes(self) -> dict[tuple[str, Key], tuple[Row | None, Row | None]]:
        """The rows that it changed, by table and key; None: there is none."""
        return {
            (table, key): (before.get(key), after.get(key))
            for table, before, after in ((table, self.before[table], self.after[table]) for table in TABLES)
            for key in before.keys() | after.keys()
            if table != "gallery" and before.get(key) != after.get(key)
        }

    def changes_of(self, table: str) -> dict[Key, tuple[Row | None, Row | None]]:
        return {key: versions for (name, key), versions in self.changes.items() if name == table}


def read_commits(folder: Path) -> Iterator[Commit]:
    """Read the record. The first commit has what was there when it began."""
    with contextlib.closing(connect(folder / DATABASE)) as connection:
        rows = connection.rows("SELECT writer, table_name, key, row FROM history ORDER BY id")
    state: State = {table: {} for table in TABLES}
    before = state.copy()
    for writer, table, key, row in rows:
        changed = dict(state[table])
        if row is None:
            del changed[tuple(json.loads(key))]
        else:
            changed[tuple(json.loads(key))] = tuple(json.loads(row))
        state[table] = changed
        if table == "gallery" and state["gallery"] != before["gallery"]:  # each write ends with the next revision
            yield Commit(writer, before, state.copy())
            before = state.copy()
    assert state == before, "changes without a revision"


def read_state(folder: Path) -> State:
    """Read the tables as they are now."""
    state: State = {}
    with contextlib.closing(connect(folder / DATABASE)) as connection:
        for table, (key, others) in TABLES.items():
            query = f"SELECT json_array({', '.join(key)}), json_array({others}) FROM {table}"
            state[table] = {tuple(json.loads(key)): tuple(json.loads(row)) for key, row in connection.rows(query)}
    return state
