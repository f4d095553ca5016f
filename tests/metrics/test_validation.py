"""Every public metric refuses wrong shapes, dtypes and values, instead of computing something."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from familiar import metrics

# Users do not have the checker of shapes that other tests run with.
pytestmark = pytest.mark.usefixtures("unchecked_signatures")

NOT_FINITE = "4 of 6 rows are not (finite|unit vectors)[;,] the first is row 0"
LABELS = np.array([0, 0, 1, 1, 2, 2])
SAME = np.array([True, True, False, False, True, False])
SCORES = np.array([0.9, 0.8, 0.3, 0.2, 0.7, 0.4])


def rows(count: int = 6) -> np.ndarray:
    drawn = np.random.default_rng(0).normal(size=(count, 4)).astype(np.float32)
    return drawn / np.linalg.norm(drawn, axis=1, keepdims=True)


ROW_METRICS: dict[str, Callable[..., Any]] = {
    "retrieval_metrics": metrics.retrieval_metrics,
    "worst_mistakes": metrics.worst_mistakes,
    "roc_counts_all_pairs": metrics.roc_counts_all_pairs,
    "dunn": metrics.dunn,
    "silhouettes": metrics.silhouettes,
    "calibrate": metrics.calibrate,
    "calibrate_collections": lambda x, y: metrics.calibrate_collections([(x, y)]),
    "identification_metrics": lambda x, y: metrics.identification_metrics((x, y), (rows(), LABELS)),
    "identification_metrics of probes": lambda x, y: metrics.identification_metrics((rows(), LABELS), (x, y)),
}
LABEL_METRICS = ("ami", "ari", "bcubed", "nmi", "pairwise", "purity")


@pytest.mark.parametrize("name", ROW_METRICS)
@pytest.mark.parametrize(
    ("embeddings", "labels", "message"),
    [
        (rows(), LABELS[:5], "5 labels for 6 embeddings; pass one label per embedding"),
        (rows(5), LABELS, "6 labels for 5 embeddings; pass one label per embedding"),
        (rows(), LABELS[:, None], r"labels must be an array of integers with 1 axes, got int64 \(6, 1\)"),
        (rows(), LABELS.astype(float), r"labels must be an array of integers with 1 axes, got float64 \(6,\)"),
        (rows(), LABELS.tolist(), "labels must be an array of integers with 1 axes, got list"),
        (rows()[:, 0], LABELS, r"embeddings must be an array of floats with 2 axes, got float32 \(6,\)"),
        (rows().astype(int), LABELS, r"embeddings must be an array of floats with 2 axes, got int64 \(6, 4\)"),
        (
            np.where(np.eye(6, 4) > 0, np.float32("nan"), rows()),
            LABELS,
            NOT_FINITE,
        ),
        (
            np.where(np.eye(6, 4) > 0, np.float32("inf"), rows()),
            LABELS,
            NOT_FINITE,
        ),
    ],
    ids=str,
)
def test_rejects_wrong_rows_and_labels(name: str, embeddings: Any, labels: Any, message: str):
    with pytest.raises(ValueError, match=message):
        ROW_METRICS[name](embeddings, labels)


@pytest.mark.parametrize("name", LABEL_METRICS)
@pytest.mark.parametrize(
    ("groups", "message"),
    [
        (LABELS[:, None], r"groups must be an array of integers with 1 axes, got int64 \(6, 1\)"),
        (LABELS[:5], "these must be equally many: 6 labels, 5 groups"),
        (LABELS.astype(float), "groups must be an array of integers"),
        (LABELS > 0, "groups must be an array of integers"),
    ],
    ids=str,
)
def test_rejects_wrong_groups(name: str, groups: np.ndarray, message: str):
    metric = getattr(metrics, name)
    metric(LABELS, LABELS)
    with pytest.raises(ValueError, match=message):
        metric(LABELS, groups)
    with pytest.raises(ValueError, match=message.replace("groups", "labels").replace("6 labels, 5 labels", "5 lab")):
        metric(groups, LABELS)


@pytest.mark.parametrize(
    "call",
    [
        lambda: metrics.folded_accuracy(SCORES[:5], SAME, LABELS),
        lambda: metrics.folded_accuracy(SCORES, SAME[:5], LABELS),
        lambda: metrics.folded_accuracy(SCORES, SAME.astype(int), LABELS),
        lambda: metrics.folded_accuracy(SCORES[:, None], SAME, LABELS),
        lambda: metrics.folded_accuracy(np.where(SAME, SCORES, np.nan), SAME, LABELS),
        lambda: metrics.calibration_error(SCORES[:5], SAME),
        lambda: metrics.calibration_error(SCORES, SAME.astype(int)),
        lambda: metrics.calibration_error(SCORES, SAME, weights=np.ones(5)),
        lambda: metrics.calibration_error(SCORES, SAME, weights=-np.ones(6)),
        lambda: metrics.calibration_error(SCORES, SAME, bins=0),
        lambda: metrics.calibration_error(np.where(SAME, SCORES, np.nan), SAME),
        lambda: metrics.roc_counts(SCORES[:, None], SCORES),
        lambda: metrics.roc_counts(SCORES, SCORES, np.ones(5)),
        lambda: metrics.roc_counts(SCORES, np.array([0.1, np.nan])),
        lambda: metrics.sample_pairs(LABELS[:, None]),
        lambda: metrics.sample_pairs(LABELS.astype(float)),
        lambda: metrics.sample_pairs(LABELS, -1),
        lambda: metrics.pair_similarities(rows()[:, 0], metrics.sample_pairs(LABELS)),
        lambda: metrics.pair_similarities(rows(5), metrics.sample_pairs(LABELS)),
        lambda: metrics.pair_similarities(rows(), metrics.Pairs(LABELS - 1, LABELS, SAME)),
        lambda: metrics.pair_similarities(rows(), metrics.Pairs(LABELS, LABELS[:5], SAME)),
        lambda: metrics.intervals({"auc": np.array([0.5, np.nan])}),
        lambda: metrics.intervals({"auc": np.ones((2, 2))}),
        lambda: metrics.rates_at(metrics.roc_counts(SCORES, SCORES), float("nan")),
        lambda: metrics.accuracy_at(metrics.roc_counts(SCORES, SCORES), float("nan")),
        lambda: metrics.tar_at_far(metrics.roc_counts(SCORES, SCORES), float("nan")),
        lambda: metrics.tar_at_far(metrics.roc_counts(SCORES, SCORES), 0.0),
    ],
)
def test_rejects_wrong_pairs_and_scores(call: Callable[[], Any]):
    with pytest.raises(ValueError, match=r"\w"):
        call()
