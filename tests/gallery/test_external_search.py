"""A gallery searched by an index outside its folder reads none but the faces that the index names."""

from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from familiar.gallery.search.external_search import EXTRA, SyncResult, sync_external_index, use_external_index
from familiar.gallery.search.filters import NO_FILTER, Filter
from familiar.gallery.search.search import search_faces
from familiar.gallery.store import store as store_module
from familiar.gallery.store.external_index import IndexRow, VectorIndex
from familiar.gallery.store.store import Store
from support.small_gallery import SPACE, draw_individuals, enroll_vectors

VECTORS = draw_individuals([30, 30, 30, 30])
QUERY = draw_individuals([1], seed=5)[0]


class MemoryIndex:
    """An index in a dictionary."""

    def __init__(self, rows: dict[int, IndexRow]) -> None:
        self.address, self.rows = "memory:", rows

    def versions(self) -> dict[int, int]:
        return {key: row.version for key, row in self.rows.items()}

    def write(self, rows: Sequence[IndexRow]) -> None:
        self.rows.update((row.key, row) for row in rows)

    def remove(self, keys: Collection[int]) -> None:
        for key in keys:
            del self.rows[key]

    def erase_all_but(self, keys: Collection[int]) -> None:
        self.remove(self.rows.keys() - set(keys))

    def flush(self) -> None:
        pass

    def search(self, query: np.ndarray, k: int, *, group: str | None = None) -> np.ndarray:
        rows = [row for row in self.rows.values() if group in (None, row.group)]
        return np.array([row.key for row in sorted(rows, key=lambda row: -float(row.vector @ query))[:k]], np.int64)

    def drop(self) -> None:
        self.rows.clear()

    def close(self) -> None:
        pass


@pytest.fixture
def indexed(folder: Path) -> Iterator[Store]:
    rows: dict[int, IndexRow] = {}

    def open_index(*_: Any) -> VectorIndex:
        return MemoryIndex(rows)

    Store.create(folder, SPACE, embedding_dtype="float32").close()
    with Store.open(folder, open_index) as gallery:
        enroll_vectors(gallery, VECTORS)
        with gallery.write(faces_change=True) as repository:
            repository.connection.execute("UPDATE faces SET species = 'cat' WHERE id % 2")
        use_external_index(gallery, "memory:")
        assert sync_external_index(gallery) == SyncResult(120, 120, 0)
    with Store.open(folder, open_index) as gallery:  # nothing is cached
        yield gallery


@pytest.mark.parametrize("only", [NO_FILTER, Filter(species="cat")])
def test_reads_no_more_embeddings_than_the_index_names(
    indexed: Store, only: Filter, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[int] = []
    load = store_module.load_face_table

    def record(*arguments: Any) -> Any:
        table = load(*arguments)
        read.append(len(table.ids))
        return table

    monkeypatch.setattr(store_module, "load_face_table", record)
    hits = search_faces(indexed, QUERY, 5, only=only)
    assert read == [60 if only.species else 5 + EXTRA]
    expected = [row + 1 for row in np.argsort(-(VECTORS @ QUERY)).tolist() if only.empty or row % 2 == 0]
    assert [hit.face for hit in hits] == expected[:5]
    assert [hit.similarity for hit in hits] == pytest.approx([VECTORS[face - 1] @ QUERY for face in expected[:5]])
    assert all(hit.probability is not None for hit in hits)
