"""Search a gallery for the photos or identities most similar to a query, with open-set identification."""

from dataclasses import replace

import numpy as np
from jaxtyping import Bool, Float16, Float32, Float64, Int64

from familiar.core.calibration import Calibration
from familiar.core.errors import FamiliarError
from familiar.core.recognition_types import Hit, Match, VerificationResult
from familiar.core.vectors import check_unit_rows, normalize
from familiar.core.vectors import prefix as embedding_prefix
from familiar.embedding.verification import probability_same, verify_embeddings
from familiar.gallery.clustering.assignments import UNASSIGNED, FaceAssignments, check_identities, load_assignments
from familiar.gallery.clustering.calibration import calibration_at, clustering_calibration
from familiar.gallery.search.external_search import search_external_index
from familiar.gallery.search.filters import NO_FILTER, Filter, filter_mask
from familiar.gallery.search.query_adaptation import AdaptedQuery, adapt_query
from familiar.gallery.search.templates import Templates, compute_templates
from familiar.gallery.store.face_table import FaceTable
from familiar.gallery.store.index_lock import index_lock
from familiar.gallery.store.store import Store
from familiar.neighbors import brute_force
from familiar.neighbors.domains import IN_DOMAIN
from familiar.neighbors.hnsw import HnswIndex, Stamp

INDEX_FROM = 50_000  # faces: fewer are searched exactly in a few milliseconds
INDEX_EXTRA = 10  # candidates requested from the index beyond k, as it computes in float16
CANDIDATE_SHARE = 0.01  # of the faces: candidates by prefix, to be ranked by all components


def search_photos(
    gallery: Store,
    query: Float32[np.ndarray, " d"],
    k: int = 10,
    *,
    only: Filter = NO_FILTER,
    prefix: int | None = None,
) -> list[Hit]:
    """Return the k faces most similar to a query, most similar first.

    The prior of a hit's probability is that the query is an unknown individual with probability one half, else each
    individual of the gallery with the same probability.

    A gallery with an index outside its folder (`use_external_index`) is searched with that. Other galleries of 50,000
    faces or more use their index if it is up to date (`build_index`); the rest compare every face.

    Args:
        gallery: the gallery to search.
        query: unit vector in the gallery's space, of one of its lengths (`Space.lengths`). A shorter one is compared
            with the first components of every face.
        k: maximum number of hits, at least 1.
        only: restricts the search, which then compares every face that passes, unless the index is outside.
        prefix: one of the model's valid prefix lengths. Candidates are chosen by these first components, then ranked
            by all.

    Raises:
        ValueError: k is below 1, the query is not a unit vector of such a length, or the prefix length is not valid.
    """
    _check_query(query, k)
    with gallery.read():  # one snapshot, whatever other processes write
        is_whole = len(query) == gallery.space.embedding_dim
        if is_whole and prefix is None and (hits := search_external_index(gallery, query, k, only)) is not None:
            part = int(gallery.space.part_of(query[None])[0])
            return _hits(gallery, *hits, calibration_at(gallery, len(query), part))
        faces = gallery.faces_at(len(query))
        part, query = faces.part_of_query(query), faces.center_query(query)
        allowed = None if only.empty else filter_mask(gallery, faces, only)
        if faces.space.parts:  # only faces of the same network can be compared
            allowed = (faces.parts == part) if allowed is None else allowed & (faces.parts == part)
        index = open_index(gallery) if allowed is None and prefix is None and is_whole else None
        queries = query[None]
        if prefix is not None and prefix < len(query):
            prefixes = _prefixes(gallery, faces, prefix)
            candidates = max(k, round(len(faces.ids) * CANDIDATE_SHARE))
            rows, similarity = brute_force.search_prefix(faces.embeddings, prefixes, queries, k, candidates, allowed)
        elif index is None:
            rows, similarity = brute_force.search(faces.embeddings, queries, k, allowed)
        else:
            rows, similarity = _search_index(faces, index, queries, k)
        return _hits(gallery, faces.ids[rows[0]], similarity[0], calibration_at(gallery, len(query), part))


def _search_index(
    faces: FaceTable, index: HnswIndex, queries: Float32[np.ndarray, "1 d"], k: int
) -> tuple[Int64[np.ndarray, "1 hits"], Float32[np.ndarray, "1 hits"]]:
    try:
        candidates = faces.rows_of(index.search(queries, k + INDEX_EXTRA)[0][0])
    except KeyError:  # another process is erasing the index
        return brute_force.search(faces.embeddings, queries, k)
    return brute_force.rerank(faces.embeddings, queries, candidates[None], k)


