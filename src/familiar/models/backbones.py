"""Networks of timm and torchvision as trunks that end in a feature map and take ImageNet weights."""

from abc import ABC, abstractmethod
from typing import Any

import timm
import torch
from jaxtyping import Float
from timm.data.constants import IMAGENET_DEFAULT_MEAN
from timm.models._efficientnet_blocks import SqueezeExcite
from timm.models.mobilenetv3 import MobileNetV3
from torch import Tensor, nn
from torch.nn.functional import hardsigmoid
from torch.nn.modules.batchnorm import _BatchNorm
from torchvision.models import shufflenetv2

from familiar.core.errors import BadRecipe, BadWeights

MAP_DIMENSIONS = 4
STAGES_TO_STRIDE_16 = 4  # in MobileNetV3-Small
EFFICIENTNET_STAGES_TO_STRIDE_16 = 5


class BackboneTrunk(nn.Module, ABC):
    """A pretrained network of timm or torchvision; `name` identifies its ImageNet weights there."""

    def __init__(self, name: str, backbone: nn.Module, channels: int) -> None:
        super().__init__()
        self.name = name
        self.backbone: Any = backbone
        self.channels = channels

    @property
    def batch_norm_eps(self) -> float:
        """Epsilon of every batch norm, which belongs to the initial weights."""
        return next(module.eps for module in self.modules() if isinstance(module, _BatchNorm))

    @batch_norm_eps.setter
    def batch_norm_eps(self, eps: float) -> None:
        for module in self.modules():
            if isinstance(module, _BatchNorm):
                module.eps = eps

    def get_extra_state(self) -> Tensor:
        """Store the epsilon: torch does not save it, and with another one the weights compute another function."""
        return torch.tensor(self.batch_norm_eps, dtype=torch.float64)

    def set_extra_state(self, state: Tensor) -> None:
        """Restore the epsilon."""
        self.batch_norm_eps = float(state)

    @property
    def pixel_mean(self) -> tuple[float, ...]:
        """Mean color, in [0, 1], that the library subtracts from photos for its ImageNet weights."""
        return IMAGENET_DEFAULT_MEAN

    def first_stages(self, count: int) -> list[nn.Module]:
        """Return all modules up to the end of a stage, in the order in which they run.

        A stage is a group of blocks of equal width, between which the map may shrink: an element of timm's `blocks`.

        Args:
            count: number of stages, at least 1.

        Raises:
            BadRecipe: there are fewer, or the network is not made of such blocks.
        """
        return _first_stages(self.name, self.backbone, count)

    @abstractmethod
    def download(self) -> dict[str, Tensor]:
        """Fetch the weights that the library publishes, without the classifier; downloaded once."""

    @abstractmethod
    def forward(self, images: Float[Tensor, "n 3 s s"]) -> Float[Tensor, "n c k k"]:
        """Compute the last feature map, of `channels` channels."""


class TimmTrunk(BackboneTrunk):
    """Any timm network whose `forward_features` returns a map."""

    def __init__(self, name: str) -> None:
        backbone: Any = timm.create_model(name, pretrained=False, num_classes=0)
        super().__init__(name, backbone, backbone.num_features)

    @property
    def pixel_mean(self) -> tuple[float, ...]:
        """Mean color, in [0, 1], that timm subtracts."""
        return tuple(self.backbone.pretrained_cfg["mean"])

    def download(self) -> dict[str, Tensor]:
        """Fetch timm's ImageNet weights."""
        return timm.create_model(self.name, pretrained=True, num_classes=0).state_dict()

    def forward(self, images: Float[Tensor, "n 3 s s"]) -> Float[Tensor, "n c k k"]:
        """Compute the feature maps of images."""
        features = self.backbone.forward_features(images)
        if features.ndim != MAP_DIMENSIONS:
            raise BadRecipe(
                f"{self.name} does not end in a feature map, but heads need one; use a convolutional network"
            )
        channels_last = getattr(self.backbone, "output_fmt", "NCHW") == "NHWC"
        return features.permute(0, 3, 1, 2) if channels_last else features


class FineEfficientNetTrunk(TimmTrunk):
    """timm's EfficientNet without its last stride: its map's side is a sixteenth of the crop's.

    All layers and their ImageNet weights stay, so that crops of 112 px end in the map of 7 x 7 that these layers were
    trained on at 224 px.
    """

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.backbone.blocks[EFFICIENTNET_STAGES_TO_STRIDE_16][0].conv_dw.stride = (1, 1)


class JoinedTimmTrunk(BackboneTrunk):
    """Several timm networks, trained on ImageNet each by itself, that look at the same photos: their maps are joined.

    Networks that were trained apart make different mistakes, so that they recognize better together than any of them.
    """

    def __init__(self, *names: str) -> None:
        parts = [TimmTrunk(name) for name in names]
        backbones = nn.ModuleList(part.backbone for part in parts)
        super().__init__(" and ".join(names), backbones, sum(part.channels for part in parts))
        self.names = names

    @property
    def pixel_mean(self) -> tuple[float, ...]:
        """Mean color, in [0, 1], that timm subtracts for all of them."""
        return tuple(self.backbone[0].pretrained_cfg["mean"])

    def first_stages(self, count: int) -> list[nn.Module]:
        """Return all modules up to the end of a stage, those of the first network first. BadRecipe: one has fewer."""
        pairs = zip(self.names, self.backbone, strict=True)
        return [module for name, backbone in pairs for module in _first_stages(name, backbone, count)]

    def download(self) -> dict[str, Tensor]:
        """Fetch timm's ImageNet weights of all of them."""
        published = [TimmTrunk(name).download() for name in self.names]
        return {f"{number}.{key}": value for number, part in enumerate(published) for key, value in part.items()}

    def forward(self, images: Float[Tensor, "n 3 s s"]) -> Float[Tensor, "n c k k"]:
        """Compute the feature maps of images, the first network's channels first."""
        return torch.cat([backbone.forward_features(images) for backbone in self.backbone], dim=1)


