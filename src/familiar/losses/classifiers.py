"""Classifiers over identities with one center per class: softmax, and its forms on the unit sphere with a margin.

All are called with (embeddings, labels) and return the mean cross-entropy. They have in common:

- Settings may be changed between steps (a margin that warms up).
- Embeddings may be a prefix of `embedding_dim` components, scaled to unit length: then as many leading components of
  the centers are used, at unit length too, so that one set of centers serves every prefix.
- Half-precision embeddings are converted to float32, autocast is off, and an empty batch gives zero.
- ValueError: a setting out of range, labels outside [0, classes), embeddings longer than the centers, another number of
  labels than rows, other shapes or dtypes, and NaN (on a GPU, where that would be waited for, torch reports labels, and
  the loss is NaN).
"""

import math
from dataclasses import KW_ONLY, dataclass, field
from typing import Any

import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, linear, normalize

from familiar.core.settings import check_settings, setting
from familiar.losses.blockwise import to_float32
from familiar.losses.cross_entropy import cosine_cross_entropy, truncate_components
from familiar.losses.margin import Branch, arcface_cosine, check_penalty, combined_cosine
from familiar.losses.validation import check_batch

UNUSED_IGNORE_INDEX = -(2**62)  # by default torch silently ignores rows with the label -100

SIZE: dict[str, Any] = {"range": (1, math.inf)}
SCALE = (0.1, 1000, "factor of the cosines: logits for each 1 of cosine")
SMOOTHING = (0, 0.99, "share of the target probability that is spread over all classes")
MARGIN_RAD = (0, math.pi, "angle added between an embedding and its class center, in radians; penalty: up to 2.33")
MARGIN = (0, 2, "cosine")


@dataclass(eq=False)
class Softmax(nn.Module):
    """Cross-entropy of a linear classifier.

    Its logits are `x W^T + b`. For a prefix the first components of the centers are used as they are.

    Args:
        embedding_dim: length of the rows.
        classes: number of classes.
        bias: whether to add b.
        raw_embeddings: whether rows may have any norm; otherwise they are scaled to unit length.
        label_smoothing: in [0, .99].
    """

    embedding_dim: int = field(metadata=SIZE)
    classes: int = field(metadata=SIZE)
    _: KW_ONLY
    bias: bool = setting(True, meaning="whether there is a bias for each class")
    raw_embeddings: bool = setting(
        True, meaning="whether it takes the embeddings before they are normalized, as published"
    )
    label_smoothing: float = setting(0.0, *SMOOTHING)

    def __post_init__(self) -> None:
        super().__init__()
        check_settings(self)
        # Of norm 1 or so: here the norm matters.
        self.centers = nn.Parameter(torch.randn(self.classes, self.embedding_dim) / self.embedding_dim**0.5)
        self.biases = nn.Parameter(torch.zeros(self.classes)) if self.bias else None

    def forward(self, embeddings: Float[Tensor, "n d"], labels: Int64[Tensor, " n"]) -> Float[Tensor, ""]:
        """Compute the mean cross-entropy of `embeddings` against `labels` in [0, classes)."""
        check_batch(embeddings, labels, classes=self.classes)
        with torch.autocast(embeddings.device.type, enabled=False):
            rows = to_float32(embeddings) if self.raw_embeddings else normalize(to_float32(embeddings))
            centers = truncate_components(self.centers, embeddings.shape[1]).to(rows.dtype)
            logits = linear(rows, centers, None if self.biases is None else self.biases.to(rows.dtype))
            loss = cross_entropy(
                logits,
                labels,
                ignore_index=UNUSED_IGNORE_INDEX,
                label_smoothing=self.label_smoothing,
                reduction="sum",
            )
            return loss / max(len(labels), 1)  # zero, not NaN, for no rows


@dataclass(eq=False)
class CosineClassifier(nn.Module):
    """Cross-entropy of scaled cosines between embeddings and class centers, `scale * cos(theta)`.

    Subclasses put a margin on the cosine of a row's class, by another `apply_margin`.

    Args:
        embedding_dim: length of the rows.
        classes: number of classes.
        scale: in [.1, 1000]; 16 to 64 are usual. 1, as in the digits essay, is for few classes.
        label_smoothing: in [0, .99].
    """

    embedding_dim: int = field(metadata=SIZE)
    classes: int = field(metadata=SIZE)
    _: KW_ONLY
    scale: float = setting(16.0, *SCALE)
    label_smoothing: float = setting(0.0, *SMOOTHING)

    def __post_init__(self) -> None:
        super().__init__()
        check_settings(self)
        self.centers = nn.Parameter(self.draw_centers())

    def draw_centers(self) -> Float[Tensor, "*k classes embedding_dim"]:
        """Draw centers in random directions.

        Their norm does not affect the loss; the smaller it is, the faster they turn.
        """
        return torch.randn(self.classes, self.embedding_dim) * 0.01

    def apply_margin(self, cosines: Float[Tensor, " n"]) -> Float[Tensor, " n"]:
        """Change the cosines of rows and their class's center: elementwise, differentiable, falling with the angle.

        Args:
            cosines: one for each row, in [-1, 1].
        """
        return cosines

    def forward(self, embeddings: Float[Tensor, "n d"], labels: Int64[Tensor, " n"]) -> Float[Tensor, ""]:
        """Compute the mean cross-entropy of `embeddings` against `labels` in [0, classes)."""
        return cosine_cross_entropy(
            embeddings, self.centers, labels, self.apply_margin, self.scale, self.label_smoothing
        )


