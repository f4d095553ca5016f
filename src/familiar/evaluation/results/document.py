"""The results of one evaluation, and their JSON document."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal, TypeAlias

from familiar.core.data_table import DataTable, TableSource
from familiar.core.errors import BadResults
from familiar.core.format_marks import explain_other_format
from familiar.evaluation.results.html_view import results_html
from familiar.evaluation.results.json_conversion import SUITE, from_json, to_json
from familiar.evaluation.results.metrics import (
    ClusteringMetrics,
    IdentificationMetrics,
    RetrievalMetrics,
    SeparationMetrics,
    TripletMetrics,
    VerificationMetrics,
)
from familiar.evaluation.results.paths import metric_at
from familiar.evaluation.results.table import metrics_table
from familiar.evaluation.results.variant_metrics import (
    BackgroundMetrics,
    HarmonicMetrics,
    LfwMetrics,
    OverfittingMetrics,
    RobustnessMetrics,
    SlicesMetrics,
    TtaMetrics,
)

FORMAT = "familiar-evaluation/1"  # docs/reference/formats.md lists the keys

SuiteMetrics: TypeAlias = (
    RetrievalMetrics
    | ClusteringMetrics
    | VerificationMetrics
    | TripletMetrics
    | OverfittingMetrics
    | RobustnessMetrics
    | TtaMetrics
    | BackgroundMetrics
    | SeparationMetrics
    | IdentificationMetrics
    | HarmonicMetrics
    | SlicesMetrics
    | LfwMetrics
)


@dataclass(frozen=True)
class ModelInfo:
    """The model. Of a router, `recipe` and `network` list those of its bundles.

    `tta`: how embeddings were averaged. `resize_px`: replaces the bundle's own preprocessing. `centered`: whether the
    means of the photos were subtracted, as a gallery does if a bundle has species means.
    """

    file_id: str
    space_id: str
    recipe: str
    network: str
    size_bytes: int
    embedding_dim: int
    tta: Literal["flip"] | None
    thresholds_fitted: bool
    resize_px: int | None
    centered: bool = False

    @property
    def comparison(self) -> str:
        """How embeddings were compared, to be put after "compared "."""
        return "less the means of the photos, as a gallery compares them" if self.centered else "as they are"


@dataclass(frozen=True)
class RoutingInfo:
    """What a router did with the photos.

    `photos`: how many it sent to each species. `without_bundle`: how many it skipped, of species without a bundle.
    """

    photos: dict[str, int]
    without_bundle: int


@dataclass(frozen=True)
class DataInfo:
    """The evaluated photos.

    `skipped`: why photos could not be evaluated. The numbers seen are None if unknown. `collections_trained_on`: names
    of folders of the data from which the model learned, even if from other identities. `routing`: None if the model is
    a single bundle.
    """

    sources: tuple[str, ...]
    split: Literal["test", "all"]
    identities: int
    photos: int
    identities_seen_in_training: int | None
    identities_seen_in_validation: int | None
    skipped: tuple[str, ...]
    fingerprint: str
    collections_trained_on: tuple[str, ...] = ()
    routing: RoutingInfo | None = None


@dataclass(frozen=True)
class IntervalSettings:
    """How confidence intervals were computed."""

    confidence: float
    resampled: str
    replicates: int
    seed: int


@dataclass(frozen=True)
class LeakedPicture:
    """Photos that show the same picture, and the names of their identities. `exact`: the same file or pixels."""

    photos: tuple[str, ...]
    identities: tuple[str, ...]
    exact: bool
    similarity: float


@dataclass(frozen=True)
class ComparedPhotos:
    """Numbers of photos in a leak check. `seen_in_training`: None if the run's photos are not available."""

    evaluated: int
    seen_in_training: int | None


@dataclass(frozen=True)
class LeakResults:
    """The result of a leak check. `excluded`: number of photos that were left out because of it."""

    compared: ComparedPhotos
    across_splits: tuple[LeakedPicture, ...]
    across_identities: tuple[LeakedPicture, ...]
    excluded: int


