"""What a user says about who is who. Each call is one transaction that `undo` takes back whole.

What was said stays said: grouping never changes it. And it carries on: faces nobody spoke of are judged anew where a
correction concerns them, within the same transaction.
"""

import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float32, Float64, Int64

from familiar.core.errors import Contradiction
from familiar.core.terminal_text import printable
from familiar.gallery.clustering.assignments import (
    UNASSIGNED,
    FaceAssignments,
    check_faces,
    check_identities,
    load_assignments,
)
from familiar.gallery.clustering.calibration import clustering_calibration
from familiar.gallery.clustering.cluster import domain_threshold, recluster
from familiar.gallery.database.connection import Gallery
from familiar.gallery.editing.undo_log import decision

_CLEARLY = 0.1  # in similarity: so much less alike are two individuals' faces than those of one
_ROUNDS = 10  # of letting go of faces that are more like those taken out than like those left


@dataclass(frozen=True)
class CorrectionResult:
    """The `identity` that a correction was about, and how many faces nobody spoke of it `carried` along."""

    identity: int
    propagated_faces: int


@dataclass(frozen=True)
class IdentityFaces:
    """Whom `faces` show: the one who is `called` so, known already or not; None: somebody without a name."""

    name: str | None
    faces: tuple[int, ...]


def name_identity(gallery: Gallery, identity: int, new_name: str, *, confirm: bool = False) -> CorrectionResult:
    """Calls an identity by a name, which it keeps for ever; `confirm`: all its faces are rightly there.

    Contradiction where another has that name already, or where it is none: empty, or a number such as #12.
    """
    with decision(gallery, "name") as connection:
        check_identities(gallery, [identity])
        _call(gallery, connection, identity, new_name)
        if confirm:
            connection.execute("UPDATE assignments SET by_user = 1 WHERE identity_id = ? AND by_user = 0", (identity,))
    return CorrectionResult(identity, 0)


def confirm(gallery: Gallery, faces: Sequence[int]) -> None:
    """These faces are rightly where they are; those of nobody stay so."""
    with decision(gallery, "confirm") as connection:
        check_faces(gallery, faces)
        connection.executemany(
            "UPDATE assignments SET by_user = 1 WHERE face_id = ? AND by_user = 0",
            ((face,) for face in faces),
        )


def merge(gallery: Gallery, into: int, others: Sequence[int]) -> CorrectionResult:
    """All these identities are one, called as `into` is, or as the first of the others that has a name.

    Contradiction where one photo shows two of them.
    """
    others = [other for other in dict.fromkeys(others) if other != into]
    with decision(gallery, "merge") as connection:
        check_identities(gallery, [into, *others])
        who = load_assignments(gallery)
        for other in others:
            rows, own = who.rows_of_identity(other), who.rows_of_identity(into)
            _require_different_photos(connection, who, own, rows)
            if len(rows) and len(own):
                one, two = central_face(who, own), central_face(who, rows)
                _tell(connection, one, two, same=True)
            _put(connection, dict.fromkeys(who.faces.ids[rows].tolist(), into), by_user=None)
            _reconcile(connection, into)
            # Whoever was not the other is not this one either.
            connection.execute(
                "INSERT OR IGNORE INTO rejections SELECT face_id, ? FROM rejections WHERE identity_id = ? AND face_id "
                "NOT IN (SELECT face_id FROM assignments WHERE identity_id = ?)",
                (into, other, into),
            )
            connection.execute("DELETE FROM rejections WHERE identity_id = ?", (other,))
            (own_name,), (their_name,) = (
                connection.execute("SELECT name FROM identities WHERE id = ?", (number,)).fetchone()
                for number in (into, other)
            )
            connection.execute("DELETE FROM identities WHERE id = ?", (other,))
            if own_name is None and their_name is not None:
                connection.execute("UPDATE identities SET name = ? WHERE id = ?", (their_name, into))
            who = load_assignments(gallery)
        carried = recluster(gallery, connection, np.empty(0, np.int64), [into]).changed
    return CorrectionResult(into, carried)


def move(gallery: Gallery, faces: Sequence[int], to: int) -> CorrectionResult:
    """These faces show `to`, and not whom they were said to show.

    Contradiction where that identity is in one of their photos already, or two of them are.
    """
    with decision(gallery, "move") as connection:
        check_faces(gallery, faces)
        check_identities(gallery, [to])
        return CorrectionResult(to, _take_out(gallery, connection, dict.fromkeys(faces, to)))


