"""Rows in groups: in memory or in a file, in 16 bits or 32."""

from unittest import mock

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from familiar.core.vectors import normalize
from familiar.neighbors import inverted_file
from familiar.neighbors.brute_force import nearest_neighbors
from familiar.neighbors.inverted_file import InvertedFile, default_groups


def draw(count: int, dim: int = 16, seed: int = 0) -> np.ndarray:
    return normalize(np.random.default_rng(seed).normal(size=(count, dim)).astype(np.float32))


@given(st.integers(1, 60), st.integers(1, 9), st.integers(0, 1000))
def test_every_row_is_in_the_group_of_its_nearest_centroid(count: int, groups: int, seed: int):
    rows = draw(count, 3, seed)
    grouped = InvertedFile.build(rows, groups)
    assert sorted(grouped.original.tolist()) == list(range(count))
    np.testing.assert_array_equal(grouped.rows, rows[grouped.original])
    group = np.searchsorted(grouped.starts, np.arange(count), side="right") - 1
    similarity = grouped.rows @ grouped.centroids.T
    np.testing.assert_allclose(similarity[np.arange(count), group], similarity.max(axis=1), atol=1e-6)


def test_rows_may_lie_in_a_file_of_16_bits(tmp_path):
    rows = draw(300)
    stored = np.lib.format.open_memmap(tmp_path / "rows.npy", "w+", np.float16, rows.shape)
    grouped = InvertedFile.build(rows.astype(np.float16), 7, stored)
    assert grouped.rows is stored
    nearest, similarity = grouped.search(np.arange(300), 5, nprobe=7)
    positions = np.argsort(grouped.original)
    expected, expected_similarity = nearest_neighbors(rows, 5)
    assert (grouped.original[nearest[positions]] == expected).mean() > 0.99  # rounding swaps nearly equal ones
    np.testing.assert_allclose(similarity[positions], expected_similarity, atol=2e-3)


@given(st.integers(2, 60), st.integers(1, 9), st.integers(1, 70), st.integers(0, 1000))
def test_search_of_all_groups_is_exact(count: int, groups: int, k: int, seed: int):
    rows = draw(count, 3, seed)
    grouped = InvertedFile.build(rows, groups)
    queries = np.flatnonzero(np.random.default_rng(seed).random(count) < 0.5)
    with mock.patch.object(inverted_file, "QUERY_BATCH", 4):
        nearest, similarity = grouped.search(queries, k, nprobe=groups)
    others = min(k, count - 1)
    expected = -np.sort(-(grouped.rows[queries] @ grouped.rows.T), axis=1)[:, 1 : others + 1]
    np.testing.assert_allclose(similarity[:, :others], expected, atol=1e-4)
    np.testing.assert_allclose(
        np.einsum("qd,qkd->qk", grouped.rows[queries], grouped.rows[nearest[:, :others]]), expected, atol=1e-4
    )
    assert (nearest[:, :others] != queries[:, None]).all()
    assert (nearest[:, others:] == queries[:, None]).all()
    assert (similarity[:, others:] == -2).all()


def test_search_of_the_nearest_groups_finds_nearly_all():
    rng = np.random.default_rng(0)
    centers = draw(300, 64)
    rows = normalize((np.repeat(centers, 10, axis=0) + 0.1 * rng.normal(size=(3000, 64))).astype(np.float32))
    grouped = InvertedFile.build(rows, 200)
    nearest, _ = grouped.search(np.arange(3000), 9, nprobe=10)
    expected, _ = nearest_neighbors(grouped.rows, 9)
    shared = [len(np.intersect1d(*pair)) for pair in zip(nearest, expected, strict=True)]
    assert np.mean(shared) > 0.925 * 9


def test_default_groups_are_in_range():
    assert (default_groups(0), default_groups(1), default_groups(10_000)) == (1, 4, 400)
    assert default_groups(1 << 40) == inverted_file.MAX_GROUPS
