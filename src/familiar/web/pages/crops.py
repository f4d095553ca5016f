"""Faces of photos that are in no gallery, as they travel in a page: nothing is stored."""

import base64

import cv2

from familiar.core.types import Crop


def as_data_url(crop: Crop) -> str:
    """The very pixels the network was given, as a PNG."""
    made, png = cv2.imencode(".png", cv2.cvtColor(crop.rgb_u8, cv2.COLOR_RGB2BGR))
    assert made, "OpenCV writes PNG"
    return f"data:image/png;base64,{base64.b64encode(png.tobytes()).decode()}"
