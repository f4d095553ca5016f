"""Heads: from a feature map to an embedding, not yet normalized to unit length.

Each head is built from (channels, map_px, embedding_dim, dropout), `map_px` being the map's side. The layer that makes
the embedding is called `project`; `AverageGroupsHead` has none. Heads that take maps of any size say so in
`takes_any_map`.
"""

import math
from functools import partial
from typing import Literal

from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm as BatchNorm

from familiar.core.errors import BadRecipe

ROOT_OFFSET = 0.01  # bounds the slope of the square root at 0 by 5


def truncate_head(head: nn.Module, length: int) -> None:
    """Make a head compute only the first components of its embedding, in place.

    Args:
        head: one with a layer `project`, after which there is only a batch norm, if anything.
        length: number of components, at most as many as it computes.

    Raises:
        BadRecipe: the head has no such layer.
    """
    project, norm = getattr(head, "project", None), getattr(head, "norm", None)
    if not isinstance(project, nn.Linear | nn.Conv2d):
        raise BadRecipe(f"{type(head).__name__} has no last layer that could be truncated; export the whole embedding")
    for layer in (project, norm):
        for name in ("weight", "bias", "running_mean", "running_var"):
            values = getattr(layer, name, None)
            if values is not None:
                values.data = values.data[:length].clone()
    if isinstance(norm, BatchNorm):
        norm.num_features = length
    if isinstance(project, nn.Linear):
        project.out_features = length
    else:
        project.out_channels = length


class GDConvHead(nn.Module):
    """Global depthwise convolution: every position of the feature map has its own learned weight.

    GDConv (k x k, one filter per channel) - dropout - 1x1 convolution to `embedding_dim` - batch norm
    (MobileFaceNet, arXiv 1804.07573). With `width`, a 1x1 convolution to that many channels comes first, as in the
    paper: for trunks whose map has few channels.
    """

    def __init__(self, channels: int, map_px: int, embedding_dim: int, dropout: float, *, width: int = 0) -> None:
        super().__init__()
        self.widen = nn.Identity()
        if width:
            self.widen = widening(channels, width)
            channels = width
        self.pool = nn.Conv2d(channels, channels, map_px, groups=channels, bias=False)
        # Starts as the global average: random weights would drown the features of the trunk's initial weights in noise.
        nn.init.constant_(self.pool.weight, 1.0 / map_px**2)
        self.dropout = nn.Dropout(dropout)
        self.project = nn.Conv2d(channels, embedding_dim, 1, bias=False)
        nn.init.normal_(self.project.weight, std=1.0 / math.sqrt(channels))
        self.norm = nn.BatchNorm2d(embedding_dim)

    def forward(self, features: Float[Tensor, "n c k k"]) -> Float[Tensor, "n d"]:
        """Compute embeddings, not yet normalized, from feature maps."""
        return self.norm(self.project(self.dropout(self.pool(self.widen(features))))).flatten(1)


def widening(channels: int, width: int) -> nn.Sequential:
    """Build a 1x1 convolution to `width` channels with batch norm and hard-swish."""
    convolution = nn.Conv2d(channels, width, 1, bias=False)
    nn.init.kaiming_normal_(convolution.weight, mode="fan_in", nonlinearity="relu")
    return nn.Sequential(convolution, nn.BatchNorm2d(width), nn.Hardswish())


class LinearHead(nn.Module):
    """Flatten the map, or average over its positions - dropout - one linear layer - batch norm or a bias."""

    def __init__(
        self,
        channels: int,
        map_px: int,
        embedding_dim: int,
        dropout: float,
        *,
        pool: Literal["flatten", "average"],
        norm: bool = True,
    ) -> None:
        super().__init__()
        self.takes_any_map = pool == "average"
        self.average = nn.AdaptiveAvgPool2d(1) if pool == "average" else nn.Identity()
        self.dropout = nn.Dropout(dropout)
        inputs = channels * (1 if pool == "average" else map_px**2)
        self.project = nn.Linear(inputs, embedding_dim, bias=not norm)
        self.norm = nn.BatchNorm1d(embedding_dim) if norm else nn.Identity()

    def forward(self, features: Float[Tensor, "n c k k"]) -> Float[Tensor, "n d"]:
        """Compute embeddings, not yet normalized, from feature maps."""
        return self.norm(self.project(self.dropout(self.average(features).flatten(1))))


class AverageGroupsHead(nn.Module):
    """Average over the map's positions and over groups of neighboring channels - dropout. It has no weights.

    A linear layer that is trained on some species discards what distinguishes others. The channels of a pretrained map
    are 0 or more and mostly 0, so that a mean over few of them keeps nearly all they tell.

    With `root`, the square roots of the means: no single channel can dominate the similarity of two photos, which then
    is that of two histograms (Hellinger's kernel: Arandjelovic and Zisserman 2012, "Three things everyone should know
    to improve object retrieval"). Means below 0 count as 0.
    """

    def __init__(
        self,
        channels: int,
        map_px: int,  # noqa: ARG002
        embedding_dim: int,
        dropout: float,
        *,
        root: bool = False,
    ) -> None:
        super().__init__()
        if channels % embedding_dim:
            raise BadRecipe(
                f"model.head=average_groups: {channels} channels cannot be divided into {embedding_dim} groups; set "
                f"model.embedding_dim to {channels}, or to a half or a quarter of it"
            )
        self.takes_any_map = True
        self.groups = embedding_dim
        self.root = root
        self.dropout = nn.Dropout(dropout)

    def forward(self, features: Float[Tensor, "n c k k"]) -> Float[Tensor, "n d"]:
        """Compute embeddings, not yet normalized, from feature maps."""
        means = features.mean((2, 3)).unflatten(1, (self.groups, -1)).mean(2)
        if self.root:
            means = (means.clamp_min(0) + ROOT_OFFSET).sqrt() - math.sqrt(ROOT_OFFSET)
        return self.dropout(means)


