"""What happened in a gallery, in order, for programs that follow it."""

import json
from datetime import UTC, datetime

from familiar.gallery.store.table import Table

EventRow = tuple[int, str, str, int | None, dict[str, int]]  # id, time, kind, identity and the rest


class Events(Table):
    """SQL statements on the table `events`."""

    def add(self, kind: str, identity: int | None = None, **body: int) -> None:
        """Add an event that happens now."""
        self._connection.run(
            "INSERT INTO events (happened_at, kind, identity_id, body) VALUES (?, ?, ?, ?)",
            (datetime.now(UTC).isoformat(timespec="milliseconds"), kind, identity, json.dumps(body)),
        )

    def after(self, number: int, limit: int) -> list[EventRow]:
        """Return the next events after a number, oldest first."""
        rows = self._connection.rows(
            "SELECT id, happened_at, kind, identity_id, body FROM events WHERE id > ? ORDER BY id LIMIT ?",
            (number, limit),
        )
        return [(*others, json.loads(body)) for *others, body in rows]
