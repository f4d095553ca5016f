"""Search for photos and identities, against slow reference loops."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from familiar.core.calibration import Calibration
from familiar.core.errors import FamiliarError, NotInGallery
from familiar.core.species_means import SpeciesMeans
from familiar.core.vectors import normalize
from familiar.gallery.cluster.cluster import cluster
from familiar.gallery.edits import corrections, forget
from familiar.gallery.same.assignments import load_assignments
from familiar.gallery.search import folder_index
from familiar.gallery.search import search as search_module
from familiar.gallery.search.filters import Filter
from familiar.gallery.search.folder_index import build_index, open_index
from familiar.gallery.search.search import (
    search_faces,
    search_identities,
    verify,
    verify_pair,
)
from familiar.gallery.store.store import Store
from familiar.neighbors.centering import Centering
from familiar.neighbors.hnsw import INDEX_FILE
from support.small_gallery import DIM, SPACE, draw_individuals, enroll_vectors


def random_rows(count: int, seed: int = 0) -> np.ndarray:
    return normalize(np.random.default_rng(seed).normal(size=(count, DIM)).astype(np.float32))


@pytest.mark.parametrize("gallery", ["float32", "float16", "int8"], indirect=True)
@pytest.mark.parametrize("k", [1, 7, 99])
def test_search_faces_returns_nearest_faces_in_order(gallery: Store, k: int):
    stored = random_rows(50)
    enroll_vectors(gallery, stored)
    query = random_rows(1, seed=1)[0]
    similarity = normalize(gallery.faces().unit_rows()) @ query
    order = np.argsort(-similarity)[:k]
    hits = search_faces(gallery, query, k)
    assert [hit.face for hit in hits] == (order + 1).tolist()
    np.testing.assert_allclose([hit.similarity for hit in hits], similarity[order], atol=1e-6)
    assert hits[0].path == f"photo {order[0]}.jpg"
    assert hits[0].box_xyxy_px == (0, 0, 0, 0)
    assert (hits[0].identity, hits[0].name) == (None, None)
    odds = np.exp(20 * hits[0].similarity - 12) / 50  # an unknown individual is as likely as all fifty together
    assert hits[0].probability == pytest.approx(odds / (1 + odds), rel=1e-5)


@pytest.fixture
def described(gallery: Store) -> Store:
    """Twelve faces with species, times, and two identities."""
    enroll_vectors(gallery, random_rows(12))
    with gallery.write() as repository:
        for face in range(1, 13):
            taken = None if face == 12 else f"2024-{face:02}-15T12:00:00"
            repository.connection.execute("UPDATE photos SET taken_at = ? WHERE id = ?", (taken, face))
            repository.connection.execute(
                "UPDATE faces SET species = ? WHERE id = ?", ("cats" if face % 2 else "dogs", face)
            )
    corrections.split(gallery, [1, 2, 3], "Mia")
    corrections.split(gallery, [4, 5], "Tom")
    return gallery


@pytest.mark.slow
@pytest.mark.parametrize(
    ("only", "faces"),
    [
        (Filter(identities=(1,)), {1, 2, 3}),
        (Filter(identities=(1, 2)), {1, 2, 3, 4, 5}),
        (Filter(identities=()), set()),
        (Filter(species="cats"), {1, 3, 5, 7, 9, 11}),
        (Filter(species="cats\u200e"), {1, 3, 5, 7, 9, 11}),
        (Filter(species="cows"), set()),
        (Filter(since="2024-09"), {9, 10, 11}),
        (Filter(until="2024-03"), {1, 2, 3}),
        (Filter(until="2024-03-14"), {1, 2}),
        (Filter(until="2024-03-15"), {1, 2, 3}),
        (Filter(since="2024-03-15T12:00:00", until="2024-03-15T12:00:00"), {3}),
        (Filter(since="2024-03-15T12:00:01", until="2024"), set(range(4, 12))),
        (Filter(identities=(2,), species="dogs", since="2024"), {4}),
        (Filter(), set(range(1, 13))),
    ],
)
def test_returns_only_hits_that_pass_the_filter(described: Store, only: Filter, faces: set[int]):
    query = random_rows(1, seed=3)[0]
    hits = search_faces(described, query, 20, only=only)
    assert {hit.face for hit in hits} == faces
    assert [hit.similarity for hit in hits] == sorted((hit.similarity for hit in hits), reverse=True)
    through_prefix = search_faces(described, query, 20, only=only, prefix=8)
    assert [hit.face for hit in through_prefix] == [hit.face for hit in hits]
    known = {hit.identity for hit in hits if hit.identity is not None}
    assert {match.identity for match in search_identities(described, query, only=only)} == known


def test_prefix_candidates_are_ranked_by_full_embeddings(gallery: Store):
    stored = random_rows(400)
    enroll_vectors(gallery, stored)
    query = random_rows(1, seed=1)[0]
    hits = search_faces(gallery, query, 3, prefix=8)
    short = normalize(stored[:, :8]) @ normalize(query[None, :8])[0]
    candidates = np.argsort(-short)[:4]  # 1 % of the faces
    expected = candidates[np.argsort(-(stored[candidates] @ query))][:3]
    assert [hit.face for hit in hits] == (expected + 1).tolist()
    np.testing.assert_allclose([hit.similarity for hit in hits], stored[expected] @ query, atol=1e-6)
    with pytest.raises(ValueError, match=r"must be one of the model's \(16, 8\), got 5"):
        search_faces(gallery, query, prefix=5)


def test_rejects_invalid_queries(gallery: Store):
    query = random_rows(1)[0]
    for search in (search_faces, search_identities):
        with pytest.raises(ValueError, match="k must be at least 1, got 0"):
            search(gallery, query, 0)
        with pytest.raises(ValueError, match="needs embeddings of 8 or 16 dimensions, got 5"):
            search(gallery, normalize(query[None, :5])[0])
        with pytest.raises(ValueError, match="not unit vectors"):
            search(gallery, query * 2)


def calibrated_at_8(gallery: Store) -> Calibration:
    """Give the gallery's model a calibration of prefixes of eight components."""
    steeper = replace(SPACE.calibration, slope=30.0, intercept=-9.0)
    with gallery.write() as repository:
        repository.settings.replace_space(replace(SPACE, prefix_calibrations={8: steeper}))
    return steeper


