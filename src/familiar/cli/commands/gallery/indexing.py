"""Bringing a gallery's search index up to date after its faces have changed."""

from typing import TYPE_CHECKING

from familiar.cli.console import StatusLine, note

if TYPE_CHECKING:  # --help imports nothing heavy
    from familiar.gallery.search.index_update import IndexUpdate
    from familiar.gallery.store.store import Store


def update_index(gallery: "Store") -> None:
    """Bring the index up to date; if it cannot be reached, say how to do so later."""
    from familiar.core.errors import IndexUnavailable

    try:
        sync_index(gallery)
    except IndexUnavailable as error:
        note(
            f"{error}\nThe gallery has everything, but its index is behind: once that can be reached again, run: "
            f"familiar gallery index {gallery.folder}"
        )


def sync_index(gallery: "Store") -> "IndexUpdate":
    """Bring the index up to date, and show the progress; IndexUnavailable if it cannot be reached."""
    from familiar.gallery.search.index_update import update_index

    status = StatusLine()
    result = update_index(
        gallery,
        on_rows=lambda done, total: status.show(f"wrote {done:,}/{total:,} faces to Milvus"),
        on_build=lambda: status.show("building the index"),
    )
    status.clear()
    if result.lacks_usearch:
        note(
            "every search compares with all faces; for faster searches run: "
            "pip install 'familiar-faces[hnsw]', and enroll again"
        )
    return result
