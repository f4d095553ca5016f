"""Search a gallery for the photos or identities most similar to a query, with open-set identification."""

from dataclasses import replace

import numpy as np
from jaxtyping import Bool, Float32, Int64

from familiar.core.errors import FamiliarError
from familiar.core.recognition_types import Hit, Match, VerificationResult
from familiar.core.vectors import check_unit_rows, normalize
from familiar.core.vectors import prefix as embedding_prefix
from familiar.embedding.verification import verify_embeddings
from familiar.gallery.same.album import comparison_of_part
from familiar.gallery.same.assignments import check_identities, load_assignments
from familiar.gallery.same.templates import Templates, compute_templates
from familiar.gallery.search.external_search import external_candidates
from familiar.gallery.search.filters import NO_FILTER, Filter, filter_mask
from familiar.gallery.search.folder_index import nearest_in_index
from familiar.gallery.store.face_table import EmbeddingTable
from familiar.gallery.store.store import Store
from familiar.neighbors import brute_force

CANDIDATE_SHARE = 0.01  # of the faces: candidates by prefix, to be ranked by all components


def search_faces(
    store: Store,
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
        store: the gallery to search.
        query: unit vector in the gallery's space, of one of its lengths (`Space.lengths`). A shorter one is compared
            with the first components of every face.
        k: maximum number of hits, at least 1.
        only: restricts the search, which then compares every face that passes, unless the index is outside.
        prefix: one of the model's valid prefix lengths. Candidates are chosen by these first components, then ranked
            by all.

    Raises:
        ValueError: k is below 1, the query is not of such a length, or the prefix length is not valid.
    """
    with store.read():  # one snapshot, whatever other processes write
        is_whole = prefix is None and len(query) == store.space.embedding_dim
        indexed = external_candidates(store, query, k, only) if is_whole else None
        faces = store.faces_at(len(query)) if indexed is None else indexed
        mask = None if only.empty or indexed is not None else filter_mask(store, faces, only)
        allowed, queries = faces.comparable(query, mask), faces.center_query(query)[None]
        candidates = None
        if prefix is not None and prefix < len(query):
            candidates = _nearest_prefixes(store, faces, prefix, queries, k, allowed)
        elif indexed is None and is_whole and only.empty:
            candidates = nearest_in_index(store, faces, queries, k, allowed)
        if candidates is None:
            rows, similarity = brute_force.search(faces.embeddings, queries=queries, k=k, allowed=allowed)
        else:
            rows, similarity = brute_force.rerank(faces.embeddings, queries=queries, rows=candidates[None], k=k)
        return _hits(store, faces, rows[0], similarity[0])


def search_identities(
    store: Store,
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
        store: the gallery to search.
        query: as for `search_faces`.
        k: maximum number of matches, at least 1.
        only: restricts the faces that count.

    Raises:
        ValueError: k is below 1, or the query is not a unit vector of such a length.
    """
    check_unit_rows(query[None])
    if k < 1:
        raise ValueError(f"k must be at least 1, got {k}")
    with store.read():
        faces = store.faces_at(len(query))
        part, query = faces.part_of_query(query), faces.center_query(query)
        names, templates = load_assignments(store).names, _templates(store, faces, part, only)
        comparison = comparison_of_part(store, faces, part)
    if not len(templates.numbers):
        return []
    mean = (templates.sums @ query) / np.maximum(templates.norms, np.finfo(np.float32).tiny)
    odds = comparison.odds(mean, len(templates.numbers))
    probability = None if odds is None else odds / (1 + odds.sum())
    is_known = mean >= comparison.threshold if probability is None else probability >= 0.5
    k = min(k, len(mean))
    matches: list[Match] = []
    for index in np.flatnonzero(mean >= np.partition(mean, -k)[-k]).tolist():
        number, rows = int(templates.numbers[index]), templates.rows_of(index)
        similarity = faces.unit_rows(rows) @ query
        best = int(similarity.argmax())
        name, face = names.get(number), int(faces.ids[rows[best]])
        chance = None if probability is None else float(probability[index])
        known = bool(is_known[index])
        matches.append(Match(number, name, face, float(similarity[best]), float(mean[index]), chance, known))
    # Of equal means the one with the better face comes first, then the lower number.
    return sorted(matches, key=lambda match: (-match.mean, -match.best, match.identity))[:k]


def _templates(store: Store, faces: EmbeddingTable, part: int, only: Filter) -> Templates:
    """Compute the templates of the faces of a part of the space that pass the filter."""

    def compute() -> Templates:
        mask = faces.parts == part
        if not only.empty:
            mask &= filter_mask(store, faces, only)
        return compute_templates(replace(load_assignments(store), faces=faces), np.flatnonzero(mask))

    if not only.empty:
        return compute()
    return store.cached(f"templates of part {part} at {faces.embeddings.shape[1]}", store.revision, compute)


def verify(store: Store, query: Float32[np.ndarray, " d"], identity: int) -> VerificationResult:
    """Decide whether a query shows an identity, by the similarity to the mean of its faces.

    Args:
        store: the gallery to search.
        query: unit vector of the gallery's model, or of a compatible one whose embeddings are longer or shorter.
        identity: its number.

    Returns:
        The similarity, the probability, and the decision; only the similarity if the model is not calibrated.

    Raises:
        NotInGallery: there is no such identity.
        FamiliarError: the identity has no face.
        ValueError: the query is not a unit vector of one of the gallery's lengths.
    """
    check_identities(store, [identity])
    check_unit_rows(query[None])
    query = store.truncate(query[None])[0]
    with store.read():
        faces, rows = store.faces_at(len(query)), load_assignments(store).rows_of_identity(identity)
        part, query = faces.part_of_query(query), faces.center_query(query)
        model = comparison_of_part(store, faces, part).calibration
    if not len(rows):
        raise FamiliarError(f"{store.folder}: #{identity} has no face to compare with")
    is_comparable = faces.parts[rows] == part
    rows = rows[is_comparable] if is_comparable.any() else rows  # else the photo shows another species
    template = normalize(faces.unit_rows(rows).mean(axis=0, keepdims=True))
    return verify_embeddings(template[0], query, model)


def verify_pair(
    store: Store, first: Float32[np.ndarray, " d"], second: Float32[np.ndarray, " e"]
) -> VerificationResult:
    """Decide whether two embeddings show the same individual, by the gallery's means and its model's calibration.

    Args:
        store: whose model computed the embeddings.
        first: unit vector of one photo, of the gallery or not.
        second: unit vector of the other photo. Both are compared over the shortest length, the gallery's included.
    """
    length = min(len(first), len(second), store.space.embedding_dim)
    first, second = (embedding_prefix(each[None], length)[0] for each in (first, second))
    with store.read():
        faces = store.faces_at(length)
        comparison = comparison_of_part(store, faces, faces.part_of_query(first))
    return verify_embeddings(faces.center_query(first), faces.center_query(second), comparison.calibration)


def _nearest_prefixes(
    store: Store,
    faces: EmbeddingTable,
    length: int,
    queries: Float32[np.ndarray, "1 d"],
    k: int,
    allowed: Bool[np.ndarray, " n"] | None,
) -> Int64[np.ndarray, " rows"]:
    """Find the faces whose first components are nearest to those of a query."""
    valid = store.space.prefixes
    if length not in valid:
        raise ValueError(f"the prefix length must be one of the model's ({', '.join(map(str, valid))}), got {length}")
    prefixes = store.cached(
        f"prefix {length}", faces.revision, lambda: embedding_prefix(faces.unit_rows(), length).astype(np.float16)
    )
    count = max(k, round(len(faces.ids) * CANDIDATE_SHARE))
    shortened = embedding_prefix(queries, length)
    return brute_force.search(prefixes, queries=shortened, k=count, allowed=allowed)[0][0]


def _hits(
    store: Store,
    faces: EmbeddingTable,
    rows: Int64[np.ndarray, " k"],
    similarity: Float32[np.ndarray, " k"],
) -> list[Hit]:
    """Return the faces of some rows, all of one part of the space, with their probabilities."""
    if not len(rows):
        return []
    ids = faces.ids[rows].tolist()
    comparison = comparison_of_part(store, faces, int(faces.parts[rows[0]]))
    with store.read() as repository:
        individuals = repository.assignments.estimated_identities()
        row_of_face = {row.face: row for row in repository.faces.rows(ids)}
    odds = comparison.odds(similarity, individuals)
    probabilities = [None] * len(ids) if odds is None else (odds / (1 + odds)).tolist()
    return [
        Hit(face, row.path, row.box_xyxy_px, row.identity, row.name, value, probability)
        for face, value, probability in zip(ids, similarity.tolist(), probabilities, strict=True)
        for row in [row_of_face[face]]
    ]
