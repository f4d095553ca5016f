"""Classifiers over identities, their weights one center a class: softmax, and its forms on the sphere with a margin.

All take (embeddings, labels) and give the mean cross-entropy. What they share:

- Settings may be changed between steps (a margin that warms up).
- Embeddings may be a prefix of `embedding_dim` components, at unit length again: the first as many of the centers
  count then, at unit length too, so that one set of centers serves every prefix.
- Half-precision embeddings are widened to float32, autocast is kept out, and an empty batch gives zero.
- Labels outside [0, classes) raise torch's own error, wider embeddings than the centers ValueError.

Knows nothing of images or networks.
"""

import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, linear

from familiar.losses.cross_entropy import cosine_cross_entropy, first
from familiar.losses.margin import (
    Branch,
    arcface_cosine,
    check_angular_margin,
    combined_cosine,
    cosface_cosine,
)
from familiar.losses.validation import check_classifier, check_range

NO_LABEL = -(2**62)  # torch would pass over a label of -100 in silence


def new_centers(*shape: int) -> nn.Parameter:
    """Centers in random directions; their length does not count, but the shorter, the faster they turn."""
    return nn.Parameter(torch.randn(shape) * 0.01)


class Softmax(nn.Module):
    """Plain softmax regression: logits `x W^T + b`, embeddings of any length.

    `label_smoothing` in [0, 1). Of a prefix's centers the first components count as they are.
    """

    def __init__(self, embedding_dim: int, classes: int, bias: bool = True, label_smoothing: float = 0.0) -> None:
        super().__init__()
        check_classifier(embedding_dim, classes, 1.0, label_smoothing)
        self.label_smoothing = label_smoothing
        # Of length 1 or so: here it counts.
        self.centers = nn.Parameter(torch.randn(classes, embedding_dim) / embedding_dim**0.5)
        self.bias = nn.Parameter(torch.zeros(classes)) if bias else None

    def forward(self, embeddings: Float[Tensor, "n d"], labels: Int64[Tensor, " n"]) -> Float[Tensor, ""]:
        """Mean cross-entropy of `embeddings` against `labels` in [0, classes)."""
        with torch.autocast(embeddings.device.type, enabled=False):
            wide = torch.promote_types(embeddings.dtype, torch.float32)
            bias = None if self.bias is None else self.bias.to(wide)
            logits = linear(embeddings.to(wide), first(self.centers, embeddings.shape[1]).to(wide), bias)
            loss = cross_entropy(
                logits,
                labels,
                ignore_index=NO_LABEL,
                label_smoothing=self.label_smoothing,
                reduction="sum",
            )
            return loss / max(len(labels), 1)  # zero, not NaN, for no rows


class NormFace(nn.Module):
    """Softmax of scaled cosines, `scale * cos(theta)` (arXiv 1704.06369).

    `scale` above 0: with the essay's 1 the classes part little; 16 to 64 are usual. `label_smoothing` in [0, 1).
    """

    def __init__(self, embedding_dim: int, classes: int, scale: float = 16.0, label_smoothing: float = 0.0) -> None:
        super().__init__()
        check_classifier(embedding_dim, classes, scale, label_smoothing)
        self.scale = scale
        self.label_smoothing = label_smoothing
        self.centers = new_centers(classes, embedding_dim)

    def forward(self, embeddings: Float[Tensor, "n d"], labels: Int64[Tensor, " n"]) -> Float[Tensor, ""]:
        """Mean cross-entropy of `embeddings` against `labels` in [0, classes)."""
        return cosine_cross_entropy(embeddings, self.centers, labels, lambda own: own, self.scale, self.label_smoothing)


class ArcFace(nn.Module):
    """Additive angular margin: the own class gets `scale * cos(theta + margin_rad)` (arXiv 1801.07698).

    `margin_rad` in [0, 2.33] radians, to pi with `branch="continuous"`, which says how the logit goes on past
    `theta = pi - margin_rad` (see `margin.py`); `scale` above 0; `label_smoothing` in [0, 1).
    """

    def __init__(
        self,
        embedding_dim: int,
        classes: int,
        scale: float = 32.0,
        margin_rad: float = 0.4,
        label_smoothing: float = 0.0,
        *,
        branch: Branch = "penalty",
    ) -> None:
        super().__init__()
        check_classifier(embedding_dim, classes, scale, label_smoothing)
        check_angular_margin(margin_rad, branch)
        self.scale = scale
        self.margin_rad = margin_rad
        self.label_smoothing = label_smoothing
        self.branch: Branch = branch
        self.centers = new_centers(classes, embedding_dim)

    def forward(self, embeddings: Float[Tensor, "n d"], labels: Int64[Tensor, " n"]) -> Float[Tensor, ""]:
        """Mean cross-entropy of `embeddings` against `labels` in [0, classes)."""
        return cosine_cross_entropy(
            embeddings, self.centers, labels, self._own_cosine, self.scale, self.label_smoothing
        )

    def _own_cosine(self, cosines: Tensor) -> Tensor:
        return arcface_cosine(cosines, self.margin_rad, self.branch)


