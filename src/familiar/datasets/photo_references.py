"""What a table of labeled photos has in its rows: files, stored photos, drawn ones, and boxes in any of them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from jaxtyping import Int64, Shaped

from familiar.core.errors import UnreadablePhoto
from familiar.core.types import Box, Photo
from familiar.datasets.idx import IdxPhoto
from familiar.datasets.stored_photo import StoredPhoto
from familiar.datasets.synthetic import SyntheticPhoto
from familiar.photos.decoding import decode_photo, load_photo

SYNTHETIC_SIZES_PX = (32, 512)  # the sizes that SyntheticPhoto supports

WholePhotoRef: TypeAlias = Path | StoredPhoto | SyntheticPhoto | IdxPhoto


@dataclass(frozen=True)
class BoxedPhoto:
    """A box in a photo, which is read as a photo of its own.

    Attributes:
        photo: the whole photo.
        box_xyxy_px: in pixels of the upright photo; what lies outside the photo is cut off.
    """

    photo: WholePhotoRef
    box_xyxy_px: Box

    @property
    def name(self) -> str:
        """The photo's name, followed by the box."""
        return f"{self.photo.name}#{box_text(self.box_xyxy_px)}"

    def crop(self) -> Photo:
        """Decode the photo and crop the box. UnreadablePhoto if the box is not in the photo."""
        photo = open_photo(self.photo)
        width, height = photo.size_px
        left, top, right, bottom = (round(side) for side in self.box_xyxy_px)
        left, top, right, bottom = max(left, 0), max(top, 0), min(right, width), min(bottom, height)
        if left >= right or top >= bottom:
            raise UnreadablePhoto(f"{self}: the box is outside the photo of {width} x {height} px")
        pixels = np.ascontiguousarray(photo.rgb_u8[top:bottom, left:right])
        return Photo(pixels, str(self), (right - left, bottom - top), photo.stored_as)

    def __str__(self) -> str:
        return f"{photo_path(self.photo)}#{box_text(self.box_xyxy_px)}"


PhotoRef: TypeAlias = WholePhotoRef | BoxedPhoto


class LazyPhotos(Sequence[PhotoRef]):
    """Photos that are made when they are asked for: a table of a million of them stays small.

    Args:
        keys: what each photo is made from.
        make: makes the photo of a key.
    """

    def __init__(self, keys: Shaped[np.ndarray, " n"], make: Callable[[Any], PhotoRef]) -> None:
        self.keys = keys
        self.make = make

    def __len__(self) -> int:
        return len(self.keys)

    def __getitem__(self, row: Any) -> Any:
        return LazyPhotos(self.keys[row], self.make) if isinstance(row, slice) else self.make(self.keys[row])


def select_photos(photos: Sequence[PhotoRef], rows: Int64[np.ndarray, " k"]) -> Sequence[PhotoRef]:
    """Select photos by their index.

    Args:
        photos: of a table.
        rows: indices, in the order of the result.
    """
    if isinstance(photos, LazyPhotos):
        return LazyPhotos(photos.keys[rows], photos.make)
    return tuple(photos[row] for row in rows)


def join_photos(parts: Sequence[Sequence[PhotoRef]]) -> Sequence[PhotoRef]:
    """Join the photos of several tables; they stay lazy if all are made in the same way."""
    lazy = [part for part in parts if isinstance(part, LazyPhotos)]
    if len(lazy) == len(parts) and all(part.make is lazy[0].make for part in lazy):
        return LazyPhotos(np.concatenate([part.keys for part in lazy]), lazy[0].make)
    return tuple(photo for part in parts for photo in part)


def open_photo(photo: PhotoRef, /, *, min_side_px: int | None = None) -> Photo:
    """Decode a photo's file, crop a box, or draw a photo that is not a file.

    Args:
        photo: one of a table's photos.
        min_side_px: lower limit of the short side, which allows decoding or drawing at a reduced size.
    """
    if isinstance(photo, BoxedPhoto):
        return photo.crop()
    if isinstance(photo, Path):
        return load_photo(photo, min_side_px=min_side_px)
    if isinstance(photo, StoredPhoto):
        return decode_photo(photo.read_bytes(), str(photo), min_side_px=min_side_px)
    if min_side_px is not None and isinstance(photo, SyntheticPhoto):
        smallest, largest = SYNTHETIC_SIZES_PX
        photo = replace(photo, size_px=min(max(min_side_px, smallest), largest))
    return photo.draw()


def photo_path(photo: PhotoRef) -> str:
    """Return the path or URL of a photo's file, with the box if there is one; the name of a drawn photo."""
    return photo.name if isinstance(photo, SyntheticPhoto | IdxPhoto) else str(photo)


def file_of(photo: PhotoRef) -> Path | None:
    """Return the file on this machine's disks that a photo is in, if it is in one of its own."""
    photo = photo.photo if isinstance(photo, BoxedPhoto) else photo
    return photo if isinstance(photo, Path) else None


def box_text(box: Box) -> str:
    """Write a box as a table's column `box` has it: left, top, right, bottom."""
    return ",".join(f"{side:.10g}" for side in box)
