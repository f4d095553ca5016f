"""The crops of labeled photos: read once, from a pack where there is a cache. Knows nothing of torch."""

import contextlib
import hashlib
import logging
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from jaxtyping import Int64, UInt8

from familiar.core.cpu import available_cores
from familiar.core.errors import BadDataset, FamiliarError
from familiar.core.terminal_text import one_line
from familiar.datasets.folders import IdentityTable, PhotoRef, open_photo
from familiar.datasets.idx import IdxPhoto
from familiar.datasets.synthetic import SyntheticPhoto
from familiar.embedding.embedder import crop_photo
from familiar.loading.cache import (
    CropCache,
    PackWriter,
    Pixels,
    crop_bytes,
    evict_packs,
    open_pack,
    pack_key,
    remove_pack,
)
from familiar.loading.file_hashes import content_hashes
from familiar.loading.processes import SCRIPTS_NEED_A_GUARD, end_with_parent, process_context
from familiar.photos.preprocessing import Preprocessing

log = logging.getLogger(__name__)

_MIN_PHOTOS_FOR_POOL = 200  # so few photos are decoded sooner than processes start
_WINDOW_BYTES = 2**26  # of crops decoded ahead of the writer


@dataclass(frozen=True, eq=False)
class Crops:
    """The crop of every photo, by row: mapped from a pack, where that holds `pack_rows` of it, or decoded."""

    photos: tuple[PhotoRef, ...]
    preprocessing: Preprocessing
    pack: Path | None
    pack_rows: Int64[np.ndarray, " n"]

    def __len__(self) -> int:
        return len(self.photos)

    def __getitem__(self, row: int) -> Pixels:
        """Read-only where it comes from a pack. UnreadablePhoto where the file is gone or changed meanwhile."""
        packed = self._packed
        if packed is None or self.pack_rows[row] >= len(packed):
            return crop_of(self.photos[row], self.preprocessing)
        return packed[self.pack_rows[row]]

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
    contents = _photo_contents(table.photos, remembered)
    if cache is None or cache.max_bytes < crop_bytes(preprocessing):
        pack, unreadable = None, _decode_errors(table.photos, preprocessing, on_photo)
    else:
        pack, unreadable = _open_or_write_pack(cache, table.photos, contents, preprocessing, on_photo)
    for reason in unreadable.values():
        log.warning("skipped %s", one_line(reason))
    readable = np.array([row for row in range(len(table)) if row not in unreadable], np.int64)
    if not len(readable):
        raise BadDataset("not one of the photos can be read")
    table = table.rows(readable) if unreadable else table
    return ReadTable(
        table,
        Crops(table.photos, preprocessing, pack, readable),
        _digest(table, [contents[row] for row in readable]),
    )


def _photo_contents(photos: tuple[PhotoRef, ...], remembered: Path | None) -> list[str | None]:
    """What decides each photo's pixels: a file's bytes, a drawn photo's name, an image's pixels themselves."""
    files = [photo for photo in photos if isinstance(photo, Path)]
    of_file = dict(zip(files, content_hashes(files, remembered), strict=True))

    def content(photo: PhotoRef) -> str | None:
        match photo:
            case Path():
                return of_file[photo]
            case SyntheticPhoto():
                return photo.name
            case IdxPhoto():
                return photo.content_sha256

    return [content(photo) for photo in photos]


def _digest(table: IdentityTable, contents: list[str | None]) -> str:
    lines = sorted(
        os.fsencode(f"{table.names[label]}\0{photo.name}\0{content}\n")
        for photo, label, content in zip(table.photos, table.labels, contents, strict=True)
    )
    return hashlib.sha256(b"".join(lines)).hexdigest()