class CosFace(nn.Module):
    """Additive cosine margin: the own class gets `scale * (cos(theta) - margin)` (arXiv 1801.09414).

    `margin` in [0, 2], in cosine; `scale` above 0; `label_smoothing` in [0, 1).
    """

    def __init__(
        self,
        embedding_dim: int,
        classes: int,
        scale: float = 64.0,
        margin: float = 0.35,
        label_smoothing: float = 0.0,
    ) -> None:
        super().__init__()
        check_classifier(embedding_dim, classes, scale, label_smoothing)
        check_range("margin", margin, 0 <= margin <= 2, "[0, 2]")
        self.scale = scale
        self.margin = margin
        self.label_smoothing = label_smoothing
        self.centers = new_centers(classes, embedding_dim)

    def forward(self, embeddings: Float[Tensor, "n d"], labels: Int64[Tensor, " n"]) -> Float[Tensor, ""]:
        """Mean cross-entropy of `embeddings` against `labels` in [0, classes)."""
        return cosine_cross_entropy(
            embeddings, self.centers, labels, self._own_cosine, self.scale, self.label_smoothing
        )

    def _own_cosine(self, cosines: Tensor) -> Tensor:
        return cosface_cosine(cosines, self.margin)


class CombinedMargin(nn.Module):
    """All three margins: the own class gets `scale * (cos(m1 theta + m2) - m3)` (arXiv 1801.07698, Eq. 4).

    m1 is `margin_factor`, 1 or more; m2 `margin_rad` in [0, pi]; m3 `margin` in [0, 2]; `scale` above 0;
    `label_smoothing` in [0, 1). `branch` as in `ArcFace`, with which the penalty asks that
    `pi - (pi - m2) / m1` be 2.33 at most.
    """

    def __init__(
        self,
        embedding_dim: int,
        classes: int,
        scale: float = 64.0,
        margin_factor: float = 1.0,
        margin_rad: float = 0.3,
        margin: float = 0.2,
        label_smoothing: float = 0.0,
        *,
        branch: Branch = "penalty",
    ) -> None:
        super().__init__()
        check_classifier(embedding_dim, classes, scale, label_smoothing)
        check_angular_margin(margin_rad, branch, margin_factor)
        check_range("margin", margin, 0 <= margin <= 2, "[0, 2]")
        self.scale = scale
        self.margin_factor = margin_factor
        self.margin_rad = margin_rad
        self.margin = margin
        self.label_smoothing = label_smoothing
        self.branch: Branch = branch
        self.centers = new_centers(classes, embedding_dim)

    def forward(self, embeddings: Float[Tensor, "n d"], labels: Int64[Tensor, " n"]) -> Float[Tensor, ""]:
        """Mean cross-entropy of `embeddings` against `labels` in [0, classes)."""
        return cosine_cross_entropy(
            embeddings, self.centers, labels, self._own_cosine, self.scale, self.label_smoothing
        )

    def _own_cosine(self, cosines: Tensor) -> Tensor:
        return combined_cosine(cosines, self.margin_factor, self.margin_rad, self.margin, self.branch)


class SubCenterArcFace(nn.Module):
    """ArcFace with several centers a class, of which the nearest counts (Deng et al., ECCV 2020).

    Mislabeled and hard photos gather about centers of their own and leave the main one alone.
    `centers_per_class` 1 or more; the rest as in `ArcFace`. `centers` are k x classes x embedding_dim.
    """

    def __init__(
        self,
        embedding_dim: int,
        classes: int,
        centers_per_class: int = 3,
        scale: float = 32.0,
        margin_rad: float = 0.4,
        label_smoothing: float = 0.0,
        *,
        branch: Branch = "penalty",
    ) -> None:
        super().__init__()
        check_classifier(embedding_dim, classes, scale, label_smoothing)
        check_range("centers_per_class", centers_per_class, centers_per_class >= 1, "1 or more")
        check_angular_margin(margin_rad, branch)
        self.scale = scale
        self.margin_rad = margin_rad
        self.label_smoothing = label_smoothing
        self.branch: Branch = branch
        # k first, so that the largest of k is taken over whole columns.
        self.centers = new_centers(centers_per_class, classes, embedding_dim)

    def forward(self, embeddings: Float[Tensor, "n d"], labels: Int64[Tensor, " n"]) -> Float[Tensor, ""]:
        """Mean cross-entropy of `embeddings` against `labels` in [0, classes)."""
        return cosine_cross_entropy(
            embeddings, self.centers, labels, self._own_cosine, self.scale, self.label_smoothing
        )

    def _own_cosine(self, cosines: Tensor) -> Tensor:
        return arcface_cosine(cosines, self.margin_rad, self.branch)