def split(gallery: Gallery, faces: Sequence[int], name: str | None = None) -> CorrectionResult:
    """These faces show somebody of their own, who gets a new number. Contradiction as in `move` and `name`."""
    with decision(gallery, "split") as connection:
        check_faces(gallery, faces)
        to = _new(gallery, connection, name)
        return CorrectionResult(to, _take_out(gallery, connection, dict.fromkeys(faces, to)))


def assign(gallery: Gallery, individuals: Sequence[IdentityFaces]) -> int:
    """What a list says of many faces, as one decision; how many faces nobody spoke of it carried along.

    Those whom some of them were grouped with are judged anew; faces of nobody wait for the next `group`. Somebody
    without a name is whoever has all these faces already, else somebody new. Contradiction as in `move` and `name`,
    judged by what all of it comes to; ValueError where a face is given twice.
    """
    faces = [face for individual in individuals for face in individual.faces]
    if len(set(faces)) < len(faces):
        raise ValueError("a face shows one individual")
    with decision(gallery, "import") as connection:
        check_faces(gallery, faces)
        who = load_assignments(gallery)
        places: dict[int, int] = {}
        taken: set[int] = set()
        for individual in sorted(individuals, key=lambda individual: individual.name is None):
            to = _known(connection, who, individual)
            if to is None or (individual.name is None and to in taken):
                to = _new(gallery, connection, individual.name)
            taken.add(to)
            places |= dict.fromkeys(individual.faces, to)
        return _take_out(gallery, connection, places, join=False)


def reject(gallery: Gallery, faces: Sequence[int], identity: int | None = None) -> CorrectionResult:
    """These faces do not show `identity` (None: whom they are said to show), which is never said again.

    Contradiction where no identity is given and one of the faces is nobody's.
    """
    with decision(gallery, "reject") as connection:
        check_faces(gallery, faces)
        check_identities(gallery, [] if identity is None else [identity])
        who = load_assignments(gallery)
        rows = who.faces.rows_of(np.array(faces, np.int64))
        numbers = who.identity[rows] if identity is None else np.full(len(rows), identity)
        if (numbers == UNASSIGNED).any():
            face = faces[int(np.flatnonzero(numbers == UNASSIGNED)[0])]
            raise Contradiction(f"face {face} is nobody's, so there is nobody to reject; say who it is not")
        connection.executemany(
            "INSERT OR IGNORE INTO rejections VALUES (?, ?)", zip(faces, numbers.tolist(), strict=True)
        )
        leaving = rows[who.identity[rows] == numbers]
        connection.executemany(
            "DELETE FROM assignments WHERE face_id = ?", ((face,) for face in who.faces.ids[leaving].tolist())
        )
        free, left = _let_go(gallery, connection, who, leaving)
        free = np.concatenate([who.faces.ids[leaving], free])
        carried = recluster(gallery, connection, free, left).changed
    return CorrectionResult(int(numbers[0]), carried)


def mark_different(gallery: Gallery, first: int, second: int) -> None:
    """Two faces show two individuals, and so do the identities they are in.

    Contradiction where both were confirmed to show one.
    """
    if first == second:
        raise Contradiction(f"face {first} cannot be told apart from itself; name two faces")
    with decision(gallery, "tell apart") as connection:
        check_faces(gallery, (first, second))
        who = load_assignments(gallery)
        rows = who.faces.rows_of(np.array([first, second], np.int64))
        _tell(connection, first, second, same=False)
        one, other = who.identity[rows].tolist()
        if one != other or one == UNASSIGNED:
            known = [(face, number) for face, number in ((first, other), (second, one)) if number != UNASSIGNED]
            connection.executemany("INSERT OR IGNORE INTO rejections VALUES (?, ?)", known)
            return
        if who.by_user[rows].all():
            raise Contradiction(f"faces {first} and {second} were both confirmed to show #{one}; move one of them")
        leaving = rows[~who.by_user[rows]][-1:]
        connection.execute("DELETE FROM assignments WHERE face_id = ?", (int(who.faces.ids[leaving[0]]),))
        free, left = _let_go(gallery, connection, who, leaving)
        recluster(gallery, connection, np.concatenate([who.faces.ids[leaving], free]), left)


