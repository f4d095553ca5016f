"""Losses of pairs, computed in blocks of anchors with their gradients written out.

Such a loss is a sum over anchors of some function of the anchor's row in the matrix of distances (or similarities).
The derivative of that function with respect to the row is all that backpropagation needs: the gradient of the
embeddings is that derivative times the embeddings. So a loss computes the cost of a block of rows and its derivative
(`BlockLoss`); this module makes the blocks and sums up the gradient while they are in memory. Memory grows linearly
with the batch, not quadratically, and the only tensor saved for the backward pass is one gradient of the size of the
embeddings.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any, ClassVar, Literal, NamedTuple

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor
from torch.nn.functional import normalize

from familiar.losses.validation import check_batch, check_rows

# Values in one block, by device type: on a CPU it should fit into the cache, on a GPU it should keep the device busy.
VALUES_PER_BLOCK = {"cpu": 2**18}
DEFAULT_VALUES_PER_BLOCK = 2**26
FINITE_INF = 1e30  # stands for infinity; finite, since 0 * inf is NaN

Reduction = Literal["active", "all"]  # mean over the terms above zero, or over all terms
REDUCTION = "the mean over the triplets or pairs whose loss is above zero, or over `all`"
SQUARED_DISTANCE = (0, 4, "squared distance")  # the range of margins, and what they are


class Block(NamedTuple):
    """Distances or similarities from b anchors to all n rows of a batch, and which columns are positives."""

    values: Float[Tensor, "b n"]
    # The columns of each anchor's positives, padded to k with the anchor's own column. All other columns are negatives.
    positive_cols: Int64[Tensor, "b k"]
    positive_mask: Bool[Tensor, "b k"]  # which of these columns are positives, and not padding

    def positive_values(self, pad: float) -> Float[Tensor, "b k"]:
        """Return the values of the positives, with `pad` in the padding."""
        return torch.where(self.positive_mask, self.values.gather(1, self.positive_cols), pad)

    def negative_values(self, fill: float) -> Float[Tensor, "b n"]:
        """Overwrite everything but the negatives in `values` with `fill`, in place, and return it."""
        return self.values.scatter_(1, self.positive_cols, fill)


class BlockLoss(NamedTuple):
    """The cost of a block.

    Attributes:
        total: the sum of its terms, float64.
        terms: how many terms there are.
        grad: derivative of `total` with respect to the block's values.
    """

    total: Float[Tensor, ""]
    terms: Int64[Tensor, ""]
    grad: Float[Tensor, "b n"]


class PairLoss(ABC):
    """A loss of a batch's pairs, called with (embeddings, labels): the mean over its terms."""

    uses: ClassVar[Literal["distance", "similarity"]] = "distance"  # squared Euclidean, or inner product

    @abstractmethod
    def block_loss(self, block: Block) -> BlockLoss:
        """Compute the cost of a block and its derivative; may overwrite the block's values."""

    def __call__(
        self, embeddings: Float[Tensor, "n d"], labels: Int64[Tensor, " n"], anchors: int | None = None
    ) -> Float[Tensor, ""]:
        """Compute the loss of a batch.

        Args:
            embeddings: unit rows, one per photo.
            labels: the identity of each row.
            anchors: only the first `anchors` rows are anchors; the others are still their positives and negatives.
                By default all rows are.

        Returns:
            A scalar, in float32 or float64, that can be differentiated once. A batch without terms gives a
            differentiable zero.

        Raises:
            ValueError: a row has another length than 1, the number of labels is not the number of rows, or there are
                more anchors than rows.
        """
        check_batch(embeddings, labels, anchors, unit=True)
        return loss_with_gradient(embeddings, partial(self.value_and_gradient, labels, anchors))

    def value_and_gradient(
        self, labels: Tensor, anchors: int | None, rows: Tensor, needs_gradient: bool
    ) -> tuple[Tensor, Tensor]:
        """Compute the loss of unit rows and, if it is needed, its gradient with respect to them."""
        distances = self.uses == "distance"
        left, right = _distance_factors(rows) if distances else (rows, rows)
        total, terms = rows.new_zeros((), dtype=torch.float64), labels.new_zeros(())
        sums, weights = torch.zeros_like(rows), rows.new_zeros(len(rows), 1)
        count = len(labels) if anchors is None else anchors
        for anchor_rows, positive_cols, positive_mask in _anchor_blocks(labels, count):
            cost = self.block_loss(Block(left[anchor_rows] @ right.T, positive_cols, positive_mask))
            total += cost.total
            terms += cost.terms
            if not needs_gradient:
                continue
            if len(positive_cols) == len(labels):  # a single block: one product gives both sides of every pair
                both_sides = cost.grad + cost.grad.T
                sums, weights = both_sides @ rows, both_sides.sum(dim=1, keepdim=True)
                continue
            sums[anchor_rows].addmm_(cost.grad, rows)
            sums.addmm_(cost.grad.T, rows[anchor_rows])
            weights[anchor_rows] += cost.grad.sum(dim=1, keepdim=True)
            weights += cost.grad.sum(dim=0)[:, None]
        terms.clamp_min_(1)
        # The derivative of |a|^2 - 2 ab + |b|^2 by a is 2 a - 2 b.
        gradient = torch.addcmul(sums * -2, rows, weights, value=2) if distances else sums
        return total.div_(terms).to(rows.dtype), gradient.div_(terms)


