"""familiar's own small network, designed so that its whole bundle is at most 308,000 bytes (docs/explanation/nano.md).

Inverted residuals (MobileNetV2, arXiv 1801.04381) as MobileFaceNet (arXiv 1804.07573) uses them for faces: early
strides, most weights in the layers whose map is small, and a global depthwise convolution as the head.
"""

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor, nn

from familiar.models.efficientnet import SqueezeExcite


@dataclass(frozen=True)
class NanoStage:
    """Several inverted residuals, the first with the stride, each `expansion` times as wide inside as its inputs."""

    outputs: int
    expansion: int
    blocks: int
    stride: int
    kernel_px: int = 3


@dataclass(frozen=True)
class NanoConfig:
    """A whole trunk: stem (a strided 3x3 and a depthwise 3x3), stages, a last 1x1 convolution to `top` channels."""

    stem: int
    stages: tuple[NanoStage, ...]
    top: int


NANO = NanoConfig(
    stem=16,
    stages=(
        NanoStage(24, 2, 2, stride=2),
        NanoStage(40, 3, 3, stride=2),
        NanoStage(68, 3, 3, stride=2),
    ),
    top=152,
)
# For int8, at one byte per weight: it has only convolutions, additions and ReLU, which quantize well.
NANO_WIDE = NanoConfig(
    stem=24,
    stages=(
        NanoStage(32, 3, 2, stride=2),
        NanoStage(56, 3, 3, stride=2),
        NanoStage(88, 3, 3, stride=2),
    ),
    top=216,
)

ACTIVATIONS = {"relu": nn.ReLU, "hardswish": nn.Hardswish}


class NanoTrunk(nn.Module):
    """The network of `table` up to its last map, whose side is a sixteenth of the crop's.

    Args:
        table: widths and depths.
        activation: name in `ACTIVATIONS`.
        squeeze: above 0, each block has squeeze and excitation, as in MobileNetV3, with a bottleneck of this share.
    """

    def __init__(self, table: NanoConfig = NANO, activation: str = "relu", squeeze: float = 0.0) -> None:
        super().__init__()
        layers = [
            *_convolution(3, table.stem, 3, 2, activation),
            *_convolution(table.stem, table.stem, 3, 1, activation, groups=table.stem),
        ]
        inputs = table.stem
        for stage in table.stages:
            for block in range(stage.blocks):
                stride = stage.stride if block == 0 else 1
                layers.append(NanoBlock(inputs, stage, stride, activation, squeeze))
                inputs = stage.outputs
        self.layers = nn.Sequential(*layers, *_convolution(inputs, table.top, 1, 1, activation))
        self.channels = table.top
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, images: Float[Tensor, "n 3 s s"]) -> Float[Tensor, "n c k k"]:
        """Compute the feature maps of images."""
        return self.layers(images)


class NanoBlock(nn.Module):
    """Expand - depthwise - project without an activation, with a residual connection if the shape stays."""

    def __init__(self, inputs: int, stage: NanoStage, stride: int, activation: str, squeeze: float) -> None:
        super().__init__()
        wide = inputs * stage.expansion
        self.branch = nn.Sequential(
            *_convolution(inputs, wide, 1, 1, activation),
            *_convolution(wide, wide, stage.kernel_px, stride, activation, groups=wide),
            squeeze_excite(wide, max(4, int(wide * squeeze))) if squeeze else nn.Identity(),
            nn.Conv2d(wide, stage.outputs, 1, bias=False),
            nn.BatchNorm2d(stage.outputs),
        )
        self.has_residual = stride == 1 and inputs == stage.outputs

    def forward(self, features: Float[Tensor, "n i h w"]) -> Float[Tensor, "n o h2 w2"]:
        """Compute the layer's output."""
        branch = self.branch(features)
        return features + branch if self.has_residual else branch


def squeeze_excite(channels: int, squeezed: int) -> SqueezeExcite:
    """Build squeeze and excitation with a hard sigmoid, which is fast on phones (MobileNetV3, arXiv 1905.02244)."""
    return SqueezeExcite(channels, squeezed, nn.ReLU, nn.Hardsigmoid)


def _convolution(
    inputs: int, outputs: int, kernel_px: int, stride: int, activation: str, groups: int = 1
) -> list[nn.Module]:
    return [
        nn.Conv2d(inputs, outputs, kernel_px, stride, kernel_px // 2, groups=groups, bias=False),
        nn.BatchNorm2d(outputs),
        ACTIVATIONS[activation](),
    ]
