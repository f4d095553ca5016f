"""Image corruptions of a crop (blur, noise, JPEG, ...): pure and deterministic functions.

Severities are relative to the crop as the network sees it, whatever the size of the photo it was cut from.
"""

import math
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import cv2
import numpy as np
from jaxtyping import UInt8

REFERENCE_SIDE_PX = 224  # side of the crops that the sigma of the blur refers to

Pixels = UInt8[np.ndarray, "s s 3"]


def blur(rgb_u8: Pixels, sigma_px: float) -> Pixels:
    """Blur as out of focus: Gaussian of `sigma_px` > 0 for a crop of 224 px, scaled in proportion for others.

    So the same share of a face is blurred whatever the size of the network's input. Pillow calls sigma "radius", and
    repeats the border's pixels as this function does.
    """
    sigma_px *= rgb_u8.shape[0] / REFERENCE_SIDE_PX
    return cv2.GaussianBlur(rgb_u8, (0, 0), sigma_px, borderType=cv2.BORDER_REPLICATE)


def noise(rgb_u8: Pixels, std: float) -> Pixels:
    """Add sensor noise: Gaussian, independent in every pixel and channel; `std` is a share of full scale.

    The seed is the checksum of the pixels: the same draw for every std, a different one for every photo.
    """
    generator = np.random.Generator(np.random.SFC64(zlib.crc32(rgb_u8.tobytes())))
    offsets = generator.standard_normal(rgb_u8.shape, np.float32) * np.float32(255 * std)
    return cv2.add(rgb_u8, offsets, dtype=cv2.CV_8U)


def jpeg(rgb_u8: Pixels, quality: int) -> Pixels:
    """Compress as JPEG, as messengers do: libjpeg's quality, 1 to 100, with color at half resolution."""
    _, encoded = cv2.imencode(".jpg", rgb_u8[..., ::-1], [cv2.IMWRITE_JPEG_QUALITY, quality])
    # OpenCV's stubs say that a decoded image may be None; this one was just encoded.
    return np.asarray(cv2.imdecode(encoded, cv2.IMREAD_COLOR_RGB))


def brightness(rgb_u8: Pixels, factor: float) -> Pixels:
    """Over- or underexpose: multiply the values by `factor` and clip them at full scale."""
    return cv2.convertScaleAbs(rgb_u8, alpha=factor)


def occlusion(rgb_u8: Pixels, area: float) -> Pixels:
    """Cover the middle of the crop with a black square; `area` is the share of the crop that it covers."""
    side = rgb_u8.shape[0]
    covered_px = round(side * math.sqrt(area))
    start = (side - covered_px) // 2
    covered = rgb_u8.copy()
    covered[start : start + covered_px, start : start + covered_px] = 0
    return covered


def rotation(rgb_u8: Pixels, degrees: float) -> Pixels:
    """Rotate counter-clockwise about the center.

    The mirrored picture fills what lies beyond the border: around a real face, the photo goes on.
    """
    middle = (rgb_u8.shape[0] - 1) / 2
    matrix = cv2.getRotationMatrix2D((middle, middle), degrees, 1.0)
    return cv2.warpAffine(rgb_u8, matrix, rgb_u8.shape[:2], borderMode=cv2.BORDER_REFLECT_101)


def downscale(rgb_u8: Pixels, share: float) -> Pixels:
    """Shrink to `share` of the side and enlarge again, as happens to a face that is small in its photo."""
    side = rgb_u8.shape[0]
    low_px = max(1, round(side * share))
    low = cv2.resize(rgb_u8, (low_px, low_px), interpolation=cv2.INTER_AREA)
    return cv2.resize(low, (side, side), interpolation=cv2.INTER_LINEAR)


def mirror(rgb_u8: Pixels) -> Pixels:
    """Swap left and right."""
    return cv2.flip(rgb_u8, 1)


@dataclass(frozen=True)
class Corruption:
    """A kind of corruption.

    `apply` takes a crop's pixels and a severity. `severity`: the default; None if there are no degrees. `sweep`: the
    severities of the sweep, in the order of the chart.
    """

    apply: Callable[[Pixels, Any], Pixels]
    severity: float | None
    unit: str
    sweep: tuple[float, ...] = ()


# "25 % center block" is understood as a quarter of the area, so half the side: a block of a quarter of the side would
# hide only 6 % of a face.
CORRUPTIONS: dict[str, Corruption] = {
    "blur": Corruption(blur, 3.5, "sigma, px at 224 px", (1.0, 2.0, 3.5, 5.0, 7.0)),
    "noise": Corruption(noise, 0.05, "std, share of full scale", (0.02, 0.05, 0.1, 0.15, 0.2)),
    "jpeg": Corruption(jpeg, 30, "quality", (70, 50, 30, 15, 5)),
    "brightness": Corruption(brightness, 1.5, "factor", (0.5, 0.75, 1.25, 1.5, 2.0)),
    "occlusion": Corruption(occlusion, 0.25, "share of the area, center", (0.05, 0.1, 0.25, 0.4, 0.6)),
    "rotation": Corruption(rotation, 15.0, "degrees", (5.0, 10.0, 15.0, 30.0, 45.0)),
    "downscale": Corruption(downscale, 0.5, "share of the side", (0.75, 0.5, 0.35, 0.25, 0.125)),
    "flip": Corruption(lambda rgb_u8, _: mirror(rgb_u8), None, "mirrored"),
}
