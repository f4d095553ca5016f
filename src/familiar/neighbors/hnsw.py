"""Approximate search of very large galleries: an HNSW graph (arXiv 1603.09320), which usearch builds and walks.

An index is a cache beside the truth and answers only as what it was saved as: a stamp is written with it, and
whatever does not agree with the stamp, to the last byte, is not opened. Knows nothing of galleries.
"""

import hashlib
import json
import mmap
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float16, Float32, Int64

from familiar.core.blockwise import blocks, map_blocks
from familiar.core.errors import CannotWrite, FamiliarError
from familiar.core.files import write_atomically
from familiar.core.vectors import check_unit_rows

if TYPE_CHECKING:
    from usearch.index import Index

FORMAT = 1  # of the two files
INDEX_FILE = "faces.hnsw"
STAMP_FILE = "faces.json"
_UNFINISHED = ".familiar.*"  # left by `write_atomically` where the process was killed
# For a recall@10 of .99 among 100,000 and more, of vectors spread as an embedder's: benchmarks/gallery.py search.
_CONNECTIVITY = 32
_EXPANSION_BUILDING = 128
_EXPANSION_SEARCHING = 128  # of as many as 100,000, and from there on twice as much for ten times as many
_ADDED_ROWS = 10_000  # at once: Ctrl-C is heard in between
_PIECE_BYTES = 1 << 24  # digested by one thread


@dataclass(frozen=True)
class Stamp:
    """What an index was built from: how many vectors, and words of the caller's that change whenever these do.

    The watermark should also name the collection, so that another's index, copied here, is not taken for this one's.
    """

    count: int
    watermark: str


class HnswIndex:
    """Vectors by key, in float16, to be searched. `build` makes one, `save` and `open` carry it over.

    Building runs in as many threads as there are cores, and which of them comes first decides what the graph looks
    like: two indexes of the same vectors may find different neighbors, among equal ones and, rarely, others.
    """

    def __init__(self, index: "Index", mapped: mmap.mmap | None = None) -> None:
        self._index = index
        self._index.expansion_search = round(_EXPANSION_SEARCHING * max(1.0, len(index) / 100_000) ** 0.3)
        self._mapped = mapped  # outlives the index, which reads from it

    def __len__(self) -> int:
        return len(self._index)

    @property
    def dim(self) -> int:
        return self._index.ndim

    @classmethod
    def build(
        cls,
        vectors: Float32[np.ndarray, "n d"] | Float16[np.ndarray, "n d"],
        keys: Int64[np.ndarray, " keys"],
    ) -> "HnswIndex":
        """Of unit rows and their keys. Minutes for a million.

        FamiliarError where usearch is not installed. ValueError for rows that are no unit vectors, and for keys that
        are negative, given twice, or not one for each row.
        """
        if len(keys) != len(vectors) or len(np.unique(keys)) < len(keys) or (keys < 0).any():
            raise ValueError(f"{len(vectors)} vectors need as many keys, from 0 on and each its own")
        index = _empty_index(vectors.shape[1])
        for rows in blocks(len(vectors), 1, _ADDED_ROWS):
            added = vectors[rows].astype(np.float32)
            try:
                check_unit_rows(added)
            except ValueError as error:
                raise ValueError(f"from row {rows.start} on: {error}") from error
            index.add(keys[rows].astype(np.uint64), added)
        return cls(index)

    def search(
        self, queries: Float32[np.ndarray, "q d"], k: int
    ) -> tuple[Int64[np.ndarray, "q found"], Float32[np.ndarray, "q found"]]:
        """Keys and similarities of about the k nearest of each unit row: k, or all there are; nearest first.

        The similarities are of vectors rounded to float16, off by up to .001: good enough to choose by, not to show or
        to compare with a threshold. Whoever holds the vectors takes a few more and calls `exact.rerank`. ValueError
        for queries of another width or that are no unit vectors, and for k below 1.
        """
        if k < 1:
            raise ValueError(f"a search finds 1 vector or more, not {k}")
        if queries.shape[1] != self.dim:
            raise ValueError(f"this index holds vectors of {self.dim} numbers, not {queries.shape[1]}")
        check_unit_rows(queries)
        k = min(k, len(self))
        keys = np.empty((len(queries), k), np.int64)
        similarity = np.empty((len(queries), k), np.float32)
        if not keys.size:
            return keys, similarity
        found = self._index.search(queries, k, threads=1 if len(queries) == 1 else 0)
        for row, matches in enumerate(found if isinstance(found, Sequence) else [found]):
            if len(matches) < k:  # of many equal vectors only some can be reached
                matches = self._index.search(queries[row], k, exact=True)
            keys[row] = matches.keys
            similarity[row] = 1 - matches.distances
        return keys, np.clip(similarity, -1.0, 1.0, out=similarity)

    def save(self, folder: Path, watermark: str) -> Stamp:
        """Write into `folder`, made where missing, and give the stamp by which `open` takes it back.

        Killed in between, or beside another writer, it leaves files that `open` refuses, or those of before. Erase
        first where vectors were removed for good: files that are replaced keep their bytes on the disk.
        CannotWrite where the system refuses.
        """
        stamp = Stamp(len(self), watermark)
        content = bytes(self._index.save() or b"")  # pyright: ignore[reportUnknownMemberType]
        record = {**_description(stamp), "sha256": _digest(content)}
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise CannotWrite(f"{folder}: cannot be made ({error.strerror or error})") from error
        write_atomically(folder / INDEX_FILE, content)
        write_atomically(folder / STAMP_FILE, json.dumps(record).encode())
        return stamp

    @classmethod
    def open(cls, folder: Path, expected: Stamp) -> "HnswIndex | None":
        """The index saved in `folder`, memory-mapped and not to be written to; None where it is of no use.

        That is where there is none, where its stamp is not the `expected` one, where another version of this format
        or of usearch wrote it, where a single byte of it changed, and where usearch is not installed: search exactly
        then, or build anew, which says what is missing. All bytes are read, since usearch trusts them blindly.
        """
        try:
            record = json.loads((folder / STAMP_FILE).read_bytes())
            digest = record.pop("sha256")
            if record != _description(expected):
                return None
            with (folder / INDEX_FILE).open("rb") as file:  # mapped once: what was checked is what is read
                mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            if _digest(mapped) != digest:
                return None
            index = _empty_index()
            index.view(mapped)  # pyright: ignore[reportUnknownMemberType]
        except (OSError, ValueError, LookupError, AttributeError, TypeError, RuntimeError, FamiliarError):
            return None
        return cls(index, mapped)


