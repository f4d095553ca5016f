"""Crops decoded once and kept on disk, as one memory-mapped array. Knows nothing of torch.

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
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import IO, Any

import cv2
import numpy as np
import PIL
from jaxtyping import Int64, UInt8

from familiar.core.errors import BadDataset, FamiliarError
from familiar.datasets import synthetic
from familiar.datasets.folders import IdentityTable, PhotoRef, open_photo
from familiar.faces.align import find_face
from familiar.faces.detect import WholePhoto
from familiar.faces.embedder import crop_photo
from familiar.faces.photo import load_photo
from familiar.faces.tensor import Preprocessing, resize_crop
from familiar.loading.contents import content_hashes
from familiar.loading.processes import process_context

log = logging.getLogger(__name__)

Pixels = UInt8[np.ndarray, "s s 3"]

FORMAT = 1
DEFAULT_MAX_BYTES = 20 * 2**30
_ALONE = 200  # so few photos are decoded sooner than processes start
_WINDOW = 2048  # photos decoded ahead of the writer, which bounds the memory
_OURS = re.compile(
    r"[0-9a-f]{40}|\.[0-9a-f]{40}\.[0-9a-f]{8}|\.[0-9a-f]{16}"
)  # packs, drafts, and those set aside
_ABANDONED_SECONDS = 3600  # a pack nobody has written to for so long was left by a run that was killed


@dataclass(frozen=True)
class CropCache:
    """A folder of packs, `max_bytes` in all; the least recently used go first. 0 keeps nothing."""

    folder: Path
    max_bytes: int = DEFAULT_MAX_BYTES


@dataclass(frozen=True, eq=False)
class Crops:
    """The crop of every photo, by row: mapped from a pack, or decoded where that holds none (row -1)."""

    photos: tuple[PhotoRef, ...]
    preprocessing: Preprocessing
    pack: Path | None
    pack_rows: Int64[np.ndarray, " n"]

    def __len__(self) -> int:
        return len(self.photos)

    def __getitem__(self, row: int) -> Pixels:
        """Read-only where it comes from a pack. UnreadablePhoto where the file is gone or changed meanwhile."""
        pack_row, packed = self.pack_rows[row], self._packed
        # A pack may have been cleared away meanwhile, and made again with room for fewer.
        if packed is None or not 0 <= pack_row < len(packed):
            return crop_of(self.photos[row], self.preprocessing)
        return packed[pack_row]

    def of(self, table: IdentityTable) -> "Crops":
        """Those of a table whose photos are all among these."""
        row_of = {photo: row for row, photo in enumerate(self.photos)}
        rows = np.array([row_of[photo] for photo in table.photos], np.int64)
        return Crops(table.photos, self.preprocessing, self.pack, self.pack_rows[rows])

    @cached_property
    def _packed(self) -> UInt8[np.ndarray, "n s s 3"] | None:
        """Mapped when first asked for, in each process; None where another run has cleared the pack away."""
        if self.pack is None:
            return None
        try:
            flat = np.asarray(np.memmap(self.pack / "crops.u8", np.uint8, "r"))
        except OSError:
            return None
        return flat.reshape(-1, self.preprocessing.size_px, self.preprocessing.size_px, 3)

    def __getstate__(self) -> dict[str, Any]:
        # A mapped array would travel to another process as a copy of all its pixels.
        return {name: value for name, value in vars(self).items() if name != "_packed"}


@dataclass(frozen=True, eq=False)
class ReadTable:
    """The photos of a table that can be read, with their crops.

    `contents`: SHA-256 over every photo's identity, name and bytes, in whatever order they stand.
    """

    table: IdentityTable
    crops: Crops
    contents: str


def crop_of(photo: PhotoRef, preprocessing: Preprocessing) -> Pixels:
    """The photo as the network will see it in use: training photos are faces already."""
    return crop_photo(photo, preprocessing, open_photo=open_photo).rgb_u8


def read_table(
    table: IdentityTable,
    preprocessing: Preprocessing,
    cache: CropCache | None = None,
    on_photo: Callable[[int, int], None] = lambda _done, _of: None,
) -> ReadTable:
    """Every photo opened once, and packed where there is a cache; those that cannot be decoded are left out.

    Each of those is named in a warning: better now than in the middle of the ninth epoch. `on_photo` is told how
    many of how many are done. BadDataset where not one can be read.
    """
    remembered = None
    if cache is not None:
        with contextlib.suppress(OSError):  # warned of where a pack would be written
            cache.folder.mkdir(parents=True, exist_ok=True)
        remembered = cache.folder / "contents.sqlite"
    contents = _contents(table.photos, remembered)
    if cache is None or cache.max_bytes < _crop_bytes(preprocessing):
        pack, unreadable = None, _unreadable(table.photos, preprocessing, on_photo)
    else:
        pack, unreadable = _find_or_make(cache, table.photos, contents, preprocessing, on_photo)
    for reason in unreadable.values():
        log.warning("skipped %s", reason)
    readable = np.array([row for row in range(len(table)) if row not in unreadable], np.int64)
    if not len(readable):
        raise BadDataset("not one of the photos can be read")
    table = table.rows(readable) if unreadable else table
    pack_rows = np.arange(len(readable))
    pack_rows[_rows_in(pack, preprocessing) :] = -1
    return ReadTable(
        table,
        Crops(table.photos, preprocessing, pack, pack_rows),
        _digest(table, [contents[row] for row in readable]),
    )


def _contents(photos: tuple[PhotoRef, ...], remembered: Path | None) -> list[str | None]:
    """What decides each photo's pixels: a file's bytes, a drawn photo's name."""
    files = [photo for photo in photos if isinstance(photo, Path)]
    of_file = dict(zip(files, content_hashes(files, remembered), strict=True))
    return [of_file[photo] if isinstance(photo, Path) else photo.name for photo in photos]