def central_face(who: FaceAssignments, rows: Int64[np.ndarray, " k"]) -> int:
    """The face most like all of them; of those that the user confirmed, where there are any."""
    mean = who.faces.unit_rows(rows).mean(axis=0)
    asked = rows[who.by_user[rows]] if who.by_user[rows].any() else rows
    return int(who.faces.ids[asked[(who.faces.unit_rows(asked) @ mean).argmax()]])


def _call(gallery: Gallery, connection: sqlite3.Connection, identity: int, called: str) -> None:
    called = called.strip()
    if not called or called.startswith("#") or printable(called) != called:
        raise Contradiction(
            f"{called!r} is no name: it is empty, cannot be shown on one line, or begins with # as numbers do"
        )
    taken = connection.execute("SELECT id FROM identities WHERE name = ? AND id <> ?", (called, identity)).fetchone()
    if taken:
        raise Contradiction(
            f"#{taken[0]} is called {called} already; choose another name, or if both are one, merge them: "
            f"familiar gallery merge {gallery.folder} '#{taken[0]}' '#{identity}'"
        )
    connection.execute("UPDATE identities SET name = ? WHERE id = ?", (called, identity))


def _new(gallery: Gallery, connection: sqlite3.Connection, called: str | None) -> int:
    number = connection.execute("INSERT INTO identities DEFAULT VALUES").lastrowid
    assert number is not None
    if called is not None:
        _call(gallery, connection, number, called)
    return number


def _known(connection: sqlite3.Connection, who: FaceAssignments, individual: IdentityFaces) -> int | None:
    if individual.name is not None:
        row = connection.execute("SELECT id FROM identities WHERE name = ?", (individual.name,)).fetchone()
        return None if row is None else int(row[0])
    held = np.unique(who.identity[who.faces.rows_of(np.array(individual.faces, np.int64))])
    return int(held[0]) if len(held) == 1 and held[0] != UNASSIGNED else None


def _take_out(gallery: Gallery, connection: sqlite3.Connection, places: Mapping[int, int], *, join: bool = True) -> int:
    """Each face from wherever it is to its identity, by the user's word; how many others that carried along.

    `join`: lone faces may join these identities.
    """
    who = load_assignments(gallery)
    rows = who.faces.rows_of(np.array(list(places), np.int64))
    to = np.array(list(places.values()), np.int64)
    for number in np.unique(to).tolist():
        staying = np.setdiff1d(who.rows_of_identity(number), rows)
        _require_different_photos(connection, who, staying, rows[to == number])
    leaving = rows[(who.identity[rows] != to) & (who.identity[rows] != UNASSIGNED)]
    connection.executemany(
        "INSERT OR IGNORE INTO rejections VALUES (?, ?)",
        zip(who.faces.ids[leaving].tolist(), who.identity[leaving].tolist(), strict=True),
    )
    _put(connection, places, by_user=True)
    for number in np.unique(to).tolist():
        _reconcile(connection, number)
    free, left = _let_go(gallery, connection, who, leaving)
    touched = [*np.unique(to).tolist(), *left] if join else []
    return recluster(gallery, connection, free, touched).changed


def _let_go(
    gallery: Gallery, connection: sqlite3.Connection, who: FaceAssignments, leaving: Int64[np.ndarray, " k"]
) -> tuple[Int64[np.ndarray, " f"], list[int]]:
    """The faces that follow those that leave an identity; and who was left."""
    gone: list[Int64[np.ndarray, " f"]] = [np.empty(0, np.int64)]
    left, seen, threshold = (
        np.unique(who.identity[leaving]).tolist(),
        who.domain_adapted_embeddings(),
        clustering_calibration(gallery).threshold,
    )
    for number in left:
        out = leaving[who.identity[leaving] == number]
        rest = np.setdiff1d(who.rows_of_identity(number), out)
        alike = domain_threshold(threshold, int(who.domain[out[0]]))
        following = _following(seen[rest], who.by_user[rest], seen[out], alike)
        gone.append(who.faces.ids[rest[following]])
        if len(rest):  # numbers come and go, faces stay: so it holds when they are grouped afresh, too
            central = central_face(who, rest[~following])
            for face in who.faces.ids[out].tolist():
                _tell(connection, face, central, same=False)
    free = np.concatenate(gone)
    connection.executemany("DELETE FROM assignments WHERE face_id = ?", ((face,) for face in free.tolist()))
    for number in left:
        _reconcile(connection, number)
    return free, left


