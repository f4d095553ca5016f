"""Values of the sections that show the metrics of a suite, which was run and could be computed."""

from typing import Any

from familiar.evaluation.report.examples import Examples
from familiar.evaluation.report.tables import metric_table, other_metrics
from familiar.evaluation.results import EvaluationResults
from familiar.evaluation.results.variant_metrics import ROUTED_SPECIES
from familiar.evaluation.verification_pairs import THRESHOLDS

VERIFICATION_PATHS = (
    "auc",
    "eer",
    "at_bundle_thresholds.balanced.accuracy",
    "best_accuracy",
    "best_accuracy_threshold",
    "best_accuracy_unweighted",
    "average_precision",
    "spearman",
    "tar_at_far.1e-2",
    "tar_at_far.1e-3",
    "tar_at_far.1e-4",
)
PAIR_SAMPLING = {
    "all": "all pairs",
    "listed": "those of the pairs file",
    "balanced": "a sample, half of them same",
    "natural": "a sample with the natural ratio",
}
RETRIEVAL_KEYS = (
    "recall_at_1",
    "recall_at_5",
    "recall_at_10",
    "mrr",
    "ndcg_at_10",
    "map_at_r",
    "queries",
    "queries_without_match",
)
IDENTIFICATION_PATHS = (
    "rank_1",
    "rank_5",
    "rank_10",
    "dir_at_far.1e-1",
    "dir_at_far.1e-2",
    "dir_at_far.1e-3",
    "enrolled_identities",
    "enrolled_photos_per_identity",
    "known_probes",
    "unknown_probes",
)
SEPARATION_PATHS = (
    "d_prime",
    "silhouette",
    "dunn.members",
    "dunn.centroids",
    "dunn.centroids_to_mean",
    "dunn.photos_dropped",
)
TRIPLET_PATHS = ("violation_rate", "average_margin", "triplets")
OVERFITTING_PATHS = ("train_recall_at_1", "test_recall_at_1", "gap", "identities", "photos_per_identity", "draws")
PREFIX_METRICS = (
    ("retrieval", "recall_at_1"),
    ("retrieval", "mrr"),
    ("verification", "auc"),
    ("verification", "eer"),
)
SLICE_METRICS = (
    ("retrieval", "recall_at_1"),
    ("verification", "auc"),
    ("verification", "eer"),
    ("triplets", "violation_rate"),
)
SPECIES_METRICS = (
    *SLICE_METRICS,
    ("verification", "at_bundle_thresholds.balanced.similarity"),
    ("verification", "at_bundle_thresholds.balanced.accuracy"),
    ("verification", "probability.calibration_error"),
)
LFW_TITLES = {"view_2": "View 2 (for reporting): ten folds", "view_1": "View 1 (for model selection)"}
LFW_PATHS = ("accuracy", "standard_error", "threshold", "auc", "pairs")


def verification(results: EvaluationResults, _: Examples) -> dict[str, Any]:
    """Select the pair metrics."""
    metrics = results.verification
    assert metrics is not None
    shown = (*VERIFICATION_PATHS, "pairs", "same_pairs", "different_pairs", "eer_threshold", "at_bundle_thresholds")
    return {
        "metrics": metrics,
        "sampling": PAIR_SAMPLING[metrics.pairs],
        "main": metric_table("Verification", metrics, VERIFICATION_PATHS),
        "other": other_metrics(metrics, *shown, "thresholds_fitted", "probability", "tar_at_far"),
    }


def thresholds(results: EvaluationResults, _: Examples) -> dict[str, Any]:
    """Select the rates at the bundle's thresholds, and the calibration of its probability."""
    metrics = results.verification
    assert metrics is not None
    probability = metrics.probability and metric_table(
        "Probability calibration", metrics.probability, ["calibration_error", "validation_error"]
    )
    at_thresholds = [(name, metrics.at_bundle_thresholds[name]) for name in THRESHOLDS]
    return {
        "metrics": metrics,
        "thresholds": at_thresholds,
        "probability": probability,
        "is_router": results.data.routing is not None,
    }


def retrieval(results: EvaluationResults, examples: Examples) -> dict[str, Any]:
    """Select the retrieval metrics, and the identities that are confused most."""
    other = other_metrics(results.retrieval, *RETRIEVAL_KEYS, "query_gallery")
    return {"metrics": results.retrieval, "keys": RETRIEVAL_KEYS, "examples": examples, "other": other}


