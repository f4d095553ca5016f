from .bootstrap import intervals
from .calibration import calibrate, calibrate_collections, calibration_error
from .clustering import PrecisionRecall, ami, ari, bcubed, nmi, pairwise, purity
from .folds import folded_accuracy
from .identification import Identification, identification_metrics
from .mistakes import worst_mistakes
from .pairs import Pairs, pair_similarities, sample_pairs
from .retrieval import Retrieval, retrieval_metrics
from .roc import RocCounts, roc_counts, roc_counts_all_pairs
from .separation import DunnIndices, dunn, silhouettes, similarity_distributions
from .verification import (
    Verification,
    accuracy_at,
    average_precision,
    best_accuracy,
    equal_error_rate,
    rates_at,
    roc_auc,
    roc_curve,
    spearman,
    tar_at_far,
    verification_metrics,
)

__all__ = [
    "DunnIndices",
    "Identification",
    "Pairs",
    "PrecisionRecall",
    "Retrieval",
    "RocCounts",
    "Verification",
    "accuracy_at",
    "ami",
    "ari",
    "average_precision",
    "bcubed",
    "best_accuracy",
    "calibrate",
    "calibrate_collections",
    "calibration_error",
    "dunn",
    "equal_error_rate",
    "folded_accuracy",
    "identification_metrics",
    "intervals",
    "nmi",
    "pair_similarities",
    "pairwise",
    "purity",
    "rates_at",
    "retrieval_metrics",
    "roc_auc",
    "roc_counts",
    "roc_counts_all_pairs",
    "roc_curve",
    "sample_pairs",
    "silhouettes",
    "similarity_distributions",
    "spearman",
    "tar_at_far",
    "verification_metrics",
    "worst_mistakes",
]
