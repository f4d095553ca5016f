from .decoding import PhotoMetadata, load_photo, read_metadata, read_photo_bytes, save_photo
from .exif import capture_time
from .listing import (
    RAW_SUFFIXES,
    UNREAD_SUFFIXES,
    Exclusion,
    FolderWalk,
    describe_counts,
    file_kind,
    find_photos,
    folder_kind,
)
from .photo_source import PhotoSource
from .preprocessing import Preprocessing

__all__ = [
    "RAW_SUFFIXES",
    "UNREAD_SUFFIXES",
    "Exclusion",
    "FolderWalk",
    "PhotoMetadata",
    "PhotoSource",
    "Preprocessing",
    "capture_time",
    "describe_counts",
    "file_kind",
    "find_photos",
    "folder_kind",
    "load_photo",
    "read_metadata",
    "read_photo_bytes",
    "save_photo",
]
