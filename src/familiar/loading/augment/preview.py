"""Contact sheet of augmentation: each operation alone at three strengths, then random variants."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

import cv2
import numpy as np
from jaxtyping import UInt8
from PIL import Image, ImageDraw, ImageFont

from familiar.loading.augment.custom import CUSTOM_STREAM, apply_function
from familiar.loading.augment.ops_numpy import Blur, Jitter, Noise, Shadow, Window
from familiar.loading.augment.pipeline import (
    MIN_SIGMA_PX,
    Change,
    Move,
    apply_change,
    augment,
    kernel_sigma,
    photo_generator,
)
from familiar.loading.augment.settings import BLUR_CROP_PX, NO_AUGMENTATION, Augmentation

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
SHADOW_FROM_BELOW = ((1.0, 0.2, -0.15), (-1.0, 0.3, 0.75), (0.1, 1.0, -0.35))  # a shadow such as `pipeline` draws
HOLE_CENTERS = (
    *((0.3, 0.35), (0.7, 0.7), (0.7, 0.25), (0.25, 0.75)),
    *((0.5, 0.5), (0.5, 0.85), (0.85, 0.45), (0.15, 0.55)),
)


class Tile(NamedTuple):
    """A change, with its caption."""

    caption: str
    change: Change


class Row(NamedTuple):
    """An operation's tiles. With `close_up`, only the center is shown, as resizing would hide the change."""

    name: str
    probability: float
    tiles: Sequence[Tile]
    close_up: bool = False


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
    with two directions is shown fully one way, halfway, and fully the other way. A
    function of the user is shown three times, each with other random numbers.

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
    unchanged = _line(Row("original", 1, [Tile("", Change())]), photos, size_px)._replace(note="")
    lines = [unchanged, *(_line(row, photos, size_px) for row in operation_rows(settings))]
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


def operation_rows(settings: Augmentation) -> list[Row]:
    """Make a row for each operation with a probability above 0; jitter has four, the affine change two."""
    rows = [*_geometry_rows(settings), *_color_rows(settings), *_sharpness_rows(settings), *_occlusion_rows(settings)]
    return [row for row in rows if row.probability > 0]


def _geometry_rows(s: Augmentation) -> list[Row]:
    crops = ((0.0, s.crop_ratio_min), (0.5, 1.0), (1.0, s.crop_ratio_max))
    turns = _tiles("{:+.0f}°", _both_directions(s.rotate_deg), lambda v: Change(angle_deg=v))
    shifts = _tiles("{:+.0%}", _both_directions(s.translate), lambda v: Change(move=Move(v, v, 1)))
    scales = _tiles("x {:.2f}", _both_directions(s.scale, 1), lambda v: Change(move=Move(0, 0, v)))
    return [
        Row("crop", s.crop_p, [_crop(s.crop_scale_min, ratio, corner) for corner, ratio in crops]),
        Row("rotate", s.rotate_p, turns),
        Row("flip", s.flip_p, [Tile("", Change(flip=True))]),
        Row("shift", s.affine_p, shifts),
        Row("scale", s.affine_p, scales),
    ]


def _color_rows(s: Augmentation) -> list[Row]:
    factors = {name: _both_directions(getattr(s, name), 1) for name in ("brightness", "contrast", "saturation")}
    return [
        *(Row(name, s.jitter_p, _tiles("x {:.2f}", v, _jitter_of(name))) for name, v in factors.items()),
        Row("hue", s.jitter_p, _tiles("{:+.2f} turns", _both_directions(s.hue), _jitter_of("hue"))),
        Row("gray", s.gray_p, [Tile("", Change(gray=True))]),
    ]


def _sharpness_rows(s: Augmentation) -> list[Row]:
    factors = _low_mid_high(s.sharpness_min, s.sharpness_max)
    deviations = _low_mid_high(s.noise_std_min, s.noise_std_max)
    qualities = _low_mid_high(s.jpeg_quality_max, s.jpeg_quality_min)
    shares = _low_mid_high(s.downscale_max, s.downscale_min)
    sharpness = _tiles("x {:.2f}", factors, lambda v: Change(sharpness=v))
    noise = _tiles("std {:.3f}", deviations, lambda v: Change(noise=Noise(v, seed=1)))
    files = _tiles("quality {:.0f}", qualities, lambda v: Change(jpeg_quality=round(v)))
    small = _tiles("to {:.0%}", shares, lambda v: Change(downscale=v))
    return [
        Row("blur", s.blur_p, [_blur(s, strength) for strength in _low_mid_high(0, 1)], close_up=True),
        Row("sharpness", s.sharpness_p, sharpness, close_up=True),
        Row("noise", s.noise_p, noise, close_up=True),
        Row("jpeg", s.jpeg_p, files, close_up=True),
        Row("downscale", s.downscale_p, small, close_up=True),
    ]


