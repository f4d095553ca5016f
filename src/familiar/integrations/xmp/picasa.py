"""Read the names of faces from Picasa's `.picasa.ini`, which lies in each folder of photos.

The format has no publication by its maker; it is described by Franz Buchinger (picasa.ini.txt) and by ExifTool's
picasa_faces.config. A photo has a section with its file name, and `faces=rect64(3f845bcb59418507),8e62398ebda8c1a5;...`
in it: four numbers of 16 bits, without leading zeros, are the sides of a box in 65535ths of the stored photo; the
contact's number follows. `[Contacts2]` has the names, as `8e62398ebda8c1a5=NAME;;`.
"""

import re

from familiar.core.types import Box
from familiar.integrations.xmp.regions import Region

INI_NAMES = (".picasa.ini", "picasa.ini")  # in any case; the latter is an older Picasa's
_FULL_SCALE = 65_535
_FACE = re.compile(r"rect64\(([0-9a-f]{1,16})\),([0-9a-f]{1,16})", re.IGNORECASE)
_UNKNOWN = "ffffffffffffffff"  # a face that Picasa detected and nobody named


def read_picasa_ini(content: bytes) -> dict[str, list[Region]]:
    """Read the regions of each photo, by its file name in lower case.

    Faces that nobody named are left out. One of a contact whose name is not in the file has an empty name.

    Args:
        content: of the file: UTF-8; other bytes become U+FFFD.
    """
    sections: dict[str, list[str]] = {}
    lines: list[str] = []
    for line in re.split(r"\r?\n|\r", content.decode("utf-8-sig", "replace")):  # names may have other separators
        if line.startswith("[") and line.rstrip().endswith("]"):
            lines = sections.setdefault(line.strip()[1:-1].casefold(), [])
        else:
            lines.append(line)
    names: dict[str, str] = {}
    for line in sections.get("contacts2", []):
        contact, _, value = line.partition("=")
        names[_padded(contact.strip())] = value.partition(";")[0].strip()
    regions: dict[str, list[Region]] = {}
    for section, lines in sections.items():
        for line in lines:
            if line.startswith("faces="):
                regions[section] = [
                    Region(_box(rect), names.get(_padded(contact), ""))
                    for rect, contact in _FACE.findall(line)
                    if _padded(contact) != _UNKNOWN
                ]
    return regions


def _padded(contact: str) -> str:
    return contact.lower().zfill(16)


def _box(rect: str) -> Box:
    digits = rect.zfill(16)
    return Box(*(int(digits[start : start + 4], 16) / _FULL_SCALE for start in range(0, 16, 4)))
