"""Boxes of regions turn with the photo, for every EXIF orientation."""

import io

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from familiar.core.types import Box
from familiar.integrations.xmp.regions import stored_box, upright_box_px
from familiar.photos.decoding import decode_photo, read_metadata

STORED_SIZE_PX = (120, 80)
STORED_BOX_PX = (10, 20, 40, 30)  # left, top, right, bottom: no symmetry hides a wrong turn


def photo_with_mark(orientation: int, image_format: str = "PNG") -> bytes:
    """Encode a black photo with a white mark, stored with an orientation."""
    pixels = np.zeros((STORED_SIZE_PX[1], STORED_SIZE_PX[0], 3), np.uint8)
    left, top, right, bottom = STORED_BOX_PX
    pixels[top:bottom, left:right] = 255
    exif = Image.Exif()
    exif[0x0112] = orientation
    content = io.BytesIO()
    Image.fromarray(pixels).save(content, image_format, exif=exif)
    return content.getvalue()


@pytest.mark.parametrize("image_format", ["PNG", "JPEG", "TIFF", "WEBP"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_upright_box_is_where_the_decoded_photo_shows_the_mark(orientation: int, image_format: str):
    data = photo_with_mark(orientation, image_format)
    metadata = read_metadata(data, "photo")
    assert (metadata.stored_size_px, metadata.orientation) == (STORED_SIZE_PX, orientation)
    (left, top, right, bottom), (width, height) = STORED_BOX_PX, STORED_SIZE_PX
    box = Box(left / width, top / height, right / width, bottom / height)
    box_px = upright_box_px(box, metadata.stored_size_px, metadata.orientation)
    rows, columns = np.nonzero(decode_photo(data, "photo").rgb_u8[..., 0] > 128)
    shown = (columns.min(), rows.min(), columns.max() + 1, rows.max() + 1)
    assert box_px == pytest.approx(shown, abs=1.01 if image_format in ("JPEG", "WEBP") else 1e-9)


shares = st.tuples(st.floats(0, 0.9), st.floats(0, 0.9), st.floats(0.01, 0.1), st.floats(0.01, 0.1)).map(
    lambda sides: Box(sides[0], sides[1], sides[0] + sides[2], sides[1] + sides[3])
)


@given(shares, st.integers(1, 8), st.tuples(st.integers(1, 9000), st.integers(1, 9000)))
def test_stored_box_inverts_upright_box(box: Box, orientation: int, size_px: tuple[int, int]):
    upright = upright_box_px(box, size_px, orientation)
    assert stored_box(upright, size_px, orientation) == pytest.approx(box, abs=1e-9)


@pytest.mark.parametrize("orientation", [1, 6])
def test_stored_box_is_clipped_to_the_photo(orientation: int):
    assert stored_box(Box(-50, -50, 500, 500), (100, 200), orientation) == (0, 0, 1, 1)
    assert stored_box(Box(-50, 0, -1, 50), (100, 200), orientation) is None