def _digest(table: IdentityTable, contents: list[str | None]) -> str:
    lines = sorted(
        os.fsencode(f"{table.names[label]}\0{photo.name}\0{content}\n")
        for photo, label, content in zip(table.photos, table.labels, contents, strict=True)
    )
    return hashlib.sha256(b"".join(lines)).hexdigest()


def _find_or_make(
    cache: CropCache,
    photos: tuple[PhotoRef, ...],
    contents: list[str | None],
    preprocessing: Preprocessing,
    on_photo: Callable[[int, int], None],
) -> tuple[Path | None, dict[int, str]]:
    """The pack, and why photos are not in it, by row."""
    pack = cache.folder / _key(contents, preprocessing)
    room = cache.max_bytes // _crop_bytes(preprocessing)
    if (rows := _open(pack, preprocessing, len(photos), room)) is not None:
        again = {row: _crop_or_error(photos[row], preprocessing) for row in rows}
        # Opened again to say why, of the file as it is called now.
        found = {row: str(error) for row, error in again.items() if isinstance(error, FamiliarError)}
        if len(found) == len(rows):
            return pack, found
        _remove(pack)
    if room < len(photos):
        log.warning(
            "the cache has room for %d of %d crops; the others are decoded every epoch", room, len(photos)
        )
    try:
        _make_room(cache, min(room, len(photos)) * _crop_bytes(preprocessing))
        draft = _Draft(cache.folder / f".{pack.name}.{secrets.token_hex(4)}")
    except OSError as error:
        log.warning("crops are not kept in %s: %s", cache.folder, error.strerror)
        return None, _unreadable(photos, preprocessing, on_photo)
    try:
        unreadable: dict[int, str] = {}
        for row, crop in enumerate(_decoded(photos, preprocessing)):
            if isinstance(crop, FamiliarError):
                unreadable[row] = str(crop)
            elif draft.crops < room:
                draft.add(crop)
            on_photo(row + 1, len(photos))
        kept = draft.finish(pack, list(unreadable))
    except BaseException:
        draft.drop()
        raise
    return pack if kept else None, unreadable


