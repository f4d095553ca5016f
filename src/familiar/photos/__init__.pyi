from .decoding import PhotoMetadata, find_photos, load_photo, read_metadata, read_photo_bytes, save_photo
from .exif import capture_time
from .preprocessing import Preprocessing

__all__ = [
    "PhotoMetadata",
    "Preprocessing",
    "capture_time",
    "find_photos",
    "load_photo",
    "read_metadata",
    "read_photo_bytes",
    "save_photo",
]
