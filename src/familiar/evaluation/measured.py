"""Labelled photos and their embeddings by one bundle: what every suite starts from."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float32, Int, Int64

from familiar.core.errors import BadDataset, FamiliarError
from familiar.core.types import Crop
from familiar.datasets.folders import IdentityTable, open_photo
from familiar.datasets.pairs import read_lfw_pairs
from familiar.evaluation.judged import Judged, WhichPairs, judge, judge_listed
from familiar.faces.detect import Detector
from familiar.faces.embedder import Embedder, crop_photo, embed_photos
from familiar.metrics.bootstrap import Replicates
from familiar.metrics.pairs import Pairs
from familiar.metrics.retrieval import RankedQueries, rank_queries

SEED = 0  # of everything that is drawn: pairs, triplets, queries, replicates
REPLICATES = 500
MIN_IDENTITIES = 10


@dataclass(frozen=True)
class Asked:
    """What a user may ask beside the suites.

    `suites` by name; none means those that apply. `pairs`: every pair there is, or `pair_count` drawn, half of them
    same ("balanced") or as they come ("natural"); `pairs_file` (LFW's form) instead of them. `slices`: a CSV of
    attributes, `by` some of its columns.
    """

    suites: tuple[str, ...] = ()
    pairs: WhichPairs = "all"
    pair_count: int = 50_000
    pairs_file: Path | None = None
    slices: Path | None = None
    by: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class Measured:
    """Embedded photos and what was asked about them. `skipped` could not be read or held no face.

    `pairs` are the rows of the pairs file. `trained_on`: photos of the same data that the model learned from, where
    that is known. `flip`: each photo was averaged with its mirror image.
    """

    embedder: Embedder
    table: IdentityTable
    embeddings: Float32[np.ndarray, "n d"]
    skipped: tuple[FamiliarError, ...] = ()
    pairs: Pairs | None = None
    trained_on: IdentityTable | None = None
    detector: Detector | None = None
    flip: bool = False
    asked: Asked = field(default_factory=Asked)

    @property
    def labels(self) -> Int64[np.ndarray, " n"]:
        return self.table.labels

    @cached_property
    def ranked(self) -> RankedQueries:
        """What each photo finds among all others: the work that retrieval and triplets share."""
        return rank_queries(self.embeddings, self.labels)

    @cached_property
    def judged(self) -> Judged:
        """The pairs asked for, and how similar they are."""
        if self.pairs is not None:
            return judge_listed(self.embeddings, self.pairs)
        calibration = self.embedder.metadata.calibration
        return judge(self.embeddings, self.labels, self.asked.pairs, self.asked.pair_count, calibration, SEED)

    def rows_of(self, identities: Iterable[str]) -> "Measured":
        """The photos of these identities alone; pairs of a file are left behind."""
        wanted = set(identities)
        keep = np.array([name in wanted for name in self.table.names], bool)
        rows = np.flatnonzero(keep[self.labels])
        return replace(self, table=self.table.rows(rows), embeddings=self.embeddings[rows], pairs=None)

    def crop(self, row: int) -> Crop:
        """A photo as the network saw it, read again."""
        return crop_photo(
            self.table.photos[row],
            self.embedder.metadata.preprocessing,
            self.detector,
            open_photo=open_photo,
        )

    def sample_of(self, most: int) -> Int64[np.ndarray, " k"]:
        """Rows of whole identities, drawn, at most so many; of a single one, where none is that small."""
        if len(self.table) <= most:
            return np.arange(len(self.table))
        order = np.random.default_rng(SEED).permutation(len(self.table.names))
        photos = self.table.photos_per_identity[order]
        fitting = photos <= most
        chosen = order[fitting & (np.cumsum(photos * fitting) <= most)]
        if not len(chosen):
            return np.flatnonzero(self.labels == order[0])[:most]
        return np.flatnonzero(np.isin(self.labels, chosen))


@dataclass(frozen=True, eq=False)
class Outcome:
    """One suite's part of the results, and the replicates of its headline figures, by which two models are compared.

    A replicate is named by the figure's path in `figures`, as "tar_at_far.1e-2"; so are intervals.
    """

    figures: dict[str, Any]
    replicates: Replicates = field(default_factory=dict)


def measure(
    embedder: Embedder,
    table: IdentityTable,
    asked: Asked | None = None,
    detector: Detector | None = None,
    *,
    flip: bool = False,
    trained_on: IdentityTable | None = None,
    on_batch: Callable[[int], None] = lambda _: None,
) -> Measured:
    """Embed the photos, or only those a pairs file names. Pairs of a photo that was skipped are left out."""
    asked = asked or Asked()
    pairs = None
    if asked.pairs_file is not None:
        pairs = read_lfw_pairs(asked.pairs_file, table)
        used, places = np.unique(np.concatenate([pairs.left, pairs.right]), return_inverse=True)
        table = table.rows(used)
        left, right = np.split(places.astype(np.int64), 2)
        pairs = Pairs(left, right, pairs.same)
    embedded = embed_photos(
        embedder, table.photos, detector, open_photo=open_photo, flip=flip, on_batch=on_batch
    )
    if not len(embedded.rows):
        raise BadDataset(
            "not one of the photos could be embedded; the first reason: " + str(embedded.skipped[0])
        )
    if pairs is not None:
        pairs = of_rows(pairs, embedded.rows, len(table))
    return Measured(
        embedder,
        table.rows(embedded.rows),
        embedded.embeddings,
        embedded.skipped,
        pairs,
        trained_on,
        detector,
        flip,
        asked,
    )


def of_rows(pairs: Pairs, rows: Sequence[int] | Int64[np.ndarray, " k"], total: int) -> Pairs:
    """The pairs both of whose photos are among `rows`, renumbered."""
    place = np.full(total, -1)
    place[rows] = np.arange(len(rows))
    left, right = place[pairs.left], place[pairs.right]
    kept = (left >= 0) & (right >= 0)
    return Pairs(left[kept], right[kept], pairs.same[kept])


def resampled(identity: Int[np.ndarray, " k"], replicates: Callable[[], Replicates]) -> Replicates:
    """Empty with fewer than ten identities among those measured: resampling them says nothing about others."""
    return replicates() if len(np.unique(identity)) >= MIN_IDENTITIES else {}
