"""Photos whose bytes are stored elsewhere than in a file of their own on this machine's disks."""

import hashlib
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from familiar.core.errors import UnreadablePhoto
from familiar.datasets.shards.storage import open_file
from familiar.photos.decoding import read_photo_bytes


class StoredPhoto(ABC):
    """A photo of which the bytes are read, and decoded, like those of a file. Its `str` says where it is."""

    __slots__ = ()
    name: str

    @abstractmethod
    def read_bytes(self) -> bytes:
        """Read the photo's file.

        Raises:
            UnreadablePhoto: it is missing, cannot be reached, or was changed since it was listed.
        """

    @property
    def content_sha256(self) -> str:
        """SHA-256 of its bytes, hexadecimal."""
        return hashlib.sha256(self.read_bytes()).hexdigest()


@dataclass(frozen=True, slots=True)
class UrlPhoto(StoredPhoto):
    """A photo behind a URL that fsspec knows, such as `s3://` or `https://`, and its file's name."""

    url: str
    name: str

    def read_bytes(self) -> bytes:
        """Read the photo's file. UnreadablePhoto if it cannot be reached."""
        try:
            with open_file(self.url) as file:
                return file.read()
        except Exception as error:  # each kind of storage has errors of its own
            raise UnreadablePhoto(f"{self.url}: cannot be read ({error})") from error

    def __str__(self) -> str:
        return self.url


@dataclass(frozen=True)
class DatasetPhoto(StoredPhoto):
    """A photo of a `datasets.Dataset` of Hugging Face.

    Attributes:
        dataset: in the format "arrow", which decodes no photo.
        column: of the photos.
        row: in the data set.
        fingerprint: of the data set; with the row it tells photos apart.
        name: the row as text.
    """

    dataset: Any = field(compare=False, repr=False)
    column: str
    row: int
    fingerprint: str
    name: str

    def read_bytes(self) -> bytes:
        """Read the photo's file. UnreadablePhoto if the data set has none."""
        cell = self.dataset[self.row : self.row + 1].column(self.column)[0].as_py() or {}
        if cell.get("bytes"):
            return cell["bytes"]
        if cell.get("path"):
            return read_photo_bytes(Path(cell["path"]))
        raise UnreadablePhoto(f"{self}: has no photo in the column {self.column}")

    def __str__(self) -> str:
        return f"dataset {self.fingerprint}, row {self.row}"
