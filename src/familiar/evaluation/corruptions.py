"""What befalls photos between the pet and the network, done to a crop: pure functions, the same crop always the same.

Severities are those of the crop as the network sees it, whatever the size of the photo it was cut from.
"""

import math
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import cv2
import numpy as np
from jaxtyping import UInt8

STATED_SIDE_PX = 224  # of the crops for which the blur is stated

Pixels = UInt8[np.ndarray, "s s 3"]


def blur(rgb_u8: Pixels, sigma_px: float) -> Pixels:
    """Out of focus: Gaussian of `sigma_px` above 0 for a crop of 224 px, in proportion for others.

    So the same share of a face is blurred whatever the network's input. Pillow calls sigma "radius", and repeats
    the border's pixels as this does.
    """
    sigma_px *= rgb_u8.shape[0] / STATED_SIDE_PX
    return cv2.GaussianBlur(rgb_u8, (0, 0), sigma_px, borderType=cv2.BORDER_REPLICATE)


def noise(rgb_u8: Pixels, std: float) -> Pixels:
    """A sensor in the dark: Gaussian, apart in every pixel and channel; `std` is a share of full scale.

    Drawn from the pixels' own checksum: of every std the same draw, of every photo another.
    """
    generator = np.random.Generator(np.random.SFC64(zlib.crc32(rgb_u8.tobytes())))
    change = generator.standard_normal(rgb_u8.shape, np.float32) * np.float32(255 * std)
    return cv2.add(rgb_u8, change, dtype=cv2.CV_8U)


def jpeg(rgb_u8: Pixels, quality: int) -> Pixels:
    """Sent by a messenger: through a JPEG file of that quality (1 to 100, libjpeg's), color at half resolution."""
    _, file = cv2.imencode(".jpg", rgb_u8[..., ::-1], [cv2.IMWRITE_JPEG_QUALITY, quality])
    # With OpenCV's stubs an image read may be None; this one was just written.
    return np.asarray(cv2.imdecode(file, cv2.IMREAD_COLOR_RGB))


def brightness(rgb_u8: Pixels, factor: float) -> Pixels:
    """Over- or underexposed: values times `factor`, cut off at full scale."""
    return cv2.convertScaleAbs(rgb_u8, alpha=factor)


def occlusion(rgb_u8: Pixels, area: float) -> Pixels:
    """Something before the face: a black square in the middle that covers `area` (a share) of the crop."""
    side = rgb_u8.shape[0]
    covered_px = round(side * math.sqrt(area))
    start = (side - covered_px) // 2
    covered = rgb_u8.copy()
    covered[start : start + covered_px, start : start + covered_px] = 0
    return covered


def rotation(rgb_u8: Pixels, degrees: float) -> Pixels:
    """A head or camera held askew: turned counter-clockwise about the middle.

    What lies beyond the border is the picture mirrored: around a real face the photo goes on.
    """
    middle = (rgb_u8.shape[0] - 1) / 2
    matrix = cv2.getRotationMatrix2D((middle, middle), degrees, 1.0)
    return cv2.warpAffine(rgb_u8, matrix, rgb_u8.shape[:2], borderMode=cv2.BORDER_REFLECT_101)


def downscale(rgb_u8: Pixels, share: float) -> Pixels:
    """A face far away: to `share` of the side and back, as a small photo is brought to the network's size."""
    side = rgb_u8.shape[0]
    low_px = max(1, round(side * share))
    low = cv2.resize(rgb_u8, (low_px, low_px), interpolation=cv2.INTER_AREA)
    return cv2.resize(low, (side, side), interpolation=cv2.INTER_LINEAR)


def mirror(rgb_u8: Pixels) -> Pixels:
    """Left for right."""
    return cv2.flip(rgb_u8, 1)


@dataclass(frozen=True)
class Degradation:
    """`apply` takes a crop's pixels and a severity; None where there is but one way. `sweep`: from left to right."""

    apply: Callable[[Pixels, Any], Pixels]
    severity: float | None
    unit: str
    sweep: tuple[float, ...] = ()


# A "25 % center block" is read as a quarter of the area, so half the side: a block of a quarter of the side would
# hide 6 % of a face.
CORRUPTIONS: dict[str, Degradation] = {
    "blur": Degradation(blur, 3.5, "sigma, px at 224 px", (1.0, 2.0, 3.5, 5.0, 7.0)),
    "noise": Degradation(noise, 0.05, "std, share of full scale", (0.02, 0.05, 0.1, 0.15, 0.2)),
    "jpeg": Degradation(jpeg, 30, "quality", (70, 50, 30, 15, 5)),
    "brightness": Degradation(brightness, 1.5, "factor", (0.5, 0.75, 1.25, 1.5, 2.0)),
    "occlusion": Degradation(occlusion, 0.25, "share of the area, center", (0.05, 0.1, 0.25, 0.4, 0.6)),
    "rotation": Degradation(rotation, 15.0, "degrees", (5.0, 10.0, 15.0, 30.0, 45.0)),
    "downscale": Degradation(downscale, 0.5, "share of the side", (0.75, 0.5, 0.35, 0.25, 0.125)),
    "flip": Degradation(lambda rgb_u8, _: mirror(rgb_u8), None, "mirrored"),
}