def _first_stages(name: str, backbone: nn.Module, count: int) -> list[nn.Module]:
    blocks = getattr(backbone, "blocks", None)
    if not isinstance(blocks, nn.Sequential):
        raise BadRecipe(f"model.frozen_stages: {name} is not made of stages; set it to 0")
    if count > len(blocks):
        raise BadRecipe(f"model.frozen_stages: {name} has {len(blocks)} stages, not {count}")
    children = list(backbone.children())
    return [*children[: children.index(blocks)], *blocks[:count]]


class MobileNetV3Trunk(TimmTrunk):
    """timm's MobileNetV3 with `conv_head` applied to the map; timm itself pools before it."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        assert isinstance(self.backbone, MobileNetV3)
        self.channels = self.backbone.conv_head.out_channels  # pyright: ignore[reportAttributeAccessIssue]

    def forward(self, images: Float[Tensor, "n 3 s s"]) -> Float[Tensor, "n c k k"]:
        """Compute the feature maps of images."""
        network = self.backbone
        return network.act2(network.norm_head(network.conv_head(network.forward_features(images))))


class NarrowGate(nn.Module):
    """Squeeze-and-excitation whose squeeze has few channels and no activation: a factor for each channel of a map.

    The factor is a hard sigmoid of a linear function, of low rank, of the channels' means. MobileNetV3's own gates have
    half of its weights; of rank 4 they keep most of what these know (`benchmarks/narrow_gates.py`).
    """

    def __init__(self, channels: int, rank: int) -> None:
        super().__init__()
        self.reduce = nn.Conv2d(channels, rank, 1)
        self.expand = nn.Conv2d(rank, channels, 1)

    def forward(self, features: Float[Tensor, "n c h w"]) -> Float[Tensor, "n c h w"]:
        """Compute the layer's output."""
        return features * hardsigmoid(self.expand(self.reduce(features.mean((2, 3), keepdim=True))))


class NarrowGateMobileNetV3Trunk(MobileNetV3Trunk):
    """timm's MobileNetV3 with `NarrowGate` in place of squeeze-and-excitation, and without `conv_head`.

    No weights are published for it: `benchmarks/narrow_gates.py` makes them of those of the whole network.
    """

    def __init__(self, name: str, rank: int = 4) -> None:
        super().__init__(name)
        network = self.backbone
        for block in (block for stage in network.blocks for block in stage):
            if isinstance(getattr(block, "se", None), SqueezeExcite):
                block.se = NarrowGate(block.se.conv_reduce.in_channels, rank)
        del network.conv_head, network.norm_head, network.act2
        self.channels = network.blocks[-1][-1].conv.out_channels

    def download(self) -> dict[str, Tensor]:
        """Refuse: nobody publishes such weights."""
        raise BadWeights(
            "nobody publishes ImageNet weights with narrow gates; make them of those of the whole network with "
            "benchmarks/narrow_gates.py, and give the file: --set model.initial_weights=FILE"
        )

    def forward(self, images: Float[Tensor, "n 3 s s"]) -> Float[Tensor, "n c k k"]:
        """Compute the feature maps of images."""
        return self.backbone.forward_features(images)


class ShortMobileNetV3Trunk(MobileNetV3Trunk):
    """timm's MobileNetV3 up to stride 16, where the map's side is a sixteenth of the crop's; a fifth of the weights.

    At 112 px all later layers work on a map of 4 x 4, which resolves little of a face.
    """

    def __init__(self, name: str) -> None:
        super().__init__(name)
        network = self.backbone
        network.blocks = network.blocks[:STAGES_TO_STRIDE_16]
        del network.conv_head, network.norm_head, network.act2
        self.channels = network.blocks[-1][-1].conv_pwl.out_channels

    def download(self) -> dict[str, Tensor]:
        """Fetch timm's ImageNet weights of the layers that are left."""
        return _without_missing(super().download(), self.backbone)

    def forward(self, images: Float[Tensor, "n 3 s s"]) -> Float[Tensor, "n c k k"]:
        """Compute the feature maps of images."""
        return self.backbone.forward_features(images)


class ShuffleNetV2Trunk(BackboneTrunk):
    """torchvision's ShuffleNetV2 x1.0 (arXiv 1807.11164), which timm does not have, up to its last convolution."""

    def __init__(self) -> None:
        backbone: Any = shufflenetv2.shufflenet_v2_x1_0(weights=None)
        channels = backbone.fc.in_features
        del backbone.fc
        super().__init__("shufflenet_v2_x1_0", backbone, channels)

    def download(self) -> dict[str, Tensor]:
        """Fetch torchvision's ImageNet weights."""
        weights = shufflenetv2.ShuffleNet_V2_X1_0_Weights.IMAGENET1K_V1.get_state_dict(
            progress=False, check_hash=True, weights_only=True
        )
        return {key: tensor for key, tensor in weights.items() if not key.startswith("fc.")}

    def forward(self, images: Float[Tensor, "n 3 s s"]) -> Float[Tensor, "n c k k"]:
        """Compute the feature maps of images."""
        network = self.backbone
        features = network.maxpool(network.conv1(images))
        return network.conv5(network.stage4(network.stage3(network.stage2(features))))


def _without_missing(published: dict[str, Tensor], backbone: nn.Module) -> dict[str, Tensor]:
    """Return the weights of the layers that the backbone has."""
    state = backbone.state_dict()
    return {key: tensor for key, tensor in published.items() if key in state}
