"""Whose faces are like this one? Photos or identities, nearest first, and an honest "nobody I know"."""

import re
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float16, Float32, Float64, Int64

from familiar.core.calibration import Calibration
from familiar.core.errors import FamiliarError
from familiar.core.vectors import check_unit_rows, normalise
from familiar.core.vectors import prefix as prefix_of
from familiar.faces.verify import Answer, probability_same
from familiar.gallery.calibration import calibration, grouping
from familiar.gallery.group import threshold_of
from familiar.gallery.store import Faces, Gallery
from familiar.gallery.who import NOBODY, Who, check_identities, who_is_who
from familiar.neighbors import exact
from familiar.neighbors.adapt import adapt
from familiar.neighbors.hnsw import HnswIndex, Stamp, erase
from familiar.neighbors.kinds import HOME, joined

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
                raise ValueError(
                    f"a time is written 2024, 2024-06, 2024-06-01 or 2024-06-01T12:00:00, not {time!r}"
                )

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
            rows, similarity = exact.search_prefix(
                faces.embeddings, prefixes, queries, k, candidates, allowed
            )
        elif index is None:
            rows, similarity = exact.search(faces.embeddings, queries, k, allowed)
        else:
            rows, similarity = _by_index(faces, index, queries, k)
        return _hits(gallery, faces.ids[rows[0]], similarity[0])


def _by_index(
    faces: Faces, index: HnswIndex, queries: Float32[np.ndarray, "1 d"], k: int
) -> tuple[Int64[np.ndarray, "1 found"], Float32[np.ndarray, "1 found"]]:
    try:
        candidates = faces.rows_of(index.search(queries, k + MORE)[0][0])
    except KeyError:  # another process is erasing it
        return exact.search(faces.embeddings, queries, k)
    return exact.rerank(faces.embeddings, queries, candidates[None], k)


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
        who = who_is_who(gallery)
        mask = who.identity != NOBODY
        if not only.empty:
            mask &= _allowed(gallery, who.faces, only)
    asked = _as_seen(gallery, who, query)
    rows = asked.rows[mask[asked.rows]]
    if not len(rows):
        return []
    numbers, group = np.unique(who.identity[rows], return_inverse=True)
    vectors = asked.vectors[mask[asked.rows]]
    similarity = vectors @ asked.query
    best = np.full(len(numbers), -2.0)
    np.maximum.at(best, group, similarity)
    sums = np.zeros((len(numbers), vectors.shape[1]), np.float32)
    np.add.at(sums, group, vectors)
    mean = (sums @ asked.query) / np.maximum(np.linalg.norm(sums, axis=1), np.finfo(np.float32).tiny)
    odds = _odds(mean.astype(np.float64) + asked.shift, len(numbers), calibration(gallery))
    probability = None if odds is None else odds / (1 + odds.sum())
    at_least = grouping(gallery).threshold - asked.shift
    found: list[Match] = []
    for at in np.lexsort((numbers, -best, -mean))[:k]:
        number, mine = int(numbers[at]), np.flatnonzero(group == at)
        found.append(
            Match(
                number,
                who.names.get(number),
                int(who.faces.ids[rows[mine[similarity[mine].argmax()]]]),
                float(best[at]),
                float(mean[at]),
                None if probability is None else float(probability[at]),
                bool(mean[at] >= at_least if probability is None else probability[at] >= 0.5),
            )
        )
    return found


def verify(gallery: Gallery, query: Float32[np.ndarray, " d"], identity: int) -> Answer:
    """Does `query` show that identity? Compared with the mean of its faces. NotInGallery where there is none such,
    FamiliarError where it has no face."""
    check_identities(gallery, [identity])
    _check_query(gallery, query, 1)
    who = who_is_who(gallery)
    own = who.rows_of_identity(identity)
    if not len(own):
        raise FamiliarError(f"{gallery.folder}: #{identity} has no face to compare with")
    asked = _as_seen(gallery, who, query)
    mine = np.isin(asked.rows, own)
    if not mine.any():  # a cat, say, and the identity is a person
        asked, mine = _Asked(own, who.faces.unit_rows(own), query, 0.0), np.ones(len(own), np.bool_)
    template = normalise(asked.vectors[mine].mean(axis=0, keepdims=True))[0]
    means = calibration(gallery)
    # In a kind nothing is known but from where its faces are grouped.
    threshold = means.balanced.similarity if not asked.shift else grouping(gallery).threshold - asked.shift
    similarity = float(np.clip(template @ asked.query, -1.0, 1.0))
    probability = probability_same(similarity - threshold + means.balanced.similarity, means)
    return Answer(similarity, probability, similarity >= threshold, threshold)


