"""Export gate: how much recognition quality a bundle may lose against the network it is made from."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float32, Int

from familiar.core.errors import GateRefused
from familiar.metrics.pairs import count_all_pairs
from familiar.metrics.retrieval import retrieval_metrics
from familiar.metrics.roc import pair_totals
from familiar.metrics.verification import verification_metrics

ROUNDING_TOLERANCE = 1e-9  # 0.98 less 0.96 is a little more than 0.02


@dataclass(frozen=True)
class GateMetrics:
    """Recognition quality on validation identities, in [0, 1]; `tar_at_far` is None at rates with too few pairs."""

    auc: float
    eer: float
    best_accuracy: float
    recall_at_1: float
    tar_at_far: dict[str, float | None]


@dataclass(frozen=True)
class Gate:
    """The largest drops of recognition quality, on validation crops, with which a bundle is still written.

    Attributes:
        max_auc_drop: largest drop of the ROC AUC, as a difference of two values in [0, 1].
        max_recall_drop: largest drop of recall@1, as a difference of two values in [0, 1].
    """

    max_auc_drop: float = 0.01
    max_recall_drop: float = 0.02

    def passes(self, source: GateMetrics, exported: GateMetrics) -> bool:
        """Return whether the exported network loses no more than allowed.

        Args:
            source: quality of the network before the export.
            exported: quality after it, on the same crops.
        """
        return (
            source.auc - exported.auc <= self.max_auc_drop + ROUNDING_TOLERANCE
            and source.recall_at_1 - exported.recall_at_1 <= self.max_recall_drop + ROUNDING_TOLERANCE
        )

    def require(self, source: GateMetrics, exported: GateMetrics, description: str) -> None:
        """Check that the exported network loses no more than allowed.

        Args:
            source: quality of the network before the export.
            exported: quality after it, on the same crops.
            description: names the export in the message.

        Raises:
            GateRefused: it loses more; the message says how much, and what is allowed.
        """
        if not self.passes(source, exported):
            raise GateRefused(
                f"{description} loses too much: ROC AUC {source.auc:.4f} -> {exported.auc:.4f} (may drop by "
                f"{self.max_auc_drop:g} at most), recall@1 {source.recall_at_1:.4f} -> {exported.recall_at_1:.4f} (by "
                f"{self.max_recall_drop:g} at most); nothing was written. Try --precision mixed or int8-weights, train "
                "on with --set quantize.aware=true, or allow more with --max-auc-drop and --max-recall-drop"
            )


DEFAULT_GATE = Gate()
# Mean cosine between a bundle's embeddings and its source's: below it the two must not be compared with each other,
# however good each is by itself.
MIN_SAME_SPACE_COSINE = 0.95


def gate_metrics(embeddings: Float32[np.ndarray, "n d"], labels: Int[np.ndarray, " n"]) -> GateMetrics | None:
    """Compute recognition quality; None if no individual has two photos, or there is only one individual."""
    same, different = pair_totals(labels)
    if not (same and different):
        return None
    report = verification_metrics(count_all_pairs(embeddings, labels))
    return GateMetrics(
        auc=report.auc,
        eer=report.eer,
        best_accuracy=report.best_balanced_accuracy,
        recall_at_1=retrieval_metrics(embeddings, labels).recall_at_k[1],
        tar_at_far=report.tar_at_far,
    )
