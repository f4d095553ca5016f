"""Capture time from EXIF metadata."""

import warnings
from datetime import datetime
from pathlib import Path

from PIL import ExifTags, Image

from familiar.photos.heif import BRANDS_BYTES, container_format, open_heic


def capture_time(path: Path) -> str | None:
    """Read when a photo was taken: EXIF DateTimeOriginal, else DateTime, which programs set when they save the file.

    Args:
        path: the photo's file.

    Returns:
        ISO 8601 to the second, in the camera's local time; None if the file has no valid time.
    """
    try:
        with warnings.catch_warnings(), path.open("rb") as file:
            warnings.filterwarnings("ignore", module=r"PIL\.")  # about odd metadata
            is_heic = container_format(file.read(BRANDS_BYTES)) == "HEIC"
            file.seek(0)
            exif = (open_heic(file) if is_heic else Image.open(file)).getexif()
            timestamp = exif.get_ifd(ExifTags.IFD.Exif).get(ExifTags.Base.DateTimeOriginal) or exif.get(
                ExifTags.Base.DateTime
            )
        return datetime.strptime(str(timestamp)[:19], "%Y:%m:%d %H:%M:%S").isoformat()
    except Exception:  # a decoder may raise anything on hostile bytes
        return None
