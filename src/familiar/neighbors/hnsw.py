"""Approximate nearest-neighbor search with an HNSW graph (arXiv 1603.09320), built and searched by usearch.

A saved index is only a cache of vectors stored elsewhere. A stamp is saved with it, and an index that does not agree
with the stamp, to the last byte, is not opened. Independent of galleries.
"""

import hashlib
import json
import mmap
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float16, Float32, Int64

from familiar.core.blockwise import blocks, map_blocks
from familiar.core.errors import FamiliarError
from familiar.core.files import erase_file, make_folder, unfinished_files, write_atomically
from familiar.core.json_text import parse_json
from familiar.core.vectors import check_unit_rows

if TYPE_CHECKING:
    from usearch.index import Index

FORMAT = "familiar-index/1"  # of the two files
INDEX_FILE = "faces.hnsw"
STAMP_FILE = "faces.json"
# For a recall@10 of 0.99 among 100,000 vectors and more, distributed as an embedder's: benchmarks/gallery.py search.
_CONNECTIVITY = 32
_EXPANSION_BUILDING = 128
_EXPANSION_SEARCHING = 128  # up to 100,000 vectors; beyond, doubled for every ten times as many
_ADDED_ROWS = 10_000  # added at once: Ctrl-C takes effect in between
_PIECE_BYTES = 1 << 24  # hashed by one thread


@dataclass(frozen=True)
class Stamp:
    """Identifies the vectors that an index was built from.

    Attributes:
        count: number of vectors.
        watermark: text of the caller's that changes whenever the vectors do. It should also name the collection, so
            that an index copied from another one is not taken for its own.
    """

    count: int
    watermark: str


class HnswIndex:
    """Searchable float16 vectors by key. Made by `build` or `open`.

    Building runs in as many threads as there are cores, and their order decides the shape of the graph: two indexes
    of the same vectors may find different neighbors, among equally near ones and, rarely, others.

    Args:
        index: the graph, as usearch has it.
        mapped: the file that the index reads from; None: the index is in memory.
    """

    def __init__(self, index: "Index", mapped: mmap.mmap | None = None) -> None:
        self._index = index
        self._index.expansion_search = round(_EXPANSION_SEARCHING * max(1.0, len(index) / 100_000) ** 0.3)
        self._mapped = mapped  # outlives the index, which reads from it

    def __len__(self) -> int:
        return len(self._index)

    @property
    def dim(self) -> int:
        """Dimension of the vectors."""
        return self._index.ndim

    @classmethod
    def build(
        cls,
        vectors: Float32[np.ndarray, "n d"] | Float16[np.ndarray, "n d"],
        keys: Int64[np.ndarray, " keys"],
    ) -> "HnswIndex":
        """Build an index. Takes minutes for a million vectors.

        Args:
            vectors: unit rows.
            keys: one for each row, distinct and not negative.

        Raises:
            FamiliarError: usearch is not installed.
            ValueError: rows that are not unit vectors, or keys that are negative, repeated or not one per row.
        """
        if vectors.ndim != 2 or keys.ndim != 1:
            raise ValueError(f"vectors are rows (n, d) and keys are (n,), not {vectors.shape} and {keys.shape}")
        if len(keys) != len(vectors) or len(np.unique(keys)) < len(keys) or (keys < 0).any():
            raise ValueError(f"{len(vectors)} vectors need as many keys, distinct and not negative")
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
    ) -> tuple[Int64[np.ndarray, "q hits"], Float32[np.ndarray, "q hits"]]:
        """Find about the k nearest vectors of each query.

        Args:
            queries: unit rows.
            k: hits per query, at least 1.

        Returns:
            Keys and similarities, nearest first: k, or all there are. The similarities are of vectors rounded to
            float16, off by up to 0.001: good enough for choosing candidates, but not to show or to compare with a
            threshold. A caller that has the vectors takes a few more and calls `rerank`.

        Raises:
            ValueError: queries of another dimension or that are not unit vectors, or k below 1.
        """
        if k < 1:
            raise ValueError(f"k must be at least 1, got {k}")
        if queries.ndim != 2 or queries.shape[1] != self.dim:
            raise ValueError(f"this index takes rows (q, {self.dim}), not {queries.shape}")
        check_unit_rows(queries)
        k = min(k, len(self))
        keys = np.empty((len(queries), k), np.int64)
        similarity = np.empty((len(queries), k), np.float32)
        if not keys.size:
            return keys, similarity
        results = self._index.search(queries, k, threads=1 if len(queries) == 1 else 0)
        for row, matches in enumerate(results if isinstance(results, Sequence) else [results]):
            if len(matches) < k:  # of many equal vectors the graph reaches only some
                matches = self._index.search(queries[row], k, exact=True)
            keys[row] = matches.keys
            similarity[row] = 1 - matches.distances
        return keys, np.clip(similarity, -1.0, 1.0, out=similarity)

    def save(self, folder: Path | str, watermark: str) -> Stamp:
        """Save the index into a folder.

        If the process is killed, or another one writes at the same time, the files are those of before or ones that
        `open` rejects. Call `erase` first if vectors were removed for good: replaced files keep their bytes on the
        disk.

        Args:
            folder: created if missing.
            watermark: see `Stamp`.

        Returns:
            The stamp to give to `open`.

        Raises:
            CannotWrite: the system refuses.
        """
        folder, stamp = Path(folder), Stamp(len(self), watermark)
        content = bytes(self._index.save() or b"")  # pyright: ignore[reportUnknownMemberType]
        record = {**_describe_stamp(stamp), "sha256": _pieces_sha256(content)}
        make_folder(folder)
        write_atomically(folder / INDEX_FILE, content)
        write_atomically(folder / STAMP_FILE, json.dumps(record).encode())
        return stamp

    @classmethod
    def open(cls, folder: Path | str, expected: Stamp) -> "HnswIndex | None":
        """Open a saved index, memory-mapped and read-only.

        Reads and checks all bytes, since usearch does not.

        Args:
            folder: where `save` wrote the index.
            expected: stamp of the vectors as they are now.

        Returns:
            The index, or None if there is none, its stamp is not the `expected` one, another version of familiar
            or of usearch wrote it, a byte of it changed, or usearch is not installed. Then search exactly, or `build`
            an index, which reports what is missing.
        """
        folder = Path(folder)
        try:
            record = parse_json((folder / STAMP_FILE).read_bytes())
            digest = record.pop("sha256")
            if record != _describe_stamp(expected):
                return None
            with (folder / INDEX_FILE).open("rb") as file:  # mapped once: the bytes checked are the bytes read
                mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            if _pieces_sha256(mapped) != digest:
                return None
            index = _empty_index()
            index.view(mapped)  # pyright: ignore[reportUnknownMemberType]
        except (OSError, ValueError, LookupError, AttributeError, TypeError, RuntimeError, FamiliarError):
            return None
        return cls(index, mapped)