class NormFace(CosineClassifier):
    """Softmax over scaled cosines (arXiv 1704.06369)."""


@dataclass(eq=False, kw_only=True)
class CosFace(CosineClassifier):
    """Additive cosine margin (arXiv 1801.09414, Eq. 4).

    The logit of a row's class is `scale * (cos(theta) - margin)`.

    Args: those of `CosineClassifier`, and
        margin: in [0, 2], in cosine.
    """

    scale: float = setting(64.0, *SCALE)
    margin: float = setting(0.35, *MARGIN)

    def apply_margin(self, cosines: Float[Tensor, " n"]) -> Float[Tensor, " n"]:
        """Subtract the margin."""
        return cosines - self.margin


@dataclass(eq=False, kw_only=True)
class ArcFace(CosineClassifier):
    """Additive angular margin (arXiv 1801.07698, Eq. 3).

    The logit of a row's class is `scale * cos(theta + margin_rad)`.

    Args: those of `CosineClassifier`, and
        margin_rad: in [0, 2.33] radians, or [0, pi] with `branch="continuous"`. In training it grows from 0 over the
            first third of the epochs: a full margin can keep an untrained network from learning anything.
        branch: how the logit goes on past `theta = pi - margin_rad` (see `margin.py`).
    """

    scale: float = setting(32.0, *SCALE)
    margin_rad: float = setting(0.4, *MARGIN_RAD, ramp=1 / 3)
    branch: Branch = setting("penalty", meaning="the formula where angle and margin add up to more than pi")

    def __post_init__(self) -> None:
        super().__post_init__()
        check_penalty(self.branch, self.margin_rad)

    def apply_margin(self, cosines: Float[Tensor, " n"]) -> Float[Tensor, " n"]:
        """Add the margin to the angle."""
        return arcface_cosine(cosines, self.margin_rad, self.branch)


@dataclass(eq=False, kw_only=True)
class CombinedMargin(CosineClassifier):
    """All three margins (arXiv 1801.07698, Eq. 4).

    The logit of a row's class is `scale * (cos(margin_factor * theta + margin_rad) - margin)`.

    Args: those of `CosineClassifier`, and
        margin_factor: in [1, 4].
        margin_rad: in [0, pi] radians; with "penalty", `pi - (pi - margin_rad) / margin_factor` must be 2.33 at most.
        margin: in [0, 2], in cosine.
        branch: as in `ArcFace`.
    """

    scale: float = setting(64.0, *SCALE)
    margin_factor: float = setting(1.0, 1, 4, "factor of the angle")
    margin_rad: float = setting(0.3, *MARGIN_RAD)
    margin: float = setting(0.2, *MARGIN)
    branch: Branch = setting("penalty", meaning="the formula where angle and margin add up to more than pi")

    def __post_init__(self) -> None:
        super().__post_init__()
        check_penalty(self.branch, self.margin_rad, self.margin_factor)

    def apply_margin(self, cosines: Float[Tensor, " n"]) -> Float[Tensor, " n"]:
        """Apply the three margins."""
        return combined_cosine(cosines, self.margin_factor, self.margin_rad, self.margin, self.branch)


@dataclass(eq=False, kw_only=True)
class SubCenterArcFace(ArcFace):
    """ArcFace with several centers per class (Deng et al., ECCV 2020).

    The nearest of them counts: mislabeled and hard photos gather around centers of their own and do not disturb the
    main one. `centers` has the shape k x classes x embedding_dim.

    Args: those of `ArcFace`, and
        centers_per_class: k, in [1, 100].
    """

    centers_per_class: int = setting(3, 1, 100, "number of centers")

    def draw_centers(self) -> Float[Tensor, "k classes embedding_dim"]:
        """Draw centers; k is the first axis, so that the maximum over k compares whole columns."""
        return torch.randn(self.centers_per_class, self.classes, self.embedding_dim) * 0.01