def erase(folder: Path) -> None:
    """Overwrite an index with zeros, then remove it; for faces that must really go. Nothing there is nothing to do.

    Half-written files of processes that were killed go with it, so nobody may be writing there. A process that has it
    open finds less and less and key 0, until it looks at the stamp again. File systems that write elsewhere instead
    (copies on write, snapshots, flash) may keep the old bytes: no program can erase those. CannotWrite where the
    system refuses.
    """
    for path in (folder / STAMP_FILE, folder / INDEX_FILE, *folder.glob(_UNFINISHED)):
        try:
            with path.open("r+b") as file:
                left = os.fstat(file.fileno()).st_size
                while left:  # and never shorter: whoever has it mapped would die
                    left -= file.write(bytes(min(left, _PIECE_BYTES)))
                file.flush()
                os.fsync(file.fileno())
            path.unlink()
        except FileNotFoundError:
            continue
        except OSError as error:
            raise CannotWrite(f"{path}: cannot be erased ({error.strerror or error})") from error


def _empty_index(dim: int = 0) -> "Index":
    try:
        from usearch.index import Index
    except ImportError as error:
        raise FamiliarError("an HNSW index needs usearch: pip install 'familiar-faces[hnsw]'") from error
    return Index(
        ndim=dim,
        metric="ip",  # as the cosine, of unit rows, and no lengths to compute
        dtype="f16",
        connectivity=_CONNECTIVITY,
        expansion_add=_EXPANSION_BUILDING,
        enable_key_lookups=False,
    )


def _description(stamp: Stamp) -> dict[str, object]:
    """What has to be as it was for a saved index to be opened, beside its bytes."""
    try:
        usearch = version("usearch")
    except PackageNotFoundError as error:
        raise FamiliarError("usearch is not installed") from error
    return {"format": FORMAT, "usearch": usearch, **asdict(stamp)}


def _digest(content: bytes | mmap.mmap) -> str:
    """SHA-256 of the SHA-256s of the pieces, each by a thread of its own: a gigabyte takes half a second."""
    with memoryview(content) as view:
        pieces = map_blocks(lambda piece: hashlib.sha256(view[piece]).digest(), len(view), 1, _PIECE_BYTES)
    return hashlib.sha256(b"".join(pieces)).hexdigest()