def search_identities(
    gallery: Store,
    query: Float32[np.ndarray, " d"],
    k: int = 5,
    *,
    only: Filter = NO_FILTER,
) -> list[Match]:
    """Return the k identities most similar to a query, most similar template first.

    If none of them is `known`, the query shows an unknown individual. The prior is that an unknown individual is as
    likely as all N identities together, and each identity as likely as another. So, with L_i the odds that the
    calibration gives to the similarity s_i, identity i has the probability (L_i / N) / (1 + sum(L_j / N)): the more
    identities there are, the more similar to one of them an unknown individual may be by chance. An identity is
    `known` from one half on, or, if the model was never calibrated, from the clustering threshold on.

    Args:
        gallery: the gallery to search.
        query: as for `search_photos`.
        k: maximum number of matches, at least 1.
        only: restricts the faces that count.

    Raises:
        ValueError: k is below 1, or the query is not a unit vector of such a length.
    """
    _check_query(query, k)
    with gallery.read():
        assignments = _assignments_at(gallery, len(query))
        part = assignments.faces.part_of_query(query)
        adapted = adapt_query(gallery, assignments, assignments.faces.center_query(query))
        templates = _templates_to_compare(gallery, assignments, adapted, part, only)
        model, threshold = calibration_at(gallery, len(query), part), clustering_calibration(gallery, part).threshold
    if not len(templates.numbers):
        return []
    mean = (templates.sums @ adapted.query) / np.maximum(templates.norms, np.finfo(np.float32).tiny)
    odds = _odds(mean.astype(np.float64) + adapted.shift, len(templates.numbers), model)
    probability = None if odds is None else odds / (1 + odds.sum())
    is_known = mean >= threshold - adapted.shift if probability is None else probability >= 0.5
    matches: list[Match] = []
    for index, face, best in _nearest_templates(assignments, adapted, templates, mean, k):
        number = int(templates.numbers[index])
        matches.append(
            Match(
                number,
                assignments.names.get(number),
                face,
                best,
                float(mean[index]),
                None if probability is None else float(probability[index]),
                bool(is_known[index]),
            )
        )
    return matches


def _templates_to_compare(
    gallery: Store, assignments: FaceAssignments, adapted: AdaptedQuery, part: int, only: Filter
) -> Templates:
    """Compute the templates of the faces in the query's domain and part of the space that pass the filter."""

    def comparable() -> Bool[np.ndarray, " n"]:
        return (assignments.domain == adapted.domain) & (assignments.faces.parts == part)

    if only.empty and adapted.domain == IN_DOMAIN:
        return gallery.cached(
            f"templates of part {part} at {len(adapted.query)}",
            gallery.revision,
            lambda: compute_templates(assignments, np.flatnonzero(comparable())),
        )
    mask = comparable()
    if not only.empty:
        mask &= filter_mask(gallery, assignments.faces, only)
    rows = np.flatnonzero(mask & (assignments.identity != UNASSIGNED))
    return compute_templates(assignments, rows, adapted.vectors(assignments, rows))


def _nearest_templates(
    assignments: FaceAssignments, adapted: AdaptedQuery, templates: Templates, mean: Float32[np.ndarray, " i"], k: int
) -> list[tuple[int, int, float]]:
    """Return the indices of the k identities of highest mean, each with its best face and that face's similarity.

    Of equal means the one with the better face comes first, then the lower number.
    """
    k = min(k, len(mean))
    nearest: list[tuple[int, int, float]] = []
    for index in np.flatnonzero(mean >= np.partition(mean, -k)[-k]).tolist():
        rows = templates.rows_of(index)
        similarity = adapted.vectors(assignments, rows) @ adapted.query
        best = int(similarity.argmax())
        nearest.append((index, int(assignments.faces.ids[rows[best]]), float(similarity[best])))
    return sorted(nearest, key=lambda match: (-float(mean[match[0]]), -match[2], match[0]))[:k]


def verify(gallery: Store, query: Float32[np.ndarray, " d"], identity: int) -> VerificationResult:
    """Decide whether a query shows an identity, by the similarity to the mean of its faces.

    Args:
        gallery: the gallery to search.
        query: unit vector of the gallery's model, or of a compatible one whose embeddings are longer or shorter.
        identity: its number.

    Returns:
        The similarity, the probability, and the decision; only the similarity if neither the model nor the gallery is
        calibrated.

    Raises:
        NotInGallery: there is no such identity.
        FamiliarError: the identity has no face.
        ValueError: the query is not a unit vector of one of the gallery's lengths.
    """
    check_identities(gallery, [identity])
    _check_query(query, 1)
    query = gallery.truncate_query(query)
    with gallery.read():
        assignments = _assignments_at(gallery, len(query))
        members = assignments.rows_of_identity(identity)
        if not len(members):
            raise FamiliarError(f"{gallery.folder}: #{identity} has no face to compare with")
        part = assignments.faces.part_of_query(query)
        query = assignments.faces.center_query(query)
        adapted = adapt_query(gallery, assignments, query)
    members = _select_part(assignments.faces, members, part)
    rows = members[assignments.domain[members] == adapted.domain]
    if not len(rows):  # the query is a cat, for instance, and the identity a person
        adapted, rows = AdaptedQuery(IN_DOMAIN, query), members
    template = normalize(adapted.vectors(assignments, rows).mean(axis=0, keepdims=True))[0]
    similarity = float(np.clip(template @ adapted.query, -1.0, 1.0))
    model = calibration_at(gallery, len(query), part)
    if not model.fitted:
        return VerificationResult(similarity, probability=None, same=None, threshold=None)
    # Out of domain only the clustering threshold is known.
    threshold = (
        model.balanced.similarity
        if not adapted.shift
        else clustering_calibration(gallery, part).threshold - adapted.shift
    )
    probability = probability_same(similarity - threshold + model.balanced.similarity, model)
    return VerificationResult(similarity, probability, similarity >= threshold, threshold)


