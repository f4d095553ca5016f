"""CSV table of an inspection: one row per photo."""

import csv
import io
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from familiar.core.files import write_atomically
from familiar.datasets.inspection import Inspection
from familiar.datasets.photo_references import photo_path
from familiar.photos.pixel_modes import stored_channels

PHOTO_COLUMNS = ("identity", "file", "height_px", "width_px", "channels", "stored_as", "bytes")
_DRAWN_CHANNELS = 3  # of photos without a file


def write_photo_list(inspection: Inspection, path: Path) -> None:
    """Write a CSV table with the columns `PHOTO_COLUMNS`: a header, then a row for each photo of the table.

    Sizes are of the upright photo. Of a photo that cannot be opened they, channels and format are empty; of a drawn
    photo, the bytes are.

    Raises:
        CannotWrite: the file cannot be written.
    """
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow(PHOTO_COLUMNS)
    writer.writerows(_rows(inspection))
    write_atomically(path, os.fsencode(text.getvalue()))


def _rows(inspection: Inspection) -> Iterator[tuple[object, ...]]:
    table = inspection.table
    for photo, label, details in zip(table.photos, table.labels, inspection.details, strict=True):
        size: int | None = None
        if isinstance(photo, Path):
            with suppress(OSError):  # it was removed in the meantime
                size = photo.stat().st_size
        if details is None:
            cells = (None, None, None, None)
        else:
            width, height, stored_as = details
            channels = stored_channels(stored_as) if isinstance(photo, Path) else _DRAWN_CHANNELS
            cells = (height, width, channels, stored_as)
        yield table.names[label], photo_path(photo), *cells, size
