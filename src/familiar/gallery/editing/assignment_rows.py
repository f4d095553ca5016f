"""Write the rows of assignments, constraints and rejections, inside a decision's transaction."""

import sqlite3
from collections.abc import Iterable, Mapping


def assign_faces(connection: sqlite3.Connection, identity_of_face: Mapping[int, int], by_user: bool | None) -> None:
    """Assign each face to its identity.

    Args:
        connection: of the open decision.
        identity_of_face: identity number by face id.
        by_user: whether the user made the assignment; None leaves that as it was. An assignment once made by the user
            stays so.
    """
    flag = 0 if by_user is None else int(by_user)
    connection.executemany(
        "INSERT INTO assignments (face_id, identity_id, by_user) VALUES (?, ?, ?) ON CONFLICT (face_id) DO UPDATE "
        "SET identity_id = excluded.identity_id, by_user = max(excluded.by_user, by_user) "
        "WHERE identity_id <> excluded.identity_id OR by_user < excluded.by_user",
        ((face, identity, flag) for face, identity in identity_of_face.items()),
    )


def unassign_faces(connection: sqlite3.Connection, faces: Iterable[int]) -> None:
    """Remove these faces from their identities."""
    connection.executemany("DELETE FROM assignments WHERE face_id = ?", ((face,) for face in faces))


def add_rejections(connection: sqlite3.Connection, rejections: Iterable[tuple[int, int]]) -> None:
    """Store pairs of a face and an identity that it does not show."""
    connection.executemany("INSERT OR IGNORE INTO rejections VALUES (?, ?)", rejections)


def transfer_rejections(connection: sqlite3.Connection, source: int, target: int) -> None:
    """Let the faces rejected from `source` be rejected from `target` instead, unless they are assigned to it."""
    connection.execute(
        "INSERT OR IGNORE INTO rejections SELECT face_id, ? FROM rejections WHERE identity_id = ? AND face_id "
        "NOT IN (SELECT face_id FROM assignments WHERE identity_id = ?)",
        (target, source, target),
    )
    connection.execute("DELETE FROM rejections WHERE identity_id = ?", (source,))


def add_constraint(connection: sqlite3.Connection, first: int, second: int, *, same: bool) -> None:
    """Store that two faces show the same individual or different ones, replacing an earlier constraint on them."""
    connection.execute(
        "INSERT INTO constraints (first_face, second_face, same) VALUES (?, ?, ?) "
        "ON CONFLICT DO UPDATE SET same = excluded.same",
        (min(first, second), max(first, second), same),
    )


def drop_stale_constraints(connection: sqlite3.Connection, identity: int) -> None:
    """Delete earlier constraints and rejections that contradict the faces an identity has now.

    The latest correction counts: cannot-link pairs within the identity go, must-link pairs with only one face in it,
    and rejections of its faces from it.
    """
    members = "(SELECT face_id FROM assignments WHERE identity_id = ?)"
    connection.execute(
        f"DELETE FROM constraints WHERE same = 0 AND first_face IN {members} AND second_face IN {members}",
        (identity, identity),
    )
    connection.execute(
        f"DELETE FROM constraints WHERE same = 1 AND (first_face IN {members}) <> (second_face IN {members})",
        (identity, identity),
    )
    connection.execute(f"DELETE FROM rejections WHERE identity_id = ? AND face_id IN {members}", (identity, identity))
