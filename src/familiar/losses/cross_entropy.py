"""Softmax cross-entropy of scaled cosines, with a margin on each row's own class. Knows no particular margin.

Everything a classifier does to its n x classes matrix happens here, once: cosines, margin, label smoothing.
"""

from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float, Int64
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.nn.functional import normalize

SMALLEST_NORM = 1e-12  # torch.nn.functional.normalize's own
BLOCK_NUMBERS = 2**20  # 4 MB of float32: smaller blocks wait more often for the other threads


def cosine_cross_entropy(
    embeddings: Float[Tensor, "n d"],
    centers: Float[Tensor, "*k classes wide"],
    labels: Int64[Tensor, " n"],
    own_cosine: Callable[[Tensor], Tensor],
    scale: float,
    label_smoothing: float,
) -> Float[Tensor, ""]:
    """Mean cross-entropy of `scale` times the cosines, those of the own classes taken through `own_cosine`.

    Rows and centers are taken at unit length; of the centers the first d components count (see `first`). With k
    centers a class its nearest counts. `own_cosine` is elementwise and differentiable. `label_smoothing` spreads
    that share of the target over all classes. Angles need float32: narrower types are widened, autocast is kept
    out. An empty batch gives a differentiable zero; labels outside [0, classes) raise torch's own error.
    """
    with torch.autocast(embeddings.device.type, enabled=False):
        wide = torch.promote_types(embeddings.dtype, torch.float32)
        rows = normalize(embeddings.to(wide))
        taken = first(centers, embeddings.shape[1]).to(wide)
        return _CosineCrossEntropy.apply(rows, taken, labels, own_cosine, scale, label_smoothing)


def first(centers: Float[Tensor, "*k classes wide"], components: int) -> Float[Tensor, "*k classes d"]:
    """The leading components of each center: one set of centers serves every prefix of the embeddings.

    ValueError where there are fewer.
    """
    if components > centers.shape[-1]:
        raise ValueError(f"embeddings of {components} components; the centers have {centers.shape[-1]}")
    return centers[..., :components]


class _CosineCrossEntropy(Function):
    """The loss with its gradient written out.

    Autograd reads and writes the centers some ten times on its way through their norms and copies the logits for
    the margin. Here only the own classes' entries meet the margin, and the norms divide whole columns of the
    logits, forward and backward, so that the products take the centers as they are.
    """

    @staticmethod
    def forward(
        ctx: Any,
        rows: Tensor,
        centers: Tensor,
        labels: Tensor,
        own_cosine: Callable[[Tensor], Tensor],
        scale: float,
        label_smoothing: float,
    ) -> Tensor:
        columns = labels[:, None]
        flat = centers.flatten(0, -2)
        norms = _norms(flat)
        logits = (rows @ flat.T).mul_(scale / norms)
        nearest = None
        if centers.ndim == 3:
            logits, nearest = logits.view(len(rows), *centers.shape[:2]).max(dim=1)
        own = (logits.gather(1, columns).squeeze(1) / scale).requires_grad_()
        with torch.enable_grad():
            shifted = own_cosine(own)
            (slope,) = torch.autograd.grad(shifted, own, torch.ones_like(own))
        log_shares = logits.scatter_(1, columns, scale * shifted.detach()[:, None]).log_softmax(dim=1)
        ctx.save_for_backward(rows, centers, norms, nearest, columns, slope, log_shares)
        ctx.scale = scale
        ctx.label_smoothing = label_smoothing
        loss = (label_smoothing - 1.0) * log_shares.gather(1, columns).sum()
        if label_smoothing:
            loss -= label_smoothing / logits.shape[1] * log_shares.sum()
        return loss / max(len(labels), 1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore
        rows, centers, norms, nearest, columns, slope, log_shares = ctx.saved_tensors
        spread = ctx.label_smoothing / log_shares.shape[1]
        of_logits = log_shares.exp()
        if spread:
            of_logits -= spread
        # expm1: where a row is nearly certain, share - 1 would keep no digits.
        own = log_shares.gather(1, columns).expm1() + (ctx.label_smoothing - spread)
        of_logits.scatter_(1, columns, slope[:, None] * own)
        if nearest is not None:
            chosen = of_logits.new_zeros(len(rows), *centers.shape[:2])
            of_logits = chosen.scatter_(1, nearest[:, None], of_logits[:, None]).flatten(1)
        of_logits *= ctx.scale / max(len(rows), 1) * gradient / norms
        flat = centers.flatten(0, -2)
        with torch.autocast(rows.device.type, enabled=False):
            of_rows = of_logits @ flat
            of_centers = of_logits.T @ rows
            # Only the part across a center turns it.
            along = _row_products(of_centers, flat) / norms.square()
            of_centers.addcmul_(flat, along[:, None], value=-1.0)
        return of_rows, of_centers.view_as(centers), None, None, None, None


def _norms(rows: Tensor) -> Tensor:
    norms: Tensor = torch.linalg.vector_norm(rows, dim=1)  # pyright: ignore
    return torch.clamp_min(norms, SMALLEST_NORM)  # pyright: ignore


def _row_products(rows: Tensor, others: Tensor) -> Tensor:
    """Inner product of each row with the other of its place. One product of the whole size costs more: new memory."""
    block = max(BLOCK_NUMBERS // rows.shape[1], 1)
    pairs = zip(rows.split(block), others.split(block), strict=True)  # pyright: ignore
    return torch.cat([(row * other).sum(dim=1) for row, other in pairs])
