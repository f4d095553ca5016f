"""Losses that see a batch only through distances or similarities between its rows, anchor by anchor.

Such a loss is a sum over anchors of some function of the anchor's row in the matrix of distances. Its derivative by
that row - the *slopes* - is all that backpropagation needs: the gradient is slopes times embeddings. So a loss says
what a block of rows costs and what its slopes are; here the blocks are made, and the gradient is put together while
they are at hand. Memory grows as the batch, not as its square, and nothing is kept for the backward pass but one
gradient of the embeddings' own size.
"""

from abc import ABC, abstractmethod
from collections.abc import Generator, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, ClassVar, Literal, NamedTuple

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor
from torch.nn.functional import normalize

# Values of one block: on a CPU they are to stay in its cache, on a GPU to keep it busy.
BLOCK_VALUES = {"cpu": 2**18}
BLOCK_VALUES_ELSEWHERE = 2**26
FAR = 1e30  # a distance that no bound reaches; finite, since 0 * inf is no number

Reduction = Literal["active", "all"]  # the mean over what costs something, or over all that was chosen


class Block(NamedTuple):
    """Distances or similarities from b anchors to all n rows of a batch.

    `places` are the columns of each anchor's positives, padded to k with the anchor's own column; `real` says which are
    positives. Every column that no place names is a negative.
    """

    values: Float[Tensor, "b n"]
    places: Int64[Tensor, "b k"]
    real: Bool[Tensor, "b k"]

    def positives(self, pad: float) -> Float[Tensor, "b k"]:
        return torch.where(self.real, self.values.gather(1, self.places), pad)

    def negatives(self, fill: float) -> Float[Tensor, "b n"]:
        """`values` themselves, overwritten with `fill` where no negative stands."""
        return self.values.scatter_(1, self.places, fill)


class Weighed(NamedTuple):
    """What a block costs: the sum of its terms (float64), how many there are, and d sum / d value."""

    total: Float[Tensor, ""]
    terms: Int64[Tensor, ""]
    slopes: Float[Tensor, "b n"]


class PairLoss(ABC):
    """A loss of a batch's pairs, called with (embeddings, labels): the mean over its terms."""

    sees: ClassVar[Literal["distance", "similarity"]] = "distance"  # squared Euclidean; or inner product

    @abstractmethod
    def weigh(self, block: Block) -> Weighed: ...

    def __call__(
        self, embeddings: Float[Tensor, "n d"], labels: Int64[Tensor, " n"], anchors: int | None = None
    ) -> Float[Tensor, ""]:
        """Scalar, float32 at least. A batch without terms gives a differentiable zero. Differentiable once.

        `anchors`: only the first so many rows are anchors; the others are still their positives and negatives.
        ValueError where labels or anchors do not fit the rows.
        """
        check_batch(embeddings, labels, anchors)
        value: Tensor = _OfRows.apply(embeddings, labels, self, anchors)  # pyright: ignore
        return value

    def of_prefixes(
        self, embeddings: Float[Tensor, "n d"], labels: Int64[Tensor, " n"], lengths: Sequence[int]
    ) -> Float[Tensor, " prefixes"]:
        """The loss on the first components of the rows, scaled to unit length, for each of the rising `lengths`.

        The inner products of a prefix are those of the shorter one plus those of the components between.
        """
        check_batch(embeddings, labels)
        values: Tensor = _OfPrefixes.apply(embeddings, labels, self, lengths)  # pyright: ignore
        return values


def distance_blocks(embeddings: Float[Tensor, "n d"], labels: Int64[Tensor, " n"]) -> Iterator[tuple[slice, Block]]:
    """Squared distances of all rows, a block of anchors after the other."""
    check_batch(embeddings, labels)
    with plainly(embeddings):
        left, right = _distance_factors(widened(embeddings))
    for some, places, real in _anchor_blocks(labels, len(labels)):
        with plainly(embeddings):
            values = left[some] @ right.T
        yield some, Block(values, places, real)


def count_terms(loss: PairLoss, embeddings: Float[Tensor, "n d"], labels: Int64[Tensor, " n"]) -> Int64[Tensor, ""]:
    """How many terms a loss of distances is the mean of."""
    terms = torch.zeros((), dtype=torch.int64, device=labels.device)
    for _, block in distance_blocks(embeddings, labels):
        terms += loss.weigh(block).terms
    return terms


class _OfRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, embeddings: Tensor, labels: Tensor, loss: PairLoss, anchors: int | None) -> Tensor:
        with plainly(embeddings):
            rows = widened(embeddings)
            distances = loss.sees == "distance"
            left, right = _distance_factors(rows) if distances else (rows, rows)
            n, count = len(labels), len(labels) if anchors is None else anchors
            total, terms = rows.new_zeros((), dtype=torch.float64), labels.new_zeros(())
            sums = right[:0]
            for some, places, real in _anchor_blocks(labels, count):
                cost = loss.weigh(Block(left[some] @ right.T, places, real))
                total += cost.total
                terms += cost.terms
                if not ctx.needs_input_grad[0]:
                    continue
                if len(places) == n:  # one block: one product for both sides of every pair
                    sums = (cost.slopes + cost.slopes.T) @ right
                    continue
                sums = sums if len(sums) else torch.zeros_like(right)
                sums[some].addmm_(cost.slopes, right)
                sums.addmm_(cost.slopes.T, right[some])
            terms.clamp_min_(1)
            if ctx.needs_input_grad[0]:
                sums = sums if len(sums) else torch.zeros_like(right)
                gradient = _of_distances(sums, rows) if distances else sums
                ctx.dtype = embeddings.dtype
                ctx.save_for_backward(gradient.div_(terms))
            return total.div_(terms).to(rows.dtype)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *value_gradients: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore
        # Narrowed last: a scaled loss is to save small gradients from vanishing in half precision.
        return (ctx.saved_tensors[0] * value_gradients[0]).to(ctx.dtype), None, None, None


