"""Plain convolution stacks: those of the circle-loss project, and that of the digits essay."""

from typing import Literal

from jaxtyping import Float
from torch import Tensor, nn

from familiar.models.initialization import scale_convolutions_

KERAS_BATCH_NORM_EPS = 1e-3
FIRST_CHANNELS = 32  # doubled by every block
SIMPLE_VARIANCE_SCALE, SIMPLE_V2_VARIANCE_SCALE = 0.2, 2.0  # Keras's default is 1


class SimpleTrunk(nn.Module):
    """SimpleEmbeddingNet: `blocks` of convolution (5x5 in the first two), batch norm, swish and 2x2 pooling."""

    def __init__(self, blocks: int = 5, pooling: Literal["max", "average"] = "max") -> None:
        super().__init__()
        pool = {"max": nn.MaxPool2d, "average": nn.AvgPool2d}[pooling]
        layers: list[nn.Module] = []
        self.channels = 3
        for block in range(blocks):
            inputs, self.channels = self.channels, FIRST_CHANNELS * 2**block
            kernel_px = 5 if block < 2 else 3
            layers += [
                nn.Conv2d(inputs, self.channels, kernel_px, padding=kernel_px // 2, bias=False),
                nn.BatchNorm2d(self.channels, eps=KERAS_BATCH_NORM_EPS),
                nn.SiLU(),
                pool(2),
            ]
        self.layers = nn.Sequential(*layers)
        scale_convolutions_(self, SIMPLE_VARIANCE_SCALE)

    def forward(self, images: Float[Tensor, "n 3 s s"]) -> Float[Tensor, "n c k k"]:
        """Compute the feature maps of images."""
        return self.layers(images)


class SimpleV2Trunk(nn.Module):
    """SimpleEmbeddingNetV2: repeated blocks of a 3x3 convolution with stride 2, batch norm and swish; no pooling."""

    def __init__(self, blocks: int = 5) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        self.channels = 3
        for block in range(blocks):
            inputs, self.channels = self.channels, FIRST_CHANNELS * 2**block
            layers += [
                nn.Conv2d(inputs, self.channels, 3, stride=2, padding=1, bias=False),
                nn.BatchNorm2d(self.channels, eps=KERAS_BATCH_NORM_EPS),
                nn.SiLU(),
            ]
        self.layers = nn.Sequential(*layers)
        scale_convolutions_(self, SIMPLE_V2_VARIANCE_SCALE)

    def forward(self, images: Float[Tensor, "n 3 s s"]) -> Float[Tensor, "n c k k"]:
        """Compute the feature maps of images."""
        return self.layers(images)


class DigitsTrunk(nn.Module):
    """Two convolutions, each with batch norm, ReLU and 2x2 max pooling, on gray: the mean of the three colors."""

    channels = 64

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(1, 32, 3, padding=1, bias=False),
            nn.BatchNorm2d(32),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(32, self.channels, 3, padding=1, bias=False),
            nn.BatchNorm2d(self.channels),
            nn.ReLU(),
            nn.MaxPool2d(2),
        )

    def forward(self, images: Float[Tensor, "n 3 s s"]) -> Float[Tensor, "n c k k"]:
        """Compute the feature maps of images."""
        return self.layers(images.mean(1, keepdim=True))