def _occlusion_rows(s: Augmentation) -> list[Row]:
    losses = _low_mid_high(s.shadow_min, s.shadow_max)
    shadows = _tiles("-{:.0%} light", losses, lambda v: Change(shadow=Shadow(v, SHADOW_FROM_BELOW)))
    return [
        Row("shadow", s.shadow_p, shadows),
        Row("dropout", s.dropout_p, [_holes(s, strength) for strength in _low_mid_high(0, 1)]),
        Row("erase", s.erase_p, [_erase(s, strength) for strength in _low_mid_high(0, 1)]),
    ]


def _low_mid_high(low: float, high: float) -> tuple[float, float, float]:
    return low, (low + high) / 2, high


def _both_directions(width: float, middle: float = 0) -> tuple[float, float, float]:
    """Return both ends of a range, and a halfway value between the middle and one end, as the middle has no effect."""
    return middle - width, middle + width / 2, middle + width


def _tiles(caption: str, values: Sequence[float], change: Callable[[float], Change]) -> list[Tile]:
    return [Tile(caption.format(value), change(value)) for value in values]


def _jitter_of(name: str) -> Callable[[float], Change]:
    neutral = Jitter(1, 1, 1, 0, (0, 1, 2, 3))
    return lambda value: Change(jitter=neutral._replace(**{name: value}))


def _blur(settings: Augmentation, strength: float) -> Tile:
    low, high = settings.blur_kernel_min // 2, settings.blur_kernel_max // 2
    kernel_px = 2 * round(low + (high - low) * strength) + 1
    low, high = settings.blur_sigma_min, settings.blur_sigma_max
    sigma_px = max(low + (high - low) * strength, MIN_SIGMA_PX) if high > 0 else kernel_sigma(kernel_px)
    crop_px = BLUR_CROP_PX if settings.blur_scaled else None
    return Tile(f"{kernel_px} px, std {sigma_px:.1f}", Change(blur=Blur(kernel_px, sigma_px, crop_px)))


def _box(area: float, ratio: float, corner: float) -> Window:
    """Place a box between the top left (`corner` 0) and the bottom right (1)."""
    width, height = min(1.0, (area * ratio) ** 0.5), min(1.0, (area / ratio) ** 0.5)
    return Window((1 - width) * corner, (1 - height) * corner, width, height)


def _crop(area: float, ratio: float, corner: float) -> Tile:
    return Tile(f"{area:.0%}, {ratio:.2f} : 1", Change(crop=_box(area, ratio, corner)))


def _erase(settings: Augmentation, strength: float) -> Tile:
    area = settings.erase_area_min + (settings.erase_area_max - settings.erase_area_min) * strength
    ratio = settings.erase_ratio_min ** (1 - strength) * settings.erase_ratio_max**strength
    return Tile(f"{area:.0%}, {ratio:.2g} : 1", Change(erase=_box(area, ratio, 0.5)))


def _holes(settings: Augmentation, strength: float) -> Tile:
    fewest, most = settings.dropout_holes_min, settings.dropout_holes_max
    count = round(fewest + (most - fewest) * strength)
    side = settings.dropout_side_min + (settings.dropout_side_max - settings.dropout_side_min) * strength
    boxes = tuple(Window(x - side / 2, y - side / 2, side, side) for x, y in HOLE_CENTERS[:count])
    return Tile(f"{count} of {side:.0%}", Change(holes=boxes))


def _line(row: Row, photos: Sequence[Crop], size_px: int | None) -> Line:
    cells: list[tuple[str, Crop] | None] = []
    for photo in photos:
        changed = [apply_change(photo, tile.change, size_px) for tile in row.tiles]
        shown = [_center(rgb_u8) for rgb_u8 in changed] if row.close_up else changed
        cells += [(tile.caption, rgb_u8) for tile, rgb_u8 in zip(row.tiles, shown, strict=True)]
        cells += [None] * (STRENGTHS - len(row.tiles))
    note = f"p {row.probability:g}{', close up' if row.close_up else ''}"
    return Line(row.name, note, cells)


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
