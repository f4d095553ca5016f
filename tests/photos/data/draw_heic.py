"""Draw the HEIC files in this folder: four colored corners, in the variants that a decoder treats differently.

Run with the encoder, which the tests do not need: `pip install pillow-heif==1.8.1; python draw_heic.py`.
"""

from pathlib import Path

import numpy as np
import pillow_heif
from PIL import ExifTags, Image

FOLDER = Path(__file__).parent
CORNERS_RGB = np.array([[(224, 32, 32), (32, 200, 32)], [(32, 32, 224), (240, 240, 240)]], np.uint8)


def corners(width: int = 64, height: int = 48) -> np.ndarray:
    """Draw a photo with a color in each corner."""
    return CORNERS_RGB.repeat(height // 2, axis=0).repeat(width // 2, axis=1)


def metadata(orientation: int) -> bytes:
    """Make EXIF metadata as a phone does."""
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation] = orientation
    exif[ExifTags.Base.DateTime] = "2025:01:01 00:00:00"
    exif.get_ifd(ExifTags.IFD.Exif)[ExifTags.Base.DateTimeOriginal] = "2024:06:01 12:30:05"
    return exif.tobytes()


def save(name: str, image: Image.Image, **options: object) -> None:
    image.save(FOLDER / f"{name}.heic", "HEIF", quality=85, **options)


def main() -> None:
    """Write all files."""
    pillow_heif.register_heif_opener()
    rgb = Image.fromarray(corners())
    save("rgb", rgb, exif=metadata(1))
    save("turned", rgb, exif=metadata(6))  # the container's rotation says the same
    save("gray", rgb.convert("L"))
    with_alpha = rgb.convert("RGBA")
    with_alpha.paste((0, 0, 0, 0), (0, 0, 32, 24))
    save("alpha", with_alpha)
    save("two", Image.new("RGB", (32, 32), "black"), save_all=True, append_images=[rgb], primary_index=1)
    save("tiles", Image.fromarray(corners(160, 128)), tile_size=64)  # as phones do, with tiles of 512 px
    deep = corners().astype("<u2") * 257
    ten_bit = pillow_heif.from_bytes("RGB;16", (64, 48), deep.tobytes())
    ten_bit.save(FOLDER / "ten-bit.heic", quality=85)


if __name__ == "__main__":
    main()
