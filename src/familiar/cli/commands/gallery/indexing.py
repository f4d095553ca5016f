"""Bringing a gallery's search index up to date after its faces have changed."""

from typing import TYPE_CHECKING

from familiar.cli.console import StatusLine, note

if TYPE_CHECKING:  # --help imports nothing heavy
    from familiar.gallery import Gallery, IndexUpdate


def update_index(gallery: "Gallery") -> None:
    """Bring the index up to date; if it cannot be reached, say how to do so later."""
    from familiar.core.errors import IndexUnavailable

    try:
        sync_index(gallery)
    except IndexUnavailable as error:
        note(
            f"{error}\nThe gallery has everything, but its index is behind: once that can be reached again, run: "
            f"familiar gallery index {gallery.folder}"
        )


def sync_index(gallery: "Gallery", address: str | None = None) -> "IndexUpdate":
    """Bring the index up to date, or use the one at `address`; show the progress.

    Raises:
        IndexUnavailable: it cannot be reached.
    """
    status = StatusLine()
    result = gallery.update_index(
        address,
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
