"""Whose faces are like this one? Photos or identities, nearest first, and an honest "nobody I know"."""

import json
import re
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float16, Float32, Float64, Int64

from familiar.core.calibration import Calibration
from familiar.core.errors import FamiliarError
from familiar.core.vectors import check_unit_rows, normalize
from familiar.core.vectors import prefix as prefix_of
from familiar.embedding.verification import VerificationResult, probability_same
from familiar.gallery.clustering.assignments import UNASSIGNED, FaceAssignments, check_identities, load_assignments
from familiar.gallery.clustering.calibration import calibration, clustering_calibration
from familiar.gallery.clustering.cluster import domain_threshold
from familiar.gallery.database.connection import FaceTable, Gallery
from familiar.gallery.search.templates import Templates, templates
from familiar.neighbors import brute_force
from familiar.neighbors.domains import IN_DOMAIN, DomainCentroid, assign_domain, domain_centroids
from familiar.neighbors.hnsw import HnswIndex, Stamp, erase
from familiar.neighbors.whitening import whiten_to_domain

INDEX_FROM = 50_000  # faces: fewer are searched exactly in a few milliseconds
MORE = 10  # faces that the index is asked for beyond those wanted: it computes in float16
CANDIDATES = 0.01  # share of the faces that a prefix leaves to be ranked by all components


_ISO = re.compile(r"\d{4}(-\d\d(-\d\d(T\d\d(:\d\d(:\d\d)?)?)?)?)?")


@dataclass(frozen=True)
class Filter:
    """Which faces are searched; what is None does not matter.

    `since` and `until`: ISO dates or times, such as 2024-06 or 2024-06-01T12:00:00; photos that do not say when they
    were taken are left out where one is given. A day or a month given as `until` is included. ValueError for others.
    """

    identities: tuple[int, ...] | None = None
    species: str | None = None
    since: str | None = None
    until: str | None = None

    def __post_init__(self) -> None:
        for time in (self.since, self.until):
            if time is not None and not _ISO.fullmatch(time):
                raise ValueError(f"a time is written 2024, 2024-06, 2024-06-01 or 2024-06-01T12:00:00, not {time!r}")

    @property
    def empty(self) -> bool:
        return self == Filter()


@dataclass(frozen=True)
class Hit:
    """A face like the one that was asked for. `identity` is None where it is nobody's.

    `probability` that both show one individual, where beforehand that was as likely as that it is any one of those in
    the gallery, all of them together being as likely as a stranger; None where the model was never calibrated.
    """

    face: int
    path: str
    box_xyxy_px: tuple[float, float, float, float]
    identity: int | None
    name: str | None
    similarity: float
    probability: float | None


@dataclass(frozen=True)
class Match:
    """An identity like the one that was asked for: by its `best` face, and by the `mean` of its faces, the template.

    `face` is the best one. `probability` that it is this identity, with all the others and a stranger in question;
    None where the model was never calibrated. `known`: more likely so than not.
    """

    identity: int
    name: str | None
    face: int
    best: float
    mean: float
    probability: float | None
    known: bool


def search_photos(
    gallery: Gallery,
    query: Float32[np.ndarray, " d"],
    k: int = 10,
    *,
    only: Filter = Filter(),
    prefix: int | None = None,
) -> list[Hit]:
    """The k faces most like `query`, a unit vector of the gallery's space, among those that pass the filter.

    Galleries of 50,000 faces or more use their index where it is up to date (`build_index`), others look at every
    face. `prefix`: candidates are found by so many first components, one of the model's valid prefixes, then ranked by
    all. ValueError for a k below 1, no unit vector, another width, or a prefix that is none of the model's.
    """
    _check_query(gallery, query, k)
    with gallery.reading():  # what others write meanwhile is not seen
        faces = gallery.faces()
        allowed = None if only.empty else _allowed(gallery, faces, only)
        index = None if allowed is not None or prefix is not None else open_index(gallery)
        queries = query[None]
        if prefix is not None:
            prefixes = _prefixes(gallery, faces, prefix)
            candidates = max(k, round(len(faces.ids) * CANDIDATES))
            rows, similarity = brute_force.search_prefix(faces.embeddings, prefixes, queries, k, candidates, allowed)
        elif index is None:
            rows, similarity = brute_force.search(faces.embeddings, queries, k, allowed)
        else:
            rows, similarity = _by_index(faces, index, queries, k)
        return _hits(gallery, faces.ids[rows[0]], similarity[0])


