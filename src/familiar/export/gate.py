"""What a bundle may lose against the network it comes from: nobody has to find out in use."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float32, Int

from familiar.core.errors import GateRefused
from familiar.metrics.pairs import all_counts
from familiar.metrics.retrieval import retrieval
from familiar.metrics.roc import pair_totals
from familiar.metrics.verification import verification

ROUNDING = 1e-9  # 0.98 less 0.96 is a little more than 0.02


@dataclass(frozen=True)
class Figures:
    """On validation identities, in [0, 1]. `tar_at_far` has None where the pairs are too few for the rate."""

    auc: float
    eer: float
    best_accuracy: float
    recall_at_1: float
    tar_at_far: dict[str, float | None]


@dataclass(frozen=True)
class Gate:
    """The largest drops of ROC AUC and recall@1, of validation crops, with which a bundle is written."""

    max_auc_drop: float = 0.01
    max_recall_drop: float = 0.02

    def passes(self, source: Figures, exported: Figures) -> bool:
        return (
            source.auc - exported.auc <= self.max_auc_drop + ROUNDING
            and source.recall_at_1 - exported.recall_at_1 <= self.max_recall_drop + ROUNDING
        )

    def require(self, source: Figures, exported: Figures, what: str) -> None:
        """GateRefused, saying what was lost and what may be."""
        if not self.passes(source, exported):
            raise GateRefused(
                f"{what} loses too much: ROC AUC {source.auc:.4f} -> {exported.auc:.4f} (at most "
                f"{self.max_auc_drop:g} may go), recall@1 {source.recall_at_1:.4f} -> {exported.recall_at_1:.4f} (at "
                f"most {self.max_recall_drop:g}); nothing was written. Try --precision mixed or int8-weights, train on "
                "with --set quantize.aware=true, or allow more with --max-auc-drop and --max-recall-drop"
            )


STANDARD = Gate()
# Between a bundle's embeddings and its source's, on average: with less the two must not be compared with each other,
# however good each is alone.
COSINE_OF_ONE_SPACE = 0.95


def figures(embeddings: Float32[np.ndarray, "n d"], labels: Int[np.ndarray, " n"]) -> Figures | None:
    """None where there are no two photos of one individual, or only one individual."""
    same, different = pair_totals(labels)
    if not (same and different):
        return None
    found = verification(all_counts(embeddings, labels))
    return Figures(
        auc=found.auc,
        eer=found.eer,
        best_accuracy=found.best_balanced_accuracy,
        recall_at_1=retrieval(embeddings, labels).recall_at_k[1],
        tar_at_far=found.tar_at_far,
    )
