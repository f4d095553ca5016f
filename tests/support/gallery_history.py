"""A record of all that is committed to a gallery, in its order and by whom, to check what many writers did.

Triggers write each change of a row into a table of the same database, within the transaction that makes it: the record
has all that was committed, and nothing else. A state between two operations is what the record says up to a revision.
"""

import contextlib
import json
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from familiar.gallery.store.connection import DATABASE, Connection, connect

COLUMNS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {  # of each table: its key and the other columns
    "gallery": (("id",), ("revision",)),
    "photos": (("id",), ("hex(sha256)", "path")),
    "faces": (("id",), ("photo_id", "left_px", "top_px", "right_px", "bottom_px")),
    "identities": (("id",), ("name",)),
    "assignments": (("face_id",), ("identity_id", "by_user")),
    "constraints": (("first_face", "second_face"), ("same",)),
    "rejections": (("face_id", "identity_id"), ()),
    "reports": (("identity_id",), ("status", "species", "location", "reported_on", "contact", "note")),
    "decisions": (("id",), ("kind",)),
}
UNDONE_TABLES = ("identities", "assignments", "constraints", "rejections", "reports", "faces")
Key = tuple[int, ...]
Row = tuple[Any, ...]
State = dict[str, dict[Key, Row]]


def set_writer(connection: Connection, name: Callable[[], str]) -> None:
    """Let a connection say who writes: every connection that writes must."""
    connection.create_scalar_function("history_writer", name, 0)


def record_history(folder: Path) -> None:
    """Begin to record what is committed to a gallery."""
    connection = connect(folder / DATABASE)
    set_writer(connection, lambda: "start")
    connection.execute("BEGIN IMMEDIATE")
    for table in ("previous_faces", "changes", "decisions"):  # nobody can undo what is not in the record
        connection.execute(f"DELETE FROM {table}")
    connection.execute(
        "CREATE TABLE history (id INTEGER PRIMARY KEY, writer TEXT, table_name TEXT, key TEXT, row TEXT)"
    )
    for table, (keys, others) in COLUMNS.items():
        for event, prefix in (("INSERT", "NEW"), ("UPDATE", "NEW"), ("DELETE", "OLD")):
            key, row = (_json(columns, prefix) for columns in (keys, others))
            connection.execute(
                f"CREATE TRIGGER history_{table}_{event} AFTER {event} ON {table} BEGIN INSERT INTO history "
                f"(writer, table_name, key, row) VALUES (history_writer(), '{table}', {key}, "
                f"{'NULL' if event == 'DELETE' else row}); END"
            )
        key, row = (_json(columns, "") for columns in (keys, others))
        connection.execute(
            "INSERT INTO history (writer, table_name, key, row) "
            f"SELECT history_writer(), '{table}', {key}, {row} FROM {table}"
        )
    connection.execute("UPDATE gallery SET revision = revision + 1")
    connection.execute("COMMIT")
    connection.close()


def _json(columns: tuple[str, ...], prefix: str) -> str:
    """Return the SQL of a JSON array of columns of a row: `hex(sha256)` becomes `hex(NEW.sha256)`."""
    dot = f"{prefix}." if prefix else ""
    texts: list[str] = []
    for column in columns:
        if "(" in column:
            texts.append(column.replace("(", f"({dot}"))
        else:
            texts.append(f"CAST({dot}path AS TEXT)" if column == "path" else dot + column)
    return f"json_array({', '.join(texts)})"


@dataclass(frozen=True)
class Commit:
    """One write.

    Attributes:
        revision: that it made.
        writer: who made it.
        changes: (table, key, row before, row after) of each row that it changed; None: there is none.
    """

    revision: int
    writer: str
    changes: tuple[tuple[str, Key, Row | None, Row | None], ...]

    def rows_of(self, table: str) -> dict[Key, tuple[Row | None, Row | None]]:
        """Return the rows of a table before and after, by key."""
        return {key: (before, after) for name, key, before, after in self.changes if name == table}


@dataclass
class History:
    """All commits of a gallery, in their order, and the state after each."""

    commits: list[Commit] = field(default_factory=list[Commit])

    @staticmethod
    def read(folder: Path) -> "History":
        """Read the record."""
        with contextlib.closing(connect(folder / DATABASE)) as connection:
            rows = connection.rows("SELECT writer, table_name, key, row FROM history ORDER BY id")
        history, state = History(), empty_state()
        before: dict[tuple[str, Key], Row | None] = {}  # of the rows that the current commit has changed so far
        for writer, table, key_text, row_text in rows:
            key: Key = tuple(json.loads(key_text))
            row: Row | None = None if row_text is None else tuple(json.loads(row_text))
            if table == "gallery":
                if row is None or state["gallery"].get(key) == row:
                    continue
                state["gallery"][key] = row
                changes = tuple(
                    (name, changed, previous, state[name].get(changed))
                    for (name, changed), previous in before.items()
                    if previous != state[name].get(changed)
                )
                history.commits.append(Commit(row[0], writer, changes))
                before = {}
                continue
            before.setdefault((table, key), state[table].get(key))
            if row is None:
                state[table].pop(key, None)
            else:
                state[table][key] = row
        # Rows of writes that make no revision, as those of a watch: they change none of these tables.
        assert not before, f"changes without a revision: {before}"
        return history

    def states(self) -> Iterator[tuple[Commit, State]]:
        """Iterate over the commits, each with the state after it. It is the same object each time."""
        state = empty_state()
        for commit in self.commits:
            for table, key, _, after in commit.changes:
                if after is None:
                    state[table].pop(key, None)
                else:
                    state[table][key] = after
            state["gallery"][(1,)] = (commit.revision,)
            yield commit, state

    def by_writer(self) -> dict[str, list[Commit]]:
        """Return the commits of each writer."""
        commits: defaultdict[str, list[Commit]] = defaultdict(list)
        for commit in self.commits:
            commits[commit.writer].append(commit)
        return dict(commits)


def empty_state() -> State:
    return {table: {} for table in COLUMNS}


def read_state(folder: Path) -> State:
    """Read the tables as they are now."""
    state = empty_state()
    with contextlib.closing(connect(folder / DATABASE)) as connection:
        for table, (keys, others) in COLUMNS.items():
            for key, row in connection.rows(f"SELECT {_json(keys, '')}, {_json(others, '')} FROM {table}"):
                state[table][tuple(json.loads(key))] = tuple(json.loads(row))
    return state
