"""Inspection of labeled photos: photos per identity, sizes, formats, pixel values, and duplicates."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import cv2
import numpy as np
from jaxtyping import UInt8

from familiar.core.errors import UnreadablePhoto
from familiar.core.names import confusable_key
from familiar.core.terminal_text import printable
from familiar.core.types import Photo
from familiar.datasets.duplicates import DuplicateGroup, find_duplicates
from familiar.datasets.identity_table import IdentityTable, sort_by_hash
from familiar.datasets.image_stats import ImageStats, read_all_image_stats
from familiar.datasets.photo_references import photo_path

SAMPLE_SIZE = 9
_MAX_BINS = 12
_MAX_COMMON_SIZES = 10
_PADDING_VALUE = 255  # white


def contact_sheet(photos: Sequence[Photo], columns: int, tile_px: int = 96) -> UInt8[np.ndarray, "h w 3"]:
    """Arrange photos row by row in a grid, each scaled into a square tile and centered on white.

    Args:
        photos: at least one.
        columns: of the grid.
        tile_px: side of a tile.

    Raises:
        ValueError: there are no photos, or `columns` or `tile_px` is below 1.
    """
    if not photos:
        raise ValueError("a contact sheet needs photos")
    if columns < 1 or tile_px < 1:
        raise ValueError(f"columns and tile_px must be at least 1, got {columns} and {tile_px}")
    rows = -(-len(photos) // columns)
    sheet = np.full((rows * tile_px, columns * tile_px, 3), _PADDING_VALUE, np.uint8)
    for position, photo in enumerate(photos):
        width, height = photo.size_px
        scale = tile_px / max(width, height)
        fitted = (max(1, round(width * scale)), max(1, round(height * scale)))
        rgb_u8 = cv2.resize(photo.rgb_u8, fitted, interpolation=cv2.INTER_AREA if scale < 1 else cv2.INTER_LINEAR)
        y = position // columns * tile_px + (tile_px - fitted[1]) // 2
        x = position % columns * tile_px + (tile_px - fitted[0]) // 2
        sheet[y : y + fitted[1], x : x + fitted[0]] = rgb_u8
    return sheet


MinMedianMax = tuple[int, float, int]  # smallest, median, largest


class Bin(NamedTuple):
    """A histogram bin: the number of identities that have `low` to `high` photos, both included."""

    low: int
    high: int
    identities: int


class DuplicateKind(NamedTuple):
    """A kind of duplicates: identical pixels or nearly; of several identities or of one."""

    exact: bool
    across: bool


class PhotoDetails(NamedTuple):
    """Size of an upright photo, and how its file is stored."""

    width_px: int
    height_px: int
    stored_as: str


class LookAlikes(NamedTuple):
    """Names that look alike: of folders that were read as one identity, or of several identities."""

    names: tuple[str, ...]
    identities: int

    def __str__(self) -> str:
        """Name them so that the difference can be seen, and say how they were read."""
        read_as = "one identity" if self.identities == 1 else f"{self.identities} identities"
        return f"{', '.join(map(ascii, self.names))}: {read_as}"


DUPLICATE_KINDS = {  # ordered by how likely they are labeling errors
    DuplicateKind(exact=True, across=True): "the same pixels, several identities",
    DuplicateKind(exact=False, across=True): "nearly the same, several identities",
    DuplicateKind(exact=True, across=False): "the same pixels, one identity",
    DuplicateKind(exact=False, across=False): "nearly the same, one identity",
}


@dataclass(frozen=True, eq=False)
class Inspection:
    """Summary of a table of labeled photos. Sizes, values and duplicates are of its readable photos.

    Attributes:
        table: the photos.
        width_px: smallest, median and largest width of the photos.
        height_px: smallest, median and largest height.
        lowest_value: smallest, median and largest of the photos' lowest pixel values, over all channels, in [0, 255].
        mean_value: the same of their mean pixel values.
        highest_value: the same of their highest pixel values.
        stored_as: number of photos by format and mode.
        common_sizes: number of photos by size.
        grayscale: number of photos that are gray regardless of their mode.
        blank: rows of photos that are nearly one color.
        duplicates: groups of rows.
        sample: rows of a random sample.
        unreadable: errors of the photos that cannot be opened.
        look_alikes: names that look alike.
        details: of each photo of `table`; None if it cannot be opened.
    """

    table: IdentityTable
    width_px: MinMedianMax
    height_px: MinMedianMax
    lowest_value: MinMedianMax
    mean_value: MinMedianMax
    highest_value: MinMedianMax
    stored_as: dict[str, int]
    common_sizes: dict[str, int]
    grayscale: int
    blank: tuple[int, ...]
    duplicates: tuple[DuplicateGroup, ...]
    sample: tuple[int, ...]
    unreadable: tuple[UnreadablePhoto, ...]
    look_alikes: tuple[LookAlikes, ...]
    details: tuple[PhotoDetails | None, ...]

    @property
    def single_photo_identities(self) -> int:
        """Number of identities that have only one photo."""
        return int((self.table.photos_per_identity == 1).sum())

    @property
    def photos_per_identity(self) -> MinMedianMax:
        """Minimum, median and maximum of the photos per identity."""
        return _min_median_max(self.table.photos_per_identity)

    @property
    def identities_by_size(self) -> list[tuple[str, int]]:
        """All identities and their numbers of photos, the largest first."""
        counts = self.table.photos_per_identity.tolist()
        return sorted(zip(self.table.names, counts, strict=True), key=lambda row: (-row[1], row[0]))

    def identity_names(self, rows: Sequence[int]) -> list[str]:
        """List the distinct identities of some photos, sorted by name.

        Args:
            rows: indices of the photos in `table`.
        """
        return [self.table.names[label] for label in np.unique(self.table.labels[list(rows)])]

    def duplicates_of_kind(self, kind: DuplicateKind) -> list[DuplicateGroup]:
        """Select the duplicates of one kind, sorted by descending similarity, then size.

        Args:
            kind: one of the keys of `DUPLICATE_KINDS`.
        """
        groups = [group for group in self.duplicates if kind == (group.exact, len(self.identity_names(group.rows)) > 1)]
        return sorted(groups, key=lambda group: (-group.similarity, -len(group.rows), group.rows))

    def as_dict(self) -> dict[str, Any]:
        """Convert to values that JSON can represent."""
        paths = [photo_path(photo) for photo in self.table.photos]
        duplicates = {
            f"{'exact' if kind.exact else 'near'}_{'across_identities' if kind.across else 'within_identity'}": [
                {
                    "photos": [paths[row] for row in group.rows],
                    "identities": list(self.identity_names(group.rows)),
                    "similarity": round(group.similarity, 4),
                }
                for group in self.duplicates_of_kind(kind)
            ]
            for kind in DUPLICATE_KINDS
        }
        return {
            "photos": len(self.table),
            "identities": len(self.table.names),
            "single_photo_identities": self.single_photo_identities,
            "photos_per_identity": self.photos_per_identity,
            "histogram": [bin_._asdict() for bin_ in histogram(self.table.photos_per_identity)],
            "photo_counts": dict(self.identities_by_size),
            "width_px": self.width_px,
            "height_px": self.height_px,
            "common_sizes": self.common_sizes,
            "stored_as": self.stored_as,
            "grayscale": self.grayscale,
            "lowest_value": self.lowest_value,
            "mean_value": self.mean_value,
            "highest_value": self.highest_value,
            "blank": [paths[row] for row in self.blank],
            "duplicates": duplicates,
            "sample": [paths[row] for row in self.sample],
            "unreadable": [str(error) for error in self.unreadable],
            "look_alike_names": [group._asdict() for group in self.look_alikes],
            "ignored": self.table.ignored,
        }


def inspect_table(
    table: IdentityTable,
    *,
    workers: int = 2,
    on_progress: Callable[[str, int], None] = lambda _doing, _done: None,
) -> Inspection:
    """Open every photo once, keeping 2 kB of each, then search for duplicates.

    A JPEG much larger than 256 px is decoded at a reduced scale: pixel values are those at that scale, and photos
    of one size that are equal at that scale count as equal.

    Args:
        table: the photos.
        workers: threads that decode photos.
        on_progress: called with the current step and the number of photos done.

    Raises:
        UnreadablePhoto: none of the photos can be opened.
    """
    rows: list[int] = []
    stats: list[ImageStats] = []
    unreadable: list[UnreadablePhoto] = []
    details: list[PhotoDetails | None] = []
    for row, result in enumerate(read_all_image_stats(table.photos, workers)):
        if isinstance(result, UnreadablePhoto):
            unreadable.append(result)
            details.append(None)
        else:
            rows.append(row)
            stats.append(result)
            details.append(PhotoDetails(*result.size_px, result.stored_as))
        on_progress("read", row + 1)
    if not stats:
        raise UnreadablePhoto(f"none of the {len(table)} photos can be read; the first: {unreadable[0]}")
    duplicates = find_duplicates(
        [item.digest for item in stats],
        np.array([item.hash for item in stats], np.uint64),
        np.stack([item.structure for item in stats]),
        on_rows=lambda done: on_progress("compared", done),
    )
    return Inspection(
        table=table,
        width_px=_min_median_max([item.size_px[0] for item in stats]),
        height_px=_min_median_max([item.size_px[1] for item in stats]),
        lowest_value=_min_median_max([item.lowest_value for item in stats]),
        mean_value=_min_median_max([item.mean_value for item in stats]),
        highest_value=_min_median_max([item.highest_value for item in stats]),
        stored_as=dict(Counter(item.stored_as for item in stats).most_common()),
        common_sizes=dict(
            Counter(f"{item.size_px[0]} x {item.size_px[1]}" for item in stats).most_common(_MAX_COMMON_SIZES)
        ),
        grayscale=sum(item.grayscale for item in stats),
        blank=tuple(row for row, item in zip(rows, stats, strict=True) if item.blank),
        duplicates=tuple(
            DuplicateGroup(tuple(rows[index] for index in group.rows), group.exact, group.similarity)
            for group in duplicates
        ),
        sample=_sample(table, rows),
        unreadable=tuple(unreadable),
        look_alikes=find_look_alikes(table),
        details=tuple(details),
    )


def find_look_alikes(table: IdentityTable) -> tuple[LookAlikes, ...]:
    """Find the names of a table that look alike, sorted.

    Folders whose names nobody can tell apart were read as one identity. Names that differ in case, or in forms such as
    full-width letters, are of several identities, which may be one by mistake.
    """
    folders: dict[str, set[str]] = {}
    for photo, label in zip(table.photos, table.labels.tolist(), strict=True):
        if isinstance(photo, Path):
            name = table.names[label]
            folders.setdefault(name, set()).add(f"{name.partition('/')[0]}/{photo.parent.name}")
    identities: dict[str, list[str]] = {}
    for name in table.names:
        identities.setdefault(confusable_key(name), []).append(name)
    groups = [LookAlikes(tuple(sorted(names)), 1) for names in folders.values() if len(names) > 1]
    groups += [LookAlikes(tuple(names), len(names)) for names in identities.values() if len(names) > 1]
    return tuple(sorted(groups))


def histogram(counts: Sequence[int] | np.ndarray) -> tuple[Bin, ...]:
    """Count identities by their number of photos, in bins from the smallest to the largest number.

    There are at most twelve bins, 1, 2 or 5 times a power of ten wide. If the largest number is more than 20 times
    the median, each bin is instead twice as wide as the one before (1, 2 to 3, 4 to 7, ...).

    >>> [tuple(bin) for bin in histogram([1, 1, 2, 4])]
    [(1, 1, 2), (2, 2, 1), (3, 3, 0), (4, 4, 1)]
    """
    smallest, median, largest = _min_median_max(counts)
    if largest > 20 * median:
        starts = [2**power for power in range(smallest.bit_length() - 1, largest.bit_length() + 1)]
    else:
        widths = (step * 10**power for power in range(20) for step in (1, 2, 5))
        width = next(width for width in widths if largest // width - smallest // width < _MAX_BINS)
        starts = list(range(smallest // width * width, largest + width + 1, width))
    identity_counts, _ = np.histogram(counts, starts)
    edges = zip(starts, starts[1:], identity_counts.tolist(), strict=False)
    return tuple(Bin(max(low, 1), end - 1, count) for low, end, count in edges if low <= largest)


def photo_name(table: IdentityTable, row: int) -> str:
    """Return ROOT/IDENTITY/PHOTO in printable form."""
    return printable(f"{table.names[table.labels[row]]}/{table.photos[row].name.rpartition('/')[2]}")


def _sample(table: IdentityTable, rows: Sequence[int]) -> tuple[int, ...]:
    """Sample `SAMPLE_SIZE` rows of as many identities as possible, the same ones on every machine."""
    row_of = {f"{table.names[table.labels[row]]}/{table.photos[row].name}": row for row in rows}
    turns = Counter[int]()
    candidates: list[tuple[int, int]] = []
    for name in sort_by_hash(row_of):
        label = int(table.labels[row_of[name]])
        candidates.append((turns[label], row_of[name]))
        turns[label] += 1
    return tuple(row for _, row in sorted(candidates, key=lambda turn_and_row: turn_and_row[0])[:SAMPLE_SIZE])


def _min_median_max(values: Sequence[int] | np.ndarray) -> MinMedianMax:
    return int(np.min(values)), float(np.median(values)), int(np.max(values))
