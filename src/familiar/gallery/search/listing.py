"""A gallery page by page: photos and faces one by one, identities as tiles, and how likely each face is in its own."""

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np
from jaxtyping import Bool, Float32, Int64

from familiar.core.errors import NotInGallery
from familiar.embedding.verification import probability_same
from familiar.gallery.clustering.assignments import (
    UNASSIGNED,
    FaceAssignments,
    check_faces,
    check_identities,
    load_assignments,
)
from familiar.gallery.clustering.calibration import calibration, clustering_calibration
from familiar.gallery.clustering.cluster import domain_threshold
from familiar.gallery.database.connection import Gallery
from familiar.gallery.search.templates import central_faces, templates
from familiar.neighbors.domains import IN_DOMAIN
from familiar.neighbors.whitening import whiten_to_domain

BEST = 4  # faces on a tile
_LARGEST = 2**63 - 1  # number that SQLite takes


@dataclass(frozen=True)
class KnownFace:
    """A face where it stands in its photo, in pixels of the upright file; `score` and `quality` in [0, 1].

    `identity` is None where it is nobody's; `by_user`: the user said whose it is.
    """

    face: int
    photo: int
    box_xyxy_px: tuple[float, float, float, float]
    score: float
    quality: float
    species: str | None
    identity: int | None
    name: str | None
    by_user: bool


@dataclass(frozen=True)
class KnownPhoto:
    """`sha256` of its content, in hex; `taken_at` as ISO 8601, local time; `faces` by rising number.

    A `path` may hold bytes that are no UTF-8, as surrogates (`os.fsdecode`).
    """

    photo: int
    path: str
    sha256: str
    taken_at: str | None
    faces: tuple[KnownFace, ...]


@dataclass(frozen=True)
class FaceConfidence:
    """How like the mean of its identity's other faces a face is: `similarity` in [-1, 1], 1 where there is no other.

    `probability` that both are one individual, where that is as likely as not beforehand; None where there is no other
    face, or the model was never calibrated. Faces of a kind compare with others of it (`neighbors.kinds`).
    """

    face: KnownFace
    similarity: float
    probability: float | None


@dataclass(frozen=True)
class IdentitySummary:
    """An identity: how many faces it holds, how many of them the user `confirmed`, and the `best` to show, at most
    four: the central ones first, of different photos."""

    identity: int
    name: str | None
    faces: int
    confirmed: int
    best: tuple[int, ...]


@dataclass(frozen=True)
class Counts:
    """`named` and `unnamed` identities, and faces that are `unknown`, nobody's."""

    photos: int
    faces: int
    named: int
    unnamed: int
    unassigned: int


def face(gallery: Gallery, number: int) -> KnownFace:
    """NotInGallery where there is none such."""
    with gallery.reading() as connection:
        check_faces(gallery, [number])
        return _faces(connection, "faces.id = ?", [number])[0]


def photo(gallery: Gallery, number: int) -> KnownPhoto:
    """NotInGallery where there is none such."""
    found = photos(gallery, after=max(0, number - 1), limit=1)
    if not found or found[0].photo != number:
        raise NotInGallery(f"{gallery.folder}: has no photo {number}")
    return found[0]


def photos(gallery: Gallery, *, after: int = 0, before: int | None = None, limit: int = 100) -> list[KnownPhoto]:
    """Those whose number is above `after`, by rising number; or, with `before`, those below that, newest first."""
    where, edge, order = ("id > ?", after, "id") if before is None else ("id < ?", before, "id DESC")
    with gallery.reading() as connection:
        rows = connection.execute(
            f"SELECT id, path, sha256, taken_at FROM photos WHERE {where} ORDER BY {order} LIMIT ?",
            (max(0, min(edge, _LARGEST)), limit),
        ).fetchall()
        ends = sorted((rows[0][0], rows[-1][0])) if rows else [0, 0]
        shown = _faces(connection, "photo_id BETWEEN ? AND ?", ends)
    of = {number: tuple(mine) for number, mine in groupby(shown, key=lambda face: face.photo)}
    return [KnownPhoto(number, path, sha256.hex(), taken, of.get(number, ())) for number, path, sha256, taken in rows]


