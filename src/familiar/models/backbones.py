"""Networks of timm and torchvision as trunks: their last features stay a map, and ImageNet weights fit them."""

from abc import ABC, abstractmethod
from typing import Any

import timm
import torch
from jaxtyping import Float
from timm.models.mobilenetv3 import MobileNetV3
from torch import Tensor, nn
from torchvision.models import shufflenetv2

STAGES_TO_A_SIXTEENTH = 4  # of MobileNetV3-Small


class BackboneTrunk(nn.Module, ABC):
    """A library's network, `backbone`, under the name by which the library knows its ImageNet weights."""

    def __init__(self, name: str, backbone: nn.Module, channels: int) -> None:
        super().__init__()
        self.name = name
        self.backbone: Any = backbone
        self.channels = channels

    @property
    def batch_norm_eps(self) -> float:
        """The epsilon of every batch norm: whoever trained the initial weights chose it."""
        return next(module.eps for module in self.modules() if isinstance(module, nn.BatchNorm2d))

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

    @abstractmethod
    def download(self) -> dict[str, Tensor]:
        """The weights its library publishes, of the backbone without a classifier; fetched once."""

    @abstractmethod
    def forward(self, images: Float[Tensor, "n 3 s s"]) -> Float[Tensor, "n c k k"]:
        """The last features, a map of `channels`."""


class TimmTrunk(BackboneTrunk):
    """Any network of timm that has `forward_features` ending in a map."""

    def __init__(self, name: str) -> None:
        backbone: Any = timm.create_model(name, pretrained=False, num_classes=0)
        super().__init__(name, backbone, backbone.num_features)

    def download(self) -> dict[str, Tensor]:
        return timm.create_model(self.name, pretrained=True, num_classes=0).state_dict()

    def forward(self, images: Float[Tensor, "n 3 s s"]) -> Float[Tensor, "n c k k"]:
        return self.backbone.forward_features(images)


class MobileNetV3Trunk(TimmTrunk):
    """timm's MobileNetV3 with `conv_head` on the map, where timm's own order pools before it."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        assert isinstance(self.backbone, MobileNetV3)
        self.channels = self.backbone.conv_head.out_channels  # pyright: ignore[reportAttributeAccessIssue]

    def forward(self, images: Float[Tensor, "n 3 s s"]) -> Float[Tensor, "n c k k"]:
        network = self.backbone
        return network.act2(network.norm_head(network.conv_head(network.forward_features(images))))


class ShortMobileNetV3Trunk(MobileNetV3Trunk):
    """timm's MobileNetV3 as far as its map is a sixteenth of the crop's side, with a fifth of its weights.

    At 112 px whatever follows works on a map of 4 x 4, which is little of a face.
    """

    def __init__(self, name: str) -> None:
        super().__init__(name)
        network = self.backbone
        network.blocks = network.blocks[:STAGES_TO_A_SIXTEENTH]
        del network.conv_head, network.norm_head, network.act2
        self.channels = network.blocks[-1][-1].conv_pwl.out_channels

    def download(self) -> dict[str, Tensor]:
        published, own = super().download(), self.backbone.state_dict()
        return {key: tensor for key, tensor in published.items() if key in own}

    def forward(self, images: Float[Tensor, "n 3 s s"]) -> Float[Tensor, "n c k k"]:
        return self.backbone.forward_features(images)


class ShuffleNetV2Trunk(BackboneTrunk):
    """torchvision's ShuffleNetV2 x1.0 (arXiv 1807.11164), which timm has not, up to its last convolution."""

    def __init__(self) -> None:
        backbone: Any = shufflenetv2.shufflenet_v2_x1_0(weights=None)
        channels = backbone.fc.in_features
        del backbone.fc
        super().__init__("shufflenet_v2_x1_0", backbone, channels)

    def download(self) -> dict[str, Tensor]:
        weights = shufflenetv2.ShuffleNet_V2_X1_0_Weights.IMAGENET1K_V1.get_state_dict(
            progress=False, check_hash=True, weights_only=True
        )
        return {key: tensor for key, tensor in weights.items() if not key.startswith("fc.")}

    def forward(self, images: Float[Tensor, "n 3 s s"]) -> Float[Tensor, "n c k k"]:
        network = self.backbone
        features = network.maxpool(network.conv1(images))
        return network.conv5(network.stage4(network.stage3(network.stage2(features))))