class _OfPrefixes(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, embeddings: Tensor, labels: Tensor, loss: PairLoss, lengths: Sequence[int]) -> Tensor:
        with plainly(embeddings):
            rows = widened(embeddings)
            ends = list(lengths)
            inverse_norms = [rows[:, :end].square().sum(dim=1, keepdim=True).clamp_min(1e-24).rsqrt() for end in ends]
            units = [rows[:, :end] * inverse for end, inverse in zip(ends, inverse_norms, strict=True)]
            sums = [torch.zeros_like(unit) for unit in units]
            totals = rows.new_zeros(len(ends), dtype=torch.float64)
            terms = labels.new_zeros(len(ends))
            for some, places, real in _anchor_blocks(labels, len(labels)):
                products, start = rows.new_zeros(()), 0
                for at, end in enumerate(ends):
                    products = products + rows[some, start:end] @ rows[:, start:end].T
                    start = end
                    values = products * inverse_norms[at][some] * inverse_norms[at].T
                    if loss.sees == "distance":
                        values = values.mul_(-2).add_(2)
                    cost = loss.weigh(Block(values, places, real))
                    totals[at] += cost.total
                    terms[at] += cost.terms
                    if ctx.needs_input_grad[0]:
                        sums[at][some].addmm_(cost.slopes, units[at])
                        sums[at].addmm_(cost.slopes.T, units[at][some])
            terms = terms.clamp_min(1)
            factor = -2 if loss.sees == "distance" else 1
            gradients: list[Tensor] = []
            for at, (unit, inverse) in enumerate(zip(units, inverse_norms, strict=True)):
                outward = (sums[at] * unit).sum(dim=1, keepdim=True)
                gradients.append((sums[at] - outward * unit) * (inverse * factor / terms[at]))
            ctx.dtype, ctx.width = embeddings.dtype, embeddings.shape[1]
            ctx.save_for_backward(*gradients)
            return (totals / terms).to(rows.dtype)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *value_gradients: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore
        gradients = ctx.saved_tensors
        whole = gradients[0].new_zeros(len(gradients[0]), ctx.width)
        for gradient, scale in zip(gradients, value_gradients[0], strict=True):
            whole[:, : gradient.shape[1]] += gradient * scale
        return whole.to(ctx.dtype), None, None, None


def check_batch(embeddings: Tensor, labels: Tensor, anchors: int | None = None) -> None:
    """ValueError where there is not one label a row, or there are more anchors than rows."""
    if len(labels) != len(embeddings):
        raise ValueError(f"{len(labels)} labels for {len(embeddings)} embeddings")
    if anchors is not None and not 0 <= anchors <= len(labels):
        raise ValueError(f"{anchors} anchors among {len(labels)} rows")


def plainly(embeddings: Tensor) -> AbstractContextManager[Any]:
    """Without a graph, and without autocast."""
    kind = embeddings.device.type
    if torch.is_autocast_enabled(kind):
        return _without_both(kind)
    return torch.no_grad()


@contextmanager
def _without_both(kind: str) -> Generator[None]:
    with torch.no_grad(), torch.autocast(kind, enabled=False):
        yield


def widened(embeddings: Tensor) -> Tensor:
    """float32 at least: half precision keeps too few digits of a distance to compare two of them."""
    if embeddings.dtype in (torch.float32, torch.float64):
        return embeddings
    return embeddings.to(torch.float32)


def unit_prefix(embeddings: Float[Tensor, "n d"], length: int) -> Float[Tensor, "n k"]:
    """The first `length` components, scaled back to unit length."""
    return normalize(widened(embeddings[:, :length]), dim=1)


def anchors_at_once(rows: Tensor) -> int:
    """How many anchors make a block."""
    return max(1, BLOCK_VALUES.get(rows.device.type, BLOCK_VALUES_ELSEWHERE) // max(1, len(rows)))


def _distance_factors(rows: Tensor) -> tuple[Tensor, Tensor]:
    """Two matrices, rows by d + 2, whose product holds |a|^2 - 2 ab + |b|^2."""
    squares, ones = rows.square().sum(dim=1, keepdim=True), rows.new_ones(len(rows), 1)
    return torch.cat([rows * -2, squares, ones], dim=1), torch.cat([rows, ones, squares], dim=1)


def _of_distances(sums: Tensor, rows: Tensor) -> Tensor:
    """Gradient by the rows, from slopes times the right factor: its column of ones has added up the slopes."""
    d = rows.shape[1]
    return torch.addcmul(sums[:, :d] * -2, rows, sums[:, d : d + 1], value=2)


def _anchor_blocks(labels: Tensor, anchors: int) -> Iterator[tuple[slice, Tensor, Tensor]]:
    """Blocks of the first rows, with the columns of their positives and which of those are real."""
    if anchors == 0:
        return
    device, n = labels.device, len(labels)
    ordered, order = labels.sort(stable=True)
    firsts = torch.searchsorted(ordered, labels)[:, None]
    lasts = torch.searchsorted(ordered, labels, right=True)[:, None] - 1
    within = torch.arange(int((lasts - firsts).max()) + 1, device=device)
    own = torch.arange(n, device=device)[:, None]
    step = anchors_at_once(labels)
    for start in range(0, anchors, step):
        some = slice(start, min(start + step, anchors))
        # Past an identity's last photo its last photo stands again, and is not real.
        wanted = firsts[some] + within
        places = order[torch.minimum(wanted, lasts[some])]
        real = (wanted <= lasts[some]) & (places != own[some])
        yield some, torch.where(real, places, own[some]), real