def erase(folder: Path) -> None:
    """Overwrite a saved index with zeros and remove it, for faces that must not remain on the disk.

    Does nothing if there is none. Half-written files of killed processes are erased too, so no other process may be
    writing there. A process that has the index open gets fewer and fewer hits, and key 0, until it checks the stamp
    again.

    Raises:
        CannotWrite: the system refuses.
    """
    for path in (folder / STAMP_FILE, folder / INDEX_FILE, *unfinished_files(folder)):
        erase_file(path)


def _empty_index(dim: int = 0) -> "Index":
    try:
        from usearch.index import Index
    except ImportError as error:
        raise FamiliarError("an HNSW index needs usearch: pip install 'familiar-faces[hnsw]'") from error
    return Index(
        ndim=dim,
        metric="ip",  # equals the cosine for unit rows, without computing norms
        dtype="f16",
        connectivity=_CONNECTIVITY,
        expansion_add=_EXPANSION_BUILDING,
        enable_key_lookups=False,
    )


def _describe_stamp(stamp: Stamp) -> dict[str, object]:
    """Return the header of a saved index, which is opened only if all of this is the same again."""
    try:
        usearch = version("usearch")
    except PackageNotFoundError as error:
        raise FamiliarError("usearch is not installed") from error
    return {"format": FORMAT, "usearch": usearch, **asdict(stamp)}


def _pieces_sha256(content: bytes | mmap.mmap) -> str:
    """Compute the SHA-256 of the pieces' SHA-256s, a thread for each: half a second for a gigabyte."""
    with memoryview(content) as view:
        pieces = map_blocks(lambda piece: hashlib.sha256(view[piece]).digest(), len(view), 1, _PIECE_BYTES)
    return hashlib.sha256(b"".join(pieces)).hexdigest()
