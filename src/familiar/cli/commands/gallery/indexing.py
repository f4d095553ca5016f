"""Bringing a gallery's search index up to date after its faces have changed."""

from importlib.util import find_spec
from typing import TYPE_CHECKING

from familiar.cli.console import StatusLine, note

if TYPE_CHECKING:  # --help imports nothing heavy
    from familiar.gallery.database.connection import GalleryDatabase
    from familiar.gallery.search.external_search import SyncResult


def update_index(gallery: "GalleryDatabase") -> None:
    """Build the index of a large gallery where it is missing or out of date, or write the changes to Milvus."""
    from familiar.core.errors import IndexUnavailable

    try:
        if sync_index(gallery) is not None:
            return
    except IndexUnavailable as error:
        note(
            f"{error}\nThe gallery has everything, but its index is behind: once that can be reached again, run: "
            f"familiar gallery index {gallery.folder}"
        )
        return
    build_local_index(gallery)


def sync_index(gallery: "GalleryDatabase") -> "SyncResult | None":
    from familiar.gallery.search.external_search import sync_external_index

    status = StatusLine()
    result = sync_external_index(gallery, lambda done, total: status.show(f"wrote {done:,}/{total:,} faces to Milvus"))
    status.clear()
    return result


def build_local_index(gallery: "GalleryDatabase") -> None:
    from familiar.gallery.search import search

    if not search.lacks_index(gallery):
        return
    if find_spec("usearch") is None:
        note(
            "every search compares with all faces; for faster searches run: "
            "pip install 'familiar-faces[hnsw]', and enroll again"
        )
        return
    status = StatusLine()
    status.show("building the index")
    search.build_index(gallery)
    status.clear()
