"""Clustering of an album of any size: in memory, or with files for what does not fit into it.

The nearest neighbors of every vector are searched for once, in batches that are kept in a folder: a search that was
interrupted goes on, and several processes may divide the batches. Then clusters merge in rounds. At last the means of
the clusters are searched for in the same way: there are fewer of them, and they have less noise than single vectors, so
parts of one individual that the first search missed are found.
"""

import io
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float32, Int64, UInt64

from familiar.core.blockwise import blocks
from familiar.core.calibration import Calibration
from familiar.core.errors import CannotWrite
from familiar.core.files import write_atomically
from familiar.neighbors.comparison import MIN_QUALITY, Comparison
from familiar.neighbors.inverted_file import InvertedFile, default_groups
from familiar.neighbors.labels import relabel_by_first_appearance
from familiar.neighbors.rounds import Clusters, Rounds, distinct_keys, pair_keys
from familiar.neighbors.whitening import evenly_spaced

MAX_IN_MEMORY = 100_000
"""Faces of an album that are clustered in memory, as in a gallery; more are clustered with files."""
SAMPLE_ROWS = 20_000
"""So many faces tell how those of a larger album are compared."""
NEIGHBORS = 24
MARGIN = 0.1
"""Pairs that are less similar than the threshold by more are forgotten."""
BATCH_ROWS = 1 << 19
"""Vectors whose neighbors are searched for at once, and stored in one file."""
MAX_REPEATS, MIN_MERGED_SHARE = 3, 0.005
"""The means are searched for so often at most, and again only if so many of the clusters have merged."""
_VECTORS, _GROUPED, _GROUPS = "vectors.npy", "grouped.npy", "groups.npz"


class LargeAlbum:
    """Clusters the faces of one species, of which there may be millions.

    All are compared as `Comparison` measures it on some of them. Up to 100,000 are clustered in memory, more with
    files.

    Args:
        read: yields the embeddings of rising rows, as unit rows.
        faces: how many there are, at least one.
        calibration: of the model, for an album that shows too little.
        folder: for files: empty or missing, or with those of the same faces.
        on_progress: called with what is done now, how much of it is done, and how much there is.

    Attributes:
        MIN_QUALITY: faces of a lower quality, in [0, 1], are better left out.
        comparison: how the faces are compared.

    Raises:
        CannotWrite: the system refuses, as for lack of space.
    """

    MIN_QUALITY: ClassVar[float] = MIN_QUALITY

    def __init__(
        self,
        read: Callable[[Int64[np.ndarray, " m"]], Iterator[Float32[np.ndarray, "p d"]]],
        faces: int,
        calibration: Calibration,
        folder: Path,
        on_progress: Callable[[str, int, int], None] = lambda _what, _done, _all: None,
    ) -> None:
        on_progress("measuring", 0, 1)
        self._folder, self._on_progress = folder, on_progress
        is_large = faces > MAX_IN_MEMORY
        self._embeddings = np.concatenate(list(read(evenly_spaced(faces, SAMPLE_ROWS if is_large else faces))))
        self.comparison = Comparison.measure(self._embeddings, calibration)
        self._batches: list[slice] = []
        if is_large:
            if not (folder / _GROUPS).exists():
                self._group(read, faces)
            with np.load(folder / _GROUPS) as saved:
                self._groups = InvertedFile(np.load(folder / _GROUPED, mmap_mode="r"), **saved)
            self._batches = list(blocks(faces, 1, BATCH_ROWS))

    def search(self, share: int = 0, shares: int = 1) -> bool:
        """Do the longest step of clustering with files: search for the neighbors that no earlier call has found.

        Args:
            share: number of the share to search for, from 0.
            shares: processes that divide the search among them, perhaps on other machines.

        Returns:
            Whether all is done, also what others do.

        Raises:
            CannotWrite: the system refuses.
        """
        for number in range(share, len(self._batches), shares):
            self._on_progress("searching for neighbors", number, len(self._batches))
            path, batch = self._batch_path(number), self._batches[number]
            if not path.exists():
                nearest, similarity = self._groups.search(np.arange(batch.start, batch.stop, dtype=np.int64), NEIGHBORS)
                _save(path, nearest=nearest, similarity=similarity.astype(np.float16))
        return all(self._batch_path(number).exists() for number in range(len(self._batches)))

    def cluster(self) -> Int64[np.ndarray, " n"]:
        """Cluster the faces, once all neighbors are known.

        Returns:
            The cluster of each row, numbered by first appearance.
        """
        if not self._batches:
            return self.comparison.cluster(self._embeddings)
        threshold = self.comparison.threshold
        directions = np.load(self._folder / _GROUPED, mmap_mode="c")  # what is written to it stays in memory
        clusters = Clusters.from_rows(directions)
        pairs = self._near_rows(threshold - MARGIN)
        for repeat in range(MAX_REPEATS + 1):
            self._on_progress("merging clusters", repeat, MAX_REPEATS + 1)
            before = len(clusters)
            Rounds(clusters, pairs, floor=threshold - MARGIN).merge_down_to(threshold)
            if repeat == MAX_REPEATS or (repeat and before - len(clusters) < MIN_MERGED_SHARE * before):
                break
            pairs = _near_means(clusters, threshold - MARGIN)
        cluster = np.empty(len(directions), np.int64)
        cluster[self._groups.original] = clusters.cluster()
        return relabel_by_first_appearance(cluster)

    def _group(
        self, read: Callable[[Int64[np.ndarray, " m"]], Iterator[Float32[np.ndarray, "p d"]]], faces: int
    ) -> None:
        """Write the faces as they are compared, and group after group."""
        shape, start = (faces, self._embeddings.shape[1]), 0
        vectors, grouped = (_reserve_array(self._folder / name, shape) for name in (_VECTORS, _GROUPED))
        for part in read(np.arange(faces)):
            vectors[start : start + len(part)] = self.comparison.apply(part)
            start += len(part)
        self._on_progress("grouping", 0, 1)
        groups = InvertedFile.build(vectors, default_groups(faces), grouped)
        grouped.flush()
        _save(self._folder / _GROUPS, original=groups.original, centroids=groups.centroids, starts=groups.starts)

    def _batch_path(self, number: int) -> Path:
        return self._folder / f"neighbors-{number:05d}.npz"

    def _near_rows(self, floor: float) -> UInt64[np.ndarray, " p"]:
        """Read the pairs of neighbors that are similar enough."""
        pairs = [np.empty(0, np.uint64)]
        for number, batch in enumerate(self._batches):
            with np.load(self._batch_path(number)) as saved:
                near = saved["similarity"] >= floor
                query = np.nonzero(near)[0] + batch.start
                pairs.append(pair_keys(query, saved["nearest"][near]))
        return distinct_keys(np.concatenate(pairs))


def _near_means(clusters: Clusters, floor: float) -> UInt64[np.ndarray, " p"]:
    """Search for pairs of clusters by their means."""
    existing = np.flatnonzero(clusters.sizes)
    means = clusters.directions[existing]
    groups = InvertedFile.build(means, default_groups(len(existing)), np.empty_like(means))
    nearest, similarity = groups.search(np.arange(len(existing)), NEIGHBORS)
    query, rank = np.nonzero(similarity >= floor)
    cluster = existing[groups.original]
    return pair_keys(cluster[query], cluster[nearest[query, rank]])


def _reserve_array(path: Path, shape: tuple[int, ...]) -> np.memmap:
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


def _save(path: Path, **arrays: Any) -> None:
    content = io.BytesIO()
    np.savez(content, **arrays)
    write_atomically(path, content.getvalue())
