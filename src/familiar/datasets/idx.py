"""Reader for the idx files of MNIST, plain or gzipped: a header of sizes, then unsigned bytes.

Format and file names: http://yann.lecun.com/exdb/mnist/. Fashion-MNIST and KMNIST use the same.
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

MNIST_PARTS = {"train": "train", "test": "t10k"}  # prefixes of the file names
MAX_ARRAY_BYTES = 2**30  # of one array; EMNIST, the largest of the family, has 0.64 GB
_UNSIGNED_BYTES = 8  # the third byte of the magic number; the fourth counts the dimensions
_GZIP_MAGIC = b"\x1f\x8b"
_CHUNK_BYTES = 2**20


@dataclass(frozen=True, slots=True)
class IdxPhoto:
    """One image of an idx file. Its pixels are read on demand, so that it is cheap to send to loading processes.

    Attributes:
        file: the file of images.
        group: the data set, its part and the label: `mnist:train/7`.
        index: of the image in the file.
    """

    file: Path
    group: str
    index: int

    @property
    def name(self) -> str:
        """The name used instead of a path in messages and split files: `mnist:train/7/00012345`."""
        return f"{self.group}/{self.index:08d}"

    @property
    def content_sha256(self) -> str:
        """SHA-256 of size and pixels, hexadecimal.

        Raises:
            UnreadablePhoto: as in `draw`.
        """
        gray = self._gray()
        return hashlib.sha256(f"{gray.shape}".encode() + gray.tobytes()).hexdigest()

    def draw(self) -> Photo:
        """Read the pixels, gray as RGB.

        Raises:
            UnreadablePhoto: the file was deleted or changed since it was listed.
        """
        gray = self._gray()
        height, width = gray.shape
        return Photo(np.repeat(gray[..., None], 3, axis=2), self.name, (width, height), "IDX gray")

    def _gray(self) -> UInt8[np.ndarray, "h w"]:
        try:
            stat = self.file.stat()
            return _cached_images(self.file, stat.st_size, stat.st_mtime_ns)[self.index]
        except (OSError, BadDataset, IndexError) as error:
            raise UnreadablePhoto(f"{self.name}: can no longer be read ({error})") from error


def mnist_photos(folder: Path, part: Literal["train", "test"]) -> tuple[list[str], list[IdxPhoto]]:
    """List the images in the order of the file.

    Returns:
        The digit of each image as text, and the images.

    Raises:
        BadDataset: a file is missing or damaged, the numbers of labels and images differ, or a label is not a digit.
    """
    images_file, labels_file = (_find(folder, f"{MNIST_PARTS[part]}-{kind}") for kind in ("images-idx3", "labels-idx1"))
    stat = images_file.stat()
    images = _cached_images(images_file, stat.st_size, stat.st_mtime_ns)
    labels = read_idx(labels_file, 1)
    if len(images) != len(labels):
        raise BadDataset(
            f"{labels_file}: {len(labels):,} labels for {len(images):,} images of {images_file.name}; "
            "both must come from one download"
        )
    if len(invalid := np.flatnonzero(labels > 9)):
        raise BadDataset(
            f"{labels_file}: label {labels[invalid[0]]} of image {invalid[0]:,} is not a digit; download it again"
        )
    digits = [str(label) for label in labels.tolist()]
    return digits, [IdxPhoto(images_file, f"mnist:{part}/{digit}", index) for index, digit in enumerate(digits)]


def read_idx(path: Path, dimensions: int) -> UInt8[np.ndarray, "..."]:
    """Read an idx file of unsigned bytes; gzip is recognized by content, not by name.

    Returns:
        A read-only array.

    Raises:
        BadDataset: the file cannot be read, is not an idx file, has another number of dimensions than `dimensions`,
            has a dimension of 0, or has more or fewer bytes than its header says.
    """
    try:
        with _open_unzipped(path) as stream:
            sizes = _parse_header(stream.read(4 + 4 * dimensions), dimensions)
            body = bytearray()
            # One byte more than expected reveals a longer file, and gzip verifies its checksum only at the end.
            while chunk := stream.read(min(_CHUNK_BYTES, math.prod(sizes) + 1 - len(body))):
                body += chunk
            if len(body) != math.prod(sizes):
                actual = "more" if len(body) > math.prod(sizes) else f"only {len(body):,}"
                raise ValueError(f"its header declares {math.prod(sizes):,} bytes of data, the file has {actual}")
    except (OSError, EOFError, ValueError, zlib.error) as error:
        cause = (error.strerror if isinstance(error, OSError) else None) or error
        raise BadDataset(f"{path}: not a complete idx file ({cause}); download it again") from error
    array = np.frombuffer(body, np.uint8).reshape(sizes)
    array.flags.writeable = False
    return array


def _parse_header(header: bytes, dimensions: int) -> tuple[int, ...]:
    """Parse the sizes in a header; ValueError for another number of dimensions, an empty array or a too large one."""
    magic = bytes((0, 0, _UNSIGNED_BYTES, dimensions))
    if header[:4] != magic:
        raise ValueError(f"it begins with {header[:4].hex()}, not {magic.hex()}")
    if len(header) < 4 + 4 * dimensions:
        raise ValueError("it ends within its header")
    sizes = struct.unpack(f">{dimensions}I", header[4:])
    if 0 in sizes or math.prod(sizes) > MAX_ARRAY_BYTES:
        raise ValueError(f"its header says {' x '.join(map(str, sizes))}")
    return sizes


@contextmanager
def _open_unzipped(path: Path) -> Iterator[IO[bytes]]:
    """Open a file for reading, through gzip if it is gzipped."""
    with path.open("rb") as file:
        gzipped = file.read(2) == _GZIP_MAGIC
        file.seek(0)
        if not gzipped:
            yield file
            return
        with gzip.GzipFile(fileobj=file) as stream:
            yield stream  # pyright: ignore[reportReturnType]


@lru_cache(maxsize=4)
def _cached_images(file: Path, _size: int, _changed_ns: int) -> UInt8[np.ndarray, "n h w"]:
    """Read images through a cache keyed by size and time too, so that a changed file is read again."""
    return read_idx(file, 3)


def _find(folder: Path, stem: str) -> Path:
    for name in (f"{stem}-ubyte", f"{stem}-ubyte.gz"):
        if (folder / name).is_file():
            return folder / name
    raise BadDataset(f"{folder}: has no {stem}-ubyte(.gz); run familiar download mnist to get a complete folder")
