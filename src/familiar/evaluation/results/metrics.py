"""The metrics of each suite. The fields are the keys of `eval_results.json`, described in docs/reference/formats.md.

A metric is None if it cannot be computed. `interval` maps the path of a metric within its suite, such as
"tar_at_far.1e-2", to its 95 % confidence interval; it is empty for fewer than ten identities.
"""

from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from familiar.core.calibration import Threshold
from familiar.evaluation.results.json_conversion import LAST
from familiar.metrics.bootstrap import Interval
from familiar.metrics.clustering import PrecisionRecall
from familiar.metrics.identification import IdentificationPoint

Intervals: TypeAlias = dict[str, Interval]


@dataclass(frozen=True)
class RankingMetrics:
    """Retrieval metrics of ranked queries."""

    recall_at_1: float | None
    recall_at_5: float | None
    recall_at_10: float | None
    mrr: float | None
    ndcg_at_10: float | None
    map_at_r: float | None
    queries: int
    queries_without_match: int
    interval: Intervals


@dataclass(frozen=True)
class QueryGalleryMetrics(RankingMetrics):
    """Retrieval of half of each identity's photos among the other half, of which `gallery` is the number."""

    gallery: int
    seed: int


@dataclass(frozen=True)
class RetrievalMetrics(RankingMetrics):
    """Retrieval of each photo among all others, and of one half among the other."""

    query_gallery: QueryGalleryMetrics


@dataclass(frozen=True)
class ThresholdMetrics:
    """Verification rates at a threshold of the bundle, here and on its own validation pairs."""

    similarity: float
    accuracy: float
    far: float
    tar: float
    on_validation: Threshold


@dataclass(frozen=True)
class ProbabilityBin:
    """Pairs of similar predicted probability: the means, and their share of all pairs."""

    predicted: float
    observed: float
    weight: float


@dataclass(frozen=True)
class ProbabilityMetrics:
    """Errors of the bundle's probabilities, here and on its own validation pairs."""

    calibration_error: float
    validation_error: float | None
    bins: tuple[ProbabilityBin, ...]


@dataclass(frozen=True)
class PairMetrics:
    """Verification metrics that do not depend on the bundle's calibration."""

    pairs: Literal["listed", "all", "balanced", "natural"]
    seed: int
    interval_pairs: int
    same_pairs: int
    different_pairs: int
    auc: float
    average_precision: float
    eer: float
    eer_threshold: float
    spearman: float
    best_accuracy: float
    best_accuracy_threshold: float
    best_accuracy_unweighted: float
    tar_at_far: dict[str, float | None]
    interval: Intervals = field(metadata=LAST)


@dataclass(frozen=True)
class VerificationMetrics(PairMetrics):
    """Verification metrics. `at_bundle_thresholds`: by "high_precision", "balanced" and "high_recall"."""

    thresholds_fitted: bool
    at_bundle_thresholds: dict[str, ThresholdMetrics]
    probability: ProbabilityMetrics | None


@dataclass(frozen=True)
class TripletMetrics:
    """Triplet metrics."""

    sampling: Literal["all", "sampled"]
    triplets: int
    seed: int
    violation_rate: float
    average_margin: float
    interval: Intervals


@dataclass(frozen=True)
class KMeansMetrics:
    """Agreement of k-means with the true identities, of which it is given the number."""

    k: int
    photos: int
    seed: int
    nmi: float
    ami: float
    ari: float
    purity: float


@dataclass(frozen=True)
class GroupMetrics:
    """Agreement of the clusters at a threshold with the true identities.

    A router of several bundles has no single threshold and domain shift: they are None, and `threshold_source` has the
    threshold of each species.
    """

    threshold: float | None
    threshold_source: str
    domain_shift: float | None
    groups: int
    identities: int
    nmi: float
    ami: float
    ari: float
    purity: float
    pairwise: PrecisionRecall | None
    bcubed: PrecisionRecall | None


@dataclass(frozen=True)
class ClusteringMetrics:
    """Clustering metrics."""

    kmeans: KMeansMetrics
    groups: GroupMetrics
    interval: Intervals


@dataclass(frozen=True)
class DunnMetrics:
    """Dunn indices, after `photos_dropped` outliers were left out."""

    members: float | None
    centroids: float | None
    centroids_to_mean: float | None
    photos_dropped: int


@dataclass(frozen=True)
class SimilarityMetrics:
    """Distribution of similarities. `percentiles`: by the percentage."""

    mean: float
    std: float
    percentiles: dict[str, float]
    minimum: float
    maximum: float


@dataclass(frozen=True)
class SeparationMetrics:
    """Separation metrics."""

    photos: int
    identities: int
    dunn: DunnMetrics
    silhouette: float
    same: SimilarityMetrics
    different: SimilarityMetrics
    d_prime: float | None
    interval: Intervals


@dataclass(frozen=True)
class OpenSetMetrics:
    """Identification metrics that do not depend on the bundle's thresholds. `dir_at_far`: by FAR."""

    enrolled_identities: int
    enrolled_photos_per_identity: int
    known_probes: int
    unknown_probes: int
    seed: int
    rank_1: float | None
    rank_5: float | None
    rank_10: float | None
    dir_at_far: dict[str, float | None]
    interval: Intervals = field(metadata=LAST)


@dataclass(frozen=True)
class IdentificationMetrics(OpenSetMetrics):
    """Identification metrics. `at_bundle_thresholds`: by "high_precision", "balanced" and "high_recall"."""

    at_bundle_thresholds: dict[str, IdentificationPoint]
