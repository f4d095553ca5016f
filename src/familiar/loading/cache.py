"""Disk cache of crops: for each collection of photos one array that can be mapped into memory.

A pack is a folder `KEY/` with `crops.u8`, the pixels of one crop after another, and `pack.json`. It is created by one
rename, completely or not at all, and never changed: runs may share the cache and be killed at any moment.
"""

import contextlib
import hashlib
import json
import logging
import os
import re
import secrets
import shutil
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import cv2
import numpy as np
import PIL
import simplejpeg
from jaxtyping import UInt8

from familiar.core.json_codec import DOCUMENTS
from familiar.core.json_text import parse_json
from familiar.photos.preprocessing import Preprocessing

log = logging.getLogger(__name__)

Pixels = UInt8[np.ndarray, "s s 3"]

FORMAT = "familiar-crops/1"  # if a change of our code changes a crop, or a drawn pet, take the next number
DEFAULT_MAX_BYTES = 20 * 10**9
# Packs, unfinished packs and packs being removed. Nothing else in the folder is touched, as users may have files there.
_PACK_NAMES = re.compile(r"[0-9a-f]{40}|\.[0-9a-f]{40}\.[0-9a-f]{8}|\.[0-9a-f]{16}")
_ABANDONED_SECONDS = 3600  # an unfinished pack without a write for so long was left by a killed run


@dataclass(frozen=True)
class CropCache:
    """A folder of packs of limited size; the least recently used packs are evicted.

    Attributes:
        folder: holds one folder per pack; created if missing.
        max_bytes: largest total size of the packs; 0 disables the cache.
    """

    folder: Path
    max_bytes: int = DEFAULT_MAX_BYTES


@dataclass(frozen=True)
class PackRecord:
    """What `pack.json` says about a pack.

    Attributes:
        crops: their number.
        unreadable: rows of photos that could not be decoded.
        contents: of each photo, as `CropTable.contents` is made of; None for a file that could not be read.
    """

    crops: int
    unreadable: tuple[int, ...]
    contents: tuple[str | None, ...]


class PackWriter:
    """Writer of a new pack. If the disk is full, the pack is abandoned and the run continues."""

    def __init__(self, pack: Path) -> None:
        self.pack = pack
        self.folder = pack.with_name(f".{pack.name}.{secrets.token_hex(4)}")
        self.folder.mkdir()
        self.file: IO[bytes] | None = (self.folder / "crops.u8").open("wb")
        self.crops = 0
        self._next_row = 0

    def write(self, row: int, crop: Pixels) -> None:
        """Write the crop of a row; does nothing after an error. Each row is written once, in any order."""
        if self.file is None:
            return
        try:
            if row != self._next_row:
                self.file.seek(row * crop.nbytes)
            self.file.write(np.ascontiguousarray(crop).data)
            self._next_row = row + 1
            self.crops += 1
        except OSError as error:
            self._abandon(error)

    def commit(self, unreadable: Iterable[int], contents: Iterable[str | None]) -> bool:
        """Write the record and rename the folder to the pack's name.

        Args:
            unreadable: rows of photos that could not be decoded.
            contents: of each photo.

        Returns:
            Whether the pack exists now, whether written here or by another run meanwhile.
        """
        if self.file is None:
            return False
        try:
            with self.file:
                self.file.flush()
                os.fsync(self.file.fileno())
            record = PackRecord(self.crops, tuple(unreadable), tuple(contents))
            (self.folder / "pack.json").write_text(json.dumps(DOCUMENTS.to_json(record), indent=1))
            self.folder.rename(self.pack)
        except OSError as error:
            if self.pack.is_dir():
                self.discard()
                return True
            self._abandon(error)
            return False
        return True

    def discard(self) -> None:
        """Delete what was written."""
        if self.file is not None:
            with contextlib.suppress(OSError):  # flushing the buffer may fail too
                self.file.close()
            self.file = None
        shutil.rmtree(self.folder, ignore_errors=True)

    def _abandon(self, error: OSError) -> None:
        log.warning("crops cannot be cached in %s: %s", self.folder.parent, error.strerror)
        self.discard()


def open_pack(pack: Path, preprocessing: Preprocessing, photos: int, max_crops: int) -> PackRecord | None:
    """Check a pack and mark it as recently used; remove it if it is damaged or has another number of crops.

    Args:
        pack: its folder.
        preprocessing: of the crops.
        photos: number of photos.
        max_crops: number of crops that fit into the cache.

    Returns:
        Its record; None if there is no usable pack.
    """
    if not pack.is_dir():
        return None
    try:
        record = DOCUMENTS.from_json(PackRecord, parse_json((pack / "pack.json").read_text()))
        complete = (pack / "crops.u8").stat().st_size == record.crops * crop_bytes(preprocessing)
        fits = record.crops == min(max_crops, photos) and len(record.contents) == photos
        if complete and fits and all(0 <= row < photos for row in record.unreadable):
            with contextlib.suppress(OSError):  # fails for another user's read-only pack
                os.utime(pack)  # marks it as used
            return record
    except (OSError, ValueError):
        pass
    remove_pack(pack)
    return None


def evict_packs(cache: CropCache, needed: int) -> None:
    """Remove the least recently used packs until `needed` bytes fit, and unfinished packs of killed runs."""
    packs: list[tuple[float, int, Path]] = []
    for folder in cache.folder.iterdir():
        if not _PACK_NAMES.fullmatch(folder.name):
            continue
        try:
            used = max(entry.stat().st_mtime for entry in (folder, *folder.iterdir()))
            size = sum(entry.stat().st_size for entry in folder.glob("*.u8"))
        except OSError:  # another run is removing it
            continue
        if folder.name.startswith(".") and time.time() - used > _ABANDONED_SECONDS:
            remove_pack(folder)
        else:
            packs.append((used, size, folder))
    total = sum(size for _, size, _ in packs)
    for _, size, folder in sorted(packs):
        if total + needed <= cache.max_bytes:
            break
        if not folder.name.startswith("."):
            remove_pack(folder)
            total -= size


def remove_pack(pack: Path) -> None:
    """Remove a pack. Processes that have it mapped can still use it.

    It is renamed first, so that no process opens a partly deleted pack.
    """
    renamed = pack.with_name(f".{secrets.token_hex(8)}")
    try:
        pack.rename(renamed)
    except OSError:
        return
    shutil.rmtree(renamed, ignore_errors=True)


def pack_key(states: list[str | None], preprocessing: Preprocessing) -> str:
    """Hash all that determines the pixels: the photos' states, geometry, the format and the libraries that decode."""
    geometry = [preprocessing.size_px, preprocessing.resize, preprocessing.resize_px, preprocessing.margin]
    libraries = [library.__version__ for library in (np, cv2, PIL, simplejpeg)]
    return hashlib.sha256(json.dumps([FORMAT, geometry, libraries, states]).encode()).hexdigest()[:40]


def crop_bytes(preprocessing: Preprocessing) -> int:
    """Return the size of a crop in bytes."""
    return 3 * preprocessing.size_px**2