class _Draft:
    """A pack that is being written. A disk that fills up costs the pack, not the run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        self.file: IO[bytes] | None = (folder / "crops.u8").open("wb")
        self.crops = 0

    def add(self, crop: Pixels) -> None:
        if self.file is None:
            return
        try:
            self.file.write(np.ascontiguousarray(crop).data)
            self.crops += 1
        except OSError as error:
            self._give_up(error)

    def finish(self, pack: Path, unreadable: list[int]) -> bool:
        """Whether `pack` is there now, this one or that of another run which was faster."""
        if self.file is None:
            return False
        try:
            with self.file:
                self.file.flush()
                os.fsync(self.file.fileno())
            described = {"crops": self.crops, "unreadable": unreadable}
            (self.folder / "pack.json").write_text(json.dumps(described, indent=1))
            self.folder.rename(pack)
        except OSError as error:
            if pack.is_dir():
                self.drop()
                return True
            self._give_up(error)
            return False
        return True

    def drop(self) -> None:
        if self.file is not None:
            with contextlib.suppress(OSError):  # what is still buffered may not fit either
                self.file.close()
            self.file = None
        shutil.rmtree(self.folder, ignore_errors=True)

    def _give_up(self, error: OSError) -> None:
        log.warning("crops are not kept in %s: %s", self.folder.parent, error.strerror)
        self.drop()


def _open(pack: Path, preprocessing: Preprocessing, photos: int, room: int) -> list[int] | None:
    """The rows whose photos could not be decoded; None where there is no whole pack, or more fit in now."""
    if not pack.is_dir():
        return None
    try:
        described = json.loads((pack / "pack.json").read_text())
        crops, rows = described["crops"], [int(row) for row in described["unreadable"]]
        whole = (pack / "crops.u8").stat().st_size == crops * _crop_bytes(preprocessing)
        if whole and crops >= min(room, photos - len(rows)) and all(0 <= row < photos for row in rows):
            with contextlib.suppress(OSError):  # somebody else's, which may only be read
                os.utime(pack)  # so that it counts as used
            return rows
    except (OSError, ValueError, KeyError, TypeError):
        pass
    _remove(pack)
    return None


def _rows_in(pack: Path | None, preprocessing: Preprocessing) -> int:
    try:
        return 0 if pack is None else (pack / "crops.u8").stat().st_size // _crop_bytes(preprocessing)
    except OSError:  # cleared away by another run
        return 0


def _make_room(cache: CropCache, needed: int) -> None:
    """Drop the packs not used for longest until `needed` bytes are free, and what killed runs left."""
    packs: list[tuple[float, int, Path]] = []
    for folder in cache.folder.iterdir():
        if not _OURS.fullmatch(folder.name):  # the folder may hold what is the user's
            continue
        try:
            used = max(entry.stat().st_mtime for entry in (folder, *folder.iterdir()))
            size = sum(entry.stat().st_size for entry in folder.iterdir())
        except OSError:  # another run clears it away
            continue
        if folder.name.startswith(".") and time.time() - used > _ABANDONED_SECONDS:
            _remove(folder)
        else:
            packs.append((used, size, folder))
    total = sum(size for _, size, _ in packs)
    for _, size, folder in sorted(packs):
        if total + needed <= cache.max_bytes:
            break
        if not folder.name.startswith("."):
            _remove(folder)
            total -= size


def _remove(pack: Path) -> None:
    """Renamed first, so that nobody opens a half of it; whoever has it mapped keeps it."""
    aside = pack.with_name(f".{secrets.token_hex(8)}")
    try:
        pack.rename(aside)
    except OSError:
        return
    shutil.rmtree(aside, ignore_errors=True)


def _unreadable(
    photos: tuple[PhotoRef, ...], preprocessing: Preprocessing, on_photo: Callable[[int, int], None]
) -> dict[int, str]:
    """Why files cannot be decoded, by row. Drawn photos always can."""
    files = [(row, photo) for row, photo in enumerate(photos) if isinstance(photo, Path)]
    reasons: dict[int, str] = {}
    decoded = _decoded(tuple(photo for _, photo in files), preprocessing)
    for done, ((row, _), crop) in enumerate(zip(files, decoded, strict=True), start=1):
        if isinstance(crop, FamiliarError):
            reasons[row] = str(crop)
        on_photo(done, len(files))
    return reasons


def _decoded(photos: tuple[PhotoRef, ...], preprocessing: Preprocessing) -> Iterator[Pixels | FamiliarError]:
    """Every crop in order, or why there is none; by all cores where there are many."""
    decode = partial(_crop_or_error, preprocessing=preprocessing)
    cores = os.cpu_count() or 1
    if len(photos) < _ALONE or cores == 1:
        yield from map(decode, photos)
        return
    # Processes, since drawing is much Python. No thread pools inside them.
    with ProcessPoolExecutor(cores, process_context(), cv2.setNumThreads, (0,)) as pool:
        try:
            for start in range(0, len(photos), _WINDOW):
                yield from pool.map(decode, photos[start : start + _WINDOW], chunksize=16)
        except BrokenProcessPool as error:
            raise BadDataset("a process that decodes photos died: was the memory used up?") from error


def _crop_or_error(photo: PhotoRef, preprocessing: Preprocessing) -> Pixels | FamiliarError:
    try:
        return crop_of(photo, preprocessing)
    except FamiliarError as error:
        return error


def _key(contents: list[str | None], preprocessing: Preprocessing) -> str:
    """Of everything that decides a pack's pixels: photos, geometry, our code and the libraries beneath it."""
    geometry = [preprocessing.size_px, preprocessing.resize, preprocessing.resize_px, preprocessing.margin]
    steps = (open_photo, load_photo, crop_photo, WholePhoto, find_face, resize_crop)
    decoding = [Path(inspect.getfile(inspect.unwrap(step))) for step in steps]
    drawing = sorted(Path(inspect.getfile(synthetic)).parent.glob("*.py"))
    code = [hashlib.sha256(path.read_bytes()).hexdigest() for path in (*decoding, *drawing)]
    described = [FORMAT, geometry, code, cv2.__version__, PIL.__version__, contents]
    return hashlib.sha256(json.dumps(described).encode()).hexdigest()[:40]


def _crop_bytes(preprocessing: Preprocessing) -> int:
    return 3 * preprocessing.size_px**2
