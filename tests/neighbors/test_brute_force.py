import tracemalloc
from functools import partial
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from familiar.core.blockwise import similarities, unit_rows
from familiar.core.vectors import normalize
from familiar.neighbors import brute_force
from familiar.neighbors.brute_force import nearest_neighbors, rerank, search


def rows(count: int, dim: int = 5, seed: int = 0) -> np.ndarray:
    return normalize(np.random.default_rng(seed).normal(size=(count, dim)).astype(np.float32))


def degrees(*angles: float) -> np.ndarray:
    radians = np.deg2rad(np.array(angles))
    return np.stack([np.cos(radians), np.sin(radians)], axis=1).astype(np.float32)


def reference_search(vectors: np.ndarray, queries: np.ndarray, k: int, allowed: np.ndarray | None = None):
    """Search one pair at a time."""

    def cosine(left: np.ndarray, right: np.ndarray) -> float:
        # In the same order as `search`: around 0, sums of float64 that differ by 1e-17 do not round to the same.
        left, right = left.astype(np.float64), right.astype(np.float64)
        right /= np.linalg.norm(right)
        return float(np.float32((left * right).sum() / np.sqrt((left * left).sum())))

    searched = [row for row in range(len(vectors)) if allowed is None or allowed[row]]
    hits = [hit for query in queries for hit in sorted((-cosine(vectors[row], query), row) for row in searched)[:k]]
    shape = len(queries), min(k, len(searched))
    rows, similarity = [row for _, row in hits], [-negative for negative, _ in hits]
    return np.array(rows, np.int64).reshape(shape), np.array(similarity, np.float32).reshape(shape)


def assert_same(actual: tuple[np.ndarray, np.ndarray], expected: tuple[np.ndarray, np.ndarray]) -> None:
    np.testing.assert_array_equal(actual[0], expected[0])
    np.testing.assert_array_equal(actual[1], expected[1])


def in_small_blocks():
    """Shrink all blocks, so that few rows cross every block boundary."""
    return mock.patch.multiple(
        brute_force, _QUERY_BATCH=2, _TILE_PRODUCTS=60, _GROUP_ROWS=4, _COPIED_VALUES=64, _EXACT_ROWS=7
    )


def test_nearest_matches_full_sort():
    embeddings = rows(18)
    scores = similarities(unit_rows(embeddings), unit_rows(embeddings))
    np.fill_diagonal(scores, -2)
    indices, similarity = nearest_neighbors(embeddings, 4)
    np.testing.assert_array_equal(indices, np.argsort(-scores, axis=1)[:, :4])
    np.testing.assert_array_equal(similarity, -np.sort(-scores, axis=1)[:, :4])
    subset, _ = nearest_neighbors(embeddings, 4, queries=np.array([5, 2]))
    np.testing.assert_array_equal(subset, indices[[5, 2]])


def test_nearest_excludes_the_row_itself_among_duplicates():
    equal = np.tile(np.eye(1, 4, dtype=np.float32), (5, 1))
    indices, similarity = nearest_neighbors(equal, 4)
    assert [sorted(row) for row in indices.tolist()] == [sorted({*range(5)} - {row}) for row in range(5)]
    assert (similarity == 1.0).all()
    assert nearest_neighbors(equal, 1)[0].tolist() == [[1], [0], [0], [0], [0]]


@pytest.mark.parametrize("k", [0, 18])
def test_nearest_rejects_invalid_neighbor_count(k):
    with pytest.raises(ValueError, match=r"k must be in \[1, 17\] for 18 rows"):
        nearest_neighbors(rows(18), k)


def test_search_returns_the_nearest_first():
    hits, similarity = search(degrees(0, 50, 20, 180), queries=degrees(10, 181), k=2)
    assert hits.tolist() == [[0, 2], [3, 1]]
    np.testing.assert_allclose(similarity, np.cos(np.deg2rad([[10, 10], [1, 131]])), atol=1e-6)


@given(
    st.integers(0, 10**6),
    st.integers(0, 150),
    st.integers(0, 5),
    st.integers(1, 160),
    st.sampled_from([np.float32, np.float16]),
    st.booleans(),
    st.sampled_from([None, 0.0, 0.05, 0.5, 0.95]),
)
@example(0, 0, 0, 1, np.float32, False, None)
@example(1, 150, 5, 3, np.float16, True, 0.5)
@example(2, 150, 3, 2, np.float32, True, None)
@example(141, 139, 5, 139, np.float32, True, None)  # cosines of 0
def test_search_matches_slow_reference(seed, count, query_count, k, dtype, ties, share):
    rng = np.random.default_rng(seed)
    vectors = rng.normal(size=(count + query_count, 4))
    if ties:  # on a grid: many equal rows
        vectors = np.round(vectors) + np.array([4, 0, 0, 0])
        vectors[~vectors.any(axis=1)] = 1  # one row in ten thousand is zero
    vectors = normalize(vectors.astype(np.float32))
    vectors, queries = vectors[:count].astype(dtype), vectors[count:]
    allowed = None if share is None else rng.random(count) < share
    expected = reference_search(vectors, queries, k, allowed)
    assert_same(search(vectors, queries=queries, k=k, allowed=allowed), expected)
    with in_small_blocks():
        assert_same(search(vectors, queries=queries, k=k, allowed=allowed), expected)


def test_search_returns_equal_rows_in_index_order():
    vectors = rows(5000, dim=128)
    copies = [4999, 17, 2048, 1, 4095]
    vectors[copies] = query = rows(1, dim=128, seed=1)[0]
    hits, similarity = search(vectors, queries=query[None], k=3)
    assert hits.tolist() == [[1, 17, 2048]]
    assert similarity.tolist() == [[1.0, 1.0, 1.0]]


