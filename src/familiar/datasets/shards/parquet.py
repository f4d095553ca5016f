"""Parquet files with the bytes of photos in a column, as Hugging Face's datasets have them, or with their paths."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import PurePosixPath
from threading import Lock
from types import ModuleType
from typing import Any

from familiar.core.errors import BadDataset, FamiliarError, UnreadablePhoto
from familiar.core.json_text import parse_json
from familiar.datasets.shards.storage import open_file, size_of
from familiar.datasets.stored_photo import StoredPhoto
from familiar.datasets.table_rows import IDENTITY_COLUMNS, KNOWN_COLUMNS, Rows

IMAGE_COLUMNS = ("image", "img", "jpg", "png", "photo", "bytes")
NAME_COLUMNS = ("file_name", "path", "name")
GROUPS_IN_MEMORY = 8
PHOTOS_PER_BATCH, LABELS_PER_BATCH = 64, 1_000  # decoded at once
MIN_BYTES_PER_ROW = 8  # of the file; the smallest photos have some 60
MAX_EXPANSION, SMALL_BYTES = 20, 64 * 2**20  # photos of a group may have so many bytes: times those of the file, plus
_LOCKS = [Lock() for _ in range(64)]


@dataclass(frozen=True, slots=True)
class ParquetPhoto(StoredPhoto):
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
    def position(self) -> int:
        """A number that grows in the order in which the shard is read."""
        return self.group << 32 | self.row

    def __str__(self) -> str:
        return f"{self.shard}:{self.group}/{self.row}"


def parquet_rows(shard: str) -> Rows:
    """Read the rows of a Parquet file, but not the bytes of its photos.

    Args:
        shard: path or URL.

    Raises:
        BadDataset: the file cannot be read.
        FamiliarError: pyarrow is not installed.
    """
    pq = _pyarrow_parquet(shard)
    import pyarrow as pa

    try:
        with open_file(shard) as file:
            parquet = pq.ParquetFile(file)
            schema = parquet.schema_arrow
            if parquet.metadata.num_rows * MIN_BYTES_PER_ROW > size_of(shard):
                raise ValueError(f"{parquet.metadata.num_rows:,} rows are more than its bytes can hold")
            types = {name: schema.field(name).type for name in schema.names}
            holds_bytes = [name for name in IMAGE_COLUMNS if name in types and _holds_bytes(pa, types[name])]
            columns: dict[str, list[Any]] = {name: [] for name in types if name in KNOWN_COLUMNS - {*holds_bytes[:1]}}
            positions: list[tuple[int, int]] = []
            for group in range(parquet.num_row_groups):
                for batch in parquet.iter_batches(LABELS_PER_BATCH, row_groups=[group], columns=list(columns)):
                    for name, cells in batch.to_pydict().items():
                        columns[name] += cells
                positions += [(group, row) for row in range(parquet.metadata.row_group(group).num_rows)]
            for name, cells in columns.items():
                if classes := _class_names(schema, name):
                    columns[name] = [_class_name(classes, cell) for cell in cells]
    except OSError as error:
        raise BadDataset(f"{shard}: cannot be read ({error.strerror or error})") from error
    except (ValueError, IndexError, pa.ArrowException) as error:
        raise BadDataset(f"{shard}: is no Parquet file, or a damaged one ({error}); copy it again") from error
    if not holds_bytes:
        return Rows(columns)
    label = next((name for name in IDENTITY_COLUMNS if name in columns), None)
    names = next((columns[name] for name in NAME_COLUMNS if name in columns and name != label), None)
    file_names = [f"{group:05d}-{row:05d}" for group, row in positions] if names is None else map(_base_name, names)
    placed = zip(file_names, positions, strict=True)
    return Rows(columns, photos=[ParquetPhoto(shard, holds_bytes[0], name, *position) for name, position in placed])


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


def _holds_bytes(arrow: ModuleType, type_: Any) -> bool:
    type_ = type_.value_type if arrow.types.is_dictionary(type_) else type_
    return any(check(type_) for check in (arrow.types.is_struct, arrow.types.is_binary, arrow.types.is_large_binary))


def _class_name(classes: Sequence[str], cell: Any) -> Any:
    if not isinstance(cell, int):
        return cell
    return None if cell < 0 else classes[cell]  # Hugging Face's datasets have -1 where a label is missing


def _base_name(name: Any) -> str:
    return PurePosixPath(str(name)).name


def _bytes_of(value: Any) -> bytes:
    """Return the bytes of a cell, which Hugging Face's datasets keep beside a path."""
    data = value.get("bytes") if isinstance(value, dict) else value
    return data if isinstance(data, bytes) else b""


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