def identity_summaries(
    gallery: Gallery,
    *,
    named: bool | None = None,
    after: tuple[int, int] | None = None,
    limit: int = 100,
) -> list[IdentitySummary]:
    """Identities with most faces first, then by number; `after`: the (faces, identity) of the last one seen.

    `named` True or False: only those that have a name, or have none. One without a name and a face is not shown.
    """
    everyone = _everyone(gallery)
    shown = np.ones(len(everyone.numbers), np.bool_)
    if named is not None:
        shown &= everyone.named == named
    if after is not None:
        faces, identity = after
        shown &= (everyone.faces < faces) | ((everyone.faces == faces) & (everyone.numbers > identity))
    return [everyone.tile(place) for place in np.flatnonzero(shown)[:limit].tolist()]


def identity_summary(gallery: Gallery, identity: int) -> IdentitySummary:
    """One of them. NotInGallery where there is none such."""
    with gallery.reading():
        check_identities(gallery, [identity])
        everyone = _everyone(gallery)
    places = np.flatnonzero(everyone.numbers == identity).tolist()
    return everyone.tile(places[0]) if places else IdentitySummary(identity, None, 0, 0, ())


def face_confidences(gallery: Gallery, identity: int) -> list[FaceConfidence]:
    """All faces of an identity, the likeliest first. NotInGallery where there is none such."""
    with gallery.reading() as connection:
        check_identities(gallery, [identity])
        who = load_assignments(gallery)
        rows = who.rows_of_identity(identity)
        known = _faces(connection, "identity_id = ?", [identity])
        at_home, means = clustering_calibration(gallery).threshold, calibration(gallery)
    found: list[tuple[float, FaceConfidence]] = []
    faces = {one.face: one for one in known}
    for kind in np.unique(who.domain[rows]).tolist():
        own = rows[who.domain[rows] == kind]
        # In a kind nothing is known but from where its faces are grouped, as in `search.verify`.
        shift = 0.0 if kind == IN_DOMAIN else means.balanced.similarity - domain_threshold(at_home, kind)
        for row, similarity in zip(own.tolist(), _with_the_others(who, own, kind).tolist(), strict=True):
            probability = None if len(own) < 2 else probability_same(similarity + shift, means)
            one = FaceConfidence(faces[int(who.faces.ids[row])], similarity, probability)
            found.append((similarity + shift, one))
    return [one for _, one in sorted(found, key=lambda pair: (-pair[0], pair[1].face.face))]


def unassigned_faces(gallery: Gallery, *, after: int = 0, limit: int = 100) -> list[KnownFace]:
    """Faces of nobody whose number is above `after`, by rising number."""
    with gallery.reading() as connection:
        who = load_assignments(gallery)
        nobodys = who.faces.ids[(who.identity == UNASSIGNED) & (who.faces.ids > after)][:limit].tolist()
        found = _faces(connection, f"faces.id IN ({', '.join('?' * len(nobodys))})", nobodys)
    return sorted(found, key=lambda one: one.face)


def counts(gallery: Gallery) -> Counts:
    """What there is, kept until something is written."""
    with gallery.reading():
        return gallery.cached("counts", gallery.revision, lambda: _counted(gallery))


def names(gallery: Gallery, beginning: str, limit: int = 10) -> list[str]:
    """Names that begin so, in upper or lower case, by alphabet."""
    wanted = beginning.strip().casefold()
    known = load_assignments(gallery).names.values()
    return sorted((name for name in known if name.casefold().startswith(wanted)), key=str.casefold)[:limit]


