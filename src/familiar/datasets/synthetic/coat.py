"""The coat of a drawn pet: colors and markings, laid over the whole canvas before the head is cut out."""

import math

import numpy as np

from familiar.datasets.synthetic.canvas import Canvas, Plane, Planes, length, paint, spread, step
from familiar.datasets.synthetic.traits import Traits


def coat_colors(who: Traits, board: Canvas, fur: Plane) -> Planes:
    """Colors and markings over the whole canvas."""
    x, y, wide = board.x, board.y, np.abs(board.x)
    coat = who.coat
    rgb = np.empty((3, *x.shape), np.float32)
    rgb[:] = np.array(coat.base, np.float32)[:, None, None]
    wobble = spread(who.wobble_field, board.size_px)
    patches = spread(who.patch_field, board.size_px) + np.float32(0.15) * fur
    # Fur is a little darker on the crown and lighter on the cheeks.
    paint(rgb, step(y + 0.15 * wobble, -0.4, -0.9) * np.float32(0.35), coat.dark)
    paint(rgb, step(wide + 0.5 * y + 0.1 * wobble, 0.62, 0.5) * np.float32(0.3), coat.light)
    match who.markings:
        case "tabby":
            paint(rgb, _stripes(who, board, wobble, fur) * np.float32(who.stripe_boldness), coat.dark)
        case "brindle":
            waves = np.sin(y * np.float32(3 * who.cheek_frequency / 2) + 2.5 * wobble + wide * 6)
            paint(
                rgb,
                step(waves + 0.4 * patches + 0.2 * fur, 0.3, 0.7) * np.float32(who.stripe_boldness),
                coat.dark,
            )
        case "points":
            reach = length(x * np.float32(0.95), y - 0.25) + 0.06 * wobble + 0.02 * fur
            paint(rgb, step(-reach, -who.mask_reach, 0.28), coat.dark)
        case "mask":
            reach = length(x, (y - 0.4) * np.float32(0.8)) + 0.05 * wobble + 0.02 * fur
            paint(rgb, step(-reach, -who.mask_reach, 0.18) * np.float32(0.92), coat.dark)
        case "patches":
            edge = (0.5 - who.patch_cover) * 2.2
            paint(rgb, step(patches, edge, 0.25), who.second.base)
            paint(rgb, step(patches, edge + 1.4, 0.3), who.second.dark)
        case "merle":
            fine = patches + 0.7 * np.roll(wobble, board.size_px // 3, axis=0) * wobble
            paint(rgb, step(fine, 0.45, 0.25) * np.float32(0.9), coat.dark)
        case "tan":
            paint(rgb, _tan(who, board, wobble, fur), coat.light)
        case "husky":
            cap = step(
                -(y + 0.32 - 0.9 * np.exp(-((x * 5) ** 2)) * np.float32(who.mask_reach) + 0.05 * wobble),
                0.0,
                0.2,
            )
            sides = step(wide + 0.07 * wobble + 0.02 * fur, 0.42 + 0.3 * who.mask_reach, 0.2)
            paint(rgb, np.float32(1) - np.maximum(cap, sides), coat.light)
        case "solid":
            paint(rgb, step(patches, 0.6, 1.2) * np.float32(0.15), coat.dark)
    for side, amount in zip((-1, 1), who.eye_patches, strict=True):
        if amount > 0:
            reach = length(x - side * (who.eye_spacing + 0.05), (y - who.eye_y) * 0.9) + 0.06 * wobble + 0.015 * fur
            paint(rgb, step(-reach, -0.12 - 0.22 * amount, 0.06), who.second.dark)
    _white(who, rgb, board, wobble, fur)
    _marks(who, rgb, board, fur)
    return rgb


def _stripes(who: Traits, board: Canvas, wobble: Plane, fur: Plane) -> Plane:
    """A tabby's: lines over the brow that end in an M, lines from the eyes over the cheeks."""
    x, y, wide = board.x, board.y, np.abs(board.x)
    bend = 0.9 * np.exp(-(((y + 0.3) * 6) ** 2)) * np.cos(x * np.float32(12))
    lines = np.cos(board.fan_rad * np.float32(who.stripe_frequency) + 0.8 * wobble + bend + who.stripe_phase * 0.3)
    brow = step(lines + 0.25 * fur, 0.15, 0.8) * step(-y - 0.25 * wide, 0.12, 0.2) * step(-wide, -0.45, 0.3)
    over = np.sin((y + 0.35 * wide) * np.float32(who.cheek_frequency) + 0.9 * wobble + who.cheek_phase)
    cheeks = step(over + 0.25 * fur, 0.35, 0.8) * step(wide, 0.42, 0.16) * step(y + 0.5 * wide, 0.1, 0.2)
    return np.maximum(brow, cheeks)


def _tan(who: Traits, board: Canvas, wobble: Plane, fur: Plane) -> Plane:
    """A black-and-tan dog's: dots over the eyes, the sides of the muzzle, the cheeks."""
    y, wide = board.y, np.abs(board.x)
    ragged = 0.04 * wobble + 0.02 * fur
    dots = length(wide - who.eye_spacing * 0.85, (y - who.eye_y + 0.19) * 1.3) + ragged
    muzzle = length(wide - 0.2, (y - 0.46) * 0.8) + ragged
    return np.maximum(step(-dots, -0.05 - 0.05 * who.mask_reach, 0.05), step(-muzzle, -0.6 * who.mask_reach, 0.08))


def _white(who: Traits, rgb: Planes, board: Canvas, wobble: Plane, fur: Plane) -> None:
    """White from the chest upwards: chin, muzzle, a blaze between the eyes."""
    if who.white == 0:
        return
    heights = np.linspace(-0.75, 0.75, 6)
    rows = board.y[:, 0]
    half_width = np.interp(rows, heights, who.blaze_half_widths * (0.4 + 1.1 * who.white))
    middle = np.interp(rows, heights, who.blaze_offsets - who.blaze_offsets[-1] * 0.5)
    off = np.abs(board.x - middle[:, None].astype(np.float32)) - half_width[:, None].astype(np.float32)
    inside = step(-(off + 0.03 * wobble + 0.014 * fur), 0.0, 0.035)
    top = 0.55 - 1.7 * who.white
    paint(rgb, inside * step(board.y + 0.05 * wobble, top, 0.2), (246, 243, 238))


def _marks(who: Traits, rgb: Planes, board: Canvas, fur: Plane) -> None:
    for mark in who.marks:
        window = board.window(mark.x, mark.y, mark.reach * 2 + 0.05)
        x, y = board.x[window] - mark.x, board.y[window] - mark.y
        along = x * math.cos(mark.angle_rad) + y * math.sin(mark.angle_rad)
        across = y * math.cos(mark.angle_rad) - x * math.sin(mark.angle_rad)
        if mark.kind == "scar":
            reach = length(along / (0.05 + mark.reach), across / 0.016)
            paint(rgb, step(-reach, -1.0, 0.5) * np.float32(0.6), (206, 160, 150), window)
        else:
            reach = length(along, across * 1.4) + 0.01 * fur[window]
            color = who.coat.dark if mark.kind == "dark" else who.coat.light
            paint(rgb, step(-reach, -mark.reach, 0.035) * np.float32(0.85), color, window)
