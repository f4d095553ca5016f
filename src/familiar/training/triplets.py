"""The triplets that a miner picks from a batch of images, as a list."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from familiar.losses.mining import MINERS
from familiar.models.network import eval_mode


def get_triplets(
    batch: Sequence[Tensor],
    model: Callable[[Tensor], Tensor],
    method: str = "semi_hard",
    *,
    margin: float = 0.2,
) -> list[tuple[int, int, int]]:
    """Embed a batch of images and mine triplets.

    The model runs without gradient and in evaluation mode: batch norm statistics do not change and there is no
    dropout. Every module is in its previous mode afterwards. A training loop has embeddings already; it should mine
    from those (`MINERS`) and save the second pass.

    Args:
        batch: images and their labels, in either order; the labels are the first tensor of one dimension and integers.
        model: computes an embedding of each image; unit rows, if `margin` is to mean what it says.
        method: one of `MINERS`.
        margin: squared distance, [0, 4]; only "semi_hard" uses it.

    Returns:
        (anchor, positive, negative) as indices in the batch, in increasing order.

    Raises:
        ValueError: the method is unknown, or `batch` is not images and labels.
    """
    if method not in MINERS:
        raise ValueError(f"unknown mining method {method!r}; choose one of {', '.join(MINERS)}")
    images, labels = _images_and_labels(batch)
    with torch.no_grad(), eval_mode(model):
        embeddings = model(images)
    return list(MINERS[method](embeddings, labels.to(embeddings.device, torch.int64), margin))


def _images_and_labels(batch: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    columns = list(map(torch.as_tensor, batch))
    labels = [column for column in columns if column.ndim == 1 and not column.is_floating_point()]
    images = [column for column in columns if column.ndim > 1]
    if not labels or not images or len(labels[0]) != len(images[0]):
        shapes = ", ".join(f"{tuple(column.shape)} of {column.dtype}" for column in columns)
        raise ValueError(
            f"a batch must be images and as many integer labels in one dimension, not {shapes or 'nothing'}"
        )
    return images[0], labels[0]
