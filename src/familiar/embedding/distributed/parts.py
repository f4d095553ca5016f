"""A folder of Parquet files with the faces of photos: one file for each part of the photos, written at once.

A row is a face, or a photo without one and the reason. `COLUMNS` describes the columns. The metadata of each
file names the model, so that embeddings of two models never end up in one folder.
"""

import hashlib
import io
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from familiar.core.errors import BadDataset, FamiliarError, SpaceMismatch
from familiar.core.files import write_atomically
from familiar.core.json_codec import DOCUMENTS
from familiar.core.json_text import parse_json

METADATA_KEY = b"familiar"
PREFIX = "part-"
COLUMNS = {
    "photo": "path of the file, or shard and name",
    "size_bytes": "of the photo's file; 0: unknown",
    "modified_ns": "when the file was changed, in ns since 1970; 0: unknown",
    "face": "number of the face in its photo, from 1, best first; null: the photo has no embedding",
    "box_xyxy_px": "left, top, right, bottom, in pixels of the upright photo",
    "score": "of the detector, in [0, 1]",
    "quality": "how far the embedding can be trusted, in [0, 1]",
    "species": "what the user or the detector says; null: neither does",
    "embedding": "unit vector",
    "file_id": "of the bundle that computed it",
    "error": "why the photo or face has no embedding; null: it has one",
}


@dataclass(frozen=True)
class EmbeddedWith:
    """What all embeddings of a folder are computed with.

    Attributes:
        space_id: of the model: embeddings of other spaces cannot be compared.
        embedding_dim: number of components.
        file_ids: of the model's bundles.
        detector: its name.
        flip: whether each embedding is averaged with that of the mirror image.
    """

    space_id: str
    embedding_dim: int
    file_ids: tuple[str, ...]
    detector: str
    flip: bool


@dataclass(frozen=True)
class PhotoFile:
    """A photo to embed, and the state of its file, by which a changed photo is noticed.

    Attributes:
        name: what `photo` is called in messages and in the column `photo`.
        photo: what opens it.
        size_bytes: of the file; 0: unknown.
        modified_ns: when the file was changed; 0: unknown.
    """

    name: str
    photo: Any
    size_bytes: int = 0
    modified_ns: int = 0

    @property
    def state(self) -> tuple[int, int]:
        """Size and time, which change with the content."""
        return self.size_bytes, self.modified_ns


def part_path(folder: Path, photos: Sequence[PhotoFile]) -> Path:
    """Return the file of a part: the same for the same photos, so that a part is never written twice."""
    key = json.dumps([[photo.name, *photo.state] for photo in photos])
    return folder / f"{PREFIX}{hashlib.sha256(key.encode('utf-8', 'surrogatepass')).hexdigest()[:24]}.parquet"


