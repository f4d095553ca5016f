"""Embed labeled photos with a model: the context that every suite starts from."""

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import numpy as np
from jaxtyping import Bool, Float32, Float64, Int, Int64

from familiar.core.calibration import Calibration
from familiar.core.errors import BadDataset, FamiliarError, NothingToMeasure
from familiar.core.types import Crop, Face
from familiar.datasets.folders import IdentityTable, open_photo
from familiar.datasets.pairs import read_lfw_pairs
from familiar.detection.detector import Detector
from familiar.detection.detectors import WholePhoto
from familiar.embedding.embedder import Embedder
from familiar.embedding.photos import embed_photos
from familiar.evaluation.results.figures import Figures, make_figures
from familiar.evaluation.verification_pairs import PairSampling, ScoredPairs, score_listed_pairs, score_pairs
from familiar.metrics.bootstrap import Replicates, identity_weights, mean_replicates
from familiar.metrics.calibration import uncalibrated
from familiar.metrics.pairs import Pairs
from familiar.metrics.retrieval import RankedQueries, rank_queries

SEED = 0  # of everything that is drawn: pairs, triplets, queries, replicates
REPLICATES = 500
MIN_IDENTITIES = 10  # for intervals
MIN_SAMPLED_IDENTITIES = 50  # a sample of fewer identities says little about others


