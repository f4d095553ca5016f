"""Bring a gallery's search index up to date after its faces have changed, whichever index it has."""

from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec

from familiar.gallery.search.external_search import SyncResult, sync_external_index
from familiar.gallery.search.folder_index import build_index, lacks_index
from familiar.gallery.store.store import Store


@dataclass(frozen=True)
class IndexUpdate:
    """What was done to a gallery's index.

    Attributes:
        external: with an index outside the gallery's folder: what was written to it.
        lacks_usearch: the gallery is large enough for an index in its folder, but the package that builds it is
            missing, so that every search compares with all faces.
    """

    external: SyncResult | None = None
    lacks_usearch: bool = False


def update_index(
    store: Store,
    *,
    build: bool = True,
    on_rows: Callable[[int, int], None] = lambda _done, _all: None,
    on_build: Callable[[], None] = lambda: None,
) -> IndexUpdate:
    """Write what has changed to the index outside the gallery's folder; without one, build that of a large gallery.

    Args:
        store: the gallery.
        build: whether an index in the folder is built, which may take minutes.
        on_rows: called with the numbers of vectors written and to be written to an index outside the folder.
        on_build: called before an index in the folder is built.

    Returns:
        What was done.

    Raises:
        IndexUnavailable: the index outside the folder cannot be reached. The gallery has everything; the next call
            writes what is missing there.
    """
    external = sync_external_index(store, on_rows)
    if external is not None:
        return IndexUpdate(external)
    if not build or not lacks_index(store):
        return IndexUpdate()
    if find_spec("usearch") is None:
        return IndexUpdate(lacks_usearch=True)
    on_build()
    build_index(store)
    return IndexUpdate()
