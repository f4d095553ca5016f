"""Contact sheet of augmentation: each operation by itself at three strengths, then random variants."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import cv2
import numpy as np
from jaxtyping import UInt8
from PIL import Image, ImageDraw, ImageFont

from familiar.loading.augment.custom import CUSTOM_STREAM, apply_function
from familiar.loading.augment.operations import Window
from familiar.loading.augment.pipeline import (
    Change,
    RandomNumbers,
    apply_change,
    augment,
    change_from,
    photo_generator,
)
from familiar.loading.augment.settings import NO_AUGMENTATION, PROBABILITIES, Augmentation

Crop = UInt8[np.ndarray, "_ _ 3"]
Picture = UInt8[np.ndarray, "h w 3"]

TILE_PX = 128
CAPTION_PX = 20  # below each tile
GAP_PX = 6
PHOTO_GAP_PX = 18  # between the columns of one photo and the next's
NAMES_PX = 108  # the column of names on the left
BACKGROUND, INK, FAINT = (255, 255, 255), (20, 20, 20), (110, 110, 110)

STRENGTHS = 3
VARIANT_ROWS = 4
UP, DOWN = (0.0, 0.5, 1.0), (1.0, 0.5, 0.0)
BOTH_WAYS = (0.0, 0.75, 1.0)  # the middle has no effect
SWITCH = (1.0,)
JITTER = ("brightness", "contrast", "saturation", "hue")
PLACES_SEED = 3  # of where holes and shadows are shown


class Operation(NamedTuple):
    """An operation in the sheet.

    Attributes:
        name: in the first column.
        probability: its setting.
        caption: of a change.
        strengths: from 0, the lowest number of its range, to 1, the highest.
        neutral: settings of what shares the probability, which another row shows.
        close_up: whether only the center is shown, as resizing would hide the change.
    """

    name: str
    probability: str
    caption: Callable[[Any], str]
    strengths: tuple[float, ...] = UP
    neutral: tuple[str, ...] = ()
    close_up: bool = False

    def changes(self, settings: Augmentation) -> list[Change]:
        """Return the operation's change at each strength."""
        values = dict.fromkeys((*PROBABILITIES, *self.neutral), 0.0) | {self.probability: 1.0}
        return [change_from(_AtStrength(strength), replace(settings, **values)) for strength in self.strengths]


class _AtStrength(RandomNumbers):
    """Numbers of one strength, at places that are always the same."""

    def __init__(self, strength: float) -> None:
        super().__init__(np.random.default_rng(PLACES_SEED))
        self.strength = strength

    def uniform_in(self, low: float, high: float) -> float:
        return low + (high - low) * self.strength

    def integer(self, low: int, high: int) -> int:
        return round(self.uniform_in(low, high))


def _shape(box: Window) -> str:
    return f"{box.width * box.height:.0%}, {box.width / box.height:.2f} : 1"


def _jitter(name: str, form: str) -> Operation:
    others = tuple(other for other in JITTER if other != name)
    return Operation(name, "jitter_p", lambda c: form.format(getattr(c.jitter, name)), BOTH_WAYS, others)


OPERATIONS = (
    Operation("crop", "crop_p", lambda c: _shape(c.crop)),
    Operation("rotate", "rotate_p", lambda c: f"{c.angle_deg:+.0f}°", BOTH_WAYS),
    Operation("flip", "flip_p", lambda _: "", SWITCH),
    Operation("shift", "affine_p", lambda c: f"{c.move.right:+.0%}", BOTH_WAYS, ("scale",)),
    Operation("scale", "affine_p", lambda c: f"x {c.move.scale:.2f}", BOTH_WAYS, ("translate",)),
    *(_jitter(name, "x {:.2f}") for name in JITTER[:3]),
    _jitter("hue", "{:+.2f} turns"),
    Operation("gray", "gray_p", lambda _: "", SWITCH),
    Operation("blur", "blur_p", lambda c: f"{c.blur.kernel_px} px, std {c.blur.sigma_px:.1f}", close_up=True),
    Operation("sharpness", "sharpness_p", lambda c: f"x {c.sharpness:.2f}", close_up=True),
    Operation("noise", "noise_p", lambda c: f"std {c.noise.std:.3f}", close_up=True),
    Operation("jpeg", "jpeg_p", lambda c: f"quality {c.jpeg_quality}", DOWN, close_up=True),
    Operation("downscale", "downscale_p", lambda c: f"to {c.downscale:.0%}", DOWN, close_up=True),
    Operation("shadow", "shadow_p", lambda c: f"-{c.shadow.loss:.0%} light"),
    Operation("dropout", "dropout_p", lambda c: f"{len(c.holes)} of {c.holes[0].width:.0%}"),
    Operation("erase", "erase_p", lambda c: _shape(c.erase)),
)


class Line(NamedTuple):
    """A row of the sheet: name, a note below it, captioned pictures."""

    name: str
    note: str
    cells: Sequence[tuple[str, Crop] | None]


