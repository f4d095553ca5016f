"""From a feature map to a unit embedding."""

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import normalize


class GDConvHead(nn.Module):
    """Global depthwise convolution: every place of the feature map has its own learned weight.

    GDConv (k x k, one filter a channel) - dropout - 1x1 convolution to `embedding_dim` - batch norm -
    unit length. MobileFaceNet, arXiv 1804.07573.
    """

    def __init__(self, channels: int, map_px: int, embedding_dim: int, dropout: float) -> None:
        super().__init__()
        self.pool = nn.Conv2d(channels, channels, map_px, groups=channels, bias=False)
        # Starts as the global average, so that initial weights are not drowned in noise.
        nn.init.constant_(self.pool.weight, 1.0 / map_px**2)
        self.dropout = nn.Dropout(dropout)
        self.project = nn.Conv2d(channels, embedding_dim, 1, bias=False)
        nn.init.normal_(self.project.weight, std=1.0 / math.sqrt(channels))
        self.norm = nn.BatchNorm2d(embedding_dim)

    def forward(self, features: Float[Tensor, "n c k k"]) -> Float[Tensor, "n d"]:
        embeddings = self.norm(self.project(self.dropout(self.pool(features)))).flatten(1)
        # A norm in float16 can overflow; the rest of the head may stay in it.
        with torch.autocast(embeddings.device.type, enabled=False):
            return normalize(
                embeddings.float() if embeddings.dtype in (torch.float16, torch.bfloat16) else embeddings
            )
