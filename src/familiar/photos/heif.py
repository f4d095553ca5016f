"""HEIC photos, as phones write them: told from AVIF by their brands, and opened with libheif.

Both formats are kept in the same container (ISO 23008-12): it begins with a `ftyp` box, which lists the brands, that is
the formats that its pictures are in. Pillow reads AVIF itself.
"""

import io
from typing import TYPE_CHECKING

from familiar.core.errors import FamiliarError
from familiar.core.plural import pluralize

if TYPE_CHECKING:
    from PIL import ImageFile

_AVIF_BRANDS = frozenset({b"avif", b"avis"})
_HEIC_BRANDS = frozenset({b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"hevm", b"hevs", b"mif1", b"msf1"})
BRANDS_BYTES = 256  # of a file, in which its brands are looked for: room for sixty; files have about five
# Earlier versions write outside their memory when they read forged files (GHSA-2jg2-4ch7-h545, GHSA-x8r2-mggj-j6wr).
_SAFE_LIBHEIF = (1, 23, 4)
_INSTALL = "pip install 'familiar-faces[heic]'"


def container_format(head: bytes) -> str | None:
    """Detect "HEIC" or "AVIF" by the brands of a file.

    Args:
        head: the beginning of the file, at least 16 bytes; brands after the first `BRANDS_BYTES` are not looked at.

    Returns:
        None if the file is in neither format. A file that names only the container's own brand may be in any format;
        it is taken for HEIC, whose decoder reports what it cannot read.

    >>> container_format(b"\\0\\0\\0\\x18ftypmif1\\0\\0\\0\\0avifmif1")
    'AVIF'
    """
    if head[4:8] != b"ftyp":
        return None
    end = min(int.from_bytes(head[:4], "big"), len(head), BRANDS_BYTES)
    brands = {head[8:12], *(head[start : start + 4] for start in range(16, end, 4))}
    if head[8:12] in _AVIF_BRANDS:
        return "AVIF"
    if head[8:12] not in _HEIC_BRANDS:
        return None
    # Encoders of AVIF may put the container's brand first.
    return "AVIF" if head[8:12] in (b"mif1", b"msf1") and brands & _AVIF_BRANDS else "HEIC"


def check_complete(data: bytes) -> None:
    """Check that a HEIC or AVIF file was not cut off.

    libheif decodes a photo of tiles, as phones write them, as long as it finds one of them; the others stay black.

    Args:
        data: the whole file: boxes, each beginning with its size in bytes and the four letters of its name. What
            follows the first box without a name is not looked at: some phones append data of their own.

    Raises:
        ValueError: a box is larger than the rest of the file.
    """
    start = 0
    while start + 8 <= len(data) and data[start + 4 : start + 8].isalnum():
        size_bytes = int.from_bytes(data[start : start + 4], "big")
        if size_bytes == 1:
            size_bytes = int.from_bytes(data[start + 8 : start + 16], "big")
        if start + size_bytes > len(data):
            missing = pluralize(start + size_bytes - len(data), "byte")
            raise ValueError(f"the file is cut off: copy it anew ({missing} missing)")
        if size_bytes < 8:  # 0: it extends to the end
            return
        start += size_bytes


def open_heic(file: io.BytesIO | io.BufferedReader) -> "ImageFile.ImageFile":
    """Read the header of a HEIC file; its pixels are decoded by `load`, upright and with 8 bits per channel.

    Pillow's list of formats is not changed: other parts of the program open what they opened before.

    Raises:
        FamiliarError: libheif is missing, or has known security holes.
        ValueError: the header is broken.
    """
    try:
        import pillow_heif
        from pillow_heif.as_plugin import HeifImageFile
    except ImportError as error:
        raise FamiliarError(f"HEIC photos need pillow-heif ({error}): {_INSTALL}") from error
    installed = pillow_heif.libheif_version()  # pyright: ignore[reportPrivateImportUsage]
    if _version(installed) < _SAFE_LIBHEIF:
        raise FamiliarError(
            f"HEIC photos are not read with libheif {installed}, which is not safe: pip install --upgrade pillow-heif"
        )
    try:
        image = HeifImageFile(file, "")
    except SyntaxError as error:
        raise ValueError(f"the HEIC file is broken: copy it anew ({str(error).strip()})") from error
    image.format = "HEIC"
    return image


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(".") if part.isdigit())