def _following(
    rest: Float32[np.ndarray, "n d"],
    held: Bool[np.ndarray, " n"],
    leaving: Float32[np.ndarray, "k d"],
    alike: float,
) -> Bool[np.ndarray, " n"]:
    """Which of the rest are more like those that leave than like those that stay: two means, the `held` ones staying.

    Nobody, where that parts no two individuals, since of one individual's faces, too, some are more like any of them:
    two are less `alike` than faces are grouped from, and clearly more so within each.
    """
    vectors, taken = rest.astype(np.float64), leaving.astype(np.float64)
    following = np.zeros(len(rest), np.bool_)
    for _ in range(_ROUNDS):
        to_taken = _cosine(vectors, taken.sum(axis=0) + vectors[following].sum(axis=0), following)
        to_rest = _cosine(vectors, vectors[~following].sum(axis=0), ~following)
        now = (to_taken > to_rest) & ~held
        if (now == following).all() or now.all():  # somebody stays, or there would be nobody to be unlike
            break
        following = now
    one, other = np.concatenate([taken, vectors[following]]), vectors[~following]
    across = float(one.mean(axis=0) @ other.mean(axis=0)) if len(other) else -1.0
    if following.any() and not (across < alike and _within(one, other) - across >= _CLEARLY):
        return np.zeros(len(rest), np.bool_)
    return following


def _within(*sides: Float64[np.ndarray, "_ d"]) -> float:
    """The mean similarity of two faces of one side, the sides of two or more weighing the same."""
    return float(
        np.mean(
            [
                (float(side.sum(axis=0) @ side.sum(axis=0)) - len(side)) / (len(side) * (len(side) - 1))
                for side in sides
                if len(side) > 1
            ]
        )
    )


def _cosine(
    vectors: Float64[np.ndarray, "n d"], total: Float64[np.ndarray, " d"], counted: np.ndarray
) -> Float64[np.ndarray, " n"]:
    """Of each row with the mean of the others: without itself where it is `counted` in the total."""
    others = total - vectors * counted[:, None]
    length = np.linalg.norm(others, axis=1)
    return np.where(length > 0, (vectors * others).sum(axis=1) / np.where(length > 0, length, 1), -1.0)


def _put(connection: sqlite3.Connection, places: Mapping[int, int], by_user: bool | None) -> None:
    """Each face to its identity. `by_user` None: as it was."""
    said = 0 if by_user is None else int(by_user)
    connection.executemany(
        "INSERT INTO assignments (face_id, identity_id, by_user) VALUES (?, ?, ?) ON CONFLICT (face_id) DO UPDATE "
        "SET identity_id = excluded.identity_id, by_user = max(excluded.by_user, by_user) "
        "WHERE identity_id <> excluded.identity_id OR by_user < excluded.by_user",
        ((face, to, said) for face, to in places.items()),
    )


def _reconcile(connection: sqlite3.Connection, identity: int) -> None:
    """The last word counts: what was said before against those who are now together, or for those now parted, goes."""
    mine = "(SELECT face_id FROM assignments WHERE identity_id = ?)"
    connection.execute(
        f"DELETE FROM constraints WHERE same = 0 AND first_face IN {mine} AND second_face IN {mine}",
        (identity, identity),
    )
    connection.execute(
        f"DELETE FROM constraints WHERE same = 1 AND (first_face IN {mine}) <> (second_face IN {mine})",
        (identity, identity),
    )
    connection.execute(f"DELETE FROM rejections WHERE identity_id = ? AND face_id IN {mine}", (identity, identity))


def _tell(connection: sqlite3.Connection, one: int, other: int, *, same: bool) -> None:
    connection.execute(
        "INSERT INTO constraints (first_face, second_face, same) VALUES (?, ?, ?) "
        "ON CONFLICT DO UPDATE SET same = excluded.same",
        (min(one, other), max(one, other), same),
    )


def _require_different_photos(
    connection: sqlite3.Connection, who: FaceAssignments, one: Int64[np.ndarray, " k"], other: Int64[np.ndarray, " m"]
) -> None:
    """Contradiction where a photo shows two of these faces that would be one individual."""
    photos = who.faces.photo_ids[np.concatenate([one, other])]
    seen, count = np.unique(photos, return_counts=True)
    twice = np.intersect1d(seen[count > 1], who.faces.photo_ids[other])
    if len(twice):
        (path,) = connection.execute("SELECT path FROM photos WHERE id = ?", (int(twice[0]),)).fetchone()
        raise Contradiction(
            f"{path}: shows two of these faces, and two faces in one photo are never one individual; "
            "move or reject the wrong one first"
        )
