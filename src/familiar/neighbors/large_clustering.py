"""Clustering of millions of unit vectors, with files for what does not fit into memory.

The nearest neighbors of every vector are searched for once, in batches that are kept in a folder: a search that was
interrupted goes on, and several processes may divide the batches. Then clusters merge in rounds. At last the means of
the clusters are searched for in the same way: there are fewer of them, and they have less noise than single vectors, so
parts of one individual that the first search missed are found.
"""

import hashlib
import io
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int64

from familiar.core.blockwise import blocks
from familiar.core.errors import CannotWrite
from familiar.core.files import write_atomically
from familiar.neighbors.inverted_file import QUERY_BATCH, InvertedFile, Rows, default_groups
from familiar.neighbors.labels import relabel_by_first_appearance
from familiar.neighbors.rounds import MARGIN, Clusters, Pairs, merge_in_rounds

NEIGHBORS = 24
BATCH_ROWS = 8 * QUERY_BATCH
"""Vectors whose neighbors are searched for at once, and stored in one file."""
MAX_REPEATS, MIN_MERGED_SHARE = 3, 0.005
"""The means are searched for so often at most, and again only if so many of the clusters have merged."""
_GROUPED, _GROUPS = "grouped.npy", "groups.npz"
_CHECKED_ROWS = 10_000


class LargeClustering:
    """Clusters the rows of one collection.

    Args:
        rows: unit rows, such as a mapped file.
        folder: keeps what was searched for; empty or missing, or with that of the same rows.
        on_progress: called with what is done now, how much of it is done, and how much there is.

    Raises:
        CannotWrite: the system refuses, as for lack of space.
        ValueError: too many rows.
    """

    def __init__(
        self, rows: Rows, folder: Path, on_progress: Callable[[str, int, int], None] = lambda _what, _done, _all: None
    ) -> None:
        self.folder = folder
        self._on_progress = on_progress
        self._inverted_file = _open_groups(rows, folder) or self._group(rows)
        self._batches = list(blocks(len(rows), 1, BATCH_ROWS))

    def search(self, share: int = 0, shares: int = 1) -> bool:
        """Search for the neighbors that no earlier call has found.

        Args:
            share: number of the share to search for, from 0.
            shares: processes that divide the batches among them, perhaps on other machines.

        Returns:
            Whether all batches are done, also those of others.

        Raises:
            CannotWrite: the system refuses.
        """
        for number in range(share, len(self._batches), shares):
            self._on_progress("searching for neighbors", number, len(self._batches))
            path = self._batch_path(number)
            if not path.exists():
                nearest, similarity = self._inverted_file.search(_positions(self._batches[number]), NEIGHBORS)
                _save(path, nearest=nearest, similarity=similarity.astype(np.float16))
        return all(self._batch_path(number).exists() for number in range(len(self._batches)))

    def clusters_at(self, threshold: float) -> Int64[np.ndarray, " n"]:
        """Cluster at a threshold, once all neighbors are known.

        Args:
            threshold: similarity in [-1, 1], as for `clustering.cluster`.

        Returns:
            The cluster of each row, numbered by first appearance.

        Raises:
            ValueError: a threshold outside its range.
        """
        if not -1.0 <= threshold <= 1.0:
            raise ValueError(f"the threshold must lie in [-1, 1], got {threshold}")
        directions = np.load(self.folder / _GROUPED, mmap_mode="c")  # what is written to it stays in memory
        clusters = Clusters.from_rows(directions)
        self._on_progress("merging clusters", 0, MAX_REPEATS + 1)
        merge_in_rounds(clusters, self._near_rows(threshold), threshold)
        for repeat in range(1, MAX_REPEATS + 1):
            self._on_progress("merging clusters", repeat, MAX_REPEATS + 1)
            before = len(clusters)
            merge_in_rounds(clusters, _near_means(clusters, threshold), threshold)
            if before - len(clusters) < MIN_MERGED_SHARE * before:
                break
        cluster = np.empty(len(directions), np.int64)
        cluster[self._inverted_file.original] = clusters.cluster
        return relabel_by_first_appearance(cluster)

    def _group(self, rows: Rows) -> InvertedFile:
        for path in self.folder.glob("*.np[yz]"):  # of other rows
            path.unlink()
        self._on_progress("grouping", 0, 1)
        grouped = reserve_array(self.folder / _GROUPED, rows.shape)
        inverted_file = InvertedFile.build(rows, default_groups(len(rows)), grouped)
        grouped.flush()
        names = ("original", "starts", "centroids")
        _save(
            self.folder / _GROUPS,
            digest=np.frombuffer(_digest(rows), np.uint8),
            **{name: getattr(inverted_file, name) for name in names},
        )
        return inverted_file

    def _batch_path(self, number: int) -> Path:
        return self.folder / f"neighbors-{number:05d}.npz"

    def _near_rows(self, threshold: float) -> Pairs:
        """Read the pairs of neighbors that are similar enough."""
        keys = [np.empty(0, np.uint64)]
        for number, batch in enumerate(self._batches):
            with np.load(self._batch_path(number)) as saved:
                near = saved["similarity"] >= threshold - MARGIN
                query = np.nonzero(near)[0].astype(np.int32) + np.int32(batch.start)
                keys.append(Pairs.distinct(query, saved["nearest"][near]).keys())
        return Pairs.from_keys(np.concatenate(keys))


