import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from familiar.core.vectors import normalize
from familiar.neighbors import inverted_file, knn_graph
from familiar.neighbors.brute_force import nearest_neighbors
from familiar.neighbors.knn_graph import build_knn_graph, exact_knn, ivf_knn


def people(count: int, each: int, dim: int = 32) -> np.ndarray:
    rng = np.random.default_rng(0)
    centers = rng.normal(size=(count // each, dim))
    return normalize((np.repeat(centers, each, axis=0) + 0.9 * rng.normal(size=(count, dim))).astype(np.float32))


def all_of(rows: np.ndarray) -> np.ndarray:
    return np.arange(len(rows))


def test_exact_knn_matches_exact_search():
    rows = people(90, 5)
    true, similarity = nearest_neighbors(rows, 7)
    nearest, highest = exact_knn(rows, 7, all_of(rows))
    np.testing.assert_array_equal(nearest, true)
    np.testing.assert_array_equal(highest, similarity[:, 0])
    np.testing.assert_array_equal(exact_knn(rows, 7, np.array([80, 3]))[0], true[[80, 3]])


def test_search_excludes_the_row_itself_among_duplicates():
    rows = np.tile(np.eye(1, 4, dtype=np.float32), (9, 1))
    for nearest, similarity in (
        exact_knn(rows, 3, all_of(rows)),
        ivf_knn(rows, 3, all_of(rows), 2),
    ):
        assert nearest.shape == (9, 3)
        assert all(len({row, *others}) == 4 for row, others in enumerate(nearest.tolist()))
        assert (similarity == 1).all()


@given(st.integers(0, 12), st.integers(1, 15), st.integers(0, 10**6))
def test_adjacency_is_symmetric(count, k, seed):
    rng = np.random.default_rng(seed)
    rows = normalize(rng.normal(size=(count, 3)).astype(np.float32))
    queries = np.flatnonzero(rng.random(count) < 0.7)
    graph = build_knn_graph(rows, k, queries)
    pairs = {
        (row, other) for row, others in zip(queries.tolist(), graph.nearest.tolist(), strict=True) for other in others
    }
    assert all(len(set(others)) == min(k, count - 1) for others in graph.nearest.tolist())
    for row in range(count):
        expected = {other for pair in pairs for other in pair if row in pair and other != row}
        assert set(graph.adjacent(row).tolist()) == expected


@pytest.mark.slow
def test_ivf_recall_is_above_92_percent():
    """Large collections are clustered by it. Neighbors that are near by chance matter less: 92 % of all are enough."""
    rows = people(4000, 10, dim=128)
    true, _ = nearest_neighbors(rows, 24)
    nearest, similarity = ivf_knn(rows, 24, all_of(rows), groups=4 * 63)
    hit = (true[:, :, None] == nearest[:, None, :]).any(axis=2)
    same = true // 10 == all_of(rows)[:, None] // 10
    assert hit.mean() > 0.92
    assert hit[same].mean() > 0.995
    assert hit[:, 0].mean() > 0.999
    np.testing.assert_allclose(similarity, (rows * rows[nearest[:, 0]]).sum(axis=1), atol=1e-6)
    fewer, _ = ivf_knn(rows, 24, all_of(rows), groups=4 * 63, nprobe=8)
    assert (true[:, :, None] == fewer[:, None, :]).any(axis=2)[same].mean() < hit[same].mean()


@pytest.mark.slow
@pytest.mark.parametrize("groups", [1, 7, 300])
def test_probing_all_groups_matches_exact_search(groups, monkeypatch):
    monkeypatch.setattr(inverted_file, "QUERY_BATCH", 100)
    monkeypatch.setattr(inverted_file, "_SIMILARITY_BATCH", 5000)
    monkeypatch.setattr(inverted_file, "_MAX_CANDIDATES", 1000)
    monkeypatch.setattr("familiar.core.blockwise.BLOCK_SCORES", 5000)
    rows = people(300, 6)
    nearest, _ = ivf_knn(rows, 10, all_of(rows), groups, nprobe=groups)
    np.testing.assert_array_equal(nearest, nearest_neighbors(rows, 10)[0])


def test_subset_of_rows_searches_among_all_rows():
    rows = people(500, 5)
    queries = np.array([400, 3, 77])
    nearest, similarity = ivf_knn(rows, 6, queries, 20, nprobe=20)
    np.testing.assert_array_equal(nearest, nearest_neighbors(rows, 6, queries)[0])
    np.testing.assert_allclose(similarity, nearest_neighbors(rows, 6, queries)[1][:, 0], atol=1e-6)


def test_ivf_is_deterministic():
    rows = people(1000, 5)
    for first, second in zip(*(ivf_knn(rows, 6, all_of(rows), 60, 5) for _ in range(2)), strict=True):
        np.testing.assert_array_equal(first, second)


def test_missing_neighbors_are_filled_with_the_row_itself():
    rows = np.repeat(np.eye(2, dtype=np.float32), [3, 1], axis=0)
    rows[1, 1], rows[2, 1] = 1e-4, -1e-4
    nearest, similarity = ivf_knn(rows, 2, all_of(rows), groups=4, nprobe=1)
    assert nearest[3].tolist() == [3, 3]
    assert similarity[3] == -2


def test_ivf_handles_opposite_rows():
    rows = np.repeat(np.float32([[1, 0], [-1, 0]]), 40, axis=0)  # in one group, with a mean of zero
    nearest, similarity = ivf_knn(rows, 50, all_of(rows), groups=1)
    assert (np.sort(nearest[:, :39] // 40, axis=1) == (all_of(rows) // 40)[:, None]).all()
    assert (similarity == 1).all()


def test_graph_uses_ivf_above_the_exact_limit(monkeypatch):
    rows, calls = people(100, 5), []
    monkeypatch.setattr(knn_graph, "MAX_EXACT_SIMILARITIES", 100 * 30)

    def spy(rows, k, queries, groups):
        calls.append(groups)
        return exact_knn(rows, k, queries)

    monkeypatch.setattr(knn_graph, "ivf_knn", spy)
    build_knn_graph(rows, 4, np.arange(30))
    assert calls == []
    build_knn_graph(rows, 4, np.arange(31))
    assert calls == [40]


def test_rejects_too_many_groups():
    with pytest.raises(ValueError, match="65536"):
        ivf_knn(people(10, 5), 3, np.arange(10), groups=1 << 16)
