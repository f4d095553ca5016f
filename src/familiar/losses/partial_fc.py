"""Partial FC: ArcFace over a random share of the classes, for 100,000 and more (arXiv 2010.05222, 2203.15565)."""

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.distributed as dist
from jaxtyping import Float, Int64
from torch import Tensor
from torch.nn.functional import embedding

from familiar.core.settings import setting
from familiar.losses.classifiers import ArcFace
from familiar.losses.cross_entropy import cosine_cross_entropy
from familiar.losses.distributed import world_size
from familiar.losses.validation import check_batch

ROWS_PER_DRAW = 2**16  # initial centers drawn at a time, of which a rank keeps its own


@dataclass(eq=False, kw_only=True)
class PartialFC(ArcFace):
    """ArcFace over a random share of the classes in each step (arXiv 2203.15565).

    The classes of the batch and random others take part, drawn in every step from torch's global generator; in
    evaluation mode all do. Only the centers that take part are read and get a gradient, a sparse one: pass the
    parameters named in `sparse_parameters` to `torch.optim.SparseAdam`, which does not touch the other rows.

    With several ranks, each has the centers of some classes only, and computes their part of the softmax. It must then
    be called as `AcrossRanks(PartialFC(...))` calls it, with the joined batch. The loss, the gradients and the initial
    centers are those of one process. Gradients of the centers are not to be averaged: they are whole on their rank.

    Args: those of `ArcFace`, and
        rate: share of the classes that take part, in [1e-6, 1]: `ceil(rate * classes)`, or as many as are in the batch
            if those are more.
    """

    sparse_parameters: ClassVar[tuple[str, ...]] = ("centers",)

    rate: float = setting(0.1, 1e-6, 1, "share of the class centers in each step")

    def __post_init__(self) -> None:
        super().__post_init__()
        self.is_sharded = world_size() > 1
        self.shard = class_shard(self.classes)

    def draw_centers(self) -> Float[Tensor, "shard embedding_dim"]:
        """Draw the centers of all classes, a few at a time, and keep this rank's: any ranks have the same ones."""
        shard = class_shard(self.classes)
        parts = [torch.empty(0, self.embedding_dim)]
        for start in range(0, self.classes, ROWS_PER_DRAW):
            drawn = torch.randn(min(ROWS_PER_DRAW, self.classes - start), self.embedding_dim)
            parts.append(drawn[max(shard.start - start, 0) : max(shard.stop - start, 0)] * 0.01)
        return torch.cat(parts)

    def forward(self, embeddings: Float[Tensor, "n d"], labels: Int64[Tensor, " n"]) -> Float[Tensor, ""]:
        """Compute the mean cross-entropy of `embeddings` against `labels` in [0, classes)."""
        check_batch(embeddings, labels, classes=self.classes)
        count = math.ceil(self.rate * self.classes) if self.training else self.classes
        if count < self.classes:
            sampled = sample_classes(labels, self.classes, count)
            labels = torch.searchsorted(sampled, labels)
        else:
            sampled = torch.arange(self.classes, device=labels.device)
        here, first, classes = sampled, 0, None
        if self.is_sharded:
            bounds = torch.tensor([self.shard.start, self.shard.stop], device=labels.device)
            first, end = map(int, torch.searchsorted(sampled, bounds))
            here, classes = sampled[first:end] - self.shard.start, len(sampled)
        centers = embedding(here, self.centers, sparse=True)
        return cosine_cross_entropy(
            embeddings, centers, labels - first, self.apply_margin, self.scale, self.label_smoothing, classes
        )


def class_shard(classes: int) -> range:
    """Return the classes whose centers this rank has: all of them without other ranks."""
    ranks, rank = world_size(), dist.get_rank() if world_size() > 1 else 0
    return range(classes * rank // ranks, classes * (rank + 1) // ranks)


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
