"""EfficientNet-B0 (arXiv 1905.11946) as the circle-loss project rebuilt it for 112 px.

It differs from the paper: the last stage is 5x5 instead of 3x3, the 112-channel stage has a stride of 2 (so that 112 px
end in a map of 1 x 1), and the width of the squeeze is a share of the block's inputs. Stem and top use ReLU6, the
blocks swish.
"""

from collections import OrderedDict
from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor, nn
from torchvision.ops import StochasticDepth

from familiar.models.initialization import scale_convolutions_

BATCH_NORM_EPS = 1e-3  # Keras's
SQUEEZE_RATIO = 0.25
BLOCKS = 16


@dataclass(frozen=True)
class Stage:
    """Some blocks of equal width; only the first has the stride."""

    outputs: int
    kernel_px: int
    stride: int
    expansion: int
    blocks: int


STEM_CHANNELS, TOP_CHANNELS = 32, 1280
STAGES = (
    Stage(16, 3, 1, 1, 1),
    Stage(24, 3, 2, 6, 2),
    Stage(40, 5, 2, 6, 2),
    Stage(80, 3, 2, 6, 3),
    Stage(112, 5, 2, 6, 3),
    Stage(192, 5, 2, 6, 4),
    Stage(320, 5, 1, 6, 1),
)


class EfficientNetTrunk(nn.Module):
    """EfficientNet-B0 up to its last map.

    Args:
        drop_rate: of stochastic depth, which drops a block's whole branch per photo in training; block i of 0 to 15
            has i / 16 of it.
    """

    channels = TOP_CHANNELS

    def __init__(self, drop_rate: float = 0.2) -> None:
        super().__init__()
        self.layers = nn.Sequential(OrderedDict(stem=_convolution(3, STEM_CHANNELS, 3, 2, nn.ReLU6())))
        inputs, index = STEM_CHANNELS, 0
        for number, stage in enumerate(STAGES, 1):
            blocks: list[nn.Module] = []
            for block in range(stage.blocks):
                stride = stage.stride if block == 0 else 1
                blocks.append(InvertedResidual(inputs, stage, stride, drop_rate * index / BLOCKS))
                inputs, index = stage.outputs, index + 1
            self.layers.add_module(f"mbconv{number}", nn.Sequential(*blocks))
        self.layers.add_module("top", _convolution(inputs, TOP_CHANNELS, 1, 1, nn.ReLU6()))
        scale_convolutions_(self, 2.0)

    def forward(self, images: Float[Tensor, "n 3 s s"]) -> Float[Tensor, "n c k k"]:
        """Compute the feature maps of images."""
        return self.layers(images)


class InvertedResidual(nn.Module):
    """Expand - depthwise - squeeze and excite - project, with a residual connection if the shape stays (MBConv)."""

    def __init__(self, inputs: int, stage: Stage, stride: int, drop_rate: float) -> None:
        super().__init__()
        wide = inputs * stage.expansion
        expand = _convolution(inputs, wide, 1, 1, nn.SiLU()) if stage.expansion > 1 else nn.Identity()
        self.branch = nn.Sequential(
            OrderedDict(
                expand=expand,
                depthwise=_convolution(wide, wide, stage.kernel_px, stride, nn.SiLU(), groups=wide),
                squeeze=SqueezeExcite(wide, int(inputs * SQUEEZE_RATIO)),
                project=_convolution(wide, stage.outputs, 1, 1, nn.Identity()),
            )
        )
        self.has_residual = stride == 1 and inputs == stage.outputs
        # Drops the whole branch of a photo or none of it; the rest is scaled up, so that the mean stays the same.
        self.drop = StochasticDepth(drop_rate, "row")

    def forward(self, features: Float[Tensor, "n i h w"]) -> Float[Tensor, "n o h2 w2"]:
        """Compute the layer's output."""
        branch = self.branch(features)
        return features + self.drop(branch) if self.has_residual else branch


class SqueezeExcite(nn.Module):
    """Squeeze and excitation: each channel is scaled by a gate computed from all channels' means (arXiv 1709.01507)."""

    def __init__(
        self,
        channels: int,
        squeezed: int,
        activation: type[nn.Module] = nn.SiLU,
        gate: type[nn.Module] = nn.Sigmoid,
    ) -> None:
        super().__init__()
        self.weigh = nn.Sequential(
            nn.AdaptiveAvgPool2d(1),
            nn.Conv2d(channels, squeezed, 1),
            activation(),
            nn.Conv2d(squeezed, channels, 1),
            gate(),
        )

    def forward(self, features: Float[Tensor, "n c h w"]) -> Float[Tensor, "n c h w"]:
        """Compute the layer's output."""
        return features * self.weigh(features)


def _convolution(
    inputs: int, outputs: int, kernel_px: int, stride: int, activation: nn.Module, groups: int = 1
) -> nn.Module:
    """Build a convolution with batch norm and activation; stride 2 rounds down, 7 px to 3, as in the project."""
    reach = kernel_px // 2
    before = reach if stride == 1 else reach - 1
    return nn.Sequential(
        nn.ZeroPad2d((before, reach, before, reach)) if before != reach else nn.Identity(),
        nn.Conv2d(inputs, outputs, kernel_px, stride, padding=reach if stride == 1 else 0, groups=groups, bias=False),
        nn.BatchNorm2d(outputs, eps=BATCH_NORM_EPS),
        activation,
    )