def test_search_ranks_by_cosine_not_dot_product():
    vectors = np.tile(degrees(60), (2000, 1))
    vectors[1500] = degrees(0)[0] * np.float32(0.9993)
    vectors[700] = degrees(1)[0] * np.float32(1.0007)  # the higher product: cos 1 = .99985
    assert search(vectors, queries=degrees(0), k=1)[0].tolist() == [[1500]]
    hits, similarity = search(vectors, queries=degrees(0), k=2)
    assert hits.tolist() == [[1500, 700]]
    np.testing.assert_allclose(similarity, [[1.0, 0.99985]], atol=1e-5)


def test_search_does_not_allocate_the_full_similarity_matrix():
    vectors, queries = rows(20_000, dim=4), rows(500, dim=4, seed=1)
    tracemalloc.start()
    with mock.patch.object(brute_force, "_TILE_PRODUCTS", 100_000):
        search(vectors, queries=queries, k=3)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < len(vectors) * len(queries) * 4 / 8


@pytest.mark.parametrize(
    "find", [partial(search, k=1), partial(rerank, rows=np.array([[0, 1, 2]]), k=1)], ids=["search", "rerank"]
)
def test_rejects_non_unit_rows_and_queries(find):
    vectors = degrees(0, 1, 2)
    vectors[1] *= 2
    with pytest.raises(ValueError, match="row 1"):
        find(vectors, queries=degrees(0))
    with pytest.raises(ValueError, match="unit vectors"):
        find(degrees(0, 1, 2), queries=2 * degrees(0))


@pytest.mark.parametrize("count", [3, 3000])
def test_search_rejects_nan_rows(count):
    vectors = rows(count)
    vectors[1] = np.nan
    with pytest.raises(ValueError, match="not finite"):
        search(vectors, queries=vectors[:1], k=1)


def test_rejects_k_of_zero():
    with pytest.raises(ValueError, match="k must be at least 1"):
        search(rows(3), queries=rows(1), k=0)
    with pytest.raises(ValueError, match="k must be at least 1"):
        rerank(rows(3), queries=rows(1), rows=np.array([[0]]), k=0)


def test_rerank_sorts_only_the_candidates():
    vectors, queries = rows(40), rows(3, seed=1)
    candidates = np.random.default_rng(0).permuted(np.tile(np.arange(0, 40, 2), (3, 1)), axis=1)
    expected = reference_search(vectors, queries, 6, np.arange(40) % 2 == 0)
    assert_same(rerank(vectors, queries=queries, rows=candidates, k=6), expected)
    assert rerank(vectors, queries=queries, rows=candidates, k=50)[0].shape == (3, 20)
    assert rerank(vectors, queries=queries, rows=candidates[:, :0], k=2)[0].shape == (3, 0)


@pytest.mark.usefixtures("unchecked_signatures")
@pytest.mark.parametrize(
    ("vectors", "queries", "message"),
    [
        (rows(3), rows(1)[0], r"queries are rows of floats \(n, d\), not \(5,\) float32: of a single one row\[None\]"),
        (rows(3)[0], rows(1), r"vectors are rows of floats \(n, d\), not \(5,\)"),
        (rows(3), rows(1, dim=8), "vectors have 5 numbers, queries 8: of another model?"),
    ],
)
@pytest.mark.parametrize("find", [search, partial(rerank, rows=np.array([[0, 1]]))], ids=["search", "rerank"])
def test_rejects_shapes_that_do_not_fit(vectors, queries, message, find):
    with pytest.raises(ValueError, match=message):
        find(vectors, queries=queries, k=2)


@pytest.mark.usefixtures("unchecked_signatures")
def test_rerank_rejects_candidates_of_other_queries():
    with pytest.raises(ValueError, match=r"each of 2 queries needs a row of candidates, not \(1, 2\)"):
        rerank(rows(3), queries=rows(2), rows=np.array([[0, 1]]), k=1)


@pytest.mark.parametrize("find", [search, rerank])
def test_queries_cannot_be_given_in_the_place_of_vectors(find):
    with pytest.raises(TypeError, match="positional argument"):
        find(rows(1), rows(3), 1)


@pytest.mark.usefixtures("unchecked_signatures")
@pytest.mark.parametrize("dtype", [np.float64, np.longdouble, ">f4"])
def test_vectors_of_other_types_are_found_as_in_float32(dtype: Any) -> None:
    vectors, queries = rows(200), rows(20)
    search(vectors.astype(np.float16), queries=queries, k=3)  # whose memory was read as such vectors
    expected_rows, expected = search(vectors, queries=queries, k=3)
    for converted in (queries, queries.astype(dtype)):
        hits, similarity = search(vectors.astype(dtype), queries=converted, k=3)
        np.testing.assert_array_equal(hits, expected_rows)
        np.testing.assert_allclose(similarity, expected, atol=1e-6)


@pytest.mark.usefixtures("unchecked_signatures")
@pytest.mark.parametrize("allowed", [np.array([1, 2]), np.ones(2, bool), np.ones(4, bool), np.ones(3, np.int64)])
def test_mask_that_does_not_fit_is_refused(allowed: np.ndarray) -> None:
    with pytest.raises(ValueError, match="`allowed` says for each of 3 rows whether it may be found"):
        search(rows(3), queries=rows(1), k=1, allowed=allowed)


@pytest.mark.usefixtures("unchecked_signatures")
@pytest.mark.parametrize("candidates", [[[0, 3]], [[-1, 0]], [[0.0, 1.0]]])
def test_candidates_that_are_no_rows_are_refused(candidates: list[list[float]]) -> None:
    with pytest.raises(ValueError, match="candidates"):
        rerank(rows(3), queries=rows(1), rows=np.array(candidates), k=1)
