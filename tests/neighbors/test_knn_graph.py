import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from familiar.core.vectors import normalize
from familiar.neighbors import knn_graph
from familiar.neighbors.brute_force import nearest_neighbors
from familiar.neighbors.knn_graph import links, nearest_in_cells, nearest_of_all


def people(count: int, each: int, dim: int = 32) -> np.ndarray:
    rng = np.random.default_rng(0)
    centers = rng.normal(size=(count // each, dim))
    return normalize((np.repeat(centers, each, axis=0) + 0.9 * rng.normal(size=(count, dim))).astype(np.float32))


def every(rows: np.ndarray) -> np.ndarray:
    return np.arange(len(rows))


def test_nearest_of_all_matches_exact_search():
    rows = people(90, 5)
    true, similarity = nearest_neighbors(rows, 7)
    found, closest = nearest_of_all(rows, 7, every(rows))
    np.testing.assert_array_equal(found, true)
    np.testing.assert_array_equal(closest, similarity[:, 0])
    np.testing.assert_array_equal(nearest_of_all(rows, 7, np.array([80, 3]))[0], true[[80, 3]])


def test_search_excludes_the_row_itself_among_duplicates():
    rows = np.tile(np.eye(1, 4, dtype=np.float32), (9, 1))
    for found, similarity in (
        nearest_of_all(rows, 3, every(rows)),
        nearest_in_cells(rows, 3, every(rows), 2),
    ):
        assert found.shape == (9, 3)
        assert all(len({row, *others}) == 4 for row, others in enumerate(found.tolist()))
        assert (similarity == 1).all()


@given(st.integers(0, 12), st.integers(1, 15), st.integers(0, 10**6))
def test_links_are_symmetric(count, k, seed):
    rng = np.random.default_rng(seed)
    rows = normalize(rng.normal(size=(count, 3)).astype(np.float32))
    searched = np.flatnonzero(rng.random(count) < 0.7)
    found = links(rows, k, searched)
    pairs = {
        (row, other) for row, others in zip(searched.tolist(), found.nearest.tolist(), strict=True) for other in others
    }
    assert all(len(set(others)) == min(k, count - 1) for others in found.nearest.tolist())
    for row in range(count):
        linked = {other for pair in pairs for other in pair if row in pair and other != row}
        assert set(found.of(row).tolist()) == linked


@pytest.mark.slow
def test_cell_search_reaches_92_percent_recall():
    """Stated here, since a large collection is grouped by it: of what is near by chance 93 % are enough."""
    rows = people(4000, 10, dim=128)
    true, _ = nearest_neighbors(rows, 24)
    found, similarity = nearest_in_cells(rows, 24, every(rows), cells=4 * 63)
    was_found = (true[:, :, None] == found[:, None, :]).any(axis=2)
    same = true // 10 == every(rows)[:, None] // 10
    assert was_found.mean() > 0.92
    assert was_found[same].mean() > 0.995
    assert was_found[:, 0].mean() > 0.999
    np.testing.assert_allclose(similarity, (rows * rows[found[:, 0]]).sum(axis=1), atol=1e-6)
    fewer, _ = nearest_in_cells(rows, 24, every(rows), cells=4 * 63, probes=8)
    assert (true[:, :, None] == fewer[:, None, :]).any(axis=2)[same].mean() < was_found[same].mean()


@pytest.mark.slow
@pytest.mark.parametrize("cells", [1, 7, 300])
def test_probing_all_cells_matches_exact_search(cells, monkeypatch):
    monkeypatch.setattr(knn_graph, "_QUERIES", 100)
    monkeypatch.setattr(knn_graph, "_SCORES", 5000)
    monkeypatch.setattr(knn_graph, "_CANDIDATES", 1000)
    monkeypatch.setattr("familiar.core.blockwise.BLOCK_SCORES", 5000)
    rows = people(300, 6)
    found, _ = nearest_in_cells(rows, 10, every(rows), cells, probes=cells)
    np.testing.assert_array_equal(found, nearest_neighbors(rows, 10)[0])


def test_subset_of_rows_searches_among_all_rows():
    rows = people(500, 5)
    some = np.array([400, 3, 77])
    found, similarity = nearest_in_cells(rows, 6, some, 20, probes=20)
    np.testing.assert_array_equal(found, nearest_neighbors(rows, 6, some)[0])
    np.testing.assert_allclose(similarity, nearest_neighbors(rows, 6, some)[1][:, 0], atol=1e-6)


def test_cell_search_is_deterministic():
    rows = people(1000, 5)
    for first, second in zip(*(nearest_in_cells(rows, 6, every(rows), 60, 5) for _ in range(2)), strict=True):
        np.testing.assert_array_equal(first, second)


def test_missing_neighbors_are_filled_with_the_row_itself():
    rows = np.repeat(np.eye(2, dtype=np.float32), [3, 1], axis=0)
    rows[1, 1], rows[2, 1] = 1e-4, -1e-4
    found, similarity = nearest_in_cells(rows, 2, every(rows), cells=4, probes=1)
    assert found[3].tolist() == [3, 3]
    assert similarity[3] == -2


def test_cell_search_handles_opposite_rows():
    rows = np.repeat(np.float32([[1, 0], [-1, 0]]), 40, axis=0)  # whose mean, in one cell, is no direction
    found, similarity = nearest_in_cells(rows, 50, every(rows), cells=1)
    assert (np.sort(found[:, :39] // 40, axis=1) == (every(rows) // 40)[:, None]).all()
    assert (similarity == 1).all()


def test_links_use_cells_above_the_exact_score_limit(monkeypatch):
    rows, asked = people(100, 5), []
    monkeypatch.setattr(knn_graph, "EXACT_SCORES", 100 * 30)

    def cells_asked(rows, k, searched, cells):
        asked.append(cells)
        return nearest_of_all(rows, k, searched)

    monkeypatch.setattr(knn_graph, "nearest_in_cells", cells_asked)
    links(rows, 4, np.arange(30))
    assert asked == []
    links(rows, 4, np.arange(31))
    assert asked == [40]


def test_rejects_too_many_cells():
    with pytest.raises(ValueError, match="65536"):
        nearest_in_cells(people(10, 5), 3, np.arange(10), cells=1 << 16)
