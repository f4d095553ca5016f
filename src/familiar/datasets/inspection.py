"""Labeled photos at a glance: how many of whom, what they look like as files, and which show the same picture."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import cv2
import numpy as np
from jaxtyping import UInt8

from familiar.core.errors import UnreadablePhoto
from familiar.core.terminal_text import printable
from familiar.core.types import Photo
from familiar.datasets.duplicates import Alike, find_duplicates
from familiar.datasets.folders import IdentityTable, PhotoRef, by_hash
from familiar.datasets.image_stats import PhotoFacts, facts_of_all

SAMPLE = 9
_MOST_BINS = 12
_COMMON_SIZES = 10
_PADDING = 255  # white, as the page a sheet is shown on


def contact_sheet(photos: Sequence[Photo], columns: int, tile_px: int = 96) -> UInt8[np.ndarray, "h w 3"]:
    """Photos row by row in a grid `columns` wide, each fitted whole into a square tile and centered.

    What photos leave free is white. ValueError without photos, and where `columns` or `tile_px` is below 1.
    """
    if not photos:
        raise ValueError("a contact sheet needs photos")
    if columns < 1 or tile_px < 1:
        raise ValueError(f"columns and tile_px are at least 1, not {columns} and {tile_px}")
    rows = -(-len(photos) // columns)
    sheet = np.full((rows * tile_px, columns * tile_px, 3), _PADDING, np.uint8)
    for position, photo in enumerate(photos):
        width, height = photo.size_px
        scale = tile_px / max(width, height)
        fitted = (max(1, round(width * scale)), max(1, round(height * scale)))
        rgb_u8 = cv2.resize(photo.rgb_u8, fitted, interpolation=cv2.INTER_AREA if scale < 1 else cv2.INTER_LINEAR)
        top = position // columns * tile_px + (tile_px - fitted[1]) // 2
        left = position % columns * tile_px + (tile_px - fitted[0]) // 2
        sheet[top : top + fitted[1], left : left + fitted[0]] = rgb_u8
    return sheet


Spread = tuple[int, float, int]  # smallest, median, largest


class Bin(NamedTuple):
    """How many identities have `low` to `high` photos, both included."""

    low: int
    high: int
    identities: int


class Kind(NamedTuple):
    """Of duplicates: the same pixels or nearly; of several identities or of one."""

    exact: bool
    across: bool


KINDS = {  # likely faults first
    Kind(exact=True, across=True): "the same pixels, several identities",
    Kind(exact=False, across=True): "nearly the same, several identities",
    Kind(exact=True, across=False): "the same pixels, one identity",
    Kind(exact=False, across=False): "nearly the same, one identity",
}


@dataclass(frozen=True, eq=False)
class Inspection:
    """What is in a table of labeled photos. Sizes, values and duplicates are of its readable photos.

    `lowest_value`, `mean_value` and `highest_value` are spreads over the photos of what is lowest, mean and
    highest in each, of all channels, in [0, 255]. `stored_as` and `common_sizes` count photos. `colorless`
    ones are gray whatever the file calls them; `blank` ones are nearly one color. `blank`, `sample` and the
    groups of `duplicates` are rows of `table`.
    """

    table: IdentityTable
    width_px: Spread
    height_px: Spread
    lowest_value: Spread
    mean_value: Spread
    highest_value: Spread
    stored_as: dict[str, int]
    common_sizes: dict[str, int]
    colorless: int
    blank: tuple[int, ...]
    duplicates: tuple[Alike, ...]
    sample: tuple[int, ...]
    unreadable: tuple[UnreadablePhoto, ...]

    @property
    def single(self) -> int:
        """Identities that have one photo only."""
        return int((self.table.photos_per_identity == 1).sum())

    @property
    def photos_per_identity(self) -> Spread:
        return _spread(self.table.photos_per_identity)

    @property
    def largest_first(self) -> list[tuple[str, int]]:
        """Every identity and how many photos it has."""
        counts = self.table.photos_per_identity.tolist()
        return sorted(zip(self.table.names, counts, strict=True), key=lambda row: (-row[1], row[0]))

    def identities_of(self, rows: Sequence[int]) -> list[str]:
        """Whose photos these are, each identity once."""
        return [self.table.names[label] for label in np.unique(self.table.labels[list(rows)])]

    def groups(self, kind: Kind) -> list[Alike]:
        """Duplicates of a kind; the most alike first, then the largest."""
        wanted = [alike for alike in self.duplicates if kind == (alike.exact, len(self.identities_of(alike.rows)) > 1)]
        return sorted(wanted, key=lambda alike: (-alike.similarity, -len(alike.rows), alike.rows))

    def as_dict(self) -> dict[str, Any]:
        """As JSON takes it; of names that are no UTF-8, the bytes are written as escapes."""
        paths = [photo_path(photo) for photo in self.table.photos]
        duplicates = {
            f"{'exact' if kind.exact else 'near'}_{'across' if kind.across else 'within'}": [
                {
                    "photos": [paths[row] for row in alike.rows],
                    "identities": list(self.identities_of(alike.rows)),
                    "similarity": round(alike.similarity, 4),
                }
                for alike in self.groups(kind)
            ]
            for kind in KINDS
        }
        return {
            "photos": len(self.table),
            "identities": len(self.table.names),
            "single": self.single,
            "photos_per_identity": self.photos_per_identity,
            "histogram": [found._asdict() for found in histogram(self.table.photos_per_identity)],
            "photos_of": dict(self.largest_first),
            "width_px": self.width_px,
            "height_px": self.height_px,
            "common_sizes": self.common_sizes,
            "stored_as": self.stored_as,
            "colorless": self.colorless,
            "lowest_value": self.lowest_value,
            "mean_value": self.mean_value,
            "highest_value": self.highest_value,
            "blank": [paths[row] for row in self.blank],
            "duplicates": duplicates,
            "sample": [paths[row] for row in self.sample],
            "unreadable": [str(error) for error in self.unreadable],
            "ignored": self.table.ignored,
        }


def inspect_table(
    table: IdentityTable,
    *,
    workers: int = 2,
    on_progress: Callable[[str, int], None] = lambda _doing, _done: None,
) -> Inspection:
    """Opens every photo once, by `workers` threads, keeping 2 kB of each; then looks for duplicates.

    A JPEG much larger than 256 px is decoded at a reduced scale: values are of that, and photos of one size
    that are equal at that scale count as equal. `on_progress` is told what is being done and how many photos are
    done. UnreadablePhoto where not one can be opened.
    """
    rows: list[int] = []
    seen: list[PhotoFacts] = []
    unreadable: list[UnreadablePhoto] = []
    for row, found in enumerate(facts_of_all(table.photos, workers)):
        if isinstance(found, UnreadablePhoto):
            unreadable.append(found)
        else:
            rows.append(row)
            seen.append(found)
        on_progress("read", row + 1)
    if not seen:
        raise UnreadablePhoto(f"not one of the {len(table)} photos can be read; the first: {unreadable[0]}")
    duplicates = find_duplicates(
        [one.digest for one in seen],
        np.array([one.hash for one in seen], np.uint64),
        np.stack([one.structure for one in seen]),
        on_rows=lambda done: on_progress("compared", done),
    )
    return Inspection(
        table=table,
        width_px=_spread([one.size_px[0] for one in seen]),
        height_px=_spread([one.size_px[1] for one in seen]),
        lowest_value=_spread([one.lowest_value for one in seen]),
        mean_value=_spread([one.mean_value for one in seen]),
        highest_value=_spread([one.highest_value for one in seen]),
        stored_as=dict(Counter(one.stored_as for one in seen).most_common()),
        common_sizes=dict(Counter(f"{one.size_px[0]} x {one.size_px[1]}" for one in seen).most_common(_COMMON_SIZES)),
        colorless=sum(one.colorless for one in seen),
        blank=tuple(row for row, one in zip(rows, seen, strict=True) if one.blank),
        duplicates=tuple(
            Alike(tuple(rows[place] for place in alike.rows), alike.exact, alike.similarity) for alike in duplicates
        ),
        sample=_sample(table, rows),
        unreadable=tuple(unreadable),
    )


def histogram(counts: Sequence[int] | np.ndarray) -> tuple[Bin, ...]:
    """Bins from the smallest count to the largest, twelve at most, or as many as doubling takes.

    Their width is 1, 2 or 5 times a power of ten; where a few identities tower over the rest, each bin is
    twice as wide as the one before (1, 2 to 3, 4 to 7, ...).

    >>> [tuple(one) for one in histogram([1, 1, 2, 4])]
    [(1, 1, 2), (2, 2, 1), (3, 3, 0), (4, 4, 1)]
    """
    smallest, median, largest = _spread(counts)
    if largest > 20 * median:
        starts = [2**power for power in range(smallest.bit_length() - 1, largest.bit_length() + 1)]
    else:
        widths = (step * 10**power for power in range(20) for step in (1, 2, 5))
        width = next(width for width in widths if largest // width - smallest // width < _MOST_BINS)
        starts = list(range(smallest // width * width, largest + width + 1, width))
    identities, _ = np.histogram(counts, starts)
    edges = zip(starts, starts[1:], identities.tolist(), strict=False)
    return tuple(Bin(max(low, 1), beyond - 1, count) for low, beyond, count in edges if low <= largest)


def photo_name(table: IdentityTable, row: int) -> str:
    """ROOT/IDENTITY/PHOTO, to be shown."""
    return printable(f"{table.names[table.labels[row]]}/{table.photos[row].name.rpartition('/')[2]}")


def photo_path(photo: PhotoRef) -> str:
    """A file's path; of a photo that is no file, its name."""
    return str(photo) if isinstance(photo, Path) else photo.name


def _sample(table: IdentityTable, rows: Sequence[int]) -> tuple[int, ...]:
    """`SAMPLE` rows by a lot that is the same on every machine, of as many identities as can be."""
    row_of = {f"{table.names[table.labels[row]]}/{table.photos[row].name}": row for row in rows}
    turns = Counter[int]()
    drawn: list[tuple[int, int]] = []
    for name in by_hash(row_of):
        label = int(table.labels[row_of[name]])
        drawn.append((turns[label], row_of[name]))
        turns[label] += 1
    return tuple(row for _, row in sorted(drawn, key=lambda one: one[0])[:SAMPLE])


def _spread(values: Sequence[int] | np.ndarray) -> Spread:
    return int(np.min(values)), float(np.median(values)), int(np.max(values))
