"""Validation during training: how well a network tells unseen identities apart."""

from dataclasses import dataclass

import numpy as np
import torch
import torch.distributed as dist
from jaxtyping import Float32, Int64
from torch import nn

from familiar.core.errors import TrainingFailed
from familiar.core.vectors import check_unit_rows
from familiar.loading.batches import PhotoBatches
from familiar.loading.dataset import FaceDataset, sequential_batches
from familiar.metrics.pairs import Pairs, pair_similarities
from familiar.metrics.retrieval import retrieval_metrics
from familiar.metrics.roc import roc_counts
from familiar.metrics.verification import best_accuracy, roc_auc
from familiar.models.network import eval_mode
from familiar.training.ranks import Ranks

COLLAPSED_SIMILARITY = 0.999  # a working network's negative pairs have similarities near 0
# Photos for the validation loss; 64 identities of 8 photos have nearly two million triplets.
LOSS_IDENTITIES, LOSS_PHOTOS = 64, 8
LOSS_STREAM = 5  # separates these random draws from others that use the same seed


@dataclass(frozen=True)
class ValidationScores:
    """How well the embeddings tell identities apart.

    Attributes:
        accuracy: balanced accuracy of verification at the best threshold on these pairs. Balanced, because where few
            identities have two photos, nearly all pairs are negative, and rejecting every pair would look good.
        auc: area under the ROC curve of these pairs.
        recall_at_1: share of photos whose nearest photo shows the same identity; None if no identity has two photos.
        mean_negative_similarity: mean over pairs of different identities.
    """

    accuracy: float
    auc: float
    recall_at_1: float | None
    mean_negative_similarity: float

    @property
    def collapsed(self) -> bool:
        """Whether all photos have nearly the same embedding."""
        return self.mean_negative_similarity > COLLAPSED_SIMILARITY


@torch.no_grad()
def embed_dataset(
    network: nn.Module,
    dataset: FaceDataset,
    rows: Int64[np.ndarray, " n"] | None = None,
    batch_size: int = 128,
) -> Float32[np.ndarray, "n d"]:
    """Embed rows of a dataset in evaluation mode; the network's mode is restored afterwards.

    Args:
        network: computes the embeddings, on the device of its parameters.
        dataset: the photos.
        rows: which photos, by default all.
        batch_size: photos in a batch.
    """
    parameter = next(network.parameters())
    keys = sequential_batches(range(len(dataset)) if rows is None else rows.tolist(), batch_size)
    with eval_mode(network):
        batches = PhotoBatches(dataset, keys, parameter.device)
        embeddings = [network(batch.images.to(parameter.dtype)).float().cpu().numpy() for batch in batches]
    return np.concatenate(embeddings)


def embed_by_ranks(
    network: nn.Module, dataset: FaceDataset, ranks: Ranks, rows: Int64[np.ndarray, " n"] | None = None
) -> Float32[np.ndarray, "n d"]:
    """Embed rows of a dataset as `embed_dataset` does, each rank some of them; all ranks get all embeddings."""
    rows = np.arange(len(dataset)) if rows is None else rows
    for buffer in network.buffers() if ranks.size > 1 else ():
        dist.broadcast(buffer, src=0)  # on CPUs, the batch norms of each rank have seen its own photos only
    if ranks.size == 1 or len(rows) < ranks.size:
        return embed_dataset(network, dataset, rows)
    return np.concatenate(ranks.gather(embed_dataset(network, dataset, np.array(ranks.share(rows.tolist())))))


def validation_loss_rows(labels: Int64[np.ndarray, " n"], seed: int) -> Int64[np.ndarray, " k"]:
    """Draw the photos of the validation loss: up to 8 of each of up to 64 identities, those with many photos first."""
    generator = np.random.default_rng((LOSS_STREAM, seed))
    shuffled = generator.permutation(len(labels))
    counts = np.bincount(labels)
    order = generator.permutation(len(counts))
    by_count = order[np.argsort(-np.minimum(counts[order], LOSS_PHOTOS), kind="stable")]
    rows = [shuffled[labels[shuffled] == label][:LOSS_PHOTOS] for label in by_count[:LOSS_IDENTITIES].tolist()]
    return np.concatenate(rows)


def validate(embeddings: Float32[np.ndarray, "n d"], labels: np.ndarray, pairs: Pairs) -> ValidationScores:
    """Score embeddings.

    Args:
        embeddings: unit rows.
        labels: their identities.
        pairs: to verify.

    Raises:
        TrainingFailed: an embedding is not finite, or zero after an overflow.
    """
    try:
        check_unit_rows(embeddings)
    except ValueError as error:
        raise TrainingFailed(
            f"the network's embeddings are not finite unit vectors ({error}); lower optimizer.lr"
        ) from error
    similarities = pair_similarities(embeddings, pairs)
    counts = roc_counts(similarities[pairs.same], similarities[~pairs.same])
    has_positive_pairs = np.bincount(labels).max() > 1
    return ValidationScores(
        accuracy=best_accuracy(counts, balanced=True)[0],
        auc=roc_auc(counts),
        recall_at_1=retrieval_metrics(embeddings, labels).recall_at_k[1] if has_positive_pairs else None,
        mean_negative_similarity=float(similarities[~pairs.same].mean()),
    )
