"""Softmax cross-entropy of scaled cosines, with a margin on the cosine of each row's own class.

All that a classifier does to its n x classes matrix happens here, once: cosines, margin, label smoothing. The
caller passes the margin function. Of many classes each rank may have the centers of some only.
"""

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from jaxtyping import Float, Int64
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.nn.functional import normalize

from familiar.losses.distributed import world_size
from familiar.losses.validation import check_batch, row_lengths

MIN_NORM = 1e-12  # as in torch.nn.functional.normalize
VALUES_PER_BLOCK = 2**20  # 4 MB of float32: with smaller blocks threads wait for each other more often


def cosine_cross_entropy(
    embeddings: Float[Tensor, "n d"],
    centers: Float[Tensor, "*k classes full_dim"],
    labels: Int64[Tensor, " n"],
    apply_margin: Callable[[Tensor], Tensor],
    scale: float,
    label_smoothing: float,
    classes: int | None = None,
) -> Float[Tensor, ""]:
    """Compute the mean cross-entropy of `scale` times the cosines between rows and class centers.

    Angles need float32: half precision is converted, and autocast is off.

    With the centers of some classes only, every rank must call this with the same rows, and then `backward`; each waits
    for the others. Each returns the same loss. The gradient of the rows is the number of ranks times this rank's part
    of it, so that the sum over the ranks, which `gather_batch` sends back, is as for a loss that every rank computes as
    a whole.

    Args:
        embeddings: rows of any length; they are normalized.
        centers: one per class, or k per class, of which the nearest counts; they are normalized. Only their first d
            components are used (see `truncate_components`).
        labels: in [0, classes). With the centers of some classes, counted from the first of these: labels of other
            ranks' classes are below 0, or not below their number.
        apply_margin: changes the cosines of the rows' own classes; elementwise and differentiable.
        scale: factor of the cosines.
        label_smoothing: share of the target that is spread over all classes.
        classes: number of classes of all ranks, if `centers` are those of some only; there may be none. None: `centers`
            are those of all classes.

    Returns:
        A scalar; a differentiable zero for an empty batch.
    """
    check_batch(embeddings, labels, classes=centers.shape[-2] if classes is None else None)
    with torch.autocast(embeddings.device.type, enabled=False):
        compute_dtype = torch.promote_types(embeddings.dtype, torch.float32)
        rows = normalize(embeddings.to(compute_dtype))
        truncated = truncate_components(centers, embeddings.shape[1]).to(compute_dtype)
        return _CosineCrossEntropy.apply(rows, truncated, labels, apply_margin, scale, label_smoothing, classes)


def truncate_components(
    centers: Float[Tensor, "*k classes full_dim"], components: int
) -> Float[Tensor, "*k classes d"]:
    """Return the first `components` of each center, so that one set of centers serves every prefix of the embeddings.

    Raises:
        ValueError: the centers have fewer components.
    """
    if components > centers.shape[-1]:
        raise ValueError(
            f"embeddings have {components} components, but the centers have only {centers.shape[-1]}; "
            "build the classifier with embedding_dim at least as large"
        )
    return centers[..., :components]


