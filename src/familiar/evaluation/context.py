"""Labeled photos and their embeddings by one bundle: what every suite starts from."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool, Float32, Int, Int64

from familiar.core.errors import BadDataset, FamiliarError
from familiar.core.types import Crop
from familiar.datasets.folders import IdentityTable, open_photo
from familiar.datasets.pairs import read_lfw_pairs
from familiar.detection.detectors import Detector
from familiar.embedding.embedder import Embedder, crop_photo, embed_photos
from familiar.evaluation.verification_pairs import ScoredPairs, WhichPairs, score_listed_pairs, score_pairs
from familiar.metrics.bootstrap import Replicates
from familiar.metrics.pairs import Pairs
from familiar.metrics.retrieval import RankedQueries, rank_queries

SEED = 0  # of everything that is drawn: pairs, triplets, queries, replicates
REPLICATES = 500
MIN_IDENTITIES = 10
FEW_IDENTITIES = 50  # in a sample; fewer say little of others


@dataclass(frozen=True)
class EvaluationOptions:
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
class EvaluationContext:
    """Embedded photos and what was asked about them. `skipped` could not be read or held no face.

    `whole` is the data as it was given, `rows` which of its rows `table` has. `pairs` are of the pairs file.
    `trained_on`: photos of the same data that the model learned from, where that is known; `known` are the identities
    it learned from or was chosen by. `flip`: each photo was averaged with its mirror image.
    """

    embedder: Embedder
    table: IdentityTable
    embeddings: Float32[np.ndarray, "n d"]
    whole: IdentityTable
    rows: Int64[np.ndarray, " n"]
    skipped: tuple[FamiliarError, ...] = ()
    pairs: Pairs | None = None
    trained_on: IdentityTable | None = None
    known: frozenset[str] = frozenset()
    detector: Detector | None = None
    flip: bool = False
    asked: EvaluationOptions = field(default_factory=EvaluationOptions)

    @property
    def labels(self) -> Int64[np.ndarray, " n"]:
        return self.table.labels

    @cached_property
    def ranked(self) -> RankedQueries:
        """What each photo finds among all others: the work that retrieval and triplets share."""
        return rank_queries(self.embeddings, self.labels)

    @cached_property
    def judged(self) -> ScoredPairs:
        """The pairs asked for, and how similar they are."""
        if self.pairs is not None:
            return score_listed_pairs(self.embeddings, self.pairs)
        calibration = self.embedder.metadata.calibration
        return score_pairs(self.embeddings, self.labels, self.asked.pairs, self.asked.pair_count, calibration, SEED)

    def of_rows(self, rows: Int64[np.ndarray, " k"]) -> "EvaluationContext":
        """These photos alone, with the pairs between them."""
        return replace(
            self,
            table=self.table.rows(rows),
            embeddings=self.embeddings[rows],
            rows=self.rows[rows],
            pairs=None if self.pairs is None else restrict_pairs(self.pairs, rows, len(self.table))[0],
        )

    def of_identities(self, names: Iterable[str]) -> "EvaluationContext":
        """The photos of these identities alone."""
        wanted = set(names)
        keep = np.array([name in wanted for name in self.table.names], bool)
        return self.of_rows(np.flatnonzero(keep[self.labels]))

    def crop(self, row: int) -> Crop:
        """A photo as the network saw it, read again."""
        return crop_photo(
            self.table.photos[row],
            self.embedder.metadata.preprocessing,
            self.detector,
            open_photo=open_photo,
        )

    def sample_of(self, most: int) -> Int64[np.ndarray, " k"]:
        """Rows drawn, at most so many: of whole identities, or where that would be few, as many of each of more."""
        if len(self.table) <= most:
            return np.arange(len(self.table))
        generator = np.random.default_rng(SEED)
        order = generator.permutation(len(self.table.names))
        photos = self.table.photos_per_identity
        fitting = order[photos[order] <= most]
        chosen = fitting[np.cumsum(photos[fitting]) <= most]
        wanted = min(FEW_IDENTITIES, len(order), max(1, most // 2))
        if len(chosen) >= wanted:
            return np.flatnonzero(np.isin(self.labels, chosen))
        each = most // wanted
        shuffled = generator.permutation(len(self.table))
        rows = [shuffled[self.labels[shuffled] == label][:each] for label in order[:wanted]]
        return np.sort(np.concatenate(rows))


@dataclass(frozen=True, eq=False)
class Outcome:
    """One suite's part of the results, and the replicates of its headline figures, by which two models are compared.

    A replicate is named by the figure's path in `figures`, as "tar_at_far.1e-2"; so are intervals.
    """

    figures: dict[str, Any]
    replicates: Replicates = field(default_factory=dict)


def build_context(
    embedder: Embedder,
    whole: IdentityTable,
    asked: EvaluationOptions | None = None,
    detector: Detector | None = None,
    *,
    rows: Int64[np.ndarray, " k"] | None = None,
    flip: bool = False,
    trained_on: IdentityTable | None = None,
    known: frozenset[str] = frozenset(),
    on_batch: Callable[[int], None] = lambda _: None,
) -> EvaluationContext:
    """Embed the photos (`rows`: only these), or only those a pairs file names.

    Pairs of a photo that was skipped, or is not among `rows`, are left out.
    """
    asked = asked or EvaluationOptions()
    rows = np.arange(len(whole)) if rows is None else rows
    pairs = None
    if asked.pairs_file is not None:
        pairs = read_lfw_pairs(asked.pairs_file, whole)
        rows = np.intersect1d(rows, np.concatenate([pairs.left, pairs.right]))
    photos = [whole.photos[row] for row in rows.tolist()]
    embedded = embed_photos(embedder, photos, detector, open_photo=open_photo, flip=flip, on_batch=on_batch)
    if not len(embedded.rows):
        reason = f"; the first reason: {embedded.skipped[0]}" if embedded.skipped else ""
        raise BadDataset(f"not one of the photos could be embedded{reason}")
    kept = rows[embedded.rows]
    return EvaluationContext(
        embedder,
        whole.rows(kept),
        embedded.embeddings,
        whole,
        kept,
        embedded.skipped,
        None if pairs is None else restrict_pairs(pairs, kept, len(whole))[0],
        trained_on,
        known,
        detector,
        flip,
        asked,
    )


def restrict_pairs(pairs: Pairs, rows: Int64[np.ndarray, " k"], total: int) -> tuple[Pairs, Bool[np.ndarray, " p"]]:
    """The pairs both of whose photos are among `rows` of `total`, renumbered, and which those are."""
    place = np.full(total, -1)
    place[rows] = np.arange(len(rows))
    left, right = place[pairs.left], place[pairs.right]
    kept = (left >= 0) & (right >= 0)
    return Pairs(left[kept], right[kept], pairs.same[kept]), kept


def resampled(identity: Int[np.ndarray, " k"], replicates: Callable[[], Replicates]) -> Replicates:
    """Empty with fewer than ten identities among those measured: resampling them says nothing about others."""
    return replicates() if len(np.unique(identity)) >= MIN_IDENTITIES else {}
