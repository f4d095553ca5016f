"""A table of labeled photos as HTML for notebooks: its size, and photos of a few identities."""

import numpy as np

from familiar.core.html import image, missing_image, page_fragment, text, tile, tiles
from familiar.core.plural import pluralize
from familiar.datasets.folders import IdentityTable, PhotoRef, open_photo
from familiar.photos.thumbnails import encode_jpeg, shrink

IDENTITIES_SHOWN = 8
PHOTOS_SHOWN = 3  # of an identity
SIDE_PX = 64
_QUALITY = 75


def table_html(table: IdentityTable) -> str:
    """Describe a table, with the first photos of identities from all over it.

    Args:
        table: at most 24 of its photos are opened.
    """
    names = len(table.names)
    spread = np.unique(np.linspace(0, names - 1, min(names, IDENTITIES_SHOWN)).round().astype(int)).tolist()
    counts = table.photos_per_identity
    size = f"{pluralize(len(table), 'photo')} of {pluralize(names, 'identity')}"
    few, many = int(counts.min(initial=len(table))), int(counts.max(initial=0))
    per_identity = f", {few:,}{'' if few == many else f' to {many:,}'} of each" if names else ""
    ignored = "".join(f"<p><small>{text(reason)}: {count:,}</small></p>" for reason, count in table.ignored.items())
    shown: list[str] = []
    for label in spread:
        rows = np.flatnonzero(table.labels == label)[:PHOTOS_SHOWN].tolist()
        lines = table.names[label], pluralize(int(counts[label]), "photo")
        shown.append(tile([_picture(table.photos[row]) for row in rows], lines))
    more = f"<p>and {pluralize(names - len(shown), 'identity')} more</p>" if names > len(shown) else ""
    return page_fragment(f"<p><b>{size}</b>{per_identity}</p>", tiles(shown), more, ignored)


def _picture(photo: PhotoRef) -> str:
    try:
        pixels = shrink(open_photo(photo, min_side_px=SIDE_PX).rgb_u8, SIDE_PX)
    except Exception as error:  # also of a shard at a URL: a notebook would show a traceback in place of the value
        return missing_image("cannot be read", str(error))
    return image(encode_jpeg(pixels, _QUALITY), photo.name)