class _CosineCrossEntropy(Function):
    """The loss with its gradient written out.

    Autograd reads and writes the centers some ten times on its way through their norms and copies the logits for
    the margin. Here only the entries of the own classes go through the margin, and the norms divide whole columns of
    the logits, forward and backward, so that the products take the centers as they are.
    """

    @staticmethod
    def forward(
        ctx: Any,
        rows: Tensor,
        centers: Tensor,
        labels: Tensor,
        apply_margin: Callable[[Tensor], Tensor],
        scale: float,
        label_smoothing: float,
        classes: int | None,
    ) -> Tensor:
        class_count = centers.shape[-2]
        flat = centers.flatten(0, -2)
        norms = row_lengths(flat).clamp_min(MIN_NORM)
        logits = (rows @ flat.T).mul_(scale / norms)
        nearest = None
        if centers.ndim == 3:
            logits, nearest = logits.view(len(rows), *centers.shape[:2]).max(dim=1)
        targets = torch.arange(len(labels), device=labels.device), labels
        if classes is not None:  # the rows whose class is here
            here = ((labels >= 0) & (labels < class_count)).nonzero().squeeze(1)
            targets = here, labels[here]
        with_margin, margin_derivative = _margin_and_derivative(apply_margin, logits[targets] / scale)
        logits[targets] = scale * with_margin
        log_probs = logits.log_softmax(dim=1) if classes is None else _log_softmax_across_ranks(logits)
        ctx.save_for_backward(rows, centers, norms, nearest, *targets, margin_derivative, log_probs)
        ctx.scale = scale
        ctx.label_smoothing = label_smoothing
        ctx.spread = label_smoothing / (classes or class_count)
        ctx.ranks = 1 if classes is None else world_size()
        loss = (label_smoothing - 1.0) * log_probs[targets].sum()
        if label_smoothing:
            loss -= ctx.spread * log_probs.sum()
        if classes is not None:
            dist.all_reduce(loss)
        return loss / max(len(labels), 1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore
        rows, centers, norms, nearest, here, columns, margin_derivative, log_probs = ctx.saved_tensors
        logit_grad = log_probs.exp()
        if ctx.spread:
            logit_grad -= ctx.spread
        # expm1: for a row that is nearly certain, probability - 1 would lose all digits.
        target_grad = log_probs[here, columns].expm1() + (ctx.label_smoothing - ctx.spread)
        logit_grad[here, columns] = margin_derivative * target_grad
        if nearest is not None:
            per_center = logit_grad.new_zeros(len(rows), *centers.shape[:2])
            logit_grad = per_center.scatter_(1, nearest[:, None], logit_grad[:, None]).flatten(1)
        logit_grad *= ctx.scale / max(len(rows), 1) * gradient / norms
        flat = centers.flatten(0, -2)
        with torch.autocast(rows.device.type, enabled=False):
            row_grad = logit_grad @ flat
            center_grad = _remove_along(logit_grad.T @ rows, flat, norms)
        if ctx.ranks > 1:
            row_grad *= ctx.ranks
        return row_grad, center_grad.view_as(centers), None, None, None, None, None


def _log_softmax_across_ranks(logits: Float[Tensor, "n shard"]) -> Float[Tensor, "n shard"]:
    """Overwrite logits of this rank's classes with the logarithms of their probabilities among all ranks' classes."""
    highest = logits.amax(dim=1) if logits.shape[1] else logits.new_full((len(logits),), -torch.inf)
    dist.all_reduce(highest, dist.ReduceOp.MAX)
    totals = (logits - highest[:, None]).exp().sum(dim=1)
    dist.all_reduce(totals)
    return logits.sub_((highest + totals.log())[:, None])


def _margin_and_derivative(apply_margin: Callable[[Tensor], Tensor], cosines: Tensor) -> tuple[Tensor, Tensor]:
    """Return the cosines with the margin, and the derivative of each by the cosine without it."""
    with torch.enable_grad():
        cosines = cosines.detach().requires_grad_()
        with_margin = apply_margin(cosines)
        (derivative,) = torch.autograd.grad(with_margin, cosines, torch.ones_like(cosines))
    return with_margin.detach(), derivative


def _remove_along(gradient: Tensor, centers: Tensor, norms: Tensor) -> Tensor:
    """Remove from the gradient of each center what points along it, since that does not change its direction."""
    along = _rowwise_inner_products(gradient, centers) / norms.square()
    return gradient.addcmul_(centers, along[:, None], value=-1.0)


def _rowwise_inner_products(first: Tensor, second: Tensor) -> Tensor:
    """Compute the inner product of each row of `first` with the same row of `second`.

    In blocks: one elementwise product of the full size is slower, since it allocates new memory.
    """
    block = max(VALUES_PER_BLOCK // first.shape[1], 1)
    blocks = zip(first.split(block), second.split(block), strict=True)  # pyright: ignore
    return torch.cat([(left * right).sum(dim=1) for left, right in blocks])
