import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from familiar.core.vectors import normalize
from familiar.neighbors import Centering
from familiar.neighbors.centering import PRIOR_PHOTOS, SHARE


def rows_around(direction, count, seed, spread=0.5):
    noise = np.random.default_rng(seed).normal(size=(count, len(direction)))
    return normalize((direction + spread * noise / np.sqrt(len(direction))).astype(np.float32))


CAT, DOG = np.eye(16)[:2]
SPECIES = 0.6 * np.stack([CAT, DOG])


def test_each_species_has_its_mean():
    cats, dogs = rows_around(CAT, 30, 0), rows_around(DOG, 50, 1)
    centering = Centering.fit(np.concatenate([cats, dogs]), SPECIES)
    for mean, rows, prior in zip(centering.means, (cats, dogs), SPECIES, strict=True):
        expected = SHARE * (rows.sum(0) + PRIOR_PHOTOS * prior) / (len(rows) + PRIOR_PHOTOS)
        np.testing.assert_allclose(mean, expected, atol=1e-6)
    query = rows_around(DOG, 1, 2)
    expected = normalize((query - centering.means[1]).astype(np.float32))
    np.testing.assert_allclose(centering.apply(query), expected, atol=1e-6)


def test_empty_collection_has_the_prior_means():
    np.testing.assert_allclose(Centering.fit(np.empty((0, 16), np.float32), SPECIES).means, SHARE * SPECIES)


def test_centered_collection_has_nothing_in_common():
    rows = rows_around(CAT, 2000, 3)
    centered = Centering.fit(rows, SPECIES).apply(rows)
    assert float(rows.mean(0) @ rows.mean(0)) > 0.7
    assert float(centered.mean(0) @ centered.mean(0)) < 0.06


@given(st.integers(0, 60), st.integers(1, 4), st.integers(0, 2**32 - 1))
def test_rows_keep_unit_length_and_order_does_not_matter(count, species, seed):
    generator = np.random.default_rng(seed)
    rows = normalize(generator.normal(size=(count, 8)).astype(np.float32))
    means = 0.5 * normalize(generator.normal(size=(species, 8)).astype(np.float32)).astype(np.float64)
    centered = Centering.fit(rows, means).apply(rows)
    np.testing.assert_allclose(np.linalg.norm(centered, axis=1), 1, atol=1e-5)
    order = generator.permutation(count)
    np.testing.assert_allclose(Centering.fit(rows[order], means).apply(rows[order]), centered[order], atol=1e-5)


def test_rows_of_one_photo_repeated_are_not_lost():
    rows = np.repeat(CAT[None].astype(np.float32), 500, axis=0)
    centered = Centering.fit(rows, SPECIES).apply(rows)
    assert np.isfinite(centered).all()
    assert centered[0] @ CAT == pytest.approx(1)


def test_blocks_do_not_change_the_result(monkeypatch):
    rows = np.concatenate([rows_around(CAT, 37, 4), rows_around(DOG, 23, 5)])
    whole = Centering.fit(rows, SPECIES)
    monkeypatch.setattr("familiar.neighbors.centering._BLOCK_ROWS", 7)
    parts = Centering.fit(rows, SPECIES)
    np.testing.assert_allclose(parts.means, whole.means, rtol=1e-12)
    np.testing.assert_array_equal(parts.apply(rows), whole.apply(rows))
