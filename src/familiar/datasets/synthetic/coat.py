"""The coat of a drawn pet: colors and markings, laid over the whole canvas before the head is cut out."""

import math

import numpy as np

from familiar.datasets.synthetic.canvas import Canvas, Plane, Planes, magnitude, paint, ramp, smooth_field
from familiar.datasets.synthetic.traits import Traits


def coat_colors(pet: Traits, canvas: Canvas, fur: Plane) -> Planes:
    """Render the base color, markings, white and marks over the whole canvas."""
    x, y, wide = canvas.x, canvas.y, np.abs(canvas.x)
    coat = pet.coat
    rgb = np.empty((3, *x.shape), np.float32)
    rgb[:] = np.array(coat.base, np.float32)[:, None, None]
    wobble = smooth_field(pet.wobble_field, canvas.size_px)
    patches = smooth_field(pet.patch_field, canvas.size_px) + np.float32(0.15) * fur
    # Fur is a little darker on the crown and lighter on the cheeks.
    paint(rgb, ramp(y + 0.15 * wobble, -0.4, -0.9) * np.float32(0.35), coat.dark)
    paint(rgb, ramp(wide + 0.5 * y + 0.1 * wobble, 0.62, 0.5) * np.float32(0.3), coat.light)
    match pet.markings:
        case "tabby":
            paint(rgb, _tabby_stripes(pet, canvas, wobble, fur) * np.float32(pet.stripe_boldness), coat.dark)
        case "brindle":
            waves = np.sin(y * np.float32(3 * pet.cheek_frequency / 2) + 2.5 * wobble + wide * 6)
            paint(
                rgb,
                ramp(waves + 0.4 * patches + 0.2 * fur, 0.3, 0.7) * np.float32(pet.stripe_boldness),
                coat.dark,
            )
        case "points":
            reach = magnitude(x * np.float32(0.95), y - 0.25) + 0.06 * wobble + 0.02 * fur
            paint(rgb, ramp(-reach, -pet.mask_reach, 0.28), coat.dark)
        case "mask":
            reach = magnitude(x, (y - 0.4) * np.float32(0.8)) + 0.05 * wobble + 0.02 * fur
            paint(rgb, ramp(-reach, -pet.mask_reach, 0.18) * np.float32(0.92), coat.dark)
        case "patches":
            edge = (0.5 - pet.patch_cover) * 2.2
            paint(rgb, ramp(patches, edge, 0.25), pet.second_coat.base)
            paint(rgb, ramp(patches, edge + 1.4, 0.3), pet.second_coat.dark)
        case "merle":
            fine = patches + 0.7 * np.roll(wobble, canvas.size_px // 3, axis=0) * wobble
            paint(rgb, ramp(fine, 0.45, 0.25) * np.float32(0.9), coat.dark)
        case "tan":
            paint(rgb, _tan_points(pet, canvas, wobble, fur), coat.light)
        case "husky":
            cap = ramp(
                -(y + 0.32 - 0.9 * np.exp(-((x * 5) ** 2)) * np.float32(pet.mask_reach) + 0.05 * wobble),
                0.0,
                0.2,
            )
            sides = ramp(wide + 0.07 * wobble + 0.02 * fur, 0.42 + 0.3 * pet.mask_reach, 0.2)
            paint(rgb, np.float32(1) - np.maximum(cap, sides), coat.light)
        case "solid":
            paint(rgb, ramp(patches, 0.6, 1.2) * np.float32(0.15), coat.dark)
    for side, amount in zip((-1, 1), pet.eye_patches, strict=True):
        if amount > 0:
            reach = magnitude(x - side * (pet.eye_spacing + 0.05), (y - pet.eye_y) * 0.9) + 0.06 * wobble + 0.015 * fur
            paint(rgb, ramp(-reach, -0.12 - 0.22 * amount, 0.06), pet.second_coat.dark)
    _paint_white(pet, rgb, canvas, wobble, fur)
    _paint_marks(pet, rgb, canvas, fur)
    return rgb


def _tabby_stripes(pet: Traits, canvas: Canvas, wobble: Plane, fur: Plane) -> Plane:
    """Make tabby stripes: lines over the brow that end in an M, and lines from the eyes over the cheeks."""
    x, y, wide = canvas.x, canvas.y, np.abs(canvas.x)
    bend = 0.9 * np.exp(-(((y + 0.3) * 6) ** 2)) * np.cos(x * np.float32(12))
    lines = np.cos(canvas.fan_rad * np.float32(pet.stripe_frequency) + 0.8 * wobble + bend + pet.stripe_phase * 0.3)
    brow = ramp(lines + 0.25 * fur, 0.15, 0.8) * ramp(-y - 0.25 * wide, 0.12, 0.2) * ramp(-wide, -0.45, 0.3)
    over = np.sin((y + 0.35 * wide) * np.float32(pet.cheek_frequency) + 0.9 * wobble + pet.cheek_phase)
    cheeks = ramp(over + 0.25 * fur, 0.35, 0.8) * ramp(wide, 0.42, 0.16) * ramp(y + 0.5 * wide, 0.1, 0.2)
    return np.maximum(brow, cheeks)


def _tan_points(pet: Traits, canvas: Canvas, wobble: Plane, fur: Plane) -> Plane:
    """Make the tan areas of a black-and-tan dog: dots over the eyes, the sides of the muzzle, the cheeks."""
    y, wide = canvas.y, np.abs(canvas.x)
    ragged = 0.04 * wobble + 0.02 * fur
    dots = magnitude(wide - pet.eye_spacing * 0.85, (y - pet.eye_y + 0.19) * 1.3) + ragged
    muzzle = magnitude(wide - 0.2, (y - 0.46) * 0.8) + ragged
    return np.maximum(ramp(-dots, -0.05 - 0.05 * pet.mask_reach, 0.05), ramp(-muzzle, -0.6 * pet.mask_reach, 0.08))


def _paint_white(pet: Traits, rgb: Planes, canvas: Canvas, wobble: Plane, fur: Plane) -> None:
    """Paint white from the chest upwards: chin, muzzle, a blaze between the eyes."""
    if pet.white == 0:
        return
    heights = np.linspace(-0.75, 0.75, 6)
    rows = canvas.y[:, 0]
    half_width = np.interp(rows, heights, pet.blaze_half_widths * (0.4 + 1.1 * pet.white))
    middle = np.interp(rows, heights, pet.blaze_offsets - pet.blaze_offsets[-1] * 0.5)
    off = np.abs(canvas.x - middle[:, None].astype(np.float32)) - half_width[:, None].astype(np.float32)
    inside = ramp(-(off + 0.03 * wobble + 0.014 * fur), 0.0, 0.035)
    top = 0.55 - 1.7 * pet.white
    paint(rgb, inside * ramp(canvas.y + 0.05 * wobble, top, 0.2), (246, 243, 238))


def _paint_marks(pet: Traits, rgb: Planes, canvas: Canvas, fur: Plane) -> None:
    """Paint the spots and scars."""
    for mark in pet.marks:
        window = canvas.window(mark.x, mark.y, mark.reach * 2 + 0.05)
        x, y = canvas.x[window] - mark.x, canvas.y[window] - mark.y
        along = x * math.cos(mark.angle_rad) + y * math.sin(mark.angle_rad)
        across = y * math.cos(mark.angle_rad) - x * math.sin(mark.angle_rad)
        if mark.kind == "scar":
            reach = magnitude(along / (0.05 + mark.reach), across / 0.016)
            paint(rgb, ramp(-reach, -1.0, 0.5) * np.float32(0.6), (206, 160, 150), window)
        else:
            reach = magnitude(along, across * 1.4) + 0.01 * fur[window]
            color = pet.coat.dark if mark.kind == "dark" else pet.coat.light
            paint(rgb, ramp(-reach, -mark.reach, 0.035) * np.float32(0.85), color, window)
