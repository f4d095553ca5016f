"""Pillow's modes: described for a user, and converted to 8-bit RGB."""

import re

import cv2
import numpy as np
from jaxtyping import UInt8
from PIL import Image, ImageFile

_CHANNELS = {
    "1": "black and white",
    "L": "gray",
    "LA": "gray with alpha",
    "P": "palette",
    "PA": "palette with alpha",
    "I": "gray",
    "F": "gray float",
}
_PALETTE_CHANNELS = {"palette": 3, "palette with alpha": 4}  # of the colors, not of the indices


def describe_storage(image: ImageFile.ImageFile) -> str:
    """Describe format and channels by the header alone: decoding may change the mode."""
    # Pillow decodes 16-bit colors to 8 bit; then only the raw mode of its decoder shows the depth.
    deep = any(";16" in mode for mode in (image.mode, *(str(tile.args) for tile in image.tile)))
    bits = 16 if deep else image.info.get("bit_depth", 8)  # the latter only of HEIC
    base = image.mode.partition(";")[0]
    return f"{image.format} {_CHANNELS.get(base, base)}{f' {bits} bit' if bits > 8 else ''}"


def stored_channels(stored_as: str) -> int:
    """Return the number of channels of a photo by its `Photo.stored_as`.

    >>> [stored_channels(text) for text in ("JPEG gray", "PNG RGB 16 bit", "JPEG CMYK", "GIF palette")]
    [1, 3, 4, 3]
    """
    channels = re.sub(r" \d+ bit$", "", stored_as.partition(" ")[2])
    mode = next((mode for mode, described in _CHANNELS.items() if described == channels), channels)
    return _PALETTE_CHANNELS.get(channels) or Image.getmodebands(mode)


def to_rgb_u8(image: Image.Image) -> UInt8[np.ndarray, "h w 3"]:
    """Convert a decoded image: transparency on white, deep gray scaled to 8 bit."""
    if image.mode == "F" or image.mode.startswith("I"):
        return cv2.cvtColor(_scale_deep_gray_u8(np.asarray(image)), cv2.COLOR_GRAY2RGB)
    if image.has_transparency_data:
        with_alpha = image.convert("RGBA")
        image = Image.new("RGB", image.size, "white")
        image.paste(with_alpha, mask=with_alpha)
    return np.array(image if image.mode == "RGB" else image.convert("RGB"))  # a copy in any case


def _scale_deep_gray_u8(values: np.ndarray) -> UInt8[np.ndarray, "h w"]:
    """Scale gray of more than 8 bit to 8 bit; negative and non-finite values become black.

    Integers have a full scale of 65535. For floats it is unknown, so it is the first of 1, 255 and 65535 that no value
    exceeds, or else the highest value.
    """
    full_scales = (1, 255, 65535) if values.dtype.kind == "f" else (65535,)
    gray = np.nan_to_num(values.astype(np.float32), posinf=0.0, neginf=0.0).clip(min=0)
    highest = float(gray.max())
    full_scale = next((scale for scale in full_scales if highest <= scale), highest)
    return (gray * (255 / full_scale) + 0.5).astype(np.uint8)
