"""The metrics of suites that evaluate variants of the photos or embeddings, or parts of the data.

See `metrics` for what their fields mean.
"""

from dataclasses import dataclass, field

from familiar.evaluation.results.json_conversion import SUITE
from familiar.evaluation.results.metrics import (
    ClusteringMetrics,
    IdentificationMetrics,
    Intervals,
    OpenSetMetrics,
    PairMetrics,
    RankingMetrics,
    RetrievalMetrics,
    SeparationMetrics,
    TripletMetrics,
    VerificationMetrics,
)

ROUTED_SPECIES = "routed species"  # a column of the slices; that of a CSV, with the true species, may be "species"


@dataclass(frozen=True)
class OverfittingMetrics:
    """Recall@1 of training identities and of others."""

    train_recall_at_1: float
    test_recall_at_1: float
    gap: float
    identities: int
    photos_per_identity: int
    draws: int
    seed: int
    interval: Intervals


@dataclass(frozen=True)
class CleanMetrics:
    """Metrics of the photos before they are corrupted."""

    recall_at_1: float | None
    auc: float | None


@dataclass(frozen=True)
class CorruptionMetrics:
    """Losses by a corruption at its default severity, which is None if there are no degrees of it."""

    severity: float | None
    unit: str
    similarity_drop: float
    recall_at_1_drop: float | None
    auc_drop: float | None
    interval: Intervals


@dataclass(frozen=True)
class SweepPoint:
    """Metrics at one severity of a corruption."""

    severity: float
    similarity_drop: float
    recall_at_1: float | None
    auc: float | None


@dataclass(frozen=True)
class RobustnessMetrics:
    """Robustness metrics, by the name of the corruption."""

    photos: int
    identities: int
    seed: int
    clean: CleanMetrics
    corruptions: dict[str, CorruptionMetrics]
    sweeps: dict[str, tuple[SweepPoint, ...]]


@dataclass(frozen=True)
class PlainMetrics:
    """Metrics without test-time augmentation."""

    recall_at_1: float | None
    auc: float | None
    ms_per_photo: float


@dataclass(frozen=True)
class SourceGains:
    """Gains of a method of test-time augmentation for the photos of one source."""

    photos: int
    recall_at_1_gain: float | None
    auc_gain: float | None
    interval: Intervals


@dataclass(frozen=True)
class AugmentationMetrics:
    """Gains and cost of a method of test-time augmentation; `passes` through the network."""

    recall_at_1_gain: float | None
    auc_gain: float | None
    interval: Intervals
    passes: int
    ms_per_photo: float
    by_source: dict[str, SourceGains]


@dataclass(frozen=True)
class TtaMetrics:
    """Metrics of test-time augmentation."""

    photos: int
    identities: int
    seed: int
    plain: PlainMetrics
    flip: AugmentationMetrics
    five_crops: AugmentationMetrics


@dataclass(frozen=True)
class PictureMetrics:
    """Metrics of the photos, or of a part of each, searched for among each other."""

    recall_at_1: float | None
    auc: float | None
    interval: Intervals


@dataclass(frozen=True)
class BackgroundMetrics:
    """Metrics of whole photos, of the faces alone and of the backgrounds alone: the rest is gray.

    `photos_without_face`: in which the detector found none, so that they are left out of all metrics.
    """

    photos: int
    identities: int
    photos_without_face: int
    seed: int
    whole: PictureMetrics
    face: PictureMetrics
    background: PictureMetrics


@dataclass(frozen=True)
class PrefixMetrics:
    """Metrics of the first `components` of the embedding. The bundle's thresholds are for the full length."""

    components: int
    bytes: int
    saved_fraction: float
    retrieval: RetrievalMetrics | None
    verification: PairMetrics | None
    triplets: TripletMetrics | None
    identification: OpenSetMetrics | None


@dataclass(frozen=True)
class HarmonicMetrics:
    """Metrics of each prefix of the embedding, the shortest first."""

    prefixes: tuple[PrefixMetrics, ...]


@dataclass(frozen=True)
class SliceMetrics:
    """Metrics of the photos with one value of an attribute.

    A suite is None if it was not run, or cannot be computed, which `reasons` explains.
    """

    value: str
    photos: int
    identities: int
    retrieval: RankingMetrics | None = field(default=None, metadata=SUITE)
    clustering: ClusteringMetrics | None = field(default=None, metadata=SUITE)
    verification: VerificationMetrics | None = field(default=None, metadata=SUITE)
    triplets: TripletMetrics | None = field(default=None, metadata=SUITE)
    separation: SeparationMetrics | None = field(default=None, metadata=SUITE)
    identification: IdentificationMetrics | None = field(default=None, metadata=SUITE)
    reasons: dict[str, str] = field(default_factory=dict)

    def has_suite(self, name: str) -> bool:
        """Tell whether a suite was run, even if it could not be computed."""
        return getattr(self, name) is not None or name in self.reasons


@dataclass(frozen=True)
class SlicesMetrics:
    """Metrics of the values of each column, the worst value first."""

    columns: dict[str, tuple[SliceMetrics, ...]]

    @property
    def by_species(self) -> tuple[SliceMetrics, ...]:
        """Metrics of each species that a router sent photos to, by its own bundle; empty for a single bundle."""
        return self.columns.get(ROUTED_SPECIES, ())


@dataclass(frozen=True)
class FoldMetrics:
    """Accuracy on a fold, at the threshold that is best on the others."""

    accuracy: float
    threshold: float


@dataclass(frozen=True)
class LfwView2Metrics:
    """View 2 of LFW, for reporting."""

    accuracy: float
    standard_error: float
    auc: float
    pairs: int
    skipped_pairs: int
    folds: tuple[FoldMetrics, ...]


@dataclass(frozen=True)
class LfwView1Metrics:
    """View 1 of LFW, for model selection."""

    accuracy: float
    threshold: float
    auc: float
    pairs: int
    skipped_pairs: int
    interval: Intervals


@dataclass(frozen=True)
class LfwMetrics:
    """Both views of LFW; None if a view cannot be measured, which `reasons` explains."""

    reasons: dict[str, str]
    view_2: LfwView2Metrics | None
    view_1: LfwView1Metrics | None
