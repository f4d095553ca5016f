"""Small photos of every format and variant that a decoder treats differently."""

import io
import struct
import zlib
from pathlib import Path

import cv2
import numpy as np
from PIL import Image

HEIC_FOLDER = Path(__file__).parents[1] / "photos" / "data"


def valid_photos() -> dict[str, bytes]:
    """Create small photos of every format and variant that a decoder treats differently."""
    y, x = np.mgrid[:24, :32]
    rgb = np.stack([x * 8, y * 10, (x + y) * 4], axis=2).astype(np.uint8)
    rgb[8:16, 8:16] = np.random.default_rng(0).integers(0, 256, (8, 8, 3))
    gray16 = rgb[..., 0].astype(np.uint16) * 257

    def encoded(format_name: str, mode: str = "RGB", frames: int = 1, **options: object) -> bytes:
        image = Image.fromarray(rgb)
        image = image.quantize(16) if mode == "P" else image.convert(mode)
        if mode == "RGBA":
            image.putalpha(Image.fromarray(rgb[..., 0]))
        if frames > 1:
            options |= {"save_all": True, "append_images": [image.rotate(90 * n) for n in range(1, frames)]}
        buffer = io.BytesIO()
        image.save(buffer, format_name, **options)
        return buffer.getvalue()

    turned = Image.Exif()
    turned[0x0112] = 6
    return {
        "jpeg": encoded("JPEG"),
        "jpeg-progressive": encoded("JPEG", progressive=True),
        "jpeg-cmyk": encoded("JPEG", "CMYK"),
        "jpeg-gray": encoded("JPEG", "L"),
        "jpeg-exif": encoded("JPEG", exif=turned, icc_profile=bytes(200)),
        "mpo": encoded("MPO", frames=2),
        "png": encoded("PNG"),
        "png-exif": encoded("PNG", "RGBA", exif=turned),
        "png-palette": encoded("PNG", "P", transparency=3),
        "png-1-bit": encoded("PNG", "1"),
        "png-16-bit": cv2.imencode(".png", gray16)[1].tobytes(),
        "png-48-bit": cv2.imencode(".png", rgb.astype(np.uint16) * 257)[1].tobytes(),
        "png-interlaced": png(8, 8, bytes(8 * 8 * 3 + 15), interlaced=True),  # a filter byte for each of 15 rows
        "apng": encoded("PNG", frames=3),
        "gif": encoded("GIF", "P"),
        "gif-animated": encoded("GIF", frames=3),
        "webp": encoded("WEBP", exif=turned),
        "webp-lossless": encoded("WEBP", "RGBA", lossless=True),
        "webp-animated": encoded("WEBP", frames=3),
        "tiff": encoded("TIFF"),
        "tiff-pages": encoded("TIFF", frames=2),
        "tiff-lzw": encoded("TIFF", "CMYK", compression="tiff_lzw"),
        "tiff-deflate": encoded("TIFF", compression="tiff_adobe_deflate"),
        "tiff-packbits": encoded("TIFF", "P", compression="packbits"),
        "tiff-jpeg": encoded("TIFF", compression="jpeg"),
        "tiff-fax": encoded("TIFF", "1", compression="group4"),
        "tiff-16-bit": cv2.imencode(".tiff", gray16)[1].tobytes(),
        "tiff-float": encoded("TIFF", "F"),
        "bmp": encoded("BMP"),
        "bmp-palette": encoded("BMP", "P"),
        "ppm": encoded("PPM"),
        "pgm": encoded("PPM", "L"),
        "pbm": encoded("PPM", "1"),
        "ppm-text": b"P3\n4 4\n255\n" + b"1 2 3 " * 16,
        "avif": encoded("AVIF", "RGBA", exif=turned),
        "avif-animated": encoded("AVIF", frames=3),
        **{path.stem: path.read_bytes() for path in sorted(HEIC_FOLDER.glob("*.heic"))},
    }


def png(width: int, height: int, rows: bytes, *chunks: tuple[bytes, bytes], interlaced: bool = False) -> bytes:
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, int(interlaced))
    every = [(b"IHDR", header), *chunks, (b"IDAT", zlib.compress(rows)), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body)) for name, body in every
    )
