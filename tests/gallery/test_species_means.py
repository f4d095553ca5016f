"""Galleries of a model with species means: they compare embeddings less the means of their own photos."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from familiar.core.calibration import Calibration, Threshold
from familiar.core.species_means import SpeciesMeans
from familiar.core.vectors import normalize
from familiar.embedding.embedder import Embedder
from familiar.gallery.cluster.cluster import cluster
from familiar.gallery.edits import corrections
from familiar.gallery.enroll.enroll import enroll
from familiar.gallery.search.search import search_faces, search_identities, verify, verify_pair
from familiar.gallery.store.space import Space
from familiar.gallery.store.store import Store
from familiar.gallery.transfer.migrate import migrate
from familiar.neighbors import Centering
from support.small_gallery import DIM, SPACE, close_together, enroll_vectors

MEANS = np.stack([0.8 * np.eye(DIM)[DIM - 1], 0.8 * np.eye(DIM)[DIM - 2]])  # cats are around the last axis
POINT = Threshold(0.4, 0.01, 0.9)
LOWER = Calibration(POINT, POINT, POINT, 20.0, -8.0, 0.01, 99, 99, 1e-4)
SPECIES_MEANS = SpeciesMeans({"cat": tuple(MEANS[0].tolist()), "dog": tuple(MEANS[1].tolist())}, LOWER)
CENTERED_SPACE = replace(SPACE, species_means=SPECIES_MEANS)
CATS = close_together([6, 6, 6, 6])


@pytest.fixture(params=["float32"])
def gallery(folder: Path, request: pytest.FixtureRequest) -> Iterator[Store]:
    with Store.create(folder, CENTERED_SPACE, embedding_dtype=request.param) as gallery:
        gallery._connection.execute("PRAGMA synchronous = OFF")
        yield gallery


def centered(rows: np.ndarray, among: np.ndarray) -> np.ndarray:
    return Centering.fit(among, SPECIES_MEANS.rows()).apply(rows)


def test_space_with_species_means_survives_json():
    assert Space.from_json(CENTERED_SPACE.to_json()) == CENTERED_SPACE
    assert CENTERED_SPACE.gallery_calibration == LOWER
    assert SPACE.gallery_calibration == SPACE.calibration


@pytest.mark.parametrize("gallery", ["float32", "float16"], indirect=True)
def test_similarities_are_less_the_means_of_the_gallery(gallery: Store):
    enroll_vectors(gallery, CATS)
    query = close_together([1, 1], seed=5)[1]
    expected = centered(CATS, CATS) @ centered(query[None], CATS)[0]
    hits = search_faces(gallery, query, 24)
    np.testing.assert_allclose([hit.similarity for hit in hits], np.sort(expected)[::-1], atol=2e-3)
    assert {hit.face for hit in hits[:6]} == set(range(7, 13)), "the second cat"
    np.testing.assert_allclose(gallery.stored_faces().unit_rows(), CATS, atol=1e-3)


def test_cats_that_resemble_each_other_are_told_apart(gallery: Store, folder: Path):
    enroll_vectors(gallery, CATS)
    assert cluster(gallery).identities == 4
    with Store.create(folder.with_name("plain"), SPACE) as plain:
        enroll_vectors(plain, CATS)
        assert cluster(plain).identities == 1, "without means all are alike"


def test_identities_pairs_and_verification_use_means_and_their_calibration(gallery: Store):
    mia, tom = CATS[0], CATS[6]
    assert float(mia @ tom) > SPACE.calibration.balanced.similarity
    by_model = centered(np.stack([mia, tom]), np.empty((0, DIM), np.float32))  # an empty gallery has only the model's
    assert verify_pair(gallery, mia, tom).similarity == pytest.approx(float(by_model[0] @ by_model[1]), abs=1e-5)
    enroll_vectors(gallery, CATS)
    corrections.split(gallery, [1, 2, 3, 4, 5, 6], "Mia")
    corrections.split(gallery, [7, 8, 9, 10, 11, 12], "Tom")
    assert gallery.space.calibration_at(DIM) == LOWER
    rows = centered(CATS, CATS)
    similarity = float(normalize(rows[:6].mean(axis=0, keepdims=True))[0] @ rows[0])
    match, other = search_identities(gallery, mia)
    assert (match.name, match.known, other.known) == ("Mia", True, False)
    assert match.mean == pytest.approx(similarity, abs=1e-5)
    result = verify(gallery, mia, match.identity)
    assert (result.same, result.threshold) == (True, 0.4)
    assert result.similarity == pytest.approx(similarity, abs=1e-5)
    assert not verify(gallery, mia, other.identity).same
    pair = verify_pair(gallery, mia, tom)
    assert (pair.similarity, pair.same) == (pytest.approx(float(rows[0] @ rows[6]), abs=1e-5), False)
    assert verify_pair(gallery, mia, CATS[1]).same


def test_each_species_has_a_mean_of_its_own(gallery: Store):
    dogs = CATS[:, [4, 5, 6, 7, 0, 1, 2, 3, *range(8, DIM - 2), DIM - 1, DIM - 2]]
    both = np.concatenate([CATS, dogs])
    enroll_vectors(gallery, both)
    assert cluster(gallery).identities == 8
    np.testing.assert_allclose(gallery.faces().unit_rows(), centered(both, both), atol=1e-6)


def test_means_follow_the_photos(gallery: Store):
    enroll_vectors(gallery, CATS[:6])
    before = gallery.faces().unit_rows()
    enroll_vectors(gallery, CATS[6:], "later")
    np.testing.assert_allclose(gallery.faces().unit_rows(), centered(CATS, CATS), atol=1e-6)
    assert np.abs(gallery.faces().unit_rows()[:6] - before).max() > 0.05


def test_migration_starts_from_embeddings_as_they_were_computed(album: Store, embedder: Embedder, pets: list[Path]):
    means = SpeciesMeans({"cat": tuple((0.5 * np.eye(DIM)[0]).tolist())}, LOWER)
    bundle = embedder.bundle
    with_means = Embedder(replace(bundle, metadata=replace(bundle.metadata, species_means=means)), threads=2)
    enroll(album, embedder, pets)
    plain = album.faces().unit_rows()
    migrate(album, with_means)
    np.testing.assert_array_equal(album.stored_faces().unit_rows(), plain)
    np.testing.assert_allclose(album.faces().unit_rows(), Centering.fit(plain, means.rows()).apply(plain), atol=1e-6)
    migrate(album, embedder)
    np.testing.assert_array_equal(album.faces().unit_rows(), plain)