def verify_pair(
    gallery: Store, first: Float32[np.ndarray, " d"], second: Float32[np.ndarray, " e"]
) -> VerificationResult:
    """Decide whether two embeddings show the same individual, by the gallery's means and calibration.

    Args:
        gallery: whose model computed the embeddings.
        first: unit vector of one photo, of the gallery or not.
        second: unit vector of the other photo. Both are compared over the shortest length, the gallery's included.
    """
    length = min(len(first), len(second), gallery.space.embedding_dim)
    first, second = (embedding_prefix(each[None], length)[0] for each in (first, second))
    with gallery.read():
        faces = gallery.faces_at(length)
        model = calibration_at(gallery, length, faces.part_of_query(first))
    return verify_embeddings(faces.center_query(first), faces.center_query(second), model)


def _select_part(faces: FaceTable, rows: Int64[np.ndarray, " k"], part: int) -> Int64[np.ndarray, " j"]:
    """Select the rows of a part of the space; all, if there is none: then the photo shows another species."""
    selected = rows[faces.parts[rows] == part]
    return selected if len(selected) else rows


def _odds(
    similarity: Float64[np.ndarray, " i"], individuals: int, model: Calibration
) -> Float64[np.ndarray, " i"] | None:
    """Return L / N for each similarity: the odds against an unknown individual, who is as likely as all N together."""
    if model.slope is None or model.intercept is None:
        return None
    return np.exp(np.clip(model.slope * similarity + model.intercept, -500, 500)) / individuals


def lacks_index(gallery: Store) -> bool:
    """Tell whether a gallery is large enough for an index, but has none that is up to date."""
    return len(gallery.faces().ids) >= INDEX_FROM and open_index(gallery) is None


def build_index(gallery: Store) -> None:
    """Build the HNSW index that searches galleries of 50,000 faces and more.

    Raises:
        FamiliarError: usearch is not installed.
    """
    with gallery.read():
        faces = gallery.faces()
        version = _index_version(gallery)
    index = HnswIndex.build(faces.embeddings, faces.ids)
    with index_lock(gallery.folder):
        if _index_version(gallery) != version:  # faces may have been forgotten while it was built
            return
        index.save(gallery.folder, version)
    gallery.purge_deleted()  # if faces were forgotten while it was saved, and that did not wait


def open_index(gallery: Store) -> HnswIndex | None:
    """Open the index, or return None if there is none of exactly the gallery's current faces."""
    with gallery.read():
        faces = gallery.faces()
        stamp = Stamp(len(faces.ids), _index_version(gallery))
    if len(faces.ids) < INDEX_FROM:
        return None
    return gallery.cached("index", faces.revision, lambda: HnswIndex.open(gallery.folder, stamp))


def _index_version(gallery: Store) -> str:
    with gallery.read() as repository:
        return f"{repository.settings.uid()} {repository.settings.faces_revision()}"


def _prefixes(gallery: Store, faces: FaceTable, length: int) -> Float16[np.ndarray, "n p"]:
    valid = gallery.space.prefixes
    if length not in valid:
        raise ValueError(f"the prefix length must be one of the model's ({', '.join(map(str, valid))}), got {length}")
    return gallery.cached(
        f"prefix {length}", faces.revision, lambda: embedding_prefix(faces.unit_rows(), length).astype(np.float16)
    )


def _check_query(query: Float32[np.ndarray, " d"], k: int) -> None:
    if k < 1:
        raise ValueError(f"k must be at least 1, got {k}")
    check_unit_rows(query[None])


def _assignments_at(gallery: Store, length: int) -> FaceAssignments:
    """Return the assignments, with the faces as they are compared with embeddings of this length."""
    assignments = load_assignments(gallery)
    return (
        replace(assignments, faces=gallery.faces_at(length)) if length != gallery.space.embedding_dim else assignments
    )


def _hits(
    gallery: Store, ids: Int64[np.ndarray, " k"], similarity: Float32[np.ndarray, " k"], model: Calibration
) -> list[Hit]:
    with gallery.read() as repository:
        individuals = repository.assignments.estimated_identities()
        row_of_face = {row.face: row for row in repository.faces.rows(ids.tolist())}
    odds = _odds(similarity.astype(np.float64), individuals, model)
    hits: list[Hit] = []
    for index, face in enumerate(ids.tolist()):
        row = row_of_face[face]
        probability = None if odds is None else float(odds[index] / (1 + odds[index]))
        hits.append(Hit(face, row.path, row.box_xyxy_px, row.identity, row.name, float(similarity[index]), probability))
    return hits
