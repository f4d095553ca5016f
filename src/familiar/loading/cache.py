"""Crops kept on disk, each collection of photos as one array that can be mapped into memory.

A pack is a folder `KEY/` with `crops.u8`, the pixels one crop after the other, and `pack.json`. It appears by one
rename, whole or not at all, and is never changed afterwards: runs may share the cache and be killed at any moment.
"""

import contextlib
import hashlib
import inspect
import json
import logging
import os
import re
import secrets
import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import cv2
import numpy as np
import PIL
import simplejpeg
from jaxtyping import UInt8

from familiar.datasets import synthetic
from familiar.datasets.folders import open_photo
from familiar.detection.alignment import detect_and_align
from familiar.detection.detectors import WholePhoto
from familiar.embedding.embedder import crop_photo
from familiar.photos.decoding import load_photo
from familiar.photos.fast_jpeg import decode_clean_jpeg
from familiar.photos.preprocessing import Preprocessing, resize_crop

log = logging.getLogger(__name__)

Pixels = UInt8[np.ndarray, "s s 3"]

FORMAT = 1
DEFAULT_MAX_BYTES = 20 * 10**9
# Packs, drafts, and packs set aside: in a folder that may hold what is the user's, all that is touched.
_PACK_NAMES = re.compile(r"[0-9a-f]{40}|\.[0-9a-f]{40}\.[0-9a-f]{8}|\.[0-9a-f]{16}")
_ABANDONED_SECONDS = 3600  # a pack nobody has written to for so long was left by a run that was killed


@dataclass(frozen=True)
class CropCache:
    """A folder of packs, `max_bytes` in all; the least recently used go first. 0 keeps nothing."""

    folder: Path
    max_bytes: int = DEFAULT_MAX_BYTES


class PackWriter:
    """A pack that is being written. A disk that fills up costs the pack, not the run."""

    def __init__(self, pack: Path) -> None:
        self.pack = pack
        self.folder = pack.with_name(f".{pack.name}.{secrets.token_hex(4)}")
        self.folder.mkdir()
        self.file: IO[bytes] | None = (self.folder / "crops.u8").open("wb")
        self.crops = 0

    def add(self, crop: Pixels) -> None:
        if self.file is None:
            return
        try:
            self.file.write(np.ascontiguousarray(crop).data)
            self.crops += 1
        except OSError as error:
            self._abandon(error)

    def commit(self, unreadable: list[int]) -> bool:
        """Whether the pack is there now, this one or that of another run which was faster."""
        if self.file is None:
            return False
        try:
            with self.file:
                self.file.flush()
                os.fsync(self.file.fileno())
            described = {"crops": self.crops, "unreadable": unreadable}
            (self.folder / "pack.json").write_text(json.dumps(described, indent=1))
            self.folder.rename(self.pack)
        except OSError as error:
            if self.pack.is_dir():
                self.discard()
                return True
            self._abandon(error)
            return False
        return True

    def discard(self) -> None:
        if self.file is not None:
            with contextlib.suppress(OSError):  # what is still buffered may not fit either
                self.file.close()
            self.file = None
        shutil.rmtree(self.folder, ignore_errors=True)

    def _abandon(self, error: OSError) -> None:
        log.warning("crops are not kept in %s: %s", self.folder.parent, error.strerror)
        self.discard()


def open_pack(pack: Path, preprocessing: Preprocessing, photos: int, room: int) -> list[int] | None:
    """The rows whose photos could not be decoded; None where there is no whole pack, or not as many fit in now."""
    if not pack.is_dir():
        return None
    try:
        described = json.loads((pack / "pack.json").read_text())
        crops, rows = described["crops"], [int(row) for row in described["unreadable"]]
        whole = (pack / "crops.u8").stat().st_size == crops * crop_bytes(preprocessing)
        if whole and crops == min(room, photos) and all(0 <= row < photos for row in rows):
            with contextlib.suppress(OSError):  # somebody else's, which may only be read
                os.utime(pack)  # so that it counts as used
            return rows
    except (OSError, ValueError, KeyError, TypeError):
        pass
    remove_pack(pack)
    return None


def evict_packs(cache: CropCache, needed: int) -> None:
    """Drop the packs not used for longest until `needed` bytes are free, and what killed runs left."""
    packs: list[tuple[float, int, Path]] = []
    for folder in cache.folder.iterdir():
        if not _PACK_NAMES.fullmatch(folder.name):
            continue
        try:
            used = max(entry.stat().st_mtime for entry in (folder, *folder.iterdir()))
            size = sum(entry.stat().st_size for entry in folder.glob("*.u8"))
        except OSError:  # another run clears it away
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
    """Renamed first, so that nobody opens a half of it; whoever has it mapped keeps it."""
    aside = pack.with_name(f".{secrets.token_hex(8)}")
    try:
        pack.rename(aside)
    except OSError:
        return
    shutil.rmtree(aside, ignore_errors=True)


def pack_key(contents: list[str | None], preprocessing: Preprocessing) -> str:
    """Of everything that decides a pack's pixels: photos, geometry, our code and the libraries beneath it."""
    geometry = [preprocessing.size_px, preprocessing.resize, preprocessing.resize_px, preprocessing.margin]
    steps = (open_photo, load_photo, decode_clean_jpeg, crop_photo, WholePhoto, detect_and_align, resize_crop)
    decoding = [Path(inspect.getfile(inspect.unwrap(step))) for step in steps]
    drawing = sorted(Path(inspect.getfile(synthetic)).parent.glob("*.py"))
    code = [hashlib.sha256(path.read_bytes()).hexdigest() for path in (*decoding, *drawing)]
    libraries = [library.__version__ for library in (np, cv2, PIL, simplejpeg)]
    described = [FORMAT, geometry, code, libraries, contents]
    return hashlib.sha256(json.dumps(described).encode()).hexdigest()[:40]


def crop_bytes(preprocessing: Preprocessing) -> int:
    return 3 * preprocessing.size_px**2
