"""FaceNet's NN1 (arXiv 1503.03832, Table 1): Zeiler and Fergus's network with 1x1 convolutions between its layers."""

from collections import OrderedDict

from jaxtyping import Float
from torch import Tensor, nn


class ZeilerFergusTrunk(nn.Module):
    """NN1 up to its last map, 7x7x256 for 220 px.

    Local response normalization is as in the table, with AlexNet's constants, since the paper names none.

    Args:
        batch_norm: after each convolution, instead of its bias.
    """

    channels = 256

    def __init__(self, batch_norm: bool = True) -> None:
        super().__init__()

        def convolution(inputs: int, outputs: int, kernel_px: int, stride: int = 1) -> nn.Module:
            return nn.Sequential(*convolution_layers(inputs, outputs, kernel_px, stride, batch_norm))

        def pool() -> nn.Module:
            return nn.MaxPool2d(3, stride=2, padding=1)

        self.layers = nn.Sequential(
            OrderedDict(
                conv1=convolution(3, 64, 7, 2),
                pool1=pool(),
                rnorm1=response_norm(),
                conv2a=convolution(64, 64, 1),
                conv2=convolution(64, 192, 3),
                rnorm2=response_norm(),
                pool2=pool(),
                conv3a=convolution(192, 192, 1),
                conv3=convolution(192, 384, 3),
                pool3=pool(),
                conv4a=convolution(384, 384, 1),
                conv4=convolution(384, 256, 3),
                conv5a=convolution(256, 256, 1),
                conv5=convolution(256, 256, 3),
                conv6a=convolution(256, 256, 1),
                conv6=convolution(256, 256, 3),
                pool4=pool(),
            )
        )

    def forward(self, images: Float[Tensor, "n 3 s s"]) -> Float[Tensor, "n c k k"]:
        """Compute the feature maps of images."""
        return self.layers(images)


def convolution_layers(inputs: int, outputs: int, kernel_px: int, stride: int, batch_norm: bool) -> list[nn.Module]:
    """Build a convolution that keeps the side, or halves it rounding up; batch norm or a bias; ReLU."""
    convolution = nn.Conv2d(inputs, outputs, kernel_px, stride, padding=kernel_px // 2, bias=not batch_norm)
    nn.init.kaiming_normal_(convolution.weight, nonlinearity="relu")
    if convolution.bias is not None:
        nn.init.zeros_(convolution.bias)
    norm = [nn.BatchNorm2d(outputs)] if batch_norm else []
    return [convolution, *norm, nn.ReLU()]


def response_norm() -> nn.Module:
    """Build local response normalization across five channels, as in AlexNet (Krizhevsky et al. 2012, section 3.3)."""
    return nn.LocalResponseNorm(5, alpha=5e-4, beta=0.75, k=2.0)  # torch divides alpha by the size
