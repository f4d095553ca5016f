"""Crops of labeled photos, decoded or read from the cache. Independent of torch."""

import hashlib
import logging
import os
from collections.abc import Callable, Iterator, Sequence
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
from familiar.core.errors import BadDataset, FamiliarError, UnreadablePhoto
from familiar.core.files import content_sha256
from familiar.core.terminal_text import one_line
from familiar.datasets.identity_table import IdentityTable
from familiar.datasets.idx import IdxPhoto
from familiar.datasets.photo_references import BoxedPhoto, PhotoRef, box_text, file_of, open_photo
from familiar.datasets.shards.scanning import ShardPhoto
from familiar.datasets.shards.storage import is_url
from familiar.datasets.stored_photo import StoredPhoto
from familiar.datasets.synthetic import SyntheticPhoto
from familiar.detection.faces import crop_photo
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
from familiar.loading.processes import SCRIPTS_NEED_A_GUARD, end_with_parent, process_context
from familiar.photos.preprocessing import Preprocessing

log = logging.getLogger(__name__)

_MIN_PHOTOS_FOR_POOL = 200  # fewer photos are decoded faster than processes start
_WINDOW_BYTES = 2**26  # of crops decoded ahead of the writer
_URL_THREADS = 16  # read photos behind a URL, most of the time waiting for an answer


@dataclass(frozen=True, eq=False)
class Crops:
    """The crops of photos, by row: read from a memory-mapped pack if they are in it, decoded otherwise.

    Attributes:
        photos: one per row.
        preprocessing: size and geometry of the crops.
        pack: folder of the pack, None without a cache.
        pack_rows: for each row its index in the pack.
    """

    photos: Sequence[PhotoRef]
    preprocessing: Preprocessing
    pack: Path | None
    pack_rows: Int64[np.ndarray, " n"]

    def __len__(self) -> int:
        return len(self.photos)

    def __getitem__(self, row: int) -> Pixels:
        """Return the crop of a row, which is read-only if it comes from a pack.

        Raises:
            UnreadablePhoto: the file was deleted or changed since.
        """
        packed = self._packed
        if packed is None or self.pack_rows[row] >= len(packed):
            return crop_of(self.photos[row], self.preprocessing)
        return packed[self.pack_rows[row]]

    def select(self, table: IdentityTable) -> "Crops":
        """Select the crops of a table, whose photos must all be among these."""
        row_by_photo = {photo: row for row, photo in enumerate(self.photos)}
        rows = np.array([row_by_photo[photo] for photo in table.photos], np.int64)
        return Crops(table.photos, self.preprocessing, self.pack, self.pack_rows[rows])

    @cached_property
    def _packed(self) -> UInt8[np.ndarray, "n s s 3"] | None:
        """The pack, mapped on first use in each process; None if another run has removed it."""
        if self.pack is None:
            return None
        try:
            flat = np.asarray(np.memmap(self.pack / "crops.u8", np.uint8, "r"))
        except OSError:
            return None
        return flat.reshape(-1, self.preprocessing.size_px, self.preprocessing.size_px, 3)

    def __getstate__(self) -> dict[str, Any]:
        # A mapped array would be sent to another process as a copy of all its pixels.
        return {name: value for name, value in vars(self).items() if name != "_packed"}


@dataclass(frozen=True, eq=False)
class CropTable:
    """The readable photos of a table, with their crops.

    Attributes:
        table: the readable photos.
        crops: one per row of the table.
        contents: SHA-256 over the identity, name and bytes of all photos, independent of their order.
    """

    table: IdentityTable
    crops: Crops
    contents: str


def crop_of(photo: PhotoRef, preprocessing: Preprocessing) -> Pixels:
    """Crop a photo as for inference, except that it is not searched for faces, as training photos are aligned faces."""
    return crop_photo(photo, preprocessing, open_photo=open_photo).rgb_u8


def read_table(
    table: IdentityTable,
    preprocessing: Preprocessing,
    cache: CropCache | None = None,
    on_photo: Callable[[int, int], None] = lambda _done, _total: None,
) -> CropTable:
    """Decode every photo once, into the cache if there is one, and leave out the unreadable ones with a warning.

    All photos are decoded first, so that damaged ones are found before training and not in the ninth epoch.

    Args:
        table: the photos.
        preprocessing: size and geometry of the crops.
        cache: None to decode crops whenever they are used.
        on_photo: called with the number of photos done and of all photos.

    Raises:
        BadDataset: none of the photos can be read.
    """
    pack, unreadable, contents = _open_or_write_pack(cache, table.photos, preprocessing, on_photo)
    for reason in unreadable.values():
        log.warning("skipped %s", one_line(reason))
    readable = np.array([row for row in range(len(table)) if row not in unreadable], np.int64)
    if not len(readable):
        raise BadDataset(f"none of the {len(table)} photos can be read")
    table = table.select_rows(readable) if unreadable else table
    return CropTable(
        table,
        Crops(table.photos, preprocessing, pack, readable),
        _digest(table, [contents[row] for row in readable]),
    )


