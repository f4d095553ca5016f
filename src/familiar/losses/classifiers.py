"""Classifiers over identities with one center per class: softmax, and its forms on the unit sphere with a margin.

All are called with (embeddings, labels) and return the mean cross-entropy. They have in common:

- Settings may be changed between steps (a margin that warms up).
- Embeddings may be a prefix of `embedding_dim` components, scaled to unit length: then as many leading components of
  the centers are used, at unit length too, so that one set of centers serves every prefix.
- Half-precision embeddings are converted to float32, autocast is off, and an empty batch gives zero.
- ValueError: labels outside [0, classes), embeddings longer than the centers, another number of labels than rows,
  other shapes or dtypes, and NaN (on a GPU, where that would be waited for, torch reports labels, and the loss is NaN).
"""

import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, linear

from familiar.losses.cross_entropy import cosine_cross_entropy, truncate_components
from familiar.losses.margin import (
    Branch,
    arcface_cosine,
    check_angular_margin,
    combined_cosine,
    cosface_cosine,
)
from familiar.losses.validation import check_batch, check_classifier, check_range

UNUSED_IGNORE_INDEX = -(2**62)  # by default torch silently ignores rows with the label -100


def new_centers(*shape: int) -> nn.Parameter:
    """Create centers in random directions.

    Their norm does not affect the loss of a normalized classifier; the smaller it is, the faster they turn.
    """
    return nn.Parameter(torch.randn(shape) * 0.01)


class Softmax(nn.Module):
    """Plain softmax regression: logits `x W^T + b`, embeddings of any norm.

    For a prefix the first components of the centers are used as they are.

    Args:
        embedding_dim: length of the rows.
        classes: number of classes.
        bias: whether to add b.
        label_smoothing: in [0, 1).
    """

    def __init__(self, embedding_dim: int, classes: int, bias: bool = True, label_smoothing: float = 0.0) -> None:
        super().__init__()
        check_classifier(embedding_dim, classes, 1.0, label_smoothing)
        self.label_smoothing = label_smoothing
        # Of norm 1 or so: here the norm matters.
        self.centers = nn.Parameter(torch.randn(classes, embedding_dim) / embedding_dim**0.5)
        self.bias = nn.Parameter(torch.zeros(classes)) if bias else None

    def forward(self, embeddings: Float[Tensor, "n d"], labels: Int64[Tensor, " n"]) -> Float[Tensor, ""]:
        """Compute the mean cross-entropy of `embeddings` against `labels` in [0, classes)."""
        check_batch(embeddings, labels, classes=len(self.centers))
        with torch.autocast(embeddings.device.type, enabled=False):
            compute_dtype = torch.promote_types(embeddings.dtype, torch.float32)
            bias = None if self.bias is None else self.bias.to(compute_dtype)
            logits = linear(
                embeddings.to(compute_dtype),
                truncate_components(self.centers, embeddings.shape[1]).to(compute_dtype),
                bias,
            )
            loss = cross_entropy(
                logits,
                labels,
                ignore_index=UNUSED_IGNORE_INDEX,
                label_smoothing=self.label_smoothing,
                reduction="sum",
            )
            return loss / max(len(labels), 1)  # zero, not NaN, for no rows


class NormFace(nn.Module):
    """Softmax of scaled cosines, `scale * cos(theta)` (NormFace, arXiv 1704.06369).

    Args:
        embedding_dim: length of the rows.
        classes: number of classes.
        scale: above 0; 16 to 64 are usual. 1, as in the digits essay, is for few classes.
        label_smoothing: in [0, 1).
    """

    def __init__(self, embedding_dim: int, classes: int, scale: float = 16.0, label_smoothing: float = 0.0) -> None:
        super().__init__()
        check_classifier(embedding_dim, classes, scale, label_smoothing)
        self.scale = scale
        self.label_smoothing = label_smoothing
        self.centers = new_centers(classes, embedding_dim)

    def forward(self, embeddings: Float[Tensor, "n d"], labels: Int64[Tensor, " n"]) -> Float[Tensor, ""]:
        """Compute the mean cross-entropy of `embeddings` against `labels` in [0, classes)."""
        return cosine_cross_entropy(embeddings, self.centers, labels, _no_margin, self.scale, self.label_smoothing)


