from .decoding import find_photos, load_photo, save_photo
from .exif import capture_time
from .preprocessing import Preprocessing

__all__ = [
    "Preprocessing",
    "capture_time",
    "find_photos",
    "load_photo",
    "save_photo",
]
