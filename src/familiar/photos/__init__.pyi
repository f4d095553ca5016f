from .decoding import load_photo, save_photo
from .exif import capture_time
from .listing import find_photos
from .preprocessing import Preprocessing

__all__ = [
    "Preprocessing",
    "capture_time",
    "find_photos",
    "load_photo",
    "save_photo",
]
