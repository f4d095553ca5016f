"""Triplets of a batch as indices: which anchor, positive and negative each way of choosing picks.

Distances are squared Euclidean. The losses of `triplet.py` choose the same triplets without listing them; lists are for
looking at, for losses that take triplets one by one, and for mining across batches.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from familiar.losses.blockwise import FAR, Block, anchors_at_once, distance_blocks, plainly, widened

Select = Literal["all", "hardest", "random"]


@dataclass(frozen=True, eq=False)
class Triplets:
    """Rows of a batch, ordered by anchor, then positive, then negative; as a sequence, triples of integers."""

    anchors: Int64[Tensor, " t"]
    positives: Int64[Tensor, " t"]
    negatives: Int64[Tensor, " t"]

    def __len__(self) -> int:
        return len(self.anchors)

    def of(
        self, embeddings: Float[Tensor, "n d"]
    ) -> tuple[Float[Tensor, "t d"], Float[Tensor, "t d"], Float[Tensor, "t d"]]:
        """Their rows: anchors, positives, negatives."""
        # Its backward pass adds rows up several times faster than that of embeddings[rows].
        return (
            embeddings.index_select(0, self.anchors),
            embeddings.index_select(0, self.positives),
            embeddings.index_select(0, self.negatives),
        )

    def of_first(self, anchors: int | None) -> "Triplets":
        """Those whose anchor is one of the first so many rows; all for None."""
        if anchors is None:
            return self
        end = int((self.anchors < anchors).sum())
        return Triplets(self.anchors[:end], self.positives[:end], self.negatives[:end])

    def __iter__(self) -> Iterator[tuple[int, int, int]]:
        for triple in torch.stack((self.anchors, self.positives, self.negatives), dim=1).tolist():  # pyright: ignore
            yield tuple(triple)  # pyright: ignore


def mine_batch_all(
    embeddings: Float[Tensor, "n d"],  # noqa: ARG001 - so that all miners are called alike
    labels: Int64[Tensor, " n"],
) -> Triplets:
    """Every valid triplet, whatever its distances: n (k - 1) (n - k) of them with k photos an identity.

    >>> len(mine_batch_all(torch.zeros(40, 2), torch.arange(10).repeat(4)))
    4320
    """
    same = labels[:, None] == labels
    anchors, positives = (same & ~torch.eye(len(labels), dtype=torch.bool, device=labels.device)).nonzero().T
    of_anchor, negatives = (~same).nonzero().T
    counts = torch.bincount(of_anchor, minlength=len(labels))
    firsts = counts.cumsum(0) - counts
    pair, offset = _spread(counts[anchors])
    return Triplets(anchors[pair], positives[pair], negatives[firsts[anchors[pair]] + offset])


def mine_semi_hard(
    embeddings: Float[Tensor, "n d"],
    labels: Int64[Tensor, " n"],
    margin: float = 0.2,
    *,
    select: Select = "all",
    generator: torch.Generator | None = None,
) -> Triplets:
    """FaceNet's: negatives farther than the positive, but within the margin: d(a,p) < d(a,n) < d(a,p) + margin.

    Every one of the band, or for each anchor and positive only its nearest ("hardest") or one drawn at "random". A pair
    without any has no triplet.
    """

    def choose(block: Block) -> tuple[Tensor, ...]:
        positives = block.positives(pad=0.0)
        # Sorted, the band of each positive is a run.
        negatives, columns = block.negatives(fill=FAR).sort(dim=1)
        first = torch.searchsorted(negatives, positives, right=True)
        counts = (torch.searchsorted(negatives, positives + margin) - first).clamp_min(0) * block.real
        if select == "all":
            pair, offset = _spread(counts.flatten())
        else:
            pair = counts.flatten().nonzero().squeeze(1)
            offset = torch.zeros_like(pair)
            if select == "random":
                draws = torch.rand(len(pair), generator=generator, device=pair.device, dtype=torch.float64)
                offset = (draws * counts.flatten()[pair]).long()
        anchors = pair // counts.shape[1]
        return anchors, block.places.flatten()[pair], columns[anchors, first.flatten()[pair] + offset]

    return _mine(embeddings, labels, choose)


def mine_batch_hard(embeddings: Float[Tensor, "n d"], labels: Int64[Tensor, " n"]) -> Triplets:
    """For each anchor its farthest positive and its nearest negative (Hermans et al., arXiv 1703.07737)."""
    positives, negatives, found = hardest_of_each(embeddings, labels)
    anchors = found.nonzero().squeeze(1)
    return Triplets(anchors, positives[anchors], negatives[anchors])


def hardest_of_each(
    embeddings: Float[Tensor, "n d"], labels: Int64[Tensor, " n"], anchors: int | None = None
) -> tuple[Int64[Tensor, " a"], Int64[Tensor, " a"], Bool[Tensor, " a"]]:
    """Farthest positive and nearest negative of each row, or of the first `anchors`, and whether it has both."""
    count = len(labels) if anchors is None else anchors
    if count == 0:
        return labels[:0], labels[:0], labels[:0] > 0
    picked: list[tuple[Tensor, Tensor, Tensor]] = []
    with plainly(embeddings):
        rows = widened(embeddings)
        squares, turned = rows.square().sum(dim=1), -2 * rows.T
        step = anchors_at_once(rows)
        for start in range(0, count, step):
            some = slice(start, min(start + step, count))
            # Without the anchor's own square, which changes no order.
            values = (rows[some] @ turned).add_(squares)
            same = labels[some, None] == labels
            nearest, negatives = values.masked_fill(same, FAR).min(dim=1)
            same.diagonal(start).fill_(False)
            farthest, positives = torch.where(same, values, -FAR).max(dim=1)
            picked.append((positives, negatives, farthest - nearest > -FAR / 2))
    if len(picked) == 1:
        return picked[0]
    positives, negatives, found = (torch.cat(parts) for parts in zip(*picked, strict=True))
    return positives, negatives, found


def mine_hard_negative(embeddings: Float[Tensor, "n d"], labels: Int64[Tensor, " n"]) -> Triplets:
    """For each anchor and positive the nearest negative of the anchor."""

    def choose(block: Block) -> tuple[Tensor, ...]:
        nearest, columns = block.negatives(fill=FAR).min(dim=1)
        real: Bool[Tensor, "b k"] = block.real & (nearest < FAR)[:, None]
        anchors, which = real.nonzero().T
        return anchors, block.places[anchors, which], columns[anchors]

    return _mine(embeddings, labels, choose)


# By name, from (embeddings, labels, margin).
MINERS: dict[str, Callable[[Tensor, Tensor, float], Triplets]] = {
    "semi_hard": mine_semi_hard,
    "batch_hard": lambda embeddings, labels, _: mine_batch_hard(embeddings, labels),
    "hard_negative": lambda embeddings, labels, _: mine_hard_negative(embeddings, labels),
    "batch_all": lambda embeddings, labels, _: mine_batch_all(embeddings, labels),
}


def _spread(counts: Tensor) -> tuple[Tensor, Tensor]:
    """For each item of `counts` as many rows as it says: the item, and which of its rows it is."""
    item = torch.repeat_interleave(counts)
    return item, torch.arange(len(item), device=counts.device) - (counts.cumsum(0) - counts)[item]


def _mine(embeddings: Tensor, labels: Tensor, choose: Callable[[Block], tuple[Tensor, ...]]) -> Triplets:
    """All that `choose` picks: for each block (row of the block, positive, negative)."""
    picked = [labels.new_empty(3, 0)]
    for some, block in distance_blocks(embeddings, labels):
        rows, positives, negatives = choose(block)
        picked.append(torch.stack([rows + some.start, positives, negatives]))
    anchors, positives, negatives = torch.cat(picked, dim=1)
    n = len(labels)
    order = ((anchors * n + positives) * n + negatives).argsort()
    return Triplets(anchors[order], positives[order], negatives[order])