def distance_blocks(embeddings: Float[Tensor, "n d"], labels: Int64[Tensor, " n"]) -> Iterator[tuple[slice, Block]]:
    """Yield the squared distances between all rows, one block of anchors after another, with the anchors' rows."""
    check_batch(embeddings, labels)
    with no_grad_no_autocast(embeddings):
        left, right = _distance_factors(to_float32(embeddings))
    for anchor_rows, positive_cols, positive_mask in _anchor_blocks(labels, len(labels)):
        with no_grad_no_autocast(embeddings):
            values = left[anchor_rows] @ right.T
        yield anchor_rows, Block(values, positive_cols, positive_mask)


def loss_with_gradient(embeddings: Tensor, compute: Callable[[Tensor, bool], tuple[Tensor, Tensor]]) -> Tensor:
    """Compute a loss whose gradient is written out.

    Args:
        embeddings: of the batch.
        compute: takes them in float32 or float64, and whether the gradient is needed; returns the loss and the
            gradient, which may be anything if it is not needed.
    """
    value: Tensor = _LossWithGradient.apply(embeddings, compute)  # pyright: ignore
    return value


class _LossWithGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, embeddings: Tensor, compute: Callable[[Tensor, bool], tuple[Tensor, Tensor]]) -> Tensor:
        with no_grad_no_autocast(embeddings):
            value, gradient = compute(to_float32(embeddings), ctx.needs_input_grad[0])
        ctx.dtype = embeddings.dtype
        ctx.save_for_backward(gradient)
        return value

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *value_gradients: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore
        # Cast to half precision after scaling: the scale of the loss keeps small gradients from vanishing in it.
        return (ctx.saved_tensors[0] * value_gradients[0]).to(ctx.dtype), None


def no_grad_no_autocast(embeddings: Tensor) -> AbstractContextManager[Any]:
    """Return a context in which autograd and autocast (on the device of `embeddings`) are off."""
    device_type = embeddings.device.type
    if torch.is_autocast_enabled(device_type):
        return _both_disabled(device_type)
    return torch.no_grad()


@contextmanager
def _both_disabled(device_type: str) -> Generator[None]:
    with torch.no_grad(), torch.autocast(device_type, enabled=False):
        yield


def to_float32(embeddings: Tensor) -> Tensor:
    """Convert half precision to float32, and leave float32 and float64 as they are.

    In half precision a distance has too few digits to compare two of them.
    """
    if embeddings.dtype in (torch.float32, torch.float64):
        return embeddings
    return embeddings.to(torch.float32)


def unit_prefix(embeddings: Float[Tensor, "n d"], length: int) -> Float[Tensor, "n k"]:
    """Return the first components of each row, scaled to unit length.

    Args:
        embeddings: rows of any norm.
        length: k, how many components; rows with fewer are taken whole.

    Returns:
        Unit rows, in float32 for half precision, else in the dtype of `embeddings`; a prefix of zeros stays zero.
    """
    check_rows(embeddings=embeddings)
    return normalize(to_float32(embeddings[:, :length]), dim=1)


def anchors_per_block(rows: Tensor) -> int:
    """Return how many anchors make a block, given all rows (or labels) of the batch."""
    return max(1, VALUES_PER_BLOCK.get(rows.device.type, DEFAULT_VALUES_PER_BLOCK) // max(1, len(rows)))


def _distance_factors(rows: Tensor) -> tuple[Tensor, Tensor]:
    """Return two matrices, rows by d + 2, whose product is |a|^2 - 2 ab + |b|^2."""
    squares, ones_column = rows.square().sum(dim=1, keepdim=True), rows.new_ones(len(rows), 1)
    return torch.cat([rows * -2, squares, ones_column], dim=1), torch.cat([rows, ones_column, squares], dim=1)


def _anchor_blocks(labels: Tensor, anchors: int) -> Iterator[tuple[slice, Tensor, Tensor]]:
    """Yield blocks of the first `anchors` rows: their slice, the columns of their positives, and the mask of these."""
    if anchors == 0:
        return
    device, n = labels.device, len(labels)
    sorted_labels, order = labels.sort(stable=True)
    firsts = torch.searchsorted(sorted_labels, labels)[:, None]
    lasts = torch.searchsorted(sorted_labels, labels, right=True)[:, None] - 1
    offsets = torch.arange(int((lasts - firsts).max()) + 1, device=device)
    self_cols = torch.arange(n, device=device)[:, None]
    step = anchors_per_block(labels)
    for start in range(0, anchors, step):
        anchor_rows = slice(start, min(start + step, anchors))
        # Beyond the last photo of an identity its last photo is repeated, and masked.
        positions = firsts[anchor_rows] + offsets
        positive_cols = order[torch.minimum(positions, lasts[anchor_rows])]
        positive_mask = (positions <= lasts[anchor_rows]) & (positive_cols != self_cols[anchor_rows])
        yield anchor_rows, torch.where(positive_mask, positive_cols, self_cols[anchor_rows]), positive_mask
