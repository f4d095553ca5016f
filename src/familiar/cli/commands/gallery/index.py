"""Building a large gallery's search index after photos were added or embedded again."""

from importlib.util import find_spec
from typing import TYPE_CHECKING

from familiar.cli.console import StatusLine, note

if TYPE_CHECKING:  # --help imports nothing heavy
    from familiar.gallery.database.connection import GalleryDatabase


def update_index(gallery: "GalleryDatabase") -> None:
    """Build the index of a large gallery where it is missing or out of date."""
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
