"""A folder of Parquet files with the faces of photos: one file for each part of the photos, written at once.

A row is a face, or a photo without one and the reason. `COLUMNS` describes the columns. The metadata of each
file names the model, so that embeddings of two models never end up in one folder.
"""

import hashlib
import json
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from familiar import BadDataset, CannotWrite, SpaceMismatch

METADATA_KEY = b"familiar"
DRAFT = ".familiar."  # what the name of an unfinished file begins with
# Lists of no fixed length: pyarrow before version 26 reads those of one wrong, where some are null.
COLUMNS = {
    "photo": (pa.string(), "path of the file, or shard and name"),
    "size_bytes": (pa.int64(), "of the photo's file; 0: unknown"),
    "modified_ns": (pa.int64(), "when the file was changed, in ns since 1970; 0: unknown"),
    "face": (pa.int32(), "number of the face in its photo, from 1, best first; null: the photo has no embedding"),
    "box_xyxy_px": (pa.list_(pa.float32()), "left, top, right, bottom, in pixels of the upright photo"),
    "score": (pa.float32(), "of the detector, in [0, 1]"),
    "quality": (pa.float32(), "how far the embedding can be trusted, in [0, 1]"),
    "species": (pa.string(), "what the user or the detector says; null: neither does"),
    "embedding": (pa.list_(pa.float32()), "unit vector"),
    "file_id": (pa.string(), "of the bundle that computed it"),
    "error": (pa.string(), "why the photo or face has no embedding; null: it has one"),
}
EmbeddedWith = dict[str, Any]
"""What all embeddings of a folder are computed with, as JSON.

`space_id` and `embedding_dim` are the model's; `file_ids` those of its bundles; `detector` is a name; `flip` says
whether each embedding is averaged with that of the mirror image.
"""
EMBEDDED_WITH = ("space_id", "embedding_dim", "file_ids", "detector", "flip")


@dataclass(frozen=True)
class PhotoFile:
    """A photo to embed, and the state of its file, by which a changed photo is noticed.

    Attributes:
        name: what `photo` is called in messages and in the column `photo`.
        photo: what opens it.
        state: size in bytes, and time of the last change in ns since 1970; 0: unknown.
    """

    name: str
    photo: Any
    state: tuple[int, int] = (0, 0)


def part_path(folder: Path, photos: Sequence[PhotoFile]) -> Path:
    """Return the file of a part: the same for the same photos, so that a part is never written twice."""
    key = json.dumps([[photo.name, *photo.state] for photo in photos])
    return folder / f"part-{hashlib.sha256(key.encode('utf-8', 'surrogatepass')).hexdigest()[:24]}.parquet"


def schema(columns: Mapping[str, tuple[pa.DataType, str]], embedded_with: EmbeddedWith) -> pa.Schema:
    """Return the schema of a file, with what its embeddings are computed with and what its columns are.

    Args:
        columns: type and description of each.
        embedded_with: stored in the file.
    """
    descriptions = {name: description for name, (_, description) in columns.items()}
    metadata = {METADATA_KEY: json.dumps(embedded_with | {"columns": descriptions})}
    return pa.schema([(name, kind) for name, (kind, _) in columns.items()], metadata=metadata)


@contextmanager
def parquet_writer(path: Path, schema: pa.Schema) -> Iterator[pq.ParquetWriter]:
    """Write a Parquet file, whole or not at all.

    Raises:
        CannotWrite: the system refuses.
    """
    draft = path.with_name(f"{DRAFT}{path.stem}.{os.getpid()}")
    try:
        with draft.open("wb") as file:
            with pq.ParquetWriter(file, schema) as writer:
                yield writer
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    except OSError as error:
        raise CannotWrite(f"{path}: cannot be written ({error.strerror or error})") from error
    finally:
        if draft.exists():
            draft.unlink()


def write_part(path: Path, rows: Sequence[Mapping[str, Any]], embedded_with: EmbeddedWith) -> None:
    """Write a part.

    Args:
        path: as `part_path` returns it.
        rows: of faces and photos; columns that are missing are null.
        embedded_with: stored in the file.

    Raises:
        CannotWrite: the system refuses.
    """
    with parquet_writer(path, schema(COLUMNS, embedded_with)) as writer:
        writer.write_table(pa.Table.from_pylist([dict(row) for row in rows], schema=writer.schema))


def read_part(path: Path, columns: Sequence[str] = tuple(COLUMNS)) -> tuple[EmbeddedWith, pa.Table]:
    """Read what the embeddings of a part were computed with, and some of its columns.

    Raises:
        BadDataset: the file is damaged, or none of ours.
    """
    requested = pa.schema([(name, COLUMNS[name][0]) for name in columns])
    try:
        with pq.ParquetFile(path) as file:
            metadata = file.schema_arrow.metadata or {}
            if METADATA_KEY not in metadata:
                raise BadDataset(f"{path}: not written by `familiar embed`; choose another folder for --output")
            stored = json.loads(metadata[METADATA_KEY])
            embedded_with = {name: stored[name] for name in EMBEDDED_WITH}
            table = file.read(requested.names).select(requested.names)
        table.validate(full=True)  # else texts that are not UTF-8 fail where they are used
        return embedded_with, table.cast(requested)
    except (OSError, ValueError, LookupError, TypeError, RecursionError, pa.ArrowException) as error:
        raise BadDataset(
            f"{path}: damaged ({error}); remove it and repeat the command, which embeds its photos again"
        ) from error


def read_states(path: Path, embedded_with: EmbeddedWith) -> dict[str, tuple[int, int]]:
    """Read which photos a part has, and the state that their files had.

    Args:
        path: of the part.
        embedded_with: what its embeddings have to be computed with.

    Raises:
        BadDataset: the part is damaged, or a Parquet file is none of ours.
        SpaceMismatch: the part is of another model, detector or averaging.
    """
    stored, table = read_part(path, ["photo", "size_bytes", "modified_ns"])
    if different := [name for name, value in embedded_with.items() if stored[name] != value]:
        values = "; ".join(f"{name} {stored[name]}, now {embedded_with[name]}" for name in different)
        raise SpaceMismatch(f"{path}: embedded differently ({values}); choose another folder for --output")
    names, *states = (column.to_pylist() for column in table.columns)
    return dict(zip(names, zip(*states, strict=True), strict=True))


def remove_photos(path: Path, names: Collection[str]) -> None:
    """Write a part again without some photos; without any photo left, remove it.

    Raises:
        CannotWrite: the system refuses.
    """
    embedded_with, table = read_part(path)
    rest = table.filter([name not in names for name in table["photo"].to_pylist()])
    if rest.num_rows:
        write_part(path, rest.to_pylist(), embedded_with)
    else:
        path.unlink()


def count_rows(path: Path) -> dict[str, int]:
    """Count the photos, faces and rows without an embedding of a part."""
    _, table = read_part(path, ["photo", "face"])
    return {
        "photos": len(table["photo"].unique()),
        "faces": table.num_rows - table["face"].null_count,
        "without_embedding": table["face"].null_count,
    }
