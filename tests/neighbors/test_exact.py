import numpy as np
import pytest

from familiar.core.blocks import similarities, unit_rows
from familiar.core.vectors import normalise
from familiar.neighbors.exact import nearest


def rows(count: int, dim: int = 5) -> np.ndarray:
    return normalise(np.random.default_rng(0).normal(size=(count, dim)).astype(np.float32))


@pytest.mark.parametrize("block_rows", [None, 1, 7])
def test_nearest_agrees_with_a_full_sort(block_rows):
    embeddings = rows(18)
    scores = similarities(unit_rows(embeddings), unit_rows(embeddings))
    np.fill_diagonal(scores, -2)
    indices, found = nearest(embeddings, 4, block_rows=block_rows)
    np.testing.assert_array_equal(indices, np.argsort(-scores, axis=1)[:, :4])
    np.testing.assert_array_equal(found, -np.sort(-scores, axis=1)[:, :4])
    some, _ = nearest(embeddings, 4, queries=np.array([5, 2]))
    np.testing.assert_array_equal(some, indices[[5, 2]])


def test_nearest_excludes_the_row_itself_among_duplicates():
    indices, found = nearest(np.tile(np.eye(1, 4, dtype=np.float32), (5, 1)), 4)
    assert [sorted(row) for row in indices.tolist()] == [sorted({*range(5)} - {row}) for row in range(5)]
    assert (found == 1.0).all()


@pytest.mark.parametrize("k", [0, 18])
def test_nearest_refuses_more_neighbours_than_there_are(k):
    with pytest.raises(ValueError, match="neighbours"):
        nearest(rows(18), k)
