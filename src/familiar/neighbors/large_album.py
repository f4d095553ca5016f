"""Clustering of an album of any size: in memory, or with files if it is too large for that."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import ClassVar

import numpy as np
from jaxtyping import Float32, Int64

from familiar.neighbors.album import MIN_QUALITY, cluster_measured, evenly_spaced, measure_album
from familiar.neighbors.large_clustering import LargeClustering, reserve_array
from familiar.neighbors.purity import split_mixed

MAX_IN_MEMORY = 100_000
"""Faces of an album that are clustered in memory, as in a gallery; more are clustered with files."""
SAMPLE_ROWS = 20_000
"""So many faces tell how those of a larger album are compared."""


class LargeAlbum:
    """Clusters the faces of one species, of which there may be millions.

    Up to 100,000 are clustered as by `cluster_album`; more by `LargeClustering`, whitened and from the threshold that
    they themselves suggest, with mixed clusters split, but without out-of-domain clusters.

    Args:
        read: yields the embeddings of rising rows, as unit rows.
        faces: how many there are, at least one.
        threshold: of the model, for an album that shows too little.
        folder: for files; those of other embeddings must not be in it.
        on_progress: called with what is done now, how much of it is done, and how much there is.

    Attributes:
        MIN_QUALITY: faces of a lower quality, in [0, 1], are better left out.
        threshold: similarity that clusters are made at.
        is_estimated: whether the faces themselves told the threshold; otherwise it is the model's.

    Raises:
        CannotWrite: the system refuses, as for lack of space.
    """

    MIN_QUALITY: ClassVar[float] = MIN_QUALITY

    def __init__(
        self,
        read: Callable[[Int64[np.ndarray, " m"]], Iterator[Float32[np.ndarray, "p d"]]],
        faces: int,
        threshold: float,
        folder: Path,
        on_progress: Callable[[str, int, int], None] = lambda _what, _done, _all: None,
    ) -> None:
        on_progress("measuring", 0, 1)
        is_large = faces > MAX_IN_MEMORY
        self._embeddings = np.concatenate(list(read(evenly_spaced(faces, SAMPLE_ROWS if is_large else faces))))
        self._album = measure_album(self._embeddings, threshold)
        self.threshold = threshold if self._album is None else self._album[1].threshold
        self.is_estimated = self._album is not None
        self._clustering: LargeClustering | None = None
        if is_large:
            path = folder / "vectors"
            if not path.exists():
                draft = reserve_array(folder / "vectors.draft", (faces, self._embeddings.shape[1]))
                start = 0
                for part in read(np.arange(faces)):
                    draft[start : start + len(part)] = part if self._album is None else self._album[0].apply(part)
                    start += len(part)
                draft.flush()
                (folder / "vectors.draft").replace(path)
            self._embeddings = np.load(path, mmap_mode="r")
            self._clustering = LargeClustering(self._embeddings, folder, on_progress)

    def search(self, share: int = 0, shares: int = 1) -> bool:
        """Do the longest step of clustering with files: search for neighbors, as `LargeClustering.search` does.

        Args:
            share: number of the share to search for, from 0.
            shares: processes that divide the search among them.

        Returns:
            Whether all is done, also what others do.
        """
        return self._clustering is None or self._clustering.search(share, shares)

    def cluster(self) -> Int64[np.ndarray, " n"]:
        """Cluster the faces, once all neighbors are known.

        Returns:
            The cluster of each row, numbered by first appearance.
        """
        if self._clustering is None:
            return cluster_measured(self._embeddings, self._album, self.threshold)
        clusters = self._clustering.clusters_at(self.threshold)
        if self._album is None:
            return clusters
        return split_mixed(self._embeddings, clusters, self.threshold, self._album[1].uncertainty)