def test_shorter_queries_are_compared_with_the_first_components(gallery: Store):
    stored = random_rows(200)
    enroll_vectors(gallery, stored)
    query = normalize(random_rows(1, seed=1)[:, :8])[0]
    similarity = normalize(stored[:, :8]) @ query
    hits = search_faces(gallery, query, 5)
    assert [hit.face - 1 for hit in hits] == np.argsort(-similarity)[:5].tolist()
    np.testing.assert_allclose([hit.similarity for hit in hits], np.sort(similarity)[:-6:-1], atol=2e-3)
    assert {hit.probability for hit in hits} == {None}, "the model was not calibrated at this length"
    calibrated_at_8(gallery)
    hits = search_faces(gallery, query, 5)
    odds = np.exp(30.0 * np.array([hit.similarity for hit in hits]) - 9.0) / 200
    np.testing.assert_allclose([hit.probability for hit in hits], odds / (1 + odds), rtol=1e-5)
    only = search_faces(gallery, query, 5, only=Filter(identities=(3,)))
    assert only == []


def test_shorter_queries_are_identified_and_verified(gallery: Store):
    rows = draw_individuals([5, 5, 5])
    enroll_vectors(gallery, rows)
    cluster(gallery)
    calibrated_at_8(gallery)
    query = normalize(rows[6:7, :8])[0]
    first, *_ = search_identities(gallery, query)
    assert first.known
    assert first.identity == load_assignments(gallery).identity[6]
    template = normalize(normalize(rows[5:10, :8]).mean(axis=0, keepdims=True))[0]
    assert first.mean == pytest.approx(float(template @ query), abs=2e-3)
    answer = verify(gallery, query, first.identity)
    assert answer.same
    assert answer.threshold == SPACE.calibration.balanced.similarity
    assert not verify(gallery, normalize(rows[:1, :8])[0], first.identity).same
    pair = verify_pair(gallery, rows[6], query)
    assert pair.similarity == pytest.approx(1, abs=1e-5)


