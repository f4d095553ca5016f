"""Photos that are not in the gallery: as a page sends them, and their crops in a page. Nothing is stored."""

import base64
from typing import Annotated

import cv2
from fastapi import File, UploadFile

from familiar.core.types import Face

PhotoField = Annotated[UploadFile, File()]


def as_data_url(face: Face) -> str:
    """Encode the exact pixels of the network's input as a PNG data URL."""
    assert face.crop is not None, "a detected face is cropped"
    encoded, png = cv2.imencode(".png", cv2.cvtColor(face.crop.rgb_u8, cv2.COLOR_RGB2BGR))
    assert encoded, "OpenCV writes PNG"
    return f"data:image/png;base64,{base64.b64encode(png.tobytes()).decode()}"
