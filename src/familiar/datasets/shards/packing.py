"""Writing of photos into shards, in a random order: then the photos that are read one after the other are a mixture."""

import hashlib
import io
import json
import tarfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from PIL import Image

from familiar.core.errors import BadDataset, CannotWrite, FamiliarError, UnreadablePhoto
from familiar.core.files import make_folder, write_atomically
from familiar.datasets.identity_table import IdentityTable
from familiar.datasets.photo_references import PhotoRef, open_photo
from familiar.datasets.shards.scanning import SUFFIXES
from familiar.datasets.shards.tar import INDEX_SUFFIX
from familiar.datasets.stored_photo import StoredPhoto
from familiar.photos.decoding import read_photo_bytes
from familiar.photos.opening import detect_format

PACK_STREAM = 7  # separates these random draws from others that use the same seed
ROWS_PER_GROUP = 256  # of a Parquet file: the least that is read for one photo
ShardFormat = Literal["tar", "parquet"]


@dataclass(frozen=True)
class Packed:
    """What `pack` has written.

    Attributes:
        shards: the files, in order.
        photos: number of photos in them.
        skipped: the errors of photos that cannot be read.
    """

    shards: tuple[Path, ...]
    photos: int
    skipped: tuple[FamiliarError, ...]


@dataclass(frozen=True)
class _Entry:
    identity: str
    name: str
    data: bytes


def pack(
    table: IdentityTable,
    output: Path,
    *,
    format: ShardFormat = "tar",  # noqa: A002 - as on the command line
    shard_bytes: int = 2**28,
    seed: int = 0,
    on_photo: Callable[[int, int], None] = lambda _done, _total: None,
) -> Packed:
    """Write photos with their identities into shards.

    Files are copied as they are, and photos that are not files are stored as PNG. A tar file gets an index, so that it
    need not be read to be listed. A shard appears under its name when it is complete.

    Args:
        table: the photos, of one root: read back from the folder, their identities have the same names if the folder is
            named like the root.
        output: the folder, which is created.
        format: tar files as WebDataset has them, or Parquet files.
        shard_bytes: a shard ends with the photo that exceeds it.
        seed: of the order.
        on_photo: called with the number of photos done and of all photos.

    Raises:
        BadDataset: the photos are of several roots, or the folder contains shards already.
        CannotWrite: the system refuses, such as for lack of space.
        FamiliarError: no photo can be read, or pyarrow is not installed.
    """
    roots = {name.partition("/")[0] for name in table.names}
    if len(roots) > 1:
        raise BadDataset(f"the photos are of {len(roots)} sources ({', '.join(sorted(roots))}); pack each by itself")
    if output.is_dir() and any(path.suffix in SUFFIXES for path in output.iterdir()):
        raise BadDataset(
            f"{output}: contains shards already; choose another folder, or delete it if that packing was interrupted"
        )
    write = {"tar": _write_tar, "parquet": _write_parquet}[format]
    skipped: list[FamiliarError] = []
    shards: list[Path] = []
    photos = 0
    try:
        make_folder(output)
        for entries in _shards_of(_entries(table, seed, format, skipped, on_photo), shard_bytes):
            shard = output / f"{len(shards):05d}.{format}"
            write(shard, entries)
            shards.append(shard)
            photos += len(entries)
    except OSError as error:
        raise CannotWrite(f"{output}: cannot be written ({error.strerror or error})") from error
    if not shards:
        raise BadDataset(f"none of the {len(table)} photos can be read: {skipped[0]}")
    return Packed(tuple(shards), photos, tuple(skipped))


def _entries(
    table: IdentityTable,
    seed: int,
    shard_format: ShardFormat,
    skipped: list[FamiliarError],
    on_photo: Callable[[int, int], None],
) -> Iterator[_Entry]:
    order = np.random.default_rng((PACK_STREAM, seed)).permutation(len(table))
    for done, row in enumerate(order.tolist(), start=1):
        photo = table.photos[row]
        identity = table.names[table.labels[row]].partition("/")[2]
        try:
            if shard_format == "parquet":
                _require_utf8(photo, identity)
            data = _file_content(photo)
        except UnreadablePhoto as error:
            skipped.append(error)
        else:
            yield _Entry(identity, photo.name.rpartition("/")[2], data)
        on_photo(done, len(table))


def _require_utf8(photo: PhotoRef, identity: str) -> None:
    try:
        f"{identity}/{photo.name}".encode()
    except UnicodeEncodeError as error:
        raise UnreadablePhoto(
            f"{photo}: its name is not UTF-8, and Parquet stores no others; rename it, or pack into tar files"
        ) from error


def _file_content(photo: PhotoRef) -> bytes:
    if isinstance(photo, StoredPhoto):
        return photo.read_bytes()
    if isinstance(photo, Path):
        data = read_photo_bytes(photo)
        if detect_format(data[:256]) is None:
            raise UnreadablePhoto(f"{photo}: is not a photo")
        return data
    buffer = io.BytesIO()
    Image.fromarray(open_photo(photo).rgb_u8).save(buffer, "PNG")
    return buffer.getvalue()


def _shards_of(entries: Iterator[_Entry], shard_bytes: int) -> Iterator[list[_Entry]]:
    shard: list[_Entry] = []
    size = 0
    for entry in entries:
        shard.append(entry)
        size += len(entry.data)
        if size > shard_bytes:
            yield shard
            shard, size = [], 0
    if shard:
        yield shard


def _write_tar(path: Path, entries: list[_Entry]) -> None:
    buffer = io.BytesIO()
    index: list[tuple[str, str, int, int, str]] = []
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for number, entry in enumerate(entries):
            key = f"{path.stem}-{number:06d}"
            label = json.dumps({"identity": entry.identity, "name": entry.name}).encode()
            _add(tar, f"{key}.json", label)
            # Behind the label and under a short name, a header of 512 bytes comes first.
            start = tar.offset + tarfile.BLOCKSIZE
            _add(tar, key + _suffix(entry), entry.data)
            sha256 = hashlib.sha256(entry.data).hexdigest()
            index.append((entry.identity, entry.name, start, len(entry.data), sha256))
    data = buffer.getvalue()
    write_atomically(Path(f"{path}{INDEX_SUFFIX}"), json.dumps({"bytes": len(data), "photos": index}).encode())
    write_atomically(path, data)


def _add(tar: tarfile.TarFile, name: str, data: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(data)
    tar.addfile(member, io.BytesIO(data))


def _suffix(entry: _Entry) -> str:
    """Return the suffix of a photo's file, by its content where the name has none or another."""
    format_name = detect_format(entry.data[:256]) or "PNG"
    return {"JPEG": ".jpg", "TIFF": ".tif"}.get(format_name, f".{format_name.lower()}")


def _write_parquet(path: Path, entries: list[_Entry]) -> None:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ModuleNotFoundError as error:
        raise FamiliarError("Parquet needs pyarrow: pip install 'familiar-faces[data]'") from error
    buffer = io.BytesIO()
    columns: dict[str, Any] = {
        "image": pa.array([entry.data for entry in entries], pa.binary()),
        "identity": pa.array([entry.identity for entry in entries], pa.string()),
        "file_name": pa.array([entry.name for entry in entries], pa.string()),
    }
    # Photos are compressed already.
    pq.write_table(pa.table(columns), buffer, row_group_size=ROWS_PER_GROUP, compression="none")
    write_atomically(path, buffer.getvalue())