def test_shorter_queries_are_less_the_species_means_at_their_length(folder: Path):
    means = SpeciesMeans({"cat": tuple(np.eye(DIM)[3] * 0.5)}, SPACE.calibration)
    rows = draw_individuals([6] * 8)
    rows[:, 3] += 1.0
    rows = normalize(rows)
    with Store.create(folder, replace(SPACE, species_means=means)) as centered:
        enroll_vectors(centered, rows)
        query = normalize(rows[7:8, :8])[0]
        hit, *_ = search_faces(centered, query, 1)
        expected = Centering.fit(normalize(rows[:, :8]), means.rows()[:, :8])
        assert hit.face == 8
        assert centered.faces_at(8).centerings != ()
        np.testing.assert_allclose(centered.faces_at(8).unit_rows(), expected.apply(normalize(rows[:, :8])), atol=5e-3)


def test_empty_gallery_returns_no_hits(gallery: Store):
    query = random_rows(1)[0]
    assert search_faces(gallery, query) == []
    assert search_faces(gallery, query, prefix=8) == []
    assert search_identities(gallery, query) == []


# Vectors whose sums and products are exact, so that many are equal.
EXACT = np.concatenate(
    [
        np.eye(DIM)[:4],
        np.indices((2, 2, 2, 2)).reshape(4, -1).T @ np.eye(DIM)[:4] - np.eye(DIM)[:4].sum(axis=0) / 2,
    ]
)


@pytest.mark.slow
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    faces=st.lists(st.tuples(st.integers(0, 4), st.integers(0, len(EXACT) - 1)), min_size=1, max_size=25),
    query_row=st.integers(0, len(EXACT) - 1),
    k=st.integers(1, 6),
)
def test_cached_templates_match_a_loop_over_all_faces(gallery, faces: list[tuple[int, int]], query_row: int, k: int):
    """Identity 0 means unassigned."""
    vectors, query = EXACT.astype(np.float32)[[row for _, row in faces]], EXACT.astype(np.float32)[query_row]
    with gallery.write(faces_change=True) as repository:
        for table in ("assignments", "identities", "photos"):
            repository.connection.execute(f"DELETE FROM {table}")
    ids = enroll_vectors(gallery, vectors)
    with gallery.write() as repository:
        repository.connection.executemany(
            "INSERT INTO identities (id) VALUES (?)", ((number,) for number in range(1, 5))
        )
        for face, (identity, _) in zip(ids, faces, strict=True):
            repository.connection.executemany(
                "INSERT INTO assignments VALUES (?, ?, 0)", [(face, identity)] if identity else []
            )
    expected = []
    for number in sorted({identity for identity, _ in faces} - {0}):
        members = [row for row, (identity, _) in enumerate(faces) if identity == number]
        total = vectors[members].sum(axis=0)
        mean = float((total @ query) / max(np.linalg.norm(total), np.finfo(np.float32).tiny))
        best = max(members, key=lambda row: (float(vectors[row] @ query), -row))
        expected.append((-mean, -float(vectors[best] @ query), number, ids[best]))
    matches = search_identities(gallery, query, k)
    odds = [np.exp(-20 * negative_mean - 12) / len(expected) for negative_mean, *_ in sorted(expected)]
    for match, match_odds in zip(matches, odds, strict=False):  # 1 is the odds of an unknown individual
        assert match.probability == pytest.approx(match_odds / (1 + sum(odds)), rel=1e-4)
        assert match.known == (match_odds / (1 + sum(odds)) >= 0.5)
    assert [(-match.mean, -match.best, match.identity, match.face) for match in matches] == sorted(expected)[:k]
    assert search_identities(gallery, query, k, only=Filter(identities=(1, 2, 3, 4))) == matches
    assert search_identities(gallery, query, k) == matches, "repeated, from the cache"


def test_verify_compares_with_the_template(gallery: Store):
    enroll_vectors(gallery, draw_individuals([3, 1]))
    cluster(gallery)
    (template,) = normalize(draw_individuals([3, 1])[:3].mean(axis=0, keepdims=True))
    known = draw_individuals([1], seed=2)[0]
    answer = verify(gallery, known, 1)
    assert answer.similarity == pytest.approx(float(template @ known), abs=1e-6)
    assert answer.same
    assert not verify(gallery, draw_individuals([0, 1], seed=2)[0], 1).same
    with pytest.raises(NotInGallery):
        verify(gallery, known, 2)
    corrections.name_identity(gallery, 1, "Mia")
    corrections.split(gallery, [1, 2, 3], "Tom")
    with pytest.raises(FamiliarError, match="#1 has no face"):
        verify(gallery, known, 1)


