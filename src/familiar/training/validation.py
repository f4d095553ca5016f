"""How well a network tells unseen identities apart, while it is being trained."""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float32, Int64
from torch import nn

from familiar.core.errors import TrainingFailed
from familiar.core.vectors import check_unit_rows
from familiar.loading.batches import PhotoBatches
from familiar.loading.dataset import FaceDataset, in_order
from familiar.metrics.pairs import Pairs, pair_similarities, sample_pairs
from familiar.metrics.retrieval import retrieval
from familiar.metrics.roc import roc_counts
from familiar.metrics.verification import best_accuracy, roc_auc
from familiar.models.network import evaluating

COLLAPSED_SIMILARITY = 0.999  # a working network's strangers lie near 0
COMPARED_IDENTITIES, COMPARED_PHOTOS = 64, 8  # nearly two million triplets
COMPARED_STREAM = 5  # keeps these draws apart from others that use the same seed


@dataclass(frozen=True)
class Validation:
    """`accuracy` is that of the best threshold on these pairs; `recall_at_1` None where no photo has a mate.

    Both kinds of pairs weigh the same in `accuracy`: where few photos have mates, strangers are the most,
    and calling everyone one would look good.

    `stranger_similarity` is the mean over pairs of different identities.
    """

    accuracy: float
    auc: float
    recall_at_1: float | None
    stranger_similarity: float

    @property
    def collapsed(self) -> bool:
        """Whether every photo lands on one point."""
        return self.stranger_similarity > COLLAPSED_SIMILARITY


@torch.no_grad()
def embed_dataset(
    network: nn.Module,
    dataset: FaceDataset,
    rows: Int64[np.ndarray, " n"] | None = None,
    batch_size: int = 128,
) -> Float32[np.ndarray, "n d"]:
    """Embeddings of the rows, by default of all, in evaluation mode; the network's mode is left as it was."""
    device = next(network.parameters()).device
    keys = in_order(range(len(dataset)) if rows is None else rows.tolist(), batch_size)
    with evaluating(network):
        embeddings = [network(batch.images).float().cpu().numpy() for batch in PhotoBatches(dataset, keys, device)]
    return np.concatenate(embeddings)


def validation_pairs(labels: np.ndarray, count: int, seed: int) -> Pairs:
    """The same pairs at every validation of a run."""
    return sample_pairs(labels, count, seed=seed)


def compared_rows(labels: Int64[np.ndarray, " n"], seed: int) -> Int64[np.ndarray, " k"]:
    """The rows whose triplets a run is watched by: some photos of some identities, those with many first."""
    generator = np.random.default_rng((COMPARED_STREAM, seed))
    shuffled = generator.permutation(len(labels))
    counts = np.bincount(labels)
    order = generator.permutation(len(counts))
    chosen = order[np.argsort(-np.minimum(counts[order], COMPARED_PHOTOS), kind="stable")]
    rows = [shuffled[labels[shuffled] == label][:COMPARED_PHOTOS] for label in chosen[:COMPARED_IDENTITIES].tolist()]
    return np.concatenate(rows)


def validate(embeddings: Float32[np.ndarray, "n d"], labels: np.ndarray, pairs: Pairs) -> Validation:
    """TrainingFailed where an embedding has no direction: not finite, or zero after an overflow."""
    try:
        check_unit_rows(embeddings)
    except ValueError as error:
        raise TrainingFailed(f"the network's embeddings have no direction ({error}); lower optimizer.lr") from error
    similarities = pair_similarities(embeddings, pairs)
    counts = roc_counts(similarities[pairs.same], similarities[~pairs.same])
    found = retrieval(embeddings, labels) if np.bincount(labels).max() > 1 else None
    return Validation(
        accuracy=best_accuracy(counts, balanced=True)[0],
        auc=roc_auc(counts),
        recall_at_1=None if found is None else found.recall_at_k[1],
        stranger_similarity=float(similarities[~pairs.same].mean()),
    )
