"""Crops of photos that are not in the gallery, inlined in a page: nothing is stored."""

import base64

import cv2

from familiar.core.types import Crop


def as_data_url(crop: Crop) -> str:
    """Encode the exact pixels of the network's input as a PNG data URL."""
    encoded, png = cv2.imencode(".png", cv2.cvtColor(crop.rgb_u8, cv2.COLOR_RGB2BGR))
    assert encoded, "OpenCV writes PNG"
    return f"data:image/png;base64,{base64.b64encode(png.tobytes()).decode()}"
