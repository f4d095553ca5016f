"""The cross-entropy of `cross_entropy.py` where each rank has the centers of some classes only."""

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from jaxtyping import Float, Int64
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.nn.functional import normalize

from familiar.losses.cross_entropy import margin_and_derivative, remove_along, row_norms, truncate_components
from familiar.losses.distributed import world_size


def sharded_cosine_cross_entropy(
    embeddings: Float[Tensor, "n d"],
    centers: Float[Tensor, "shard full_dim"],
    labels: Int64[Tensor, " n"],
    classes: int,
    apply_margin: Callable[[Tensor], Tensor],
    scale: float,
    label_smoothing: float,
) -> Float[Tensor, ""]:
    """Compute the mean cross-entropy of `scale` times the cosines between rows and the class centers of all ranks.

    Every rank must call this with the same rows, and then `backward`; each waits for the others. Each returns the same
    loss. The gradient of the rows is the number of ranks times this rank's part of it, so that the sum over the ranks,
    which `gather_batch` sends back, is as for a loss that every rank computes as a whole.

    Args:
        embeddings: the joined rows.
        centers: of this rank's classes; there may be none.
        labels: of the rows, counted from the first of this rank's classes: those below 0, and from `shard` on, are on
            other ranks.
        classes: number of classes of all ranks.
        apply_margin: as in `cosine_cross_entropy`.
        scale: factor of the cosines.
        label_smoothing: share of the target that is spread over all classes.
    """
    with torch.autocast(embeddings.device.type, enabled=False):
        compute_dtype = torch.promote_types(embeddings.dtype, torch.float32)
        rows = normalize(embeddings.to(compute_dtype))
        truncated = truncate_components(centers, embeddings.shape[1]).to(compute_dtype)
        return _ShardedCrossEntropy.apply(rows, truncated, labels, classes, apply_margin, scale, label_smoothing)


class _ShardedCrossEntropy(Function):
    """The loss with its gradient written out, as autograd does not see what is summed over the ranks."""

    @staticmethod
    def forward(
        ctx: Any,
        rows: Tensor,
        centers: Tensor,
        labels: Tensor,
        classes: int,
        apply_margin: Callable[[Tensor], Tensor],
        scale: float,
        label_smoothing: float,
    ) -> Tensor:
        row_count, class_count = len(rows), len(centers)
        norms = row_norms(centers)
        logits = (rows @ centers.T).mul_(scale / norms)
        here = ((labels >= 0) & (labels < class_count)).nonzero().squeeze(1)  # rows whose class is on this rank
        columns = labels[here]
        with_margin, margin_derivative = margin_and_derivative(apply_margin, logits[here, columns] / scale)
        logits[here, columns] = scale * with_margin
        highest = logits.amax(dim=1) if class_count else logits.new_full((row_count,), -torch.inf)
        dist.all_reduce(highest, dist.ReduceOp.MAX)
        target_logits = logits.new_zeros(row_count).index_put_((here,), logits[here, columns])
        sums = torch.stack([(logits - highest[:, None]).exp().sum(dim=1), target_logits, logits.sum(dim=1)])
        dist.all_reduce(sums)
        log_totals = highest + sums[0].log()
        log_probs = logits.sub_(log_totals[:, None])
        ctx.save_for_backward(rows, centers, norms, here, columns, margin_derivative, log_probs)
        ctx.scale = scale
        ctx.label_smoothing = label_smoothing
        ctx.spread = label_smoothing / classes
        loss = log_totals.sum() - (1.0 - label_smoothing) * sums[1].sum() - ctx.spread * sums[2].sum()
        return loss / max(row_count, 1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore
        rows, centers, norms, here, columns, margin_derivative, log_probs = ctx.saved_tensors
        # expm1: for a row that is nearly certain, probability - 1 would lose all digits.
        target_grad = log_probs[here, columns].expm1() + (ctx.label_smoothing - ctx.spread)
        logit_grad = log_probs.exp() - ctx.spread
        logit_grad[here, columns] = margin_derivative * target_grad
        logit_grad *= ctx.scale / max(len(rows), 1) * gradient / norms
        with torch.autocast(rows.device.type, enabled=False):
            row_grad = (logit_grad @ centers) * world_size()
            center_grad = remove_along(logit_grad.T @ rows, centers, norms)
        return row_grad, center_grad, None, None, None, None, None