def crops_by(
    table: IdentityTable,
    preprocessing: Preprocessing,
    cache: CropCache | None = None,
    on_photo: Callable[[int, int], None] = lambda _done, _total: None,
) -> Crops:
    """Crop readable photos by another preprocessing, into a pack of its own if there is a cache.

    Args:
        table: photos that `read_table` has read.
        preprocessing: size and geometry of these crops.
        cache: None to decode crops whenever they are used.
        on_photo: called with the number of photos done and of all photos.

    Raises:
        BadDataset: a photo was deleted or damaged since it was read.
    """
    if cache is None:
        return Crops(table.photos, preprocessing, None, np.arange(len(table)))
    read = read_table(table, preprocessing, cache, on_photo)
    if len(read.table) < len(table):
        raise BadDataset(
            f"{len(table) - len(read.table)} photos became unreadable since they were read a moment ago; start again"
        )
    return read.crops


def _photo_states(photos: Sequence[PhotoRef]) -> list[str | None]:
    """Return what changes whenever a photo's pixels do: times, size and inode of a file, or the content of another."""

    def state(photo: PhotoRef) -> str | None:
        try:
            match photo:
                case SyntheticPhoto():
                    return photo.name
                case BoxedPhoto():
                    return f"{state(photo.photo)} {box_text(photo.box_xyxy_px)}"
                case Path():
                    stat = photo.stat()
                    return f"{max(stat.st_mtime_ns, stat.st_ctime_ns)} {stat.st_mtime_ns} {stat.st_size} {stat.st_ino}"
            return photo.content_sha256
        except (OSError, UnreadablePhoto):
            return None

    states: dict[int, str | None] = {}
    rows = _reading_order(photos)
    with ThreadPoolExecutor(_threads(photos)) as pool:
        states.update(zip(rows, pool.map(state, (photos[row] for row in rows)), strict=True))
    return [states[row] for row in range(len(photos))]


def _photo_contents(photos: Sequence[PhotoRef], states: list[str | None]) -> list[str | None]:
    """Return what determines each photo's pixels: the hash of a file, or the state of another photo."""

    def content(photo: PhotoRef, state: str | None) -> str | None:
        try:
            path = file_of(photo)
            if path is None or state is None:
                return state
            box = box_text(photo.box_xyxy_px) if isinstance(photo, BoxedPhoto) else ""
            return content_sha256(path).hex() + box
        except OSError:
            return None

    with ThreadPoolExecutor(_threads(photos)) as pool:
        return list(pool.map(content, photos, states))


def _reading_order(photos: Sequence[PhotoRef]) -> list[int]:
    """Return the rows of photos, those in shards as they are stored, so that each part of a shard is read once."""

    def position(row: int) -> tuple[str, int]:
        photo = photos[row]
        return (photo.shard, photo.position) if isinstance(photo, ShardPhoto) else ("", row)

    return sorted(range(len(photos)), key=position)


def _threads(photos: Sequence[PhotoRef]) -> int:
    """Return how many threads read photos."""
    behind_url = any(isinstance(photo, StoredPhoto) and is_url(str(photo)) for photo in photos)
    return max(available_cores(), _URL_THREADS if behind_url else 1)


def _digest(table: IdentityTable, contents: Sequence[str | None]) -> str:
    """Hash the identities, names and contents of photos, independent of their order."""
    lines = sorted(
        os.fsencode(f"{table.names[label]}\0{photo.name}\0{content}\n")
        for photo, label, content in zip(table.photos, table.labels, contents, strict=True)
    )
    return hashlib.sha256(b"".join(lines)).hexdigest()


