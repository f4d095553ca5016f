"""JPEG compression artifacts, computed on the device of the pixels (ITU-T T.81, as in libjpeg)."""

from functools import cache
from math import cos, pi, sqrt

import torch
from jaxtyping import Float32
from torch import Tensor
from torch.nn import functional as F

Images = Float32[Tensor, "k 3 s s"]

LUMA_RGB = (0.299, 0.587, 0.114)  # ITU-R BT.601, as in JPEG and OpenCV

# Tables K.1 and K.2 of ITU-T T.81, which libjpeg scales by the quality.
LUMA_STEPS = (
    (16, 11, 10, 16, 24, 40, 51, 61),
    (12, 12, 14, 19, 26, 58, 60, 55),
    (14, 13, 16, 24, 40, 57, 69, 56),
    (14, 17, 22, 29, 51, 87, 80, 62),
    (18, 22, 37, 56, 68, 109, 103, 77),
    (24, 35, 55, 64, 81, 104, 113, 92),
    (49, 64, 78, 87, 103, 121, 120, 101),
    (72, 92, 95, 98, 112, 100, 103, 99),
)
COLOR_STEPS = (
    (17, 18, 24, 47, 99, 99, 99, 99),
    (18, 21, 26, 66, 99, 99, 99, 99),
    (24, 26, 56, 99, 99, 99, 99, 99),
    (47, 66, 99, 99, 99, 99, 99, 99),
    *((99,) * 8 for _ in range(4)),
)


def compress(images: Images, quality: Float32[Tensor, "k 1"]) -> Images:
    """Simulate JPEG of a quality: quantized 8 x 8 cosine transform, color at half resolution."""
    side = images.shape[-1]
    padded = F.pad(images.round(), (0, -side % 16, 0, -side % 16), mode="replicate")
    luma = to_luma(padded)
    from_blue, from_red = (padded[:, 2:] - luma) * (0.5 / 0.886), (padded[:, :1] - luma) * (0.5 / 0.701)
    color = F.avg_pool2d(torch.cat([from_blue, from_red], 1), 2)
    cosines, luma_steps, color_steps = _constants_on(images.device)
    luma = quantize(luma - 128, scale_steps(luma_steps, quality), cosines) + 128
    color = quantize(color, scale_steps(color_steps, quality), cosines)
    color = F.interpolate(color, scale_factor=2, mode="bilinear")  # libjpeg's "fancy" upsampling
    from_blue, from_red = color[:, :1] * (0.886 / 0.5), color[:, 1:] * (0.701 / 0.5)
    red, blue = luma + from_red, luma + from_blue
    green = luma - (LUMA_RGB[0] * from_red + LUMA_RGB[2] * from_blue) / LUMA_RGB[1]
    return torch.cat([red, green, blue], 1)[:, :, :side, :side]


def quantize(
    planes: Float32[Tensor, "k c h w"], steps: Float32[Tensor, "k 8 8"], cosines: Float32[Tensor, "8 8"]
) -> Float32[Tensor, "k c h w"]:
    """Round as JPEG does: values to whole levels, then each 8 x 8 block's frequencies to multiples of `steps`."""
    height, width = planes.shape[2:]
    blocks = planes.round().view(*planes.shape[:2], height // 8, 8, width // 8, 8).transpose(3, 4)
    steps = steps[:, None, None, None]
    frequencies = (cosines @ blocks @ cosines.T / steps).round() * steps
    return (cosines.T @ frequencies @ cosines).transpose(3, 4).reshape(planes.shape).round()


def scale_steps(steps: Float32[Tensor, "8 8"], quality: Float32[Tensor, "k 1"]) -> Float32[Tensor, "k 8 8"]:
    """Scale quantization steps as libjpeg does: unchanged at quality 50, all 1 at 100."""
    percent = torch.where(quality < 50, torch.floor(5000 / quality), 200 - 2 * quality)
    return torch.floor((steps * percent[:, :, None] + 50) / 100).clamp(1, 255)


@cache
def _constants_on(device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    """Return the orthonormal cosine transform of 8 values and the two tables (cached, as a transfer is slow)."""
    cosines = [
        [(sqrt(1 / 8) if row == 0 else 0.5) * cos(pi * row * (2 * column + 1) / 16) for column in range(8)]
        for row in range(8)
    ]
    luma_steps, color_steps = (torch.tensor(steps, dtype=torch.float32) for steps in (LUMA_STEPS, COLOR_STEPS))
    return torch.tensor(cosines).to(device), luma_steps.to(device), color_steps.to(device)


def to_luma(images: Images) -> Float32[Tensor, "k 1 s s"]:
    """Compute the luma (ITU-R BT.601)."""
    red, green, blue = LUMA_RGB
    return red * images[:, :1] + green * images[:, 1:2] + blue * images[:, 2:]
