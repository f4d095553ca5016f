"""MobileNetV3 trunks whose last features stay a map, under a head that weighs the map's places."""

import timm
import torch
from jaxtyping import Float
from timm.models.mobilenetv3 import MobileNetV3
from torch import Tensor, nn

from familiar.models.heads import GDConvHead

TRUNK_STRIDE = 32


class EmbeddingNetwork(nn.Module):
    """Crop tensor to unit embedding: `trunk` makes a feature map, `head` an embedding of it.

    The two are apart because initial weights are the trunk's, and so is the lower learning rate.
    """

    def __init__(self, trunk: "MobileNetV3Trunk", head: GDConvHead) -> None:
        super().__init__()
        self.trunk = trunk
        self.head = head

    def forward(self, images: Float[Tensor, "n 3 s s"]) -> Float[Tensor, "n d"]:
        return self.head(self.trunk(images))


class MobileNetV3Trunk(nn.Module):
    """timm's MobileNetV3 with `conv_head` on the map, where timm's own order pools before it."""

    def __init__(self, name: str) -> None:
        super().__init__()
        backbone = timm.create_model(name, pretrained=False, num_classes=0)
        assert isinstance(backbone, MobileNetV3)
        self.backbone = backbone
        self.channels: int = backbone.conv_head.out_channels  # pyright: ignore[reportAttributeAccessIssue]

    @property
    def batch_norm_eps(self) -> float:
        """The epsilon of every batch norm: whoever trained the initial weights chose it."""
        return self.backbone.bn1.eps  # pyright: ignore[reportAttributeAccessIssue, reportReturnType]

    @batch_norm_eps.setter
    def batch_norm_eps(self, eps: float) -> None:
        for module in self.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.eps = eps

    def get_extra_state(self) -> Tensor:
        """The epsilon: torch keeps no such number with the weights, and without it they compute another function."""
        return torch.tensor(self.batch_norm_eps, dtype=torch.float64)

    def set_extra_state(self, state: Tensor) -> None:
        self.batch_norm_eps = float(state)

    def forward(self, images: Float[Tensor, "n 3 s s"]) -> Float[Tensor, "n c k k"]:
        network = self.backbone
        return network.act2(network.norm_head(network.conv_head(network.forward_features(images))))


def mobilenet_embedder(name: str, size_px: int, embedding_dim: int, dropout: float) -> EmbeddingNetwork:
    """timm's `name` under a GDConv head whose kernel is the whole feature map at `size_px`."""
    trunk = MobileNetV3Trunk(name)
    map_px = -(-size_px // TRUNK_STRIDE)  # each of the five halvings rounds up
    return EmbeddingNetwork(trunk, GDConvHead(trunk.channels, map_px, embedding_dim, dropout))