def augmentation_sheet(
    photos: Sequence[Crop], settings: Augmentation, seed: int = 0, size_px: int | None = None
) -> Picture:
    """Draw a labeled sheet of square crops: each operation with a probability above 0, then random variants.

    Each crop takes three columns: the operation at the minimum, the middle and the maximum of its range. An operation
    with two directions is shown fully one way, halfway, and fully the other way. A function of the user is shown three
    times, each with other random numbers.

    Args:
        photos: square crops.
        settings: of the augmentation.
        seed: of the variants.
        size_px: side of the augmented crops; None: that of the photos.

    Raises:
        ValueError: there are no crops.
        BadRecipe: the function of the user cannot be imported or does not work.
    """
    if not photos:
        raise ValueError("a sheet needs at least one photo")
    original = [(("", apply_change(photo, Change(), size_px)), *[None] * (STRENGTHS - 1)) for photo in photos]
    lines = [Line("original", "", [cell for cells in original for cell in cells])]
    lines += [_line(operation, settings, photos, size_px) for operation in shown_operations(settings)]
    if settings.custom:
        only_custom = replace(NO_AUGMENTATION, custom=settings.custom)
        lines.append(Line("custom", "", _variants(photos, only_custom, seed, 0, size_px)))
    for variant in range(VARIANT_ROWS):
        cells = _variants(photos, settings, seed, variant, size_px)
        lines.append(Line("random", f"variants {3 * variant + 1} to {3 * variant + 3}", cells))
    return _draw(lines, STRENGTHS * len(photos))


def _variants(
    photos: Sequence[Crop], settings: Augmentation, seed: int, variant: int, size_px: int | None
) -> list[tuple[str, Crop]]:
    """Augment each photo three times at random."""
    cells: list[tuple[str, Crop]] = []
    for photo, rgb_u8 in enumerate(photos):
        for epoch in range(variant * STRENGTHS, (variant + 1) * STRENGTHS):
            changed = augment(rgb_u8, settings, photo_generator(seed, epoch, photo), size_px)
            if settings.custom:
                generator = photo_generator(seed, epoch, photo, stream=CUSTOM_STREAM)
                changed = apply_function(changed, settings.custom, generator)
            cells.append(("", changed))
    return cells


def shown_operations(settings: Augmentation) -> list[Operation]:
    """List the operations with a probability above 0; jitter has four rows, the affine change two."""
    return [operation for operation in OPERATIONS if getattr(settings, operation.probability) > 0]


def _line(operation: Operation, settings: Augmentation, photos: Sequence[Crop], size_px: int | None) -> Line:
    changes = operation.changes(settings)
    cells: list[tuple[str, Crop] | None] = []
    for photo in photos:
        for change in changes:
            rgb_u8 = apply_change(photo, change, size_px)
            cells.append((operation.caption(change), _center(rgb_u8) if operation.close_up else rgb_u8))
        cells += [None] * (STRENGTHS - len(changes))
    note = f"p {getattr(settings, operation.probability):g}{', close up' if operation.close_up else ''}"
    return Line(operation.name, note, cells)


def _center(rgb_u8: Crop) -> Crop:
    begin = max(0, (rgb_u8.shape[0] - TILE_PX) // 2)
    return rgb_u8[begin : begin + TILE_PX, begin : begin + TILE_PX]


def _draw(lines: Sequence[Line], columns: int) -> Picture:
    down, across = TILE_PX + CAPTION_PX, TILE_PX + GAP_PX
    width = NAMES_PX + columns * across + (columns // STRENGTHS - 1) * PHOTO_GAP_PX
    size = (width, len(lines) * down + GAP_PX)
    picture = Image.new("RGB", size, BACKGROUND)
    pen, large, small = ImageDraw.Draw(picture), ImageFont.load_default(16), ImageFont.load_default(12)
    for index, line in enumerate(lines):
        y = GAP_PX + index * down
        pen.text((GAP_PX, y + TILE_PX // 2 - 18), line.name, INK, large)
        pen.text((GAP_PX, y + TILE_PX // 2 + 4), line.note, FAINT, small)
        for column, cell in enumerate(line.cells):
            if cell is None:
                continue
            caption, rgb_u8 = cell
            x = NAMES_PX + column * across + column // STRENGTHS * PHOTO_GAP_PX
            picture.paste(Image.fromarray(_resize_tile(rgb_u8)), (x, y))
            pen.text((x + TILE_PX // 2, y + TILE_PX + 2), caption, FAINT, small, anchor="ma")
    return np.asarray(picture)


def _resize_tile(rgb_u8: Crop) -> Crop:
    """Resize to a tile; enlarged without smoothing, so that the pixels are those the network sees."""
    smaller = rgb_u8.shape[0] > TILE_PX
    return cv2.resize(rgb_u8, (TILE_PX, TILE_PX), interpolation=cv2.INTER_AREA if smaller else cv2.INTER_NEAREST)
