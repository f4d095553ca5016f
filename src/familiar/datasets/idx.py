"""MNIST's idx files: bytes behind a header of sizes, plain or gzipped. Knows nothing of tables.

The format, and the files' names: http://yann.lecun.com/exdb/mnist/. Fashion-MNIST and KMNIST use both as well.
"""

import gzip
import hashlib
import math
import struct
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import IO, Literal

import numpy as np
from jaxtyping import UInt8

from familiar.core.errors import BadDataset, UnreadablePhoto
from familiar.core.types import Photo

MNIST_PARTS = {"train": "train", "test": "t10k"}  # how their files' names begin
MOST_BYTES = 2**31  # of one array; EMNIST, the largest of the family, has 0.64 GB
_UNSIGNED_BYTES = 8  # the third byte of the magic number; the fourth counts the dimensions
_GZIP_MAGIC = b"\x1f\x8b"
_CHUNK_BYTES = 2**20


@dataclass(frozen=True, slots=True)
class IdxPhoto:
    """One image of an idx file. Its pixels are read when asked for: it travels to loading processes as it is.

    `group` is the set, its part and the label: `mnist:train/7`.
    """

    file: Path
    group: str
    index: int

    @property
    def name(self) -> str:
        """What stands for a path in messages and split files: `mnist:train/7/00012345`."""
        return f"{self.group}/{self.index:08d}"

    @property
    def content(self) -> str:
        """SHA-256 of size and pixels, hexadecimal. UnreadablePhoto as for `draw`."""
        gray = self._gray()
        return hashlib.sha256(f"{gray.shape}".encode() + gray.tobytes()).hexdigest()

    def draw(self) -> Photo:
        """The pixels, gray as RGB. UnreadablePhoto where the file has gone or changed since it was listed."""
        gray = self._gray()
        height, width = gray.shape
        return Photo(np.repeat(gray[..., None], 3, axis=2), self.name, (width, height), "IDX gray")

    def _gray(self) -> UInt8[np.ndarray, "h w"]:
        try:
            stat = self.file.stat()
            return _images(self.file, stat.st_size, stat.st_mtime_ns)[self.index]
        except (OSError, BadDataset, IndexError) as error:
            raise UnreadablePhoto(f"{self.name}: cannot be read any more ({error})") from error


def mnist_photos(folder: Path, part: Literal["train", "test"]) -> dict[str, tuple[IdxPhoto, ...]]:
    """The images of each label, by its number as text, in the files' order.

    BadDataset where a file is missing or broken, labels do not fit the images, or one is no digit.
    """
    images_file, labels_file = (_find(folder, f"{MNIST_PARTS[part]}-{kind}") for kind in ("images-idx3", "labels-idx1"))
    stat = images_file.stat()
    images = _images(images_file, stat.st_size, stat.st_mtime_ns)
    labels = read_idx(labels_file, 1)
    if len(images) != len(labels):
        raise BadDataset(
            f"{labels_file}: {len(labels):,} labels for {len(images):,} images of {images_file.name}; "
            "both must come from one download"
        )
    if len(wrong := np.flatnonzero(labels > 9)):
        raise BadDataset(
            f"{labels_file}: label {labels[wrong[0]]} of image {wrong[0]:,} is no digit; download it again"
        )
    return {
        f"{digit}": tuple(
            IdxPhoto(images_file, f"mnist:{part}/{digit}", int(index)) for index in np.flatnonzero(labels == digit)
        )
        for digit in np.unique(labels)
    }


def read_idx(path: Path, dimensions: int) -> UInt8[np.ndarray, "..."]:
    """The array of unsigned bytes in an idx file, gzipped or not whatever its name. Read-only.

    BadDataset, with the file and what to do: it cannot be read, is no idx file, has other than `dimensions`
    dimensions, an empty one, or more or fewer bytes than its header says.
    """
    try:
        with _unpacked(path) as stream:
            sizes = _sizes(stream.read(4 + 4 * dimensions), dimensions)
            body = bytearray()
            # One byte more than wanted tells a file that goes on; and only at its end does gzip check its sum.
            while chunk := stream.read(min(_CHUNK_BYTES, math.prod(sizes) + 1 - len(body))):
                body += chunk
            if len(body) != math.prod(sizes):
                found = "more" if len(body) > math.prod(sizes) else f"only {len(body):,}"
                raise ValueError(f"its header says {math.prod(sizes):,} bytes, it holds {found}")
    except (OSError, EOFError, ValueError, zlib.error) as error:
        cause = (error.strerror if isinstance(error, OSError) else None) or error
        raise BadDataset(f"{path}: no whole idx file ({cause}); download it again") from error
    return np.frombuffer(bytes(body), np.uint8).reshape(sizes)


def _sizes(header: bytes, dimensions: int) -> tuple[int, ...]:
    """ValueError where it is no header of so many dimensions, or of more bytes than would be read."""
    magic = bytes((0, 0, _UNSIGNED_BYTES, dimensions))
    if header[:4] != magic:
        raise ValueError(f"it begins with {header[:4].hex()}, not {magic.hex()}")
    if len(header) < 4 + 4 * dimensions:
        raise ValueError("it ends within its header")
    sizes = struct.unpack(f">{dimensions}I", header[4:])
    if 0 in sizes or math.prod(sizes) > MOST_BYTES:
        raise ValueError(f"its header says {' x '.join(map(str, sizes))}")
    return sizes


@contextmanager
def _unpacked(path: Path) -> Iterator[IO[bytes]]:
    with path.open("rb") as file:
        packed = file.read(2) == _GZIP_MAGIC
        file.seek(0)
        if not packed:
            yield file
            return
        with gzip.GzipFile(fileobj=file) as stream:
            yield stream  # pyright: ignore[reportReturnType]


@lru_cache(maxsize=4)
def _images(file: Path, _size: int, _changed_ns: int) -> UInt8[np.ndarray, "n h w"]:
    """Kept by size and time as well, so that a file written anew is read anew."""
    return read_idx(file, 3)


def _find(folder: Path, stem: str) -> Path:
    for name in (f"{stem}-ubyte", f"{stem}-ubyte.gz"):
        if (folder / name).is_file():
            return folder / name
    raise BadDataset(f"{folder}: holds no {stem}-ubyte(.gz); familiar download mnist makes a folder that does")