def _by_index(
    faces: FaceTable, index: HnswIndex, queries: Float32[np.ndarray, "1 d"], k: int
) -> tuple[Int64[np.ndarray, "1 found"], Float32[np.ndarray, "1 found"]]:
    try:
        candidates = faces.rows_of(index.search(queries, k + MORE)[0][0])
    except KeyError:  # another process is erasing it
        return brute_force.search(faces.embeddings, queries, k)
    return brute_force.rerank(faces.embeddings, queries, candidates[None], k)


def search_identities(
    gallery: Gallery,
    query: Float32[np.ndarray, " d"],
    k: int = 5,
    *,
    only: Filter = Filter(),
) -> list[Match]:
    """The k identities most like `query`, the likeliest first; where none is `known`, the answer is: nobody here.

    Beforehand a stranger is as likely as all the N identities together, and each of these as likely as another. So with
    L_i the odds that the calibration gives to a similarity s_i, identity i has the probability
    (L_i / N) / (1 + sum(L_j / N)), and the more of them there are, the more alike a stranger may be to one by chance.
    One is `known` from one half on, or where the model was never calibrated, from the similarity of its grouping.
    ValueError as in `search_photos`.
    """
    _check_query(gallery, query, k)
    with gallery.reading():
        who = load_assignments(gallery)
        asked = _as_seen(gallery, who, query)
        of = _compared(gallery, who, asked, only)
        means, home = calibration(gallery), clustering_calibration(gallery).threshold
    if not len(of.numbers):
        return []
    mean = (of.sums @ asked.query) / np.maximum(of.lengths, np.finfo(np.float32).tiny)
    odds = _odds(mean.astype(np.float64) + asked.shift, len(of.numbers), means)
    probability = None if odds is None else odds / (1 + odds.sum())
    at_least = home - asked.shift
    found: list[Match] = []
    for place, face, best in _nearest(who, asked, of, mean, k):
        number = int(of.numbers[place])
        found.append(
            Match(
                number,
                who.names.get(number),
                face,
                best,
                float(mean[place]),
                None if probability is None else float(probability[place]),
                bool(mean[place] >= at_least if probability is None else probability[place] >= 0.5),
            )
        )
    return found


def _compared(gallery: Gallery, who: FaceAssignments, asked: "_Asked", only: Filter) -> Templates:
    """Of the faces that the query compares with, and that pass the filter."""
    if only.empty and asked.kind == IN_DOMAIN:
        return gallery.cached(
            "templates", gallery.revision, lambda: templates(who, np.flatnonzero(who.domain == IN_DOMAIN))
        )
    mask = who.domain == asked.kind
    if not only.empty:
        mask &= _allowed(gallery, who.faces, only)
    rows = np.flatnonzero(mask & (who.identity != UNASSIGNED))
    return templates(who, rows, asked.vectors(who, rows))


def _nearest(
    who: FaceAssignments, asked: "_Asked", of: Templates, mean: Float32[np.ndarray, " i"], k: int
) -> list[tuple[int, int, float]]:
    """The places of k identities of highest mean, the best face of each, and its similarity.

    Of equal means that of the better face comes first, then the lower number.
    """
    k = min(k, len(mean))
    places = np.flatnonzero(mean >= np.partition(mean, -k)[-k])
    found: list[tuple[int, int, float]] = []
    for place in places.tolist():
        rows = of.rows_of(place)
        similarity = asked.vectors(who, rows) @ asked.query
        best = int(similarity.argmax())
        found.append((place, int(who.faces.ids[rows[best]]), float(similarity[best])))
    return sorted(found, key=lambda one: (-float(mean[one[0]]), -one[2], one[0]))[:k]


