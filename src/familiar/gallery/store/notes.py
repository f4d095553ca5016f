"""What other programs keep with a gallery, such as events that they have still to report."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from familiar.gallery.store.table import Table


@dataclass(frozen=True)
class Note:
    """What another program keeps with the gallery.

    Attributes:
        number: later notes have higher numbers.
        photo: that it is about. The note is erased when the photo is forgotten.
        body: a JSON object. If it has a "path", the note is erased when a photo of that path is forgotten.
        faces: JSON objects with "identity" and "name", on faces in the photo; None: none yet, or an individual that
            they name was forgotten since.
    """

    number: int
    photo: int | None
    body: dict[str, Any]
    faces: list[dict[str, Any]] | None


class Notes(Table):
    """SQL statements on the table `notes`."""

    def rows(self, topic: str, after: int, limit: int, *, without_faces: bool) -> list[Note]:
        """Return the next notes on a topic after a number, by rising number; all, or those that tell of no faces."""
        condition = "AND faces IS NULL " if without_faces else ""
        rows = self._connection.rows(
            f"SELECT id, photo_id, body, faces FROM notes WHERE topic = ? AND id > ? {condition}ORDER BY id LIMIT ?",
            (topic, after, limit),
        )
        return [
            Note(number, photo, json.loads(body), None if faces is None else json.loads(faces))
            for number, photo, body, faces in rows
        ]

    def add(
        self, topic: str, body: Mapping[str, Any], photo: int | None, faces: Sequence[Mapping[str, Any]] | None
    ) -> int:
        """Add a note, and return its number."""
        return self._connection.value(
            "INSERT INTO notes (topic, photo_id, body, faces) VALUES (?, ?, ?, ?) RETURNING id",
            (topic, photo, json.dumps(body), None if faces is None else json.dumps(faces)),
        )

    def set_body(self, number: int, body: Mapping[str, Any]) -> None:
        """Replace the body of a note."""
        self._connection.run("UPDATE notes SET body = ? WHERE id = ?", (json.dumps(body), number))

    def set_faces(self, number: int, faces: Sequence[Mapping[str, Any]]) -> None:
        """Set what a note tells of faces."""
        self._connection.run("UPDATE notes SET faces = ? WHERE id = ?", (json.dumps(faces), number))

    def replace_photo(self, photo: int, by: int) -> None:
        """Let the notes on a photo be about the photo that replaced it."""
        self._connection.run("UPDATE notes SET photo_id = ? WHERE photo_id = ?", (by, photo))

    def delete(self, numbers: Iterable[int]) -> None:
        """Delete notes."""
        self._connection.run_many("DELETE FROM notes WHERE id = ?", ((number,) for number in numbers))