def slices(results: EvaluationResults, _: Examples) -> dict[str, Any] | None:
    """Select, for each column of attributes, the metrics of the suites that were run."""
    assert results.slices is not None
    columns = [
        (
            column,
            rows,
            [
                (suite, metric)
                for suite, metric in (SPECIES_METRICS if column == ROUTED_SPECIES else SLICE_METRICS)
                if any(row.has_suite(suite) for row in rows)
            ],
        )
        for column, rows in results.slices.columns.items()
    ]
    return {"columns": columns, "species_column": ROUTED_SPECIES} if columns else None


def identification(results: EvaluationResults, _: Examples) -> dict[str, Any]:
    """Select the identification rates."""
    metrics = results.identification
    return {
        "metrics": metrics,
        "main": metric_table("Identification", metrics, IDENTIFICATION_PATHS),
        "other": other_metrics(metrics, *IDENTIFICATION_PATHS, "at_bundle_thresholds", "dir_at_far"),
    }


def clustering(results: EvaluationResults, _: Examples) -> dict[str, Any]:
    """Select the metrics of the groups found without the number of identities, and of k-means with it."""
    return {"metrics": results.clustering, "other": other_metrics(results.clustering, "groups", "kmeans")}


def robustness(results: EvaluationResults, _: Examples) -> dict[str, Any]:
    """Select the losses by each corruption."""
    other = other_metrics(results.robustness, "corruptions", "sweeps", "clean", "photos", "identities")
    return {"metrics": results.robustness, "other": other}


def tta(results: EvaluationResults, _: Examples) -> dict[str, Any]:
    """Select gain and cost of each method of test-time augmentation."""
    other = other_metrics(results.tta, "plain", "photos", "identities", "flip", "five_crops")
    return {"metrics": results.tta, "other": other}


def background(results: EvaluationResults, _: Examples) -> dict[str, Any]:
    """Select the metrics of whole photos, of the faces alone and of the backgrounds alone."""
    return {"metrics": results.background}


def separation(results: EvaluationResults, _: Examples) -> dict[str, Any]:
    """Select the separation metrics, and the distributions of similarities."""
    metrics = results.separation
    assert metrics is not None
    return {
        "metrics": metrics,
        "main": metric_table("Separation", metrics, SEPARATION_PATHS),
        "other": other_metrics(metrics, *SEPARATION_PATHS, "dunn", "same", "different", "photos", "identities"),
        "percentages": list(dict.fromkeys([*metrics.same.percentiles, *metrics.different.percentiles])),
    }


def triplets(results: EvaluationResults, _: Examples) -> dict[str, Any]:
    """Select the triplet metrics."""
    metrics = results.triplets
    return {
        "metrics": metrics,
        "main": metric_table("Triplets", metrics, TRIPLET_PATHS),
        "other": other_metrics(metrics, *TRIPLET_PATHS, "sampling"),
    }


def overfitting(results: EvaluationResults, _: Examples) -> dict[str, Any]:
    """Select recall@1 of training and of unseen identities."""
    metrics = results.overfitting
    return {
        "main": metric_table("Overfitting", metrics, OVERFITTING_PATHS),
        "other": other_metrics(metrics, *OVERFITTING_PATHS),
    }


def harmonic(results: EvaluationResults, _: Examples) -> dict[str, Any]:
    """Select the headline metrics of each prefix."""
    return {"metrics": results.harmonic, "shown": PREFIX_METRICS}


def lfw(results: EvaluationResults, _: Examples) -> dict[str, Any]:
    """Select both views, or the reasons why they are missing."""
    metrics = results.lfw
    assert metrics is not None
    folds = () if metrics.view_2 is None else metrics.view_2.folds
    return {
        "views": [
            {
                "title": LFW_TITLES[key],
                "reason": metrics.reasons.get(key, "not measured"),
                "main": None if view is None else metric_table(LFW_TITLES[key], view, LFW_PATHS),
                "folds": view_folds,
            }
            for key, view, view_folds in (("view_2", metrics.view_2, folds), ("view_1", metrics.view_1, ()))
        ]
    }
