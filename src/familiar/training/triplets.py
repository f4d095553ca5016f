"""Which triplets of a batch each way of mining picks, as a list."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from familiar.losses.mining import MINERS
from familiar.models.network import evaluating


def get_triplets(
    batch: Sequence[Tensor],
    model: Callable[[Tensor], Tensor],
    method: str = "semi_hard",
    *,
    margin: float = 0.2,
) -> list[tuple[int, int, int]]:
    """(anchor, positive, negative) as places in the batch, in rising order, as `method` of `MINERS` picks them.

    `batch` holds images and their labels, in either order: the labels are its first tensor of one dimension and
    integers. `model` makes an embedding of each image, unit rows as `margin` is meant (squared distance, [0, 4];
    only "semi_hard" asks for it).

    The model runs without gradient and in evaluation mode: picking triplets moves no batch norm's statistics and
    draws no dropout. Every module is in its own mode again afterwards. A training loop has embeddings already; it
    mines from those (`MINERS`) and spares itself the second pass.

    ValueError for an unknown method, and where the batch is none.
    """
    if method not in MINERS:
        raise ValueError(f"no method is called {method!r}; there are {', '.join(MINERS)}")
    images, labels = _images_and_labels(batch)
    with torch.no_grad(), evaluating(model):
        embeddings = model(images)
    return list(MINERS[method](embeddings, labels.to(embeddings.device, torch.int64), margin))


def _images_and_labels(batch: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    labels = [column for column in batch if column.ndim == 1 and not column.is_floating_point()]
    images = [column for column in batch if column.ndim > 1]
    if not labels or not images or len(labels[0]) != len(images[0]):
        shapes = ", ".join(f"{tuple(column.shape)} of {column.dtype}" for column in batch)
        raise ValueError(f"a batch is images and as many integer labels in one dimension, not {shapes or 'nothing'}")
    return images[0], labels[0]
