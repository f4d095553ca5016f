"""The user's constraints on pairs of faces, and rejections of faces from identities."""

import json
from collections.abc import Iterable, Sequence

from familiar.gallery.store.table import Table


class Constraints(Table):
    """SQL statements on the tables `constraints` and `rejections`."""

    def pairs(self, *, same: bool) -> list[tuple[int, int]]:
        """Return the pairs of faces that the user marked as the same individual, or as different ones."""
        return self._connection.rows("SELECT first_face, second_face FROM constraints WHERE same = ?", (same,))

    def add(self, first: int, second: int, *, same: bool) -> None:
        """Store that two faces show the same individual or different ones, replacing an earlier constraint on them."""
        self._connection.run(
            "INSERT INTO constraints (first_face, second_face, same) VALUES (?, ?, ?) "
            "ON CONFLICT DO UPDATE SET same = excluded.same",
            (min(first, second), max(first, second), same),
        )

    def rejections(self) -> list[tuple[int, int]]:
        """Return the pairs of a face and an identity that it does not show."""
        return self._connection.rows("SELECT face_id, identity_id FROM rejections")

    def different_identities(self, identity: int) -> list[int]:
        """Return the identities with a face that is not this identity's, or from which one of its faces is rejected."""
        pairs = (
            "SELECT {1}.identity_id FROM constraints JOIN assignments AS own ON own.face_id = first_face "
            "JOIN assignments AS other ON other.face_id = second_face WHERE same = 0 AND {0}.identity_id = ?1"
        )
        rows = self._connection.rows(
            "SELECT rejections.identity_id FROM rejections JOIN assignments USING (face_id) "
            "WHERE assignments.identity_id = ?1 UNION SELECT assignments.identity_id FROM rejections "
            "JOIN assignments USING (face_id) WHERE rejections.identity_id = ?1 "
            f"UNION {pairs.format('own', 'other')} UNION {pairs.format('other', 'own')}",
            (identity,),
        )
        return [number for (number,) in rows if number != identity]

    def add_rejections(self, rejections: Iterable[tuple[int, int]]) -> None:
        """Store pairs of a face and an identity that it does not show."""
        self._connection.run_many("INSERT OR IGNORE INTO rejections VALUES (?, ?)", rejections)

    def transfer_rejections(self, source: int, target: int) -> None:
        """Let the faces rejected from `source` be rejected from `target` instead, unless they are assigned to it."""
        self._connection.run(
            "INSERT OR IGNORE INTO rejections SELECT face_id, ? FROM rejections WHERE identity_id = ? AND face_id "
            "NOT IN (SELECT face_id FROM assignments WHERE identity_id = ?)",
            (target, source, target),
        )
        self.delete_rejections(source)

    def delete_rejections(self, identity: int) -> None:
        """Delete the rejections from an identity."""
        self._connection.run("DELETE FROM rejections WHERE identity_id = ?", (identity,))

    def drop_between(self, faces: Sequence[int], identity: int) -> None:
        """Delete the rejections of faces from an identity."""
        self._connection.run_many(
            "DELETE FROM rejections WHERE face_id = ? AND identity_id = ?", ((face, identity) for face in faces)
        )

    def drop_pairs(self, first: Sequence[int], second: Sequence[int]) -> None:
        """Delete the constraints that a face of `first` and one of `second` show different individuals."""
        one_way = (
            "first_face IN (SELECT value FROM json_each(?{})) AND second_face IN (SELECT value FROM json_each(?{}))"
        )
        self._connection.run(
            f"DELETE FROM constraints WHERE same = 0 AND ({one_way.format(1, 2)} OR {one_way.format(2, 1)})",
            (json.dumps(list(first)), json.dumps(list(second))),
        )

    def drop_stale(self, identity: int) -> None:
        """Delete earlier constraints and rejections that contradict the faces an identity has now.

        The latest correction counts: cannot-link pairs within the identity go, must-link pairs with only one face in
        it, and rejections of its faces from it.
        """
        members = "(SELECT face_id FROM assignments WHERE identity_id = ?)"
        self._connection.run(
            f"DELETE FROM constraints WHERE same = 0 AND first_face IN {members} AND second_face IN {members}",
            (identity, identity),
        )
        self._connection.run(
            f"DELETE FROM constraints WHERE same = 1 AND (first_face IN {members}) <> (second_face IN {members})",
            (identity, identity),
        )
        self._connection.run(
            f"DELETE FROM rejections WHERE identity_id = ? AND face_id IN {members}", (identity, identity)
        )