@dataclass(frozen=True)
class EvaluationResults(TableSource):
    """The results of an evaluation: the contents of `eval_results.json`.

    A suite is None if it was not run, or cannot be computed, which `reasons` explains.

    Attributes:
        model: the evaluated model.
        data: the photos that it was evaluated on.
        interval: how the intervals of all metrics were computed.
        leaks: photos in several splits or of several identities; None if leaks were not looked for.
        reasons: why a suite is None, by its name.
        missing: why a single metric is None, by its path.
        retrieval: how often a search among the photos finds one of the same identity.
        clustering: agreement of clusters with the true identities.
        verification: decisions whether two photos show the same identity.
        triplets: comparisons of a photo's similarity to one of the same identity and to one of another.
        overfitting: recall@1 of identities that the model was trained on, compared with others.
        robustness: losses by blur, noise and other corruptions of the photos.
        tta: gains by test-time augmentation, the mean of the embeddings of several views of a photo.
        background: metrics of the faces alone, and of the backgrounds alone.
        separation: distance between identities, relative to the spread within each.
        identification: decisions which known identity a photo shows, or none (open set).
        harmonic: metrics of each prefix of the embedding.
        slices: metrics of the photos with each value of an attribute, or of each species of a router.
        lfw: Labeled Faces in the Wild by its own protocol.
        replicates: each headline metric on bootstrap samples, by its path, such as "verification.tar_at_far.1e-2".
            A comparison of two models reads them.
    """

    model: ModelInfo
    data: DataInfo
    interval: IntervalSettings
    leaks: LeakResults | None
    reasons: dict[str, str] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)
    retrieval: RetrievalMetrics | None = field(default=None, metadata=SUITE)
    clustering: ClusteringMetrics | None = field(default=None, metadata=SUITE)
    verification: VerificationMetrics | None = field(default=None, metadata=SUITE)
    triplets: TripletMetrics | None = field(default=None, metadata=SUITE)
    overfitting: OverfittingMetrics | None = field(default=None, metadata=SUITE)
    robustness: RobustnessMetrics | None = field(default=None, metadata=SUITE)
    tta: TtaMetrics | None = field(default=None, metadata=SUITE)
    background: BackgroundMetrics | None = field(default=None, metadata=SUITE)
    separation: SeparationMetrics | None = field(default=None, metadata=SUITE)
    identification: IdentificationMetrics | None = field(default=None, metadata=SUITE)
    harmonic: HarmonicMetrics | None = field(default=None, metadata=SUITE)
    slices: SlicesMetrics | None = field(default=None, metadata=SUITE)
    lfw: LfwMetrics | None = field(default=None, metadata=SUITE)
    replicates: dict[str, tuple[float, ...]] = field(default_factory=dict)

    def has_suite(self, name: str) -> bool:
        """Tell whether a suite was run, even if it could not be computed.

        Args:
            name: the attribute of the suite, such as "verification".
        """
        return getattr(self, name) is not None or name in self.reasons

    def table(self) -> DataTable:
        """Return a table with a row for each metric: suite, metric, label, value, and its interval from low to high.

        A metric is named by its path within the suite, such as "tar_at_far.1e-2".
        """
        return metrics_table(self, self._computed_suites())

    def __repr__(self) -> str:
        suites = ", ".join(self._computed_suites()) or "no suite"
        return f"EvaluationResults({self.data.photos:,} photos of {self.data.identities:,} identities: {suites})"

    def _repr_html_(self) -> str:
        return results_html(self, self._computed_suites())

    def _computed_suites(self) -> dict[str, SuiteMetrics]:
        suites = (each.name for each in fields(self) if "suite" in each.metadata)
        return {name: metrics for name in suites if (metrics := getattr(self, name)) is not None}

    def to_json(self, *, with_replicates: bool = True) -> dict[str, Any]:
        """Return the document of `eval_results.json`, made of dicts, lists and scalars.

        Args:
            with_replicates: include `replicates`.
        """
        document: dict[str, Any] = {"format": FORMAT, **to_json(self)}
        if not with_replicates:
            del document["replicates"]
        return document

    @classmethod
    def from_json(cls, document: Any) -> "EvaluationResults":
        """Restore results from the document of `eval_results.json`.

        Args:
            document: content of the file, as `json.loads` returns it.

        Raises:
            BadResults: the document is no results, of another format, or keys are missing or unknown.
        """
        if not isinstance(document, Mapping) or not document.keys() & {"format", "format_version"}:
            raise BadResults("holds no results of `familiar evaluate`")
        if document.get("format") != FORMAT:
            raise BadResults(explain_other_format(document.get("format"), FORMAT, "evaluate again"))
        try:
            results = from_json(cls, {key: value for key, value in document.items() if key != "format"})
            _check_replicates(results)
        except ValueError as error:
            raise BadResults(f"is not a complete eval_results.json ({error}); evaluate again") from error
        return results


def _check_replicates(results: EvaluationResults) -> None:
    for path, values in results.replicates.items():
        try:
            value = metric_at(results, path)
        except KeyError:
            value = None
        if not isinstance(value, float | int) or not values:
            raise ValueError(f"replicates.{path} has no values, or is of no metric")
