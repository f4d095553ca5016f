"""When a photo was taken, as its camera wrote it into the file."""

import warnings
from datetime import datetime
from pathlib import Path

from PIL import ExifTags, Image


def capture_time(path: Path) -> str | None:
    """ISO 8601 to the second, in the camera's local time; None where the file says nothing, or nothing that is a time.

    EXIF's DateTimeOriginal, else its DateTime, which programs set to when they saved the file.
    """
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", module=r"PIL\.")  # of odd metadata: then there is no time
            with Image.open(path) as image:
                exif = image.getexif()
        said = exif.get_ifd(ExifTags.IFD.Exif).get(ExifTags.Base.DateTimeOriginal) or exif.get(ExifTags.Base.DateTime)
        return datetime.strptime(str(said)[:19], "%Y:%m:%d %H:%M:%S").isoformat()
    except Exception:  # a decoder fed hostile bytes may raise anything
        return None
