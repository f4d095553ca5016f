"""Parquet files with the bytes of photos in a column, as Hugging Face's datasets have them."""

import hashlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import PurePosixPath
from threading import Lock
from types import ModuleType
from typing import Any

from familiar.core.errors import BadDataset, FamiliarError, UnreadablePhoto
from familiar.core.json_text import parse_json
from familiar.datasets.shards.storage import open_file, size_of

IMAGE_COLUMNS = ("image", "img", "jpg", "png", "photo", "bytes")
LABEL_COLUMNS = ("identity", "label", "cls", "id", "name")
NAME_COLUMNS = ("file_name", "path", "name")
GROUPS_IN_MEMORY = 8
PHOTOS_PER_BATCH, LABELS_PER_BATCH = 64, 1_000  # decoded at once
MIN_BYTES_PER_ROW = 8  # of the file; the smallest photos have some 60
MAX_EXPANSION, SMALL_BYTES = 20, 64 * 2**20  # photos of a group may have so many bytes: times those of the file, plus
_LOCKS = [Lock() for _ in range(64)]


@dataclass(frozen=True, slots=True)
class ParquetPhoto:
    """A photo in a row of a Parquet file.

    Attributes:
        shard: path or URL of the file.
        column: that holds the photo's bytes.
        name: of the photo's own file.
        group: of rows, in the file.
        row: in that group.
    """

    shard: str
    column: str
    name: str
    group: int
    row: int

    def read_bytes(self) -> bytes:
        """Read the photo's file.

        Raises:
            UnreadablePhoto: the shard is missing, cannot be reached, or was changed since.
        """
        try:
            with _LOCKS[hash((self.shard, self.group)) % len(_LOCKS)]:  # so that one thread reads it for all
                photos = _group_bytes(self.shard, self.column, self.group)
            return photos[self.row]
        except (OSError, IndexError, BadDataset) as error:
            raise UnreadablePhoto(f"{self}: cannot be read ({error})") from error

    @property
    def content_sha256(self) -> str:
        """SHA-256 of its bytes, hexadecimal."""
        return hashlib.sha256(self.read_bytes()).hexdigest()

    @property
    def position(self) -> int:
        """A number that grows in the order in which the shard is read."""
        return self.group << 32 | self.row

    def __str__(self) -> str:
        return f"{self.shard}:{self.group}/{self.row}"


def scan_parquet(shard: str, ignored: Counter[str]) -> Iterator[tuple[str, ParquetPhoto]]:
    """Yield the identity and the photo of each row of a Parquet file.

    Args:
        shard: path or URL.
        ignored: counts what is skipped, by reason.

    Raises:
        BadDataset: the file cannot be read, or has no column of photos or of identities.
        FamiliarError: pyarrow is not installed.
    """
    pq = _pyarrow_parquet(shard)
    import pyarrow as pa

    try:
        with open_file(shard) as file:
            parquet = pq.ParquetFile(file)
            schema = parquet.schema_arrow
            image = _column(schema.names, IMAGE_COLUMNS, shard, "photos' bytes")
            label = _column([name for name in schema.names if name != image], LABEL_COLUMNS, shard, "identities")
            names = next((name for name in NAME_COLUMNS if name in schema.names and name != label), None)
            classes = _class_names(schema, label)
            if parquet.metadata.num_rows * MIN_BYTES_PER_ROW > size_of(shard):
                raise ValueError(f"{parquet.metadata.num_rows:,} rows are more than its bytes can hold")
            for group in range(parquet.num_row_groups):
                for row, value, text in _labels(parquet, group, label, names):
                    if value is None:
                        ignored["photos without an identity"] += 1
                        continue
                    identity = classes[value] if classes and isinstance(value, int) else str(value)
                    name = f"{group:05d}-{row:05d}" if names is None else PurePosixPath(str(text)).name
                    yield identity, ParquetPhoto(shard, image, name, group, row)
    except OSError as error:
        raise BadDataset(f"{shard}: cannot be read ({error.strerror or error})") from error
    except (ValueError, IndexError, pa.ArrowException) as error:
        raise BadDataset(f"{shard}: is no Parquet file, or a damaged one ({error}); copy it again") from error


@lru_cache(maxsize=GROUPS_IN_MEMORY)
def _group_bytes(shard: str, column: str, group: int) -> Sequence[bytes]:
    """Read the photos of a group of rows; neighbors are often read one after the other."""
    pq = _pyarrow_parquet(shard)
    import pyarrow as pa

    try:
        with open_file(shard) as file:
            return _read_photos(pq.ParquetFile(file), group, column, MAX_EXPANSION * size_of(shard) + SMALL_BYTES)
    except (ValueError, pa.ArrowException) as error:
        raise BadDataset(f"{shard}: is damaged ({error})") from error


def _read_photos(parquet: Any, group: int, column: str, max_bytes: int) -> list[bytes]:
    """Read a column piece by piece, since a repeated value is written once; ValueError if they become too large."""
    photos: list[bytes] = []
    total_bytes = 0
    for batch in parquet.iter_batches(batch_size=PHOTOS_PER_BATCH, row_groups=[group], columns=[column]):
        total_bytes += batch.nbytes
        if total_bytes > max_bytes:
            raise ValueError("its photos have far more bytes than the file")
        photos += map(_bytes_of, batch.column(column).to_pylist())
    return photos


def _labels(parquet: Any, group: int, label: str, names: str | None) -> Iterator[tuple[int, Any, Any]]:
    """Yield the row, the identity and the photo's name of each row of a group."""
    row = 0
    columns = [label] if names is None else [label, names]
    for batch in parquet.iter_batches(batch_size=LABELS_PER_BATCH, row_groups=[group], columns=columns):
        rows = batch.to_pydict()
        for value, name in zip(rows[label], rows[names or label], strict=True):
            yield row, value, name
            row += 1


def _bytes_of(value: Any) -> bytes:
    """Return the bytes of a cell, which Hugging Face's datasets keep beside a path."""
    data = value.get("bytes") if isinstance(value, dict) else value
    return data if isinstance(data, bytes) else b""


def _column(names: Sequence[str], known: Sequence[str], shard: str, what: str) -> str:
    for name in known:
        if name in names:
            return name
    raise BadDataset(
        f"{shard}: has no column of {what}; it has {', '.join(names)}, and one of them must be named {known[0]}"
    )


def _class_names(schema: Any, label: str) -> list[str]:
    """Return the names of the classes that Hugging Face's datasets number, if there are any."""
    try:
        features = parse_json(schema.metadata[b"huggingface"])["info"]["features"]
        names = features[label]["names"]
    except (KeyError, TypeError, ValueError):
        return []
    return [str(name) for name in names]


def _pyarrow_parquet(shard: str) -> ModuleType:
    try:
        import pyarrow.parquet
    except ModuleNotFoundError as error:
        raise FamiliarError(f"{shard}: this needs pyarrow: pip install 'familiar-faces[data]'") from error
    return pyarrow.parquet