class ArcFace(nn.Module):
    """Additive angular margin: the own class has the logit `scale * cos(theta + margin_rad)` (arXiv 1801.07698, Eq. 3).

    Args:
        embedding_dim: length of the rows.
        classes: number of classes.
        scale: above 0.
        margin_rad: in [0, 2.33] radians, or [0, pi] with `branch="continuous"`.
        label_smoothing: in [0, 1).
        branch: how the logit goes on past `theta = pi - margin_rad` (see `margin.py`).
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
        """Compute the mean cross-entropy of `embeddings` against `labels` in [0, classes)."""
        return cosine_cross_entropy(
            embeddings, self.centers, labels, self._apply_margin, self.scale, self.label_smoothing
        )

    def _apply_margin(self, cosines: Tensor) -> Tensor:
        return arcface_cosine(cosines, self.margin_rad, self.branch)


class CosFace(nn.Module):
    """Additive cosine margin: the logit of the own class is `scale * (cos(theta) - margin)` (arXiv 1801.09414, Eq. 4).

    Args:
        embedding_dim: length of the rows.
        classes: number of classes.
        scale: above 0.
        margin: in [0, 2], in cosine.
        label_smoothing: in [0, 1).
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
        """Compute the mean cross-entropy of `embeddings` against `labels` in [0, classes)."""
        return cosine_cross_entropy(
            embeddings, self.centers, labels, self._apply_margin, self.scale, self.label_smoothing
        )

    def _apply_margin(self, cosines: Tensor) -> Tensor:
        return cosface_cosine(cosines, self.margin)


class CombinedMargin(nn.Module):
    """All three margins: the logit of the own class is `scale * (cos(m1 theta + m2) - m3)` (arXiv 1801.07698, Eq. 4).

    Args:
        embedding_dim: length of the rows.
        classes: number of classes.
        scale: above 0.
        margin_factor: m1, 1 or more.
        margin_rad: m2, in [0, pi] radians.
        margin: m3, in [0, 2], in cosine.
        label_smoothing: in [0, 1).
        branch: as in `ArcFace`; with "penalty", `pi - (pi - m2) / m1` must be 2.33 at most.
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
        """Compute the mean cross-entropy of `embeddings` against `labels` in [0, classes)."""
        return cosine_cross_entropy(
            embeddings, self.centers, labels, self._apply_margin, self.scale, self.label_smoothing
        )

    def _apply_margin(self, cosines: Tensor) -> Tensor:
        return combined_cosine(cosines, self.margin_factor, self.margin_rad, self.margin, self.branch)


class SubCenterArcFace(nn.Module):
    """ArcFace with several centers per class, of which the nearest counts (Deng et al., ECCV 2020).

    Mislabeled and hard photos gather around centers of their own and do not disturb the main one. `centers` has the
    shape k x classes x embedding_dim.

    Args:
        embedding_dim: length of the rows.
        classes: number of classes.
        centers_per_class: k, 1 or more.
        scale: factor of the cosines, above 0.
        margin_rad: in [0, 2.33] radians, or [0, pi] with `branch="continuous"`.
        label_smoothing: in [0, 1).
        branch: as in `ArcFace`.

    Raises:
        ValueError: a setting is out of range.
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
        # k is the first axis, so that the maximum over k compares whole columns.
        self.centers = new_centers(centers_per_class, classes, embedding_dim)

    def forward(self, embeddings: Float[Tensor, "n d"], labels: Int64[Tensor, " n"]) -> Float[Tensor, ""]:
        """Compute the mean cross-entropy of `embeddings` against `labels` in [0, classes)."""
        return cosine_cross_entropy(
            embeddings, self.centers, labels, self._apply_margin, self.scale, self.label_smoothing
        )

    def _apply_margin(self, cosines: Tensor) -> Tensor:
        return arcface_cosine(cosines, self.margin_rad, self.branch)


def _no_margin(cosines: Tensor) -> Tensor:
    return cosines
