"""A self-contained HTML page of an inspection: numbers, a sample of photos, and duplicates."""

import contextlib
from pathlib import Path
from typing import Any

import cv2

from familiar.core.errors import FamiliarError
from familiar.core.files import make_folder, write_atomically
from familiar.core.templating import render_template
from familiar.core.terminal_text import printable
from familiar.core.types import Photo
from familiar.datasets.duplicates import DuplicateGroup
from familiar.datasets.identity_table import IdentityTable
from familiar.datasets.inspection import (
    DUPLICATE_KINDS,
    DuplicateKind,
    Inspection,
    histogram,
    photo_name,
)
from familiar.datasets.photo_references import open_photo

SAMPLE_PX = 240
DUPLICATE_PX = 144
GROUPS_SHOWN = {True: 24, False: 8}  # by `across`: between identities, which are likely labeling errors, and within one
PHOTOS_SHOWN = 4  # of one group
EXTREMES = 4  # number of identities shown with the most photos, and with the fewest
IDENTITIES_LISTED = 20_000  # about a megabyte
LINES_LISTED = 200
_JPEG_QUALITY = 82


def write_page(inspection: Inspection, folder: Path) -> Path:
    """Write `inspection.html` into `folder`, which is made if missing, and return its path."""
    make_folder(folder)
    path = folder / "inspection.html"
    write_atomically(path, render(inspection).encode())
    return path


def render(inspection: Inspection) -> str:
    """Render the page with its pictures embedded; the photos shown are opened again."""
    table = inspection.table
    across = [group for group in inspection.duplicates if len(inspection.identity_names(group.rows)) > 1]
    stored = inspection.stored_as | ({"gray, regardless of mode": inspection.grayscale} if inspection.grayscale else {})
    return str(
        render_template(
            Path(__file__).parent / "templates",
            "inspection.html",
            inspection=inspection,
            table=table,
            roots=sorted({name.partition("/")[0] for name in table.names}),
            mislabeled=len({row for group in across for row in group.rows}),
            sample=[_tile(table, row, SAMPLE_PX) for row in inspection.sample],
            bins=histogram(table.photos_per_identity),
            identities=inspection.identities_by_size,
            extremes=EXTREMES,
            identities_listed=IDENTITIES_LISTED,
            stored=stored,
            duplicates=[_duplicates(inspection, kind) for kind in DUPLICATE_KINDS],
            problems=_problems(inspection),
            lines_listed=LINES_LISTED,
        )
    )


def _duplicates(inspection: Inspection, kind: DuplicateKind) -> dict[str, Any]:
    groups = inspection.duplicates_of_kind(kind)
    return {
        "title": DUPLICATE_KINDS[kind],
        "pictures": len(groups),
        "photos": sum(len(group.rows) for group in groups),
        "groups": [_example(inspection.table, kind, group) for group in groups[: GROUPS_SHOWN[kind.across]]],
    }


def _example(table: IdentityTable, kind: DuplicateKind, group: DuplicateGroup) -> dict[str, Any]:
    hidden = len(group.rows) - PHOTOS_SHOWN
    notes = ([] if kind.exact else [f"similarity {group.similarity:.3f}"]) + (
        [f"and {hidden:,} more"] if hidden > 0 else []
    )
    return {"photos": [_tile(table, row, DUPLICATE_PX) for row in group.rows[:PHOTOS_SHOWN]], "notes": notes}


def _problems(inspection: Inspection) -> dict[str, list[str]]:
    return {
        "Cannot be read": [printable(str(error)) for error in inspection.unreadable],
        "Nearly one color": [photo_name(inspection.table, row) for row in inspection.blank],
        "Names that look alike": [str(group) for group in inspection.look_alikes],
        "Ignored": [f"{reason}: {count:,}" for reason, count in sorted(inspection.table.ignored.items())],
    }


def _tile(table: IdentityTable, row: int, side_px: int) -> dict[str, Any]:
    """Return the names of a photo and its JPEG of `size_px`; None if it can no longer be read."""
    name = photo_name(table, row)
    identity, _, file = name.rpartition("/")
    tile: dict[str, Any] = {"name": name, "identity": identity.partition("/")[2], "file": file, "jpeg": None}
    with contextlib.suppress(FamiliarError):  # changed since the inspection
        opened = open_photo(table.photos[row], min_side_px=side_px)
        size_px = _fitted_size(opened, side_px)
        tile |= {"size_px": size_px, "jpeg": _jpeg(opened, size_px)}
    return tile


def _fitted_size(photo: Photo, side_px: int) -> tuple[int, int]:
    scale = min(1.0, side_px / max(photo.size_px))
    return max(1, round(photo.size_px[0] * scale)), max(1, round(photo.size_px[1] * scale))


def _jpeg(photo: Photo, size_px: tuple[int, int]) -> bytes:
    small = cv2.resize(photo.rgb_u8, size_px, interpolation=cv2.INTER_AREA)
    _, encoded = cv2.imencode(".jpg", cv2.cvtColor(small, cv2.COLOR_RGB2BGR), [cv2.IMWRITE_JPEG_QUALITY, _JPEG_QUALITY])
    return encoded.tobytes()