@dataclass(frozen=True, eq=False)
class _Everyone:
    """All identities that are shown, as `tiles` orders them; `best` are faces, filled up with -1."""

    numbers: Int64[np.ndarray, " i"]
    faces: Int64[np.ndarray, " i"]
    confirmed: Int64[np.ndarray, " i"]
    best: Int64[np.ndarray, "i 4"]
    named: Bool[np.ndarray, " i"]
    names: dict[int, str]

    def tile(self, place: int) -> IdentitySummary:
        number = int(self.numbers[place])
        best = tuple(face for face in self.best[place].tolist() if face != UNASSIGNED)
        return IdentitySummary(number, self.names.get(number), int(self.faces[place]), int(self.confirmed[place]), best)


def _everyone(gallery: Gallery) -> _Everyone:
    def everyone() -> _Everyone:
        who = load_assignments(gallery)
        of = templates(who, np.arange(len(who.identity)))
        best = central_faces(who, of, BEST)
        # With those who have a name, and no face.
        bare = np.setdiff1d(np.array(list(who.names), np.int64), of.numbers)
        numbers = np.concatenate([of.numbers, bare])
        faces, confirmed = np.zeros((2, len(numbers)), np.int64)
        faces[: len(of.numbers)] = of.sizes
        confirmed[: len(of.numbers)] = np.bincount(of.places, who.by_user[of.rows], len(of.numbers))
        shown = np.full((len(numbers), BEST), UNASSIGNED, np.int64)
        shown[: len(of.numbers)] = np.where(best == UNASSIGNED, UNASSIGNED, who.faces.ids[best])
        order = np.argsort(-faces, kind="stable")  # of equally many by number, as they are
        named = np.isin(numbers, np.array(list(who.names), np.int64))
        return _Everyone(numbers[order], faces[order], confirmed[order], shown[order], named[order], who.names)

    with gallery.reading():
        return gallery.cached("everyone", gallery.revision, everyone)


def _counted(gallery: Gallery) -> Counts:
    with gallery.reading() as connection:
        (photos,) = connection.execute("SELECT count(*) FROM photos").fetchone()
        who = load_assignments(gallery)
    held = who.identity[who.identity != UNASSIGNED]
    unnamed = len(np.setdiff1d(held, np.array(list(who.names), np.int64)))
    return Counts(photos, len(who.identity), len(who.names), unnamed, len(who.identity) - len(held))


def _with_the_others(who: FaceAssignments, rows: Int64[np.ndarray, " k"], kind: int) -> Float32[np.ndarray, " k"]:
    """Similarity of each face of an identity and a kind with the mean of its others; 1 where there is none."""
    vectors = who.faces.unit_rows(rows)
    if len(rows) < 2:
        return np.ones(len(rows), np.float32)
    if kind != IN_DOMAIN:
        alike = np.flatnonzero(who.domain == kind)
        vectors = whiten_to_domain(who.faces.unit_rows(alike))[np.searchsorted(alike, rows)]
    others = vectors.sum(axis=0) - vectors
    lengths = np.maximum(np.linalg.norm(others, axis=1), np.finfo(np.float32).tiny)
    return np.clip(np.einsum("kd,kd->k", vectors, others) / lengths, -1.0, 1.0)


def _faces(connection: sqlite3.Connection, where: str, values: Sequence[int]) -> list[KnownFace]:
    """By rising number of the photo, then of the face."""
    rows = connection.execute(
        "SELECT faces.id, photo_id, left_px, top_px, right_px, bottom_px, score, quality, species, identity_id, name, "
        "by_user FROM faces LEFT JOIN assignments ON face_id = faces.id "
        f"LEFT JOIN identities ON identities.id = identity_id WHERE {where} ORDER BY photo_id, faces.id",
        values,
    )
    return [
        KnownFace(face, photo, (left, top, right, bottom), score, quality, species, identity, name, bool(by_user))
        for face, photo, left, top, right, bottom, score, quality, species, identity, name, by_user in rows
    ]