def verify(gallery: Gallery, query: Float32[np.ndarray, " d"], identity: int) -> VerificationResult:
    """Does `query` show that identity? Compared with the mean of its faces. NotInGallery where there is none such,
    FamiliarError where it has no face."""
    check_identities(gallery, [identity])
    _check_query(gallery, query, 1)
    with gallery.reading():
        who = load_assignments(gallery)
        own = who.rows_of_identity(identity)
        if not len(own):
            raise FamiliarError(f"{gallery.folder}: #{identity} has no face to compare with")
        asked = _as_seen(gallery, who, query)
    mine = own[who.domain[own] == asked.kind]
    if not len(mine):  # a cat, say, and the identity is a person
        asked, mine = _Asked(IN_DOMAIN, query), own
    template = normalize(asked.vectors(who, mine).mean(axis=0, keepdims=True))[0]
    means = calibration(gallery)
    # In a kind nothing is known but from where its faces are grouped.
    threshold = (
        means.balanced.similarity if not asked.shift else clustering_calibration(gallery).threshold - asked.shift
    )
    similarity = float(np.clip(template @ asked.query, -1.0, 1.0))
    probability = probability_same(similarity - threshold + means.balanced.similarity, means)
    return VerificationResult(similarity, probability, similarity >= threshold, threshold)


@dataclass(frozen=True, eq=False)
class _Asked:
    """A query as it compares with faces of a kind, adapted as they are; `shift` makes of a similarity among them one
    that the calibration knows. At home nothing changes."""

    kind: int
    query: Float32[np.ndarray, " d"]
    adapted: Float32[np.ndarray, "m d"] | None = None  # all faces of the kind
    shift: float = 0.0

    def vectors(self, who: FaceAssignments, rows: Int64[np.ndarray, " k"]) -> Float32[np.ndarray, "k d"]:
        """Those faces of the kind."""
        if self.adapted is None:
            return who.faces.unit_rows(rows)
        return self.adapted[np.searchsorted(np.flatnonzero(who.domain == self.kind), rows)]


def _as_seen(gallery: Gallery, who: FaceAssignments, query: Float32[np.ndarray, " d"]) -> _Asked:
    def known() -> list[DomainCentroid]:
        own = np.flatnonzero(who.domain != IN_DOMAIN)
        return domain_centroids(who.faces.unit_rows(own), who.domain[own])

    (kind,) = assign_domain(query[None], gallery.cached("middles", gallery.revision, known)).tolist()
    if kind == IN_DOMAIN:
        return _Asked(IN_DOMAIN, query)
    rows = np.flatnonzero(who.domain == kind)
    adapted = whiten_to_domain(np.concatenate([who.faces.unit_rows(rows), query[None]]))
    home = clustering_calibration(gallery).threshold
    return _Asked(kind, adapted[-1], adapted[:-1], home - domain_threshold(home, kind))


def _odds(
    similarity: Float64[np.ndarray, " i"], individuals: int, means: Calibration
) -> Float64[np.ndarray, " i"] | None:
    """L / N of each: how much likelier it is than a stranger, who beforehand is as likely as all N individuals."""
    if means.slope is None or means.intercept is None:
        return None
    return np.exp(np.clip(means.slope * similarity + means.intercept, -500, 500)) / individuals


def lacks_index(gallery: Gallery) -> bool:
    """Whether it is large enough for an index, and has none that is up to date."""
    return len(gallery.faces().ids) >= INDEX_FROM and open_index(gallery) is None


def build_index(gallery: Gallery) -> None:
    """Makes the index that galleries of 50,000 faces and more are searched by. FamiliarError without usearch."""
    faces = gallery.faces()
    HnswIndex.build(faces.embeddings, faces.ids).save(gallery.folder, _watermark(gallery, faces))
    if gallery.faces().revision != faces.revision:  # some may have been forgotten while it was built
        erase(gallery.folder)