class WideAverageHead(nn.Module):
    """1x1 convolution to `width` channels, batch norm, hard-swish - global average - dropout - linear - batch norm.

    For trunks whose map has few channels; unlike GDConv it takes maps of any size, with the same weights.
    """

    takes_any_map = True

    def __init__(
        self,
        channels: int,
        map_px: int,  # noqa: ARG002
        embedding_dim: int,
        dropout: float,
        *,
        width: int = 480,
    ) -> None:
        super().__init__()
        self.widen = widening(channels, width)
        self.dropout = nn.Dropout(dropout)
        self.project = nn.Linear(width, embedding_dim, bias=False)
        self.norm = nn.BatchNorm1d(embedding_dim)

    def forward(self, features: Float[Tensor, "n c k k"]) -> Float[Tensor, "n d"]:
        """Compute embeddings, not yet normalized, from feature maps."""
        return self.norm(self.project(self.dropout(self.widen(features).mean((2, 3)))))


class AverageMLPHead(nn.Module):
    """Global average - linear, batch norm, ReLU, as wide as the map - dropout - linear - batch norm.

    The baseline that the pet embedder's essay compares GDConv with: it loses where in the face a feature is.
    """

    def __init__(self, channels: int, map_px: int, embedding_dim: int, dropout: float) -> None:  # noqa: ARG002
        super().__init__()
        self.takes_any_map = True
        self.hidden = nn.Sequential(nn.Linear(channels, channels, bias=False), nn.BatchNorm1d(channels), nn.ReLU())
        self.dropout = nn.Dropout(dropout)
        self.project = nn.Linear(channels, embedding_dim, bias=False)
        self.norm = nn.BatchNorm1d(embedding_dim)

    def forward(self, features: Float[Tensor, "n c k k"]) -> Float[Tensor, "n d"]:
        """Compute embeddings, not yet normalized, from feature maps."""
        return self.norm(self.project(self.dropout(self.hidden(features.mean((2, 3))))))


class Maxout(nn.Linear):
    """The elementwise maximum of `pieces` linear layers (Goodfellow et al. 2013, arXiv 1302.4389).

    Row `p * outputs + o` of the weight is output o of piece p.
    """

    def __init__(self, inputs: int, outputs: int, pieces: int = 2, bias: bool = True) -> None:
        super().__init__(inputs, outputs * pieces, bias=bias)
        self.pieces = pieces

    def forward(self, input: Float[Tensor, "n i"]) -> Float[Tensor, "n o"]:  # noqa: A002 (nn.Linear's name)
        """Compute the layer's output."""
        return super().forward(input).unflatten(1, (self.pieces, -1)).amax(1)


class MaxoutHead(nn.Module):
    """Flatten - maxout layers of `widths` - dropout - one linear layer: FaceNet's NN1 (arXiv 1503.03832, Table 1).

    With `batch_norm` each maxout layer is followed by batch norm and has no bias.
    """

    def __init__(
        self,
        channels: int,
        map_px: int,
        embedding_dim: int,
        dropout: float,
        *,
        widths: tuple[int, ...] = (4096, 4096),
        batch_norm: bool = True,
    ) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        inputs = channels * map_px**2
        for width in widths:
            layers.append(Maxout(inputs, width, bias=not batch_norm))
            layers += [nn.BatchNorm1d(width)] if batch_norm else []
            inputs = width
        self.hidden = nn.Sequential(*layers)
        self.dropout = nn.Dropout(dropout)
        self.project = nn.Linear(inputs, embedding_dim)

    def forward(self, features: Float[Tensor, "n c k k"]) -> Float[Tensor, "n d"]:
        """Compute embeddings, not yet normalized, from feature maps."""
        return self.project(self.dropout(self.hidden(features.flatten(1))))


class HiddenHead(nn.Module):
    """Flatten - a hidden layer with batch norm and ReLU - dropout - linear: that of the digits essay."""

    def __init__(self, channels: int, map_px: int, embedding_dim: int, dropout: float, *, width: int = 128) -> None:
        super().__init__()
        self.hidden = nn.Sequential(
            nn.Linear(channels * map_px**2, width, bias=False), nn.BatchNorm1d(width), nn.ReLU()
        )
        self.dropout = nn.Dropout(dropout)
        self.project = nn.Linear(width, embedding_dim)

    def forward(self, features: Float[Tensor, "n c k k"]) -> Float[Tensor, "n d"]:
        """Compute embeddings, not yet normalized, from feature maps."""
        return self.project(self.dropout(self.hidden(features.flatten(1))))


# Any head fits any trunk; the catalog has each network's default.
HEADS = {
    "gdconv": GDConvHead,
    "flatten": partial(LinearHead, pool="flatten"),
    "flatten_bias": partial(LinearHead, pool="flatten", norm=False),
    "average": partial(LinearHead, pool="average"),
    "average_bias": partial(LinearHead, pool="average", norm=False),
    "average_groups": AverageGroupsHead,
    "average_groups_root": partial(AverageGroupsHead, root=True),
    "average_wide": WideAverageHead,
    "average_mlp": AverageMLPHead,
    "maxout": MaxoutHead,
    "hidden": HiddenHead,
}
