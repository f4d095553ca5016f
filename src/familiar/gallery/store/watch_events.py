"""The outbox of `familiar watch`: events that were not delivered everywhere yet."""

import secrets
from collections.abc import Sequence

from familiar.gallery.store.table import Table

Row = tuple[int, str, str, str, str]  # id, token, time, kind and JSON of an event


class WatchEvents(Table):
    """SQL statements on the tables `watch_events` and `watch_deliveries`."""

    def insert(self, happened_at: str, kind: str, photo: int | None, body: str, *, is_complete: bool) -> int:
        """Add an event, and return its id."""
        return self._connection.value(
            "INSERT INTO watch_events (happened_at, kind, photo_id, body, is_complete, token) "
            "VALUES (?, ?, ?, ?, ?, ?) RETURNING id",
            (happened_at, kind, photo, body, int(is_complete), secrets.token_hex(8)),
        )

    def replace_photo(self, photo: int, by: int) -> None:
        """Let the events of a photo belong to the photo that replaced it."""
        self._connection.run("UPDATE watch_events SET photo_id = ? WHERE photo_id = ?", (by, photo))

    def incomplete(self) -> list[tuple[int, int, str]]:
        """Return id, photo and JSON of the events that wait for clustering, by rising id."""
        return self._connection.rows("SELECT id, photo_id, body FROM watch_events WHERE is_complete = 0 ORDER BY id")

    def complete(self, event: int, body: str) -> None:
        """Store the final JSON of an event."""
        self._connection.run("UPDATE watch_events SET body = ?, is_complete = 1 WHERE id = ?", (body, event))

    def next(self, after: int, limit: int) -> list[Row]:
        """Return the next events after an id that can be delivered: up to the first that is not complete."""
        return self._connection.rows(
            "SELECT id, token, happened_at, kind, body FROM watch_events WHERE id > ?1 AND id < "
            "coalesce((SELECT min(id) FROM watch_events WHERE is_complete = 0 AND id > ?1), 9223372036854775807) "
            "ORDER BY id LIMIT ?2",
            (after, limit),
        )

    def count(self) -> int:
        """Return the number of events."""
        return self._connection.value("SELECT count(*) FROM watch_events")

    def last_id(self) -> int:
        """Return the highest id that an event ever had, or 0."""
        return self._connection.value("SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'watch_events'")

    def set_destinations(self, destinations: Sequence[str]) -> None:
        """Forget all other destinations. New ones receive events from now on."""
        last_event = self.last_id()
        known = [each for (each,) in self._connection.rows("SELECT destination FROM watch_deliveries")]
        self._connection.run_many(
            "DELETE FROM watch_deliveries WHERE destination = ?", ((each,) for each in set(known) - set(destinations))
        )
        self._connection.run_many(
            "INSERT INTO watch_deliveries (destination, last_event) VALUES (?, ?) ON CONFLICT DO NOTHING",
            ((destination, last_event) for destination in destinations),
        )

    def delivered(self, destination: str) -> int:
        """Return the last event that a destination does not need any more."""
        row = self._connection.first("SELECT last_event FROM watch_deliveries WHERE destination = ?", (destination,))
        return self.last_id() if row is None else row[0]

    def mark_delivered(self, destination: str, event: int) -> None:
        """Store that a destination has all events up to one, and delete those that all destinations have."""
        self._connection.run(
            "UPDATE watch_deliveries SET last_event = max(last_event, ?) WHERE destination = ?", (event, destination)
        )
        self._connection.run(
            "DELETE FROM watch_events WHERE is_complete = 1 AND id <= (SELECT min(last_event) FROM watch_deliveries)"
        )

    def delete_oldest(self, max_events: int) -> int:
        """Delete the oldest complete events beyond a number, and return how many that were."""
        return self._connection.run(
            "DELETE FROM watch_events WHERE is_complete = 1 AND id <= "
            "(SELECT id FROM watch_events ORDER BY id DESC LIMIT 1 OFFSET ?)",
            (max_events,),
        )

    def last_identity(self) -> int | None:
        """Return the highest number that an identity had when events were last completed; None before the first."""
        return self._connection.value("SELECT watched_identity FROM gallery")

    def set_last_identity(self, number: int) -> None:
        """Store the highest number of an identity."""
        self._connection.run("UPDATE gallery SET watched_identity = ?", (number,))