def open_index(gallery: Gallery) -> HnswIndex | None:
    """The index where there is one of just the faces that the gallery holds, else None: never a stale one."""
    faces = gallery.faces()
    if len(faces.ids) < INDEX_FROM:
        return None
    stamp = Stamp(len(faces.ids), _watermark(gallery, faces))
    return gallery.cached("index", faces.revision, lambda: HnswIndex.open(gallery.folder, stamp))


def _watermark(gallery: Gallery, faces: FaceTable) -> str:
    with gallery.reading() as connection:
        (uid,) = connection.execute("SELECT uid FROM gallery").fetchone()
    return f"{uid} {faces.revision}"


def _prefixes(gallery: Gallery, faces: FaceTable, length: int) -> Float16[np.ndarray, "n p"]:
    valid = gallery.space.prefixes
    if length not in valid:
        raise ValueError(f"the model's valid prefixes are {', '.join(map(str, valid))}, not {length}")
    return gallery.cached(
        f"prefix {length}", faces.revision, lambda: prefix_of(faces.unit_rows(), length).astype(np.float16)
    )


def _check_query(gallery: Gallery, query: Float32[np.ndarray, " d"], k: int) -> None:
    if k < 1:
        raise ValueError(f"a search finds 1 or more, not {k}")
    if query.shape != (gallery.space.embedding_dim,):
        raise ValueError(f"{gallery.folder} holds vectors of {gallery.space.embedding_dim} numbers, not {query.shape}")
    check_unit_rows(query[None])


def _allowed(gallery: Gallery, faces: FaceTable, only: Filter) -> Bool[np.ndarray, " n"]:
    """Marks the faces that pass."""
    tests: list[str] = []
    values: list[str | int] = []
    if only.identities is not None:
        tests.append(f"identity_id IN ({', '.join('?' * len(only.identities))})")
        values += only.identities
    if only.species is not None:
        tests.append("species = ?")
        values.append(only.species)
    if only.since is not None:
        tests.append("taken_at >= ?")
        values.append(only.since)
    if only.until is not None:
        tests.append("substr(taken_at, 1, length(?)) <= ?")
        values += [only.until, only.until]
    with gallery.reading() as connection:
        rows = connection.execute(
            "SELECT faces.id FROM faces JOIN photos ON photos.id = photo_id "
            f"LEFT JOIN assignments ON face_id = faces.id WHERE {' AND '.join(tests)}",
            values,
        ).fetchall()
    mask = np.zeros(len(faces.ids), np.bool_)
    mask[faces.rows_of(np.array([row[0] for row in rows], np.int64))] = True
    return mask


def _hits(gallery: Gallery, ids: Int64[np.ndarray, " k"], similarity: Float32[np.ndarray, " k"]) -> list[Hit]:
    individuals = load_assignments(gallery).estimated_identity_count
    odds = _odds(similarity.astype(np.float64), individuals, calibration(gallery))
    with gallery.reading() as connection:
        rows = connection.execute(
            "SELECT faces.id, path, left_px, top_px, right_px, bottom_px, identity_id, name FROM faces "
            "JOIN photos ON photos.id = photo_id LEFT JOIN assignments ON face_id = faces.id LEFT JOIN identities "
            "ON identities.id = identity_id WHERE faces.id IN (SELECT value FROM json_each(?))",
            (json.dumps(ids.tolist()),),
        ).fetchall()
    known = {row[0]: row[1:] for row in rows}
    found: list[Hit] = []
    for place, face in enumerate(ids.tolist()):
        path, left, top, right, bottom, identity, name = known[face]
        box = (left, top, right, bottom)
        likely = None if odds is None else float(odds[place] / (1 + odds[place]))
        found.append(Hit(face, path, box, identity, name, float(similarity[place]), likely))
    return found