def _near_means(clusters: Clusters, threshold: float) -> Pairs:
    """Search for pairs of clusters by their means."""
    existing = np.flatnonzero(clusters.sizes).astype(np.int32)
    means = clusters.directions[existing]
    inverted_file = InvertedFile.build(means, default_groups(len(existing)), np.empty_like(means))
    nearest, similarity = inverted_file.search(np.arange(len(existing)), NEIGHBORS)
    query, rank = np.nonzero(similarity >= threshold - MARGIN)
    cluster = existing[inverted_file.original]
    return Pairs.distinct(cluster[query], cluster[nearest[query, rank]])


def reserve_array(path: Path, shape: tuple[int, ...]) -> np.memmap:
    """Create a file of float16 that is written as an array. Its space is reserved at once.

    Raises:
        CannotWrite: there is not enough space, or the system refuses otherwise.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        array = np.lib.format.open_memmap(path, "w+", np.float16, shape)
        if hasattr(os, "posix_fallocate"):  # a full disk would end the process later, without a message
            with path.open("r+b") as file:
                os.posix_fallocate(file.fileno(), 0, path.stat().st_size)
    except OSError as error:
        raise CannotWrite(f"{path}: cannot be written ({error.strerror or error})") from error
    return array


def _open_groups(rows: Rows, folder: Path) -> InvertedFile | None:
    """Open the groups of the same rows; None: there are none."""
    try:
        with np.load(folder / _GROUPS) as saved:
            if saved["digest"].tobytes() != _digest(rows):
                return None
            grouped = np.load(folder / _GROUPED, mmap_mode="r")
            return InvertedFile(grouped, saved["original"], saved["centroids"], saved["starts"])
    except (OSError, ValueError, KeyError):
        return None


def _positions(batch: slice) -> Int64[np.ndarray, " b"]:
    return np.arange(batch.start, batch.stop, dtype=np.int64)


def _digest(rows: Rows) -> bytes:
    """Hash the number of rows and some of them."""
    checked = rows[np.linspace(0, len(rows) - 1, min(len(rows), _CHECKED_ROWS)).astype(np.int64)]
    return hashlib.sha256(repr(rows.shape).encode() + np.ascontiguousarray(checked).tobytes()).digest()


def _save(path: Path, **arrays: Any) -> None:
    content = io.BytesIO()
    np.savez(content, **arrays)
    write_atomically(path, content.getvalue())