def _open_or_write_pack(
    cache: CropCache,
    photos: tuple[PhotoRef, ...],
    contents: list[str | None],
    preprocessing: Preprocessing,
    on_photo: Callable[[int, int], None],
) -> tuple[Path | None, dict[int, str]]:
    """The pack, and why photos are not in it, by row."""
    pack = cache.folder / pack_key(contents, preprocessing)
    room = cache.max_bytes // crop_bytes(preprocessing)
    if (rows := open_pack(pack, preprocessing, len(photos), room)) is not None:
        again = {row: _crop_or_error(photos[row], preprocessing) for row in rows}
        # Opened again to say why, of the file as it is called now.
        found = {row: str(error) for row, error in again.items() if isinstance(error, FamiliarError)}
        if len(found) == len(rows):
            evict_packs(cache, 0)  # the bound may be a tighter one today
            return pack, found
        remove_pack(pack)
    if room < len(photos):
        log.warning("the cache has room for %d of %d crops; the others are decoded every epoch", room, len(photos))
    try:
        evict_packs(cache, min(room, len(photos)) * crop_bytes(preprocessing))
        draft = PackWriter(pack)
    except OSError as error:
        log.warning("crops are not kept in %s: %s", cache.folder, error.strerror)
        return None, _decode_errors(photos, preprocessing, on_photo)
    try:
        unreadable: dict[int, str] = {}
        blank = np.zeros((preprocessing.size_px, preprocessing.size_px, 3), np.uint8)
        for row, crop in enumerate(_decode_all(photos, preprocessing)):
            if isinstance(crop, FamiliarError):
                unreadable[row] = str(crop)
                crop = blank  # so that a crop's row does not hang on what could be read
            if row < room:
                draft.add(crop)
            on_photo(row + 1, len(photos))
        kept = draft.commit(list(unreadable))
    except BaseException:
        draft.discard()
        raise
    return pack if kept else None, unreadable


def _decode_errors(
    photos: tuple[PhotoRef, ...], preprocessing: Preprocessing, on_photo: Callable[[int, int], None]
) -> dict[int, str]:
    """Why files cannot be decoded, by row. Drawn photos always can."""
    files = [(row, photo) for row, photo in enumerate(photos) if isinstance(photo, Path)]
    reasons: dict[int, str] = {}
    decoded = _decode_all(tuple(photo for _, photo in files), preprocessing)
    for done, ((row, _), crop) in enumerate(zip(files, decoded, strict=True), start=1):
        if isinstance(crop, FamiliarError):
            reasons[row] = str(crop)
        on_photo(done, len(files))
    return reasons


def _decode_all(photos: tuple[PhotoRef, ...], preprocessing: Preprocessing) -> Iterator[Pixels | FamiliarError]:
    """Every crop in order, or why there is none; by all cores where there are many."""
    decode = partial(_crop_or_error, preprocessing=preprocessing)
    cores = available_cores()
    if len(photos) < _MIN_PHOTOS_FOR_POOL or cores == 1:
        yield from map(decode, photos)
        return
    drawn = any(isinstance(photo, SyntheticPhoto) for photo in photos)
    with _processes(cores) if drawn else ThreadPoolExecutor(cores) as pool:
        try:
            window = max(cores, _WINDOW_BYTES // crop_bytes(preprocessing))
            chunk = min(16, window // cores)
            for start in range(0, len(photos), window):
                yield from pool.map(decode, photos[start : start + window], chunksize=chunk)
        except BrokenProcessPool as error:
            raise BadDataset(
                f"a process that draws photos died. Was the memory used up? {SCRIPTS_NEED_A_GUARD}"
            ) from error


def _processes(cores: int) -> ProcessPoolExecutor:
    """Decoding a file leaves Python to other threads; drawing is much Python itself."""
    return ProcessPoolExecutor(cores, process_context(), _start_process)


def _start_process() -> None:
    end_with_parent()
    cv2.setNumThreads(0)


def _crop_or_error(photo: PhotoRef, preprocessing: Preprocessing) -> Pixels | FamiliarError:
    try:
        return crop_of(photo, preprocessing)
    except FamiliarError as error:
        return error