@dataclass(frozen=True)
class EvaluationOptions:
    """Options of an evaluation.

    Attributes:
        suites: names of the suites to run; empty: all that apply.
        pairs: "all" pairs, or `pair_count` sampled ones, half of them of the same identity ("balanced") or with the
            natural ratio ("natural").
        pair_count: size of the sample.
        pairs_file: a file in LFW's format whose pairs are used instead; None: those that `pairs` selects.
        slices: a CSV of attributes of identities or photos, whose values are evaluated separately; None: no slices.
        by: the columns of this CSV to use; empty: all.
    """

    suites: tuple[str, ...] = ()
    pairs: PairSampling = "all"
    pair_count: int = 50_000
    pairs_file: Path | None = None
    slices: Path | None = None
    by: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class EvaluationContext:
    """Embedded photos and the options of their evaluation.

    `table` and `embeddings`: the photos that were embedded. `full_table`: the data as it was given; `rows`: the rows
    of it that `table` has. `skipped`: photos that could not be read or showed no face. `pairs`: those of the pairs
    file. `trained_on`: photos of the same data that the model was trained on, if known. `seen_identities`: identities
    that it was trained on or selected by. `flip`: each embedding is the average of the photo and its mirror image.
    `species`: of each photo; empty if the model is a single bundle. `uncentered_model`: the model
    without the means of the photos subtracted; None: they are not subtracted (`centering`).
    """

    model: Embedder
    table: IdentityTable
    embeddings: Float32[np.ndarray, "n d"]
    full_table: IdentityTable
    rows: Int64[np.ndarray, " n"]
    skipped: tuple[FamiliarError, ...] = ()
    pairs: Pairs | None = None
    trained_on: IdentityTable | None = None
    seen_identities: frozenset[str] = frozenset()
    detector: Detector | None = None
    flip: bool = False
    options: EvaluationOptions = field(default_factory=EvaluationOptions)
    species: tuple[str | None, ...] = ()
    uncentered_model: Embedder | None = None

    @property
    def calibration(self) -> Calibration:
        """What similarities mean: as the bundle says. Several bundles say nothing about all photos."""
        bundles = list(self.model.bundles.values())
        return bundles[0].metadata.calibration if len(bundles) == 1 else uncalibrated()

    @property
    def labels(self) -> Int64[np.ndarray, " n"]:
        """The identity of each photo."""
        return self.table.labels

    @cached_property
    def ranked_queries(self) -> RankedQueries:
        """Leave-one-out retrieval of each photo among all others: retrieval and triplets share this work."""
        return rank_queries(self.embeddings, self.labels)

    @cached_property
    def scored_pairs(self) -> ScoredPairs:
        """The pairs that the options ask for, with their similarities."""
        if self.pairs is not None:
            return score_listed_pairs(self.embeddings, self.pairs)
        options = self.options
        return score_pairs(self.embeddings, self.labels, options.pairs, options.pair_count, self.calibration, SEED)

    def select_rows(self, rows: Int64[np.ndarray, " k"]) -> "EvaluationContext":
        """Restrict the context to these photos and the pairs between them."""
        return replace(
            self,
            table=self.table.select_rows(rows),
            embeddings=self.embeddings[rows],
            rows=self.rows[rows],
            pairs=None if self.pairs is None else restrict_pairs(self.pairs, rows, len(self.table))[0],
            species=tuple(self.species[row] for row in rows.tolist()) if self.species else (),
        )

    def rows_by_species(self, rows: Int64[np.ndarray, " k"]) -> dict[str | None, Int64[np.ndarray, " l"]]:
        """Map each species to the indices in `rows` of its photos; of a single bundle, None to all of them."""
        if not self.species:
            return {None: np.arange(len(rows))}
        indices: dict[str | None, list[int]] = {}
        for index, row in enumerate(rows.tolist()):
            indices.setdefault(self.species[row], []).append(index)
        return {species: np.array(chosen, np.int64) for species, chosen in indices.items()}

    def select_species(self, species: str | None) -> "EvaluationContext":
        """Restrict the context to the photos of a species, as if its bundle were the model."""
        part = self.select_rows(self.rows_by_species(np.arange(len(self.table)))[species])
        embedder, columns = self.model.only(species)
        embeddings = np.ascontiguousarray(part.embeddings[:, columns])
        uncentered = None if self.uncentered_model is None else self.uncentered_model.only(species)[0]
        return replace(part, model=embedder, embeddings=embeddings, species=(), uncentered_model=uncentered)

    def select_identities(self, names: Iterable[str]) -> "EvaluationContext":
        """Restrict the context to the photos of these identities."""
        selected = set(names)
        mask = np.array([name in selected for name in self.table.names], bool)
        return self.select_rows(np.flatnonzero(mask[self.labels]))

    def crop(self, row: int) -> Crop:
        """Read a photo again and crop it as the model saw it."""
        crop = self.face(row).crop
        assert crop is not None
        return crop

    def face(self, row: int) -> Face:
        """Read a photo again and crop its face as the model saw it."""
        species = self.species[row] if self.species else None
        detector = self.detector or WholePhoto()
        photo = self.table.photos[row]
        return self.model.detect_faces(
            photo, detector, open_photo=open_photo, choice="best", species=species, rate=False
        ).faces[0]

    def sample_rows(self, max_photos: int) -> Int64[np.ndarray, " k"]:
        """Draw at most `max_photos` rows, ascending.

        Whole identities are drawn; if that would make fewer than `MIN_SAMPLED_IDENTITIES`, the same number of photos
        of each of more identities.
        """
        if len(self.table) <= max_photos:
            return np.arange(len(self.table))
        generator = np.random.default_rng(SEED)
        order = generator.permutation(len(self.table.names))
        photos = self.table.photos_per_identity
        fitting = order[photos[order] <= max_photos]
        chosen = fitting[np.cumsum(photos[fitting]) <= max_photos]
        min_identities = min(MIN_SAMPLED_IDENTITIES, len(order), max(1, max_photos // 2))
        if len(chosen) >= min_identities:
            return np.flatnonzero(np.isin(self.labels, chosen))
        photos_per_identity = max_photos // min_identities
        shuffled = generator.permutation(len(self.table))
        rows = [shuffled[self.labels[shuffled] == label][:photos_per_identity] for label in order[:min_identities]]
        return np.sort(np.concatenate(rows))


@dataclass(frozen=True, eq=False)
class SuiteResult:
    """The result of one suite.

    Attributes:
        figures: by their paths in the suite, such as "tar_at_far.1e-2".
        replicates: the headline figures on bootstrap samples, by which two models are compared.
        missing: why there is nothing at a path, where only this suite knows.
    """

    figures: Figures = field(default_factory=dict)
    replicates: Replicates = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)


def combine(parts: Mapping[str, SuiteResult]) -> SuiteResult:
    """Combine results, the paths of each put after its name."""
    return SuiteResult(
        make_figures({name: part.figures for name, part in parts.items()}),
        {f"{name}.{path}": values for name, part in parts.items() for path, values in part.replicates.items()},
        {f"{name}.{path}": reason for name, part in parts.items() for path, reason in part.missing.items()},
    )


def build_context(
    model: Embedder,
    table: IdentityTable,
    options: EvaluationOptions | None = None,
    detector: Detector | None = None,
    *,
    rows: Int64[np.ndarray, " k"] | None = None,
    species: str | None = None,
    flip: bool = False,
    trained_on: IdentityTable | None = None,
    seen_identities: frozenset[str] = frozenset(),
    on_photo: Callable[[int], None] = lambda _: None,
) -> EvaluationContext:
    """Embed the photos to evaluate.

    Args:
        model: embeds the photos.
        table: the photos and their identities.
        options: with a pairs file, only the photos that it names are embedded.
        detector: finds the face in each photo; None for photos that are cropped already.
        rows: embed only these rows of `table`.
        species: of all photos; None: what the detector says.
        flip: average each photo with its mirror image.
        trained_on: see `EvaluationContext`.
        seen_identities: see `EvaluationContext`.
        on_photo: called with the number of photos embedded so far.

    Returns:
        The context. Pairs of a photo that was skipped, or is not among `rows`, are left out.

    Raises:
        BadDataset: no photo could be embedded.
    """
    options = options or EvaluationOptions()
    rows = np.arange(len(table)) if rows is None else rows
    pairs = None
    if options.pairs_file is not None:
        pairs = read_lfw_pairs(options.pairs_file, table)
        rows = np.intersect1d(rows, np.concatenate([pairs.left, pairs.right]))
    photos = [table.photos[row] for row in rows.tolist()]
    embedded = embed_photos(
        model, photos, detector, open_photo=open_photo, species=species, flip=flip, on_photo=on_photo
    )
    if not len(embedded.rows):
        reason = f"; the first reason: {embedded.skipped[0]}" if embedded.skipped else ""
        raise BadDataset(f"none of the photos could be embedded{reason}")
    embedded_rows = rows[embedded.rows]
    return EvaluationContext(
        model,
        table.select_rows(embedded_rows),
        embedded.embeddings,
        table,
        embedded_rows,
        embedded.skipped,
        None if pairs is None else restrict_pairs(pairs, embedded_rows, len(table))[0],
        trained_on,
        seen_identities,
        detector,
        flip,
        options,
        () if () in model.bundles else embedded.species,
    )


def restrict_pairs(pairs: Pairs, rows: Int64[np.ndarray, " k"], total: int) -> tuple[Pairs, Bool[np.ndarray, " p"]]:
    """Select the pairs both of whose photos are among `rows` of `total` rows.

    Returns:
        The selected pairs, their photos renumbered as positions in `rows`; and the mask of the selected pairs.
    """
    index = np.full(total, -1)
    index[rows] = np.arange(len(rows))
    left, right = index[pairs.left], index[pairs.right]
    mask = (left >= 0) & (right >= 0)
    return Pairs(left[mask], right[mask], pairs.same[mask]), mask


def resampled(identity: Int[np.ndarray, " k"], replicates: Callable[[], Replicates]) -> Replicates:
    """Compute replicates, or none with fewer than ten identities: resampling those says nothing about others."""
    return replicates() if len(np.unique(identity)) >= MIN_IDENTITIES else {}


def resample_means(
    values: dict[str, Float64[np.ndarray, " q"]],
    identity: Int[np.ndarray, " q"],
    weights: Float64[np.ndarray, " q"] | None = None,
) -> Replicates:
    """Resample the means of values of items (queries, photos), by the items' identities; none with fewer than ten."""
    return resampled(identity, lambda: mean_replicates(values, identity, weights, REPLICATES, SEED))


def resample_metrics(
    identity: Int[np.ndarray, " k"], measure: Callable[[Float64[np.ndarray, " k"]], dict[str, float]]
) -> Replicates:
    """Resample metrics that `measure` computes from a weight for each item; none with fewer than ten identities.

    A replicate in which there is nothing to measure is left out.
    """
    identities, index = np.unique(identity, return_inverse=True)
    rows: list[dict[str, float]] = []
    for weights in identity_weights(len(identities), REPLICATES, SEED) if len(identities) >= MIN_IDENTITIES else ():
        with suppress(NothingToMeasure):
            rows.append(measure(weights[index]))
    return {name: np.array([row[name] for row in rows]) for name in (rows[0] if rows else ())}