def write_part(path: Path, rows: Sequence[dict[str, Any]], embedded_with: EmbeddedWith) -> None:
    """Write a part, whole or not at all.

    Args:
        path: as `part_path` returns it.
        rows: of faces and photos; columns that are missing are null.
        embedded_with: stored in the file.

    Raises:
        CannotWrite: the system refuses.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.Table.from_pylist([dict(row) for row in rows], schema=_schema(embedded_with))
    content = io.BytesIO()
    pq.write_table(table, content)
    write_atomically(path, content.getvalue())


def read_states(folder: Path, embedded_with: EmbeddedWith) -> Iterator[tuple[Path, dict[str, tuple[int, int]]]]:
    """Read which photos each part of a folder has, and the state that their files had.

    Args:
        folder: may be missing.
        embedded_with: what its embeddings have to be computed with.

    Raises:
        BadDataset: a part is damaged, or a Parquet file is none of ours.
        SpaceMismatch: a part is of another model, detector or averaging.
    """
    for path in list_parts(folder):
        _require_same(path, read_embedded_with(path), embedded_with)
        columns = read_columns(path, ["photo", "size_bytes", "modified_ns"]).to_pydict()
        yield (
            path,
            dict(zip(columns["photo"], zip(columns["size_bytes"], columns["modified_ns"], strict=True), strict=True)),
        )


def remove_photos(path: Path, names: Iterable[str]) -> None:
    """Write a part again without some photos; without any photo left, remove it.

    Raises:
        CannotWrite: the system refuses.
    """
    import pyarrow.parquet as pq

    table, removed = read_columns(path), set(names)
    rest = table.filter([name not in removed for name in table["photo"].to_pylist()])
    if rest.num_rows:
        content = io.BytesIO()
        pq.write_table(rest, content)
        write_atomically(path, content.getvalue())
    else:
        path.unlink()


def count_rows(path: Path) -> tuple[int, int, int]:
    """Count the photos, faces and rows without an embedding of a part."""
    columns = read_columns(path, ["photo", "face"]).to_pydict()
    faces = sum(face is not None for face in columns["face"])
    return len(set(columns["photo"])), faces, len(columns["face"]) - faces


def list_parts(folder: Path) -> list[Path]:
    """List the Parquet files of a folder, sorted."""
    return sorted(folder.glob("*.parquet"))


def require_pyarrow() -> None:
    """Raise FamiliarError if Parquet files cannot be written."""
    try:
        import pyarrow.parquet  # noqa: F401
    except ModuleNotFoundError as error:
        raise FamiliarError("this needs pyarrow: pip install 'familiar-faces[ray]'") from error


def _column_types() -> dict[str, Any]:
    import pyarrow as pa

    # Lists of no fixed length: pyarrow before version 26 reads those of one wrong, where some are null.
    return {
        "photo": pa.string(),
        "size_bytes": pa.int64(),
        "modified_ns": pa.int64(),
        "face": pa.int32(),
        "box_xyxy_px": pa.list_(pa.float32()),
        "score": pa.float32(),
        "quality": pa.float32(),
        "species": pa.string(),
        "embedding": pa.list_(pa.float32()),
        "file_id": pa.string(),
        "error": pa.string(),
    }


def _schema(embedded_with: EmbeddedWith) -> Any:
    import pyarrow as pa

    types = _column_types()
    stored = json.dumps(asdict(embedded_with) | {"columns": COLUMNS})
    return pa.schema([(name, types[name]) for name in COLUMNS], metadata={METADATA_KEY: stored})


def read_columns(path: Path, columns: list[str] | None = None) -> Any:
    """Read a Parquet file.

    Args:
        path: of the file.
        columns: their names; None: all.

    Raises:
        BadDataset: it is damaged, or lacks one of the columns.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = pq.ParquetFile(path).read(columns)
        types = _column_types()
        for name in columns or COLUMNS:
            if name not in table.column_names or table.schema.field(name).type != types[name]:
                raise ValueError(f"it has no column {name}, or one of another type")
        table.validate(full=True)  # else texts that are not UTF-8 fail where they are used
    except (OSError, ValueError, pa.ArrowException) as error:
        raise _damaged(path, error) from error
    return table


def read_embedded_with(path: Path) -> EmbeddedWith:
    """Read what the embeddings of a part were computed with.

    Raises:
        BadDataset: the file is damaged, or none of ours.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        stored = (pq.read_schema(path).metadata or {}).get(METADATA_KEY)
    except (OSError, ValueError, pa.ArrowException) as error:
        raise _damaged(path, error) from error
    try:
        fields = parse_json(stored or b"{}")
        fields.pop("columns")  # for people who read the file
        return DOCUMENTS.from_json(EmbeddedWith, fields)
    except (ValueError, KeyError, AttributeError) as error:
        raise BadDataset(f"{path}: not written by `familiar embed`; choose another folder for --output") from error


def _require_same(path: Path, stored: EmbeddedWith, requested: EmbeddedWith) -> None:
    stored_fields, requested_fields = asdict(stored), asdict(requested)
    different = [name for name, value in requested_fields.items() if stored_fields[name] != value]
    if different:
        values = "; ".join(f"{name} {stored_fields[name]}, now {requested_fields[name]}" for name in different)
        raise SpaceMismatch(f"{path}: embedded differently ({values}); choose another folder for --output")


def _damaged(path: Path, error: Exception) -> BadDataset:
    return BadDataset(f"{path}: damaged ({error}); remove it and repeat the command, which embeds its photos again")
