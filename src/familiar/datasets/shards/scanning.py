"""Listing of the identities and photos of shards."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from jaxtyping import Int64

from familiar.core.errors import BadDataset
from familiar.datasets.identity_table import IdentityTable
from familiar.datasets.shards.parquet import ParquetPhoto, parquet_rows
from familiar.datasets.shards.storage import is_url, list_files
from familiar.datasets.shards.tar import TarPhoto, scan_tar
from familiar.datasets.table_rows import Rows, merge_rows, table_from_rows

SUFFIXES = (".tar", ".parquet")
ShardPhoto = TarPhoto | ParquetPhoto


def names_shards(location: str) -> bool:
    """Whether a source of data is shards: a URL, a shard, a pattern of shards, or a folder with shards in it.

    A folder that cannot be listed is none; whoever reads its photos says why.

    Args:
        location: the source.
    """
    if is_url(location) or location.lower().endswith(SUFFIXES):
        return True
    folder = Path(location)
    try:
        return folder.is_dir() and any(path.suffix.lower() in SUFFIXES and path.is_file() for path in folder.iterdir())
    except OSError:
        return False


def name_of(location: str) -> str:
    """Return the name of the folder that a location's shards are in."""
    path = location.partition("://")[2] if is_url(location) else str(Path(location).absolute())
    parts = [part for part in path.split("/") if part]
    if parts and parts[-1].lower().endswith(SUFFIXES):
        del parts[-1]
    return parts[-1] if parts else "shards"


def scan_shards(location: str, ignored: Counter[str], *, root: str = "shards") -> IdentityTable:
    """List the photos of all shards.

    Args:
        location: a folder, a URL, a shard, or a pattern such as `people-*.tar`.
        ignored: counts what is skipped, by reason.
        root: that the names of the identities begin with.

    Raises:
        BadDataset: there is no shard or no photo, or a shard is damaged.
        FamiliarError: what is needed to read them is not installed.
    """
    shards = list_files(location, SUFFIXES)
    if not shards:
        raise BadDataset(f"{location}: no shard here; expected files that end in .tar or .parquet")
    rows = merge_rows(
        [parquet_rows(shard) if shard.lower().endswith(".parquet") else _tar_rows(shard, ignored) for shard in shards]
    )
    if not rows.photos and not any(rows.columns.values()):
        raise BadDataset(
            f"{location}: no photo with an identity in its {len(shards)} shards; each sample needs a photo and its "
            "identity, in a .json, .cls or .txt file of the same name"
        )
    return table_from_rows(location, root, rows, shards[0].rpartition("/")[0], ignored)


def rows_by_shard(photos: Sequence[object]) -> list[Int64[np.ndarray, " _"]]:
    """Return for each shard the indices of its photos, in the order in which they are stored in it.

    Raises:
        ValueError: a photo is in no shard.
    """
    rows: dict[str, list[tuple[int, int]]] = {}
    for row, photo in enumerate(photos):
        if not isinstance(photo, ShardPhoto):
            raise ValueError(f"{photo} is not in a shard; pack the photos with `familiar pack` first")
        rows.setdefault(photo.shard, []).append((photo.position, row))
    return [np.array([row for _, row in sorted(rows[shard])], np.int64) for shard in sorted(rows)]


def _tar_rows(shard: str, ignored: Counter[str]) -> Rows:
    photos = list(scan_tar(shard, ignored))
    return Rows({"identity": [identity for identity, _ in photos]}, photos=[photo for _, photo in photos])
