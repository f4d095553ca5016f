"""Partial FC: ArcFace over a random share of the classes, for 100,000 and more (arXiv 2010.05222, 2203.15565)."""

import math
from typing import ClassVar

import torch
import torch.distributed as dist
from jaxtyping import Float, Int64
from torch import Tensor, nn
from torch.nn.functional import embedding

from familiar.losses.cross_entropy import cosine_cross_entropy
from familiar.losses.distributed import world_size
from familiar.losses.margin import Branch, arcface_cosine, check_angular_margin
from familiar.losses.sharded_cross_entropy import sharded_cosine_cross_entropy
from familiar.losses.validation import check_batch, check_classifier, check_range

ROWS_PER_DRAW = 2**16  # initial centers drawn at a time, of which a rank keeps its own


class PartialFC(nn.Module):
    """ArcFace's softmax over the classes of the batch and a random share of the others, drawn in every step.

    In evaluation mode all classes take part. Only the centers that take part are read and get a gradient, a sparse
    one: pass the parameters named in `sparse_parameters` to `torch.optim.SparseAdam`, which does not touch the other
    rows. Draws come from torch's global generator.

    With several ranks, each has the centers of some classes only, and computes their part of the softmax. It must then
    be called as `across_ranks(PartialFC(...))` calls it, with the joined batch. The loss, the gradients and the initial
    centers are those of one process. Gradients of the centers are not to be averaged: they are whole on their rank.

    Args:
        embedding_dim: length of the rows.
        classes: number of classes.
        rate: share of the classes that take part, in (0, 1]: `ceil(rate * classes)`, or as many as are in the batch if
            those are more.
        scale: factor of the cosines, above 0.
        margin_rad: in [0, 2.33] radians, or [0, pi] with `branch="continuous"`.
        label_smoothing: in [0, 1).
        branch: as in `ArcFace`.

    Raises:
        ValueError: a setting is out of range.
    """

    sparse_parameters: ClassVar[tuple[str, ...]] = ("centers",)

    def __init__(
        self,
        embedding_dim: int,
        classes: int,
        rate: float = 0.1,
        scale: float = 32.0,
        margin_rad: float = 0.4,
        label_smoothing: float = 0.0,
        *,
        branch: Branch = "penalty",
    ) -> None:
        super().__init__()
        check_classifier(embedding_dim, classes, scale, label_smoothing)
        check_range("rate", rate, 0 < rate <= 1, "(0, 1]")
        check_angular_margin(margin_rad, branch)
        self.rate = rate
        self.scale = scale
        self.margin_rad = margin_rad
        self.label_smoothing = label_smoothing
        self.branch: Branch = branch
        self.classes = classes
        self.is_sharded = world_size() > 1
        self.shard = class_shard(classes)
        self.centers = nn.Parameter(_draw_centers(classes, embedding_dim, self.shard))

    def forward(self, embeddings: Float[Tensor, "n d"], labels: Int64[Tensor, " n"]) -> Float[Tensor, ""]:
        """Compute the mean cross-entropy of `embeddings` against `labels` in [0, classes)."""
        check_batch(embeddings, labels, classes=self.classes)
        count = math.ceil(self.rate * self.classes) if self.training else self.classes
        if count < self.classes:
            sampled = sample_classes(labels, self.classes, count)
            labels = torch.searchsorted(sampled, labels)
        else:
            sampled = torch.arange(self.classes, device=labels.device)
        if not self.is_sharded:
            centers = embedding(sampled, self.centers, sparse=True)
            return cosine_cross_entropy(
                embeddings, centers, labels, self._apply_margin, self.scale, self.label_smoothing
            )
        bounds = torch.tensor([self.shard.start, self.shard.stop], device=labels.device)
        first, end = map(int, torch.searchsorted(sampled, bounds))
        centers = embedding(sampled[first:end] - self.shard.start, self.centers, sparse=True)
        return sharded_cosine_cross_entropy(
            embeddings, centers, labels - first, len(sampled), self._apply_margin, self.scale, self.label_smoothing
        )

    def _apply_margin(self, cosines: Tensor) -> Tensor:
        return arcface_cosine(cosines, self.margin_rad, self.branch)


def class_shard(classes: int) -> range:
    """Return the classes whose centers this rank has: all of them without other ranks."""
    ranks, rank = world_size(), dist.get_rank() if world_size() > 1 else 0
    return range(classes * rank // ranks, classes * (rank + 1) // ranks)


def _draw_centers(classes: int, embedding_dim: int, shard: range) -> Float[Tensor, "shard d"]:
    """Draw the centers of all classes, a few at a time, and keep those of a shard: any ranks have the same ones."""
    parts = [torch.empty(0, embedding_dim)]
    for start in range(0, classes, ROWS_PER_DRAW):
        drawn = torch.randn(min(ROWS_PER_DRAW, classes - start), embedding_dim)
        parts.append(drawn[max(shard.start - start, 0) : max(shard.stop - start, 0)] * 0.01)
    return torch.cat(parts)


def sample_classes(labels: Int64[Tensor, " n"], classes: int, count: int) -> Int64[Tensor, " sampled"]:
    """Draw random classes in addition to those of the batch.

    Args:
        labels: the classes of the batch.
        classes: number of all classes.
        count: how many to return; if the batch has more classes, as many as it has.

    Returns:
        Class numbers, increasing.
    """
    draw = torch.rand(classes, device=labels.device).scatter_(0, labels, 2.0)  # those of other classes are below 1
    if len(labels) > count:  # only then can the batch have more classes; counting them waits for the device
        count = max(count, int((draw > 1.0).sum()))
    return draw.topk(count, sorted=False).indices.sort().values
