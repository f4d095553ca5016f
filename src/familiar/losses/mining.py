"""Triplet mining: lists of the triplets that each strategy selects in a batch, as row numbers.

Distances are squared Euclidean. The losses of `triplet.py` select the same triplets without listing them; lists are
for inspection, for losses that take triplets one by one, and for mining across batches.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from familiar.losses.blockwise import (
    FINITE_INF,
    Block,
    anchors_per_block,
    distance_blocks,
    no_grad_no_autocast,
    to_float32,
)
from familiar.losses.validation import check_batch

Select = Literal["all", "hardest", "random"]


@dataclass(frozen=True, eq=False)
class Triplets:
    """Row numbers of t triplets, ordered by anchor, then positive, then negative; iterates over triples of integers.

    Attributes:
        anchors: row of each triplet's anchor, "t".
        positives: row of another photo of the anchor's identity, "t".
        negatives: row of a photo of another identity, "t".
    """

    anchors: Int64[Tensor, " t"]
    positives: Int64[Tensor, " t"]
    negatives: Int64[Tensor, " t"]

    def __len__(self) -> int:
        return len(self.anchors)

    def select_rows(
        self, embeddings: Float[Tensor, "n d"]
    ) -> tuple[Float[Tensor, "t d"], Float[Tensor, "t d"], Float[Tensor, "t d"]]:
        """Select the rows of the anchors, of the positives and of the negatives.

        Args:
            embeddings: the batch that the triplets were selected in, or other vectors of the same photos in this order.

        Returns:
            (anchors, positives, negatives), each with one row per triplet.
        """
        # The backward pass of index_select adds rows up several times faster than that of embeddings[rows].
        return (
            embeddings.index_select(0, self.anchors),
            embeddings.index_select(0, self.positives),
            embeddings.index_select(0, self.negatives),
        )

    def first_anchors(self, anchors: int | None) -> "Triplets":
        """Select the triplets whose anchor is one of the first rows of the batch.

        Args:
            anchors: how many rows are anchors; None for all.
        """
        if anchors is None:
            return self
        end = int((self.anchors < anchors).sum())
        return Triplets(self.anchors[:end], self.positives[:end], self.negatives[:end])

    def __iter__(self) -> Iterator[tuple[int, int, int]]:
        for triple in torch.stack((self.anchors, self.positives, self.negatives), dim=1).tolist():  # pyright: ignore
            yield tuple(triple)  # pyright: ignore


def mine_batch_all(
    embeddings: Float[Tensor, "n d"],
    labels: Int64[Tensor, " n"],
) -> Triplets:
    """List every valid triplet, whatever its distances.

    Args:
        embeddings: one row per photo; their values are not used.
        labels: the identity of each row.

    Returns:
        Row numbers of n (k - 1) (n - k) triplets, if each identity has k photos.

    Raises:
        ValueError: the number of labels is not the number of rows.

    >>> len(mine_batch_all(torch.zeros(40, 2), torch.arange(10).repeat(4)))
    4320
    """
    check_batch(embeddings, labels, wait=True)
    same = labels[:, None] == labels
    anchors, positives = (same & ~torch.eye(len(labels), dtype=torch.bool, device=labels.device)).nonzero().T
    negative_anchors, negatives = (~same).nonzero().T
    counts = torch.bincount(negative_anchors, minlength=len(labels))
    firsts = counts.cumsum(0) - counts
    pair, offset = _expand_counts(counts[anchors])
    return Triplets(anchors[pair], positives[pair], negatives[firsts[anchors[pair]] + offset])


def mine_semi_hard(
    embeddings: Float[Tensor, "n d"],
    labels: Int64[Tensor, " n"],
    margin: float = 0.2,
    *,
    select: Select = "all",
    generator: torch.Generator | None = None,
) -> Triplets:
    """List semi-hard triplets: d(a,p) < d(a,n) < d(a,p) + margin (FaceNet, arXiv 1503.03832, section 3.2).

    Args:
        embeddings: one row per photo.
        labels: the identity of each row.
        margin: width of the band, in squared distance.
        select: take "all" negatives of the band, or for each anchor and positive only the nearest ("hardest") or one
            drawn at "random".
        generator: of the random draws; by default torch's global one.

    Returns:
        Row numbers of the triplets; a pair of anchor and positive with an empty band has none.

    Raises:
        ValueError: the number of labels is not the number of rows, or `select` is none of these.
    """
    if select not in get_args(Select):
        raise ValueError(f"select must be one of {', '.join(get_args(Select))}, not {select!r}")

    def choose(block: Block) -> tuple[Tensor, ...]:
        positives = block.positive_values(pad=0.0)
        # Among sorted negatives, the band of each positive is contiguous.
        negatives, columns = block.negative_values(fill=FINITE_INF).sort(dim=1)
        first = torch.searchsorted(negatives, positives, right=True)
        counts = (torch.searchsorted(negatives, positives + margin) - first).clamp_min(0) * block.positive_mask
        if select == "all":
            pair, offset = _expand_counts(counts.flatten())
        else:
            pair = counts.flatten().nonzero().squeeze(1)
            offset = torch.zeros_like(pair)
            if select == "random":
                draws = torch.rand(len(pair), generator=generator, device=pair.device, dtype=torch.float64)
                offset = (draws * counts.flatten()[pair]).long()
        anchors = pair // counts.shape[1]
        return anchors, block.positive_cols.flatten()[pair], columns[anchors, first.flatten()[pair] + offset]

    return _mine_blocks(embeddings, labels, choose)


def mine_batch_hard(embeddings: Float[Tensor, "n d"], labels: Int64[Tensor, " n"]) -> Triplets:
    """List for each anchor its farthest positive and its nearest negative (Hermans et al., arXiv 1703.07737, Eq. 5).

    Args:
        embeddings: one row per photo.
        labels: the identity of each row.

    Returns:
        Row numbers of one triplet for each row that has both a positive and a negative.

    Raises:
        ValueError: the number of labels is not the number of rows.
    """
    check_batch(embeddings, labels, wait=True)
    positives, negatives, has_both = hardest_pairs(embeddings, labels)
    anchors = has_both.nonzero().squeeze(1)
    return Triplets(anchors, positives[anchors], negatives[anchors])


def hardest_pairs(
    embeddings: Float[Tensor, "n d"], labels: Int64[Tensor, " n"], anchors: int | None = None
) -> tuple[Int64[Tensor, " a"], Int64[Tensor, " a"], Bool[Tensor, " a"]]:
    """Find the farthest positive and the nearest negative of each row, or of the first `anchors` rows.

    Returns:
        (positives, negatives, whether the row has both); where it does not, the numbers mean nothing.
    """
    count = len(labels) if anchors is None else anchors
    if count == 0:
        return labels[:0], labels[:0], labels[:0] > 0
    picked: list[tuple[Tensor, Tensor, Tensor]] = []
    with no_grad_no_autocast(embeddings):
        rows = to_float32(embeddings)
        squares, transposed = rows.square().sum(dim=1), -2 * rows.T
        step = anchors_per_block(rows)
        for start in range(0, count, step):
            anchor_rows = slice(start, min(start + step, count))
            # Distances without the anchor's own square, which does not change the order.
            values = (rows[anchor_rows] @ transposed).add_(squares)
            same = labels[anchor_rows, None] == labels
            nearest, negatives = values.masked_fill(same, FINITE_INF).min(dim=1)
            same.diagonal(start).fill_(False)
            farthest, positives = torch.where(same, values, -FINITE_INF).max(dim=1)
            picked.append((positives, negatives, farthest - nearest > -FINITE_INF / 2))
    if len(picked) == 1:
        return picked[0]
    positives, negatives, has_both = (torch.cat(parts) for parts in zip(*picked, strict=True))
    return positives, negatives, has_both


def mine_hard_negative(embeddings: Float[Tensor, "n d"], labels: Int64[Tensor, " n"]) -> Triplets:
    """List for each anchor and positive the nearest negative of the anchor.

    Args:
        embeddings: one row per photo.
        labels: the identity of each row.

    Returns:
        Row numbers of one triplet for each pair of anchor and positive; empty if all rows have the same identity.

    Raises:
        ValueError: the number of labels is not the number of rows.
    """

    def choose(block: Block) -> tuple[Tensor, ...]:
        nearest, columns = block.negative_values(fill=FINITE_INF).min(dim=1)
        valid: Bool[Tensor, "b k"] = block.positive_mask & (nearest < FINITE_INF)[:, None]
        anchors, positive = valid.nonzero().T
        return anchors, block.positive_cols[anchors, positive], columns[anchors]

    return _mine_blocks(embeddings, labels, choose)


# By name; called with (embeddings, labels, margin).
MINERS: dict[str, Callable[[Tensor, Tensor, float], Triplets]] = {
    "semi_hard": mine_semi_hard,
    "batch_hard": lambda embeddings, labels, _: mine_batch_hard(embeddings, labels),
    "hard_negative": lambda embeddings, labels, _: mine_hard_negative(embeddings, labels),
    "batch_all": lambda embeddings, labels, _: mine_batch_all(embeddings, labels),
}


def _expand_counts(counts: Tensor) -> tuple[Tensor, Tensor]:
    """Repeat each index of `counts` as often as its count; return the indices and the number of each repetition."""
    item = torch.repeat_interleave(counts)
    return item, torch.arange(len(item), device=counts.device) - (counts.cumsum(0) - counts)[item]


def _mine_blocks(embeddings: Tensor, labels: Tensor, choose: Callable[[Block], tuple[Tensor, ...]]) -> Triplets:
    """Join and sort what `choose` returns for each block: (row within the block, positive, negative)."""
    picked: list[Tensor] = []
    for anchor_rows, block in distance_blocks(embeddings, labels):
        rows, positives, negatives = choose(block)
        picked.append(torch.stack([rows + anchor_rows.start, positives, negatives]))
    anchors, positives, negatives = torch.cat([labels.new_empty(3, 0), *picked], dim=1)
    n = len(labels)
    order = ((anchors * n + positives) * n + negatives).argsort()
    return Triplets(anchors[order], positives[order], negatives[order])