@dataclass(frozen=True, eq=False)
class _Asked:
    """A query beside the faces that it compares with: those at home, or those of its kind, adapted as it is.

    `shift` makes of a similarity among them one that the calibration knows.
    """

    rows: Int64[np.ndarray, " m"]
    vectors: Float32[np.ndarray, "m d"]
    query: Float32[np.ndarray, " d"]
    shift: float


def _as_seen(gallery: Gallery, who: Who, query: Float32[np.ndarray, " d"]) -> _Asked:
    kind, own = HOME, np.flatnonzero(who.kind != HOME)
    if len(own):
        beside = np.concatenate([who.faces.unit_rows(own), query[None]])
        kind = int(joined(beside, np.append(who.kind[own], HOME))[-1])
    rows = np.flatnonzero(who.kind == kind)
    if kind == HOME:
        return _Asked(rows, who.faces.unit_rows(rows), query, 0.0)
    adapted = adapt(np.concatenate([who.faces.unit_rows(rows), query[None]]))
    home = grouping(gallery).threshold
    return _Asked(rows, adapted[:-1], adapted[-1], home - threshold_of(home, kind))


def _odds(
    similarity: Float64[np.ndarray, " i"], individuals: int, means: Calibration
) -> Float64[np.ndarray, " i"] | None:
    """L / N of each: how much likelier it is than a stranger, who beforehand is as likely as all N individuals."""
    if means.slope is None or means.intercept is None:
        return None
    return np.exp(np.clip(means.slope * similarity + means.intercept, -500, 500)) / individuals


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
    return gallery.kept("index", faces.revision, lambda: HnswIndex.open(gallery.folder, stamp))


def _watermark(gallery: Gallery, faces: Faces) -> str:
    with gallery.reading() as connection:
        (uid,) = connection.execute("SELECT uid FROM gallery").fetchone()
    return f"{uid} {faces.revision}"


def _prefixes(gallery: Gallery, faces: Faces, length: int) -> Float16[np.ndarray, "n p"]:
    valid = gallery.space.prefixes
    if length not in valid:
        raise ValueError(f"the model's valid prefixes are {', '.join(map(str, valid))}, not {length}")
    return gallery.kept(
        f"prefix {length}", faces.revision, lambda: prefix_of(faces.unit_rows(), length).astype(np.float16)
    )


def _check_query(gallery: Gallery, query: Float32[np.ndarray, " d"], k: int) -> None:
    if k < 1:
        raise ValueError(f"a search finds 1 or more, not {k}")
    if query.shape != (gallery.space.embedding_dim,):
        raise ValueError(
            f"{gallery.folder} holds vectors of {gallery.space.embedding_dim} numbers, not {query.shape}"
        )
    check_unit_rows(query[None])


def _allowed(gallery: Gallery, faces: Faces, only: Filter) -> Bool[np.ndarray, " n"]:
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
    individuals = who_is_who(gallery).individuals
    odds = _odds(similarity.astype(np.float64), individuals, calibration(gallery))
    found: list[Hit] = []
    with gallery.reading() as connection:
        for place, face in enumerate(ids.tolist()):
            path, left, top, right, bottom, identity, name = connection.execute(
                "SELECT path, left_px, top_px, right_px, bottom_px, identity_id, name FROM faces "
                "JOIN photos ON photos.id = photo_id LEFT JOIN assignments ON face_id = faces.id "
                "LEFT JOIN identities ON identities.id = identity_id WHERE faces.id = ?",
                (face,),
            ).fetchone()
            box = (left, top, right, bottom)
            likely = None if odds is None else float(odds[place] / (1 + odds[place]))
            found.append(Hit(face, path, box, identity, name, float(similarity[place]), likely))
    return found
