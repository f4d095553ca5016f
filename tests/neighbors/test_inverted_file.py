"""Rows in groups: stored anywhere, in 16 bits or 32, and as many as a candidate's bits can number."""

import numpy as np
import pytest
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


@pytest.mark.parametrize("rows", [2, 1 << 16, (1 << 24) + 1, 1 << 27])
def test_similarities_are_right_to_a_millionth_for_any_number_of_rows(rows: int):
    members = draw(40)
    best = inverted_file._TopK(np.array([0, rows - 1]), 3, rows)
    first = max(0, rows - 41)  # so that positions have as many bits as possible
    nearby = members[: min(40, rows)]
    best.add(np.array([0, 1], np.uint16), first, members[:2], nearby)
    query, rank, position, similarity = best.compact()
    exact = nearby @ members[:2].T
    for index in range(len(query)):
        assert abs(similarity[index] - exact[position[index] - first, query[index]]) < 1e-6
        assert position[index] != (0, rows - 1)[query[index]]
    assert rank.max() <= 2


def test_default_groups_are_in_range():
    assert (default_groups(0), default_groups(1), default_groups(10_000)) == (1, 4, 400)
    assert default_groups(1 << 40) == inverted_file.MAX_GROUPS - 1