def _open_or_write_pack(
    cache: CropCache | None,
    photos: Sequence[PhotoRef],
    preprocessing: Preprocessing,
    on_photo: Callable[[int, int], None],
) -> tuple[Path | None, dict[int, str], Sequence[str | None]]:
    """Open the pack of these photos, or write it if there is none.

    Returns:
        The pack, None without one; the error of each unreadable photo, by row; and the contents of the photos.
    """
    states = _photo_states(photos)
    pack, writer, max_crops = None, None, 0
    if cache is not None and (max_crops := cache.max_bytes // crop_bytes(preprocessing)):
        pack = cache.folder / pack_key(states, preprocessing)
        if (opened := _reopen_pack(pack, photos, preprocessing, max_crops)) is not None:
            evict_packs(cache, 0)  # the limit may be lower than when the packs were written
            return pack, *opened
        writer = _new_pack(cache, pack, len(photos), preprocessing)
    contents = _photo_contents(photos, states)
    # Without a pack, drawn photos are not decoded: they have no errors.
    rows = _reading_order(photos)
    if writer is None:
        rows = [row for row in rows if not isinstance(photos[row], SyntheticPhoto | IdxPhoto)]
    errors: dict[int, str] = {}
    blank = np.zeros((preprocessing.size_px, preprocessing.size_px, 3), np.uint8)
    try:
        for done, (row, crop) in enumerate(zip(rows, _decode_all(photos, rows, preprocessing), strict=True), start=1):
            if isinstance(crop, FamiliarError):
                errors[row] = str(crop)
                crop = blank  # so that the position of a crop does not depend on which photos are readable
            if writer is not None and row < max_crops:
                writer.write(row, crop)
            on_photo(done, len(rows))
        errors = dict(sorted(errors.items()))
        return pack if writer is not None and writer.commit(errors, contents) else None, errors, contents
    except BaseException:
        if writer is not None:
            writer.discard()
        raise


def _reopen_pack(
    pack: Path, photos: Sequence[PhotoRef], preprocessing: Preprocessing, max_crops: int
) -> tuple[dict[int, str], Sequence[str | None]] | None:
    """Check an existing pack.

    Returns:
        The error of each photo that is not in it, by row, and the contents of all; None if there is no pack, or if one
        of these photos has become readable.
    """
    record = open_pack(pack, preprocessing, len(photos), max_crops)
    if record is None:
        return None
    # Decoded again, since the message must name the file as it is named now.
    crops = {row: _crop_or_error(photos[row], preprocessing) for row in record.unreadable}
    errors = {row: str(error) for row, error in crops.items() if isinstance(error, FamiliarError)}
    if len(errors) < len(crops):
        remove_pack(pack)
        return None
    return errors, record.contents


def _new_pack(cache: CropCache, pack: Path, photos: int, preprocessing: Preprocessing) -> PackWriter | None:
    """Begin a pack; None, with a warning, if it cannot be written."""
    max_crops = cache.max_bytes // crop_bytes(preprocessing)
    if max_crops < photos:
        log.warning("the cache has room for %d of %d crops; the others are decoded every epoch", max_crops, photos)
    try:
        cache.folder.mkdir(parents=True, exist_ok=True)
        evict_packs(cache, min(max_crops, photos) * crop_bytes(preprocessing))
        return PackWriter(pack)
    except OSError as error:
        log.warning("crops cannot be cached in %s: %s", cache.folder, error.strerror)
        return None


def _decode_all(
    photos: Sequence[PhotoRef], rows: list[int], preprocessing: Preprocessing
) -> Iterator[Pixels | FamiliarError]:
    """Yield the crop or the error of some photos, in the order of the rows; many are decoded by all cores."""
    decode = partial(_crop_or_error, preprocessing=preprocessing)
    ordered = [photos[row] for row in rows]
    threads = _threads(photos)
    if len(ordered) < _MIN_PHOTOS_FOR_POOL or threads == 1:
        yield from map(decode, ordered)
        return
    drawn = any(isinstance(photo, SyntheticPhoto) for photo in ordered)
    with _processes(available_cores()) if drawn else ThreadPoolExecutor(threads) as pool:
        try:
            window = max(threads, _WINDOW_BYTES // crop_bytes(preprocessing))
            chunk = min(16, window // threads)
            for start in range(0, len(ordered), window):
                yield from pool.map(decode, ordered[start : start + window], chunksize=chunk)
        except BrokenProcessPool as error:
            raise BadDataset(
                f"a process that draws photos died, possibly for lack of memory. {SCRIPTS_NEED_A_GUARD}"
            ) from error


def _processes(cores: int) -> ProcessPoolExecutor:
    """Make a pool for drawing, which holds the interpreter lock; decoding files releases it and uses threads."""
    return ProcessPoolExecutor(cores, process_context(), _start_process)


def _start_process() -> None:
    end_with_parent()
    cv2.setNumThreads(0)


def _crop_or_error(photo: PhotoRef, preprocessing: Preprocessing) -> Pixels | FamiliarError:
    try:
        return crop_of(photo, preprocessing)
    except FamiliarError as error:
        return error
