"""The search index in the folder of a large gallery."""

import numpy as np
from jaxtyping import Bool, Float32, Int64

from familiar.gallery.store.face_table import EmbeddingTable
from familiar.gallery.store.index_lock import index_lock
from familiar.gallery.store.store import Store
from familiar.neighbors.hnsw import HnswIndex, Stamp

INDEX_FROM = 50_000  # faces: fewer are searched exactly in a few milliseconds
INDEX_EXTRA = 10  # candidates requested from the index beyond k, as it computes in float16


def lacks_index(store: Store) -> bool:
    """Tell whether a gallery is large enough for an index, but has none that is up to date."""
    return len(store.faces().ids) >= INDEX_FROM and open_index(store) is None


def build_index(store: Store) -> None:
    """Build the HNSW index that searches galleries of 50,000 faces and more.

    Raises:
        FamiliarError: usearch is not installed.
    """
    with store.read():
        faces = store.faces()
        version = _index_version(store)
    index = HnswIndex.build(faces.embeddings, faces.ids)
    with index_lock(store.folder):
        if _index_version(store) != version:  # faces may have been forgotten while it was built
            return
        index.save(store.folder, version)
    store.purge_deleted()  # if faces were forgotten while it was saved, and that did not wait


def nearest_in_index(
    store: Store,
    faces: EmbeddingTable,
    queries: Float32[np.ndarray, "1 d"],
    k: int,
    allowed: Bool[np.ndarray, " n"] | None,
) -> Int64[np.ndarray, " rows"] | None:
    """Find the faces that may be nearest to a query by the index; None: there is none, or it cannot tell.

    Args:
        store: the gallery.
        faces: all of them.
        queries: the query, as faces are compared.
        k: number of faces that are wanted.
        allowed: the rows that may be found; None: all.
    """
    index = open_index(store)
    if index is None:
        return None
    try:
        rows = faces.rows_of(index.search(queries, k + INDEX_EXTRA)[0][0])
    except KeyError:  # another process is erasing the index
        return None
    rows = rows if allowed is None else rows[allowed[rows]]
    return rows if len(rows) >= k else None


def open_index(store: Store) -> HnswIndex | None:
    """Open the index, or return None if there is none of exactly the gallery's current faces."""
    with store.read():
        faces = store.faces()
        stamp = Stamp(len(faces.ids), _index_version(store))
    if len(faces.ids) < INDEX_FROM:
        return None
    return store.cached("index", faces.revision, lambda: HnswIndex.open(store.folder, stamp))


def _index_version(store: Store) -> str:
    with store.read() as repository:
        return f"{repository.settings.uid()} {repository.settings.faces_revision()}"
