"""A table of labeled photos as HTML for notebooks: its size, and photos of a few identities."""

from pathlib import Path

import numpy as np

from familiar.core.notebook import NotebookImage, NotebookTile, notebook_html
from familiar.core.plural import pluralize
from familiar.datasets.identity_table import IdentityTable
from familiar.datasets.photo_references import PhotoRef, open_photo
from familiar.photos.thumbnails import encode_jpeg, shrink

IDENTITIES_SHOWN = 8
PHOTOS_SHOWN = 3  # of an identity
SIDE_PX = 64
_QUALITY = 75
_TEMPLATES = Path(__file__).parent / "templates"


def table_html(table: IdentityTable) -> str:
    """Describe a table, with the first photos of identities from all over it.

    Args:
        table: at most 24 of its photos are opened.
    """
    names = len(table.names)
    spread = np.unique(np.linspace(0, names - 1, min(names, IDENTITIES_SHOWN)).round().astype(int)).tolist()
    counts = table.photos_per_identity
    tiles: list[NotebookTile] = []
    for label in spread:
        rows = np.flatnonzero(table.labels == label)[:PHOTOS_SHOWN].tolist()
        lines = table.names[label], pluralize(int(counts[label]), "photo")
        tiles.append(NotebookTile(tuple(_picture(table.photos[row]) for row in rows), lines))
    return notebook_html(
        _TEMPLATES,
        "identity_table.html",
        photos=len(table),
        identities=names,
        few=int(counts.min(initial=len(table))),
        many=int(counts.max(initial=0)),
        tiles=tiles,
        ignored=table.ignored,
    )


def _picture(photo: PhotoRef) -> NotebookImage:
    try:
        pixels = shrink(open_photo(photo, min_side_px=SIDE_PX).rgb_u8, SIDE_PX)
    except Exception as error:  # also of a shard at a URL: a notebook would show a traceback in place of the value
        return NotebookImage(str(error), label="cannot be read")
    return NotebookImage(photo.name, encode_jpeg(pixels, _QUALITY))
