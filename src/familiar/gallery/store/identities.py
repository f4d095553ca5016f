"""The identities of a gallery."""

import json
from collections.abc import Iterable, Mapping, Sequence

from familiar.core.names import normalize_name
from familiar.gallery.store.table import Table

Attributes = Mapping[str, str]
"""What another program has noted about an identity: texts by their names."""


class Identities(Table):
    """SQL statements on the table `identities`."""

    def numbers(self) -> list[int]:
        """Return the numbers of all identities."""
        return [row[0] for row in self._connection.rows("SELECT id FROM identities")]

    def last_number(self) -> int:
        """Return the highest number that an identity ever had, or 0. Numbers are never reused."""
        return self._connection.value("SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'identities'")

    def count_after(self, number: int) -> int:
        """Return how many identities have a higher number."""
        return self._connection.value("SELECT count(*) FROM identities WHERE id > ?", (number,))

    def exists(self, number: int) -> bool:
        """Whether there is an identity with this number."""
        return self._connection.first("SELECT 1 FROM identities WHERE id = ?", (number,)) is not None

    def names(self) -> dict[int, str]:
        """Return the name of each identity that has one."""
        return dict(self._connection.rows("SELECT id, name FROM identities WHERE name IS NOT NULL"))

    def name(self, number: int) -> str | None:
        """Return the name of an identity that exists."""
        return self._connection.value("SELECT name FROM identities WHERE id = ?", (number,))

    def with_name(self, name: str) -> int | None:
        """Return the identity with this name, in whichever spelling, if there is one."""
        try:
            name = normalize_name(name)
        except ValueError:
            return None
        row = self._connection.first("SELECT id FROM identities WHERE name = ?", (name,))
        return None if row is None else int(row[0])

    def species(self) -> dict[int, str | None]:
        """Return the most frequent species of each identity's faces; None: nobody said what most of them are."""
        return dict(
            self._connection.rows(
                "SELECT identity_id, species FROM assignments JOIN faces ON faces.id = face_id "
                "GROUP BY identity_id, species ORDER BY count(*), species DESC"
            )
        )

    def create(self) -> int:
        """Add an identity without a name, and return its number."""
        self._connection.run("INSERT INTO identities DEFAULT VALUES")
        return self._connection.last_insert_rowid()

    def insert(self, numbers: Iterable[int]) -> None:
        """Add identities with these numbers, without names."""
        self._connection.run_many("INSERT INTO identities (id) VALUES (?)", ((number,) for number in numbers))

    def set_name(self, number: int, name: str) -> None:
        """Name an identity."""
        self._connection.run("UPDATE identities SET name = ? WHERE id = ?", (name, number))

    def attributes(self, number: int) -> list[Attributes]:
        """Return what is noted about an identity that exists: a record of it, and of each that was merged into it."""
        return json.loads(self._connection.value("SELECT attributes FROM identities WHERE id = ?", (number,)))

    def all_attributes(self) -> dict[int, list[Attributes]]:
        """Return the records of each identity that has any."""
        rows = self._connection.rows("SELECT id, attributes FROM identities WHERE attributes <> '[]'")
        return {number: json.loads(text) for number, text in rows}

    def set_attributes(self, number: int, records: Sequence[Attributes]) -> None:
        """Replace the records of an identity. Nothing is written if they are the same."""
        text = json.dumps([dict(record) for record in records], ensure_ascii=False, sort_keys=True)
        self._connection.run("UPDATE identities SET attributes = ?1 WHERE id = ?2 AND attributes <> ?1", (text, number))

    def delete(self, number: int) -> None:
        """Delete an identity. SQLite refuses while a face is assigned to it."""
        self._connection.run("DELETE FROM identities WHERE id = ?", (number,))

    def delete_empty(self) -> None:
        """Delete identities that have no name, no face, no rejection and no attributes."""
        self._connection.run(
            "DELETE FROM identities WHERE name IS NULL AND attributes = '[]' AND NOT EXISTS "
            "(SELECT 1 FROM assignments WHERE identity_id = identities.id) AND NOT EXISTS "
            "(SELECT 1 FROM rejections WHERE identity_id = identities.id)"
        )