def test_concurrent_enrollment_and_deletion_do_not_break_search(gallery, folder, monkeypatch: pytest.MonkeyPatch):
    enroll_vectors(gallery, random_rows(5))
    filter_mask, hits = search_module.filter_mask, search_module._hits

    def enroll_then_filter(*arguments):
        with Store.open(folder) as other:
            enroll_vectors(other, random_rows(1, seed=9), "more")
            with other.write() as repository:
                repository.connection.execute("UPDATE photos SET taken_at = '2024'")
        return filter_mask(*arguments)

    def forget_then_read(*arguments):
        with Store.open(folder) as other, other.write(faces_change=True) as repository:
            repository.connection.execute("DELETE FROM faces WHERE id = 1")
        return hits(*arguments)

    monkeypatch.setattr(search_module, "filter_mask", enroll_then_filter)
    monkeypatch.setattr(search_module, "_hits", forget_then_read)
    matches = search_faces(gallery, random_rows(1, seed=1)[0], only=Filter(until="9999"))
    assert matches == []
    monkeypatch.setattr(search_module, "filter_mask", filter_mask)
    assert len(search_faces(gallery, random_rows(1, seed=1)[0])) == 5  # all faces of the snapshot
    assert len(search_faces(Store.open(folder), random_rows(1, seed=1)[0])) == 5


# The index


@pytest.fixture
def indexed(gallery: Store, monkeypatch: pytest.MonkeyPatch) -> Store:
    """Three hundred faces, enough for an index here, and their index."""
    pytest.importorskip("usearch")
    monkeypatch.setattr(folder_index, "INDEX_FROM", 300)
    enroll_vectors(gallery, random_rows(300))
    build_index(gallery)
    return gallery


def exact_nearest(gallery: Store, query: np.ndarray, k: int) -> list[int]:
    faces = gallery.faces()
    return faces.ids[np.argsort(-(faces.unit_rows() @ query))[:k]].tolist()


def test_fresh_index_returns_exact_similarities(indexed: Store, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(search_module.brute_force, "search", None)  # an exact search would fail
    for seed in range(5):
        query = random_rows(1, seed=seed + 10)[0]
        hits = search_faces(indexed, query, 10)
        # The order of the threads that build an index decides its shape, so it rarely misses a face.
        assert len({hit.face for hit in hits} & {*exact_nearest(indexed, query, 10)}) >= 9
        stored = indexed.faces().unit_rows()[[hit.face - 1 for hit in hits]]
        np.testing.assert_allclose([hit.similarity for hit in hits], stored @ query, atol=1e-6)


def test_stale_index_is_never_used(indexed: Store, folder):
    query = random_rows(1, seed=20)[0]
    index = open_index(indexed)
    corrections.split(indexed, [1, 2], "Mia")
    assert open_index(indexed) is index, "corrections change no face"
    (new,) = enroll_vectors(indexed, query[None], "more")
    assert open_index(indexed) is None
    assert search_faces(indexed, query, 1)[0].face == new
    build_index(indexed)
    assert open_index(indexed) is not None
    assert search_faces(indexed, query, 1)[0].face == new
    forget.forget_identity(indexed, corrections.split(indexed, [new]).identity)
    assert not (folder / INDEX_FILE).exists()
    assert open_index(indexed) is None
    assert new not in [hit.face for hit in search_faces(indexed, query, 300)]


def test_ignores_the_index_of_another_gallery(indexed: Store, tmp_path, folder):
    with Store.create(tmp_path / "other", SPACE, embedding_dtype="float32") as other:
        enroll_vectors(other, random_rows(300, seed=5))
        build_index(other)
        for file in (tmp_path / "other").glob("faces.*"):
            (folder / file.name).write_bytes(file.read_bytes())
    assert open_index(indexed) is None
