"""The face of a drawn pet, looking straight ahead in even light: everything that is the same on all its photos."""

from dataclasses import dataclass
from functools import lru_cache

import cv2
import numpy as np

from familiar.datasets.synthetic.canvas import (
    SPAN,
    Canvas,
    Plane,
    Planes,
    Points,
    blurred,
    canvas,
    ellipse,
    length,
    paint,
    smooth_outline,
    step,
)
from familiar.datasets.synthetic.coat import coat_colors
from familiar.datasets.synthetic.traits import Species, Traits, traits

_OUTLINE_TURNS = (0.0, 0.18, 0.36, 0.52, 0.68, 0.84, 1.0)  # of half a turn, from the crown to the chin
HEAD_Y = 0.1


@dataclass(frozen=True, eq=False)
class Face:
    """Drawn once for an identity, read by each of its photos, never written to."""

    traits: Traits
    rgb: Planes  # 0 to 255
    cover: Plane  # 1 on the pet, 0 on the background
    head: Plane  # 1 on head and ears, 0 on neck and chest
    slope_x: Plane  # how far the surface turns to the right and downwards
    slope_y: Plane


@lru_cache(maxsize=4)  # photos of one identity are mostly asked for in a row
def face(seed: int, species: Species, identity: int, difficulty: float, size_px: int) -> Face:
    """The face of an identity on a canvas of `size_px`."""
    who = traits(seed, species, identity, difficulty)
    board = canvas(size_px)
    fur = _fur(who, board)
    rgb = coat_colors(who, board, fur)
    skull = _full(board, _head_outline(who), 0.016, fur, 0.35 * who.fur_length)
    ears = _ears(who, rgb, skull, board, fur)
    body = _full(board, _body_outline(who), 0.02, fur, 0.35)
    head = np.maximum(skull, ears)

    shadow = blurred(head, 0.07 * board.pixels_per_unit)
    rgb *= 1 - (1 - head) * (0.25 + 0.4 * shadow)
    rgb *= 1 + np.float32(who.fur_contrast) * fur * (0.6 + 0.4 * head)
    slope_x, slope_y = _slopes(who, board)
    _muzzle(who, rgb, board)
    _nose(who, rgb, board)
    return Face(who, rgb, np.maximum(head, body), head, slope_x, slope_y)


def _fur(who: Traits, board: Canvas) -> Plane:
    """Two textures of the stock, picked by the identity's numbers, laid over each other."""
    first, second = who.patch_field[0, :2]
    pick = int(abs(float(first)) * 1000) % len(board.furs)
    other = (pick + 1 + int(abs(float(second)) * 1000) % (len(board.furs) - 1)) % len(board.furs)
    return np.float32(0.8) * board.furs[pick] + np.float32(0.6) * board.furs[other]


def _furry(mask: Plane, fur: Plane, amount: float) -> Plane:
    """A soft-edged mask whose edge follows the strands."""
    return step(mask + np.float32(0.2 * amount) * fur, 0.5, 0.75)


def _full(board: Canvas, outline: Points, soft: float, fur: Plane, amount: float) -> Plane:
    """A furry shape on a plane as large as the canvas."""
    plane = np.zeros((board.size_px, board.size_px), np.float32)
    mask, window = board.shape(outline, soft, margin=0.03)
    plane[window] = _furry(mask, fur[window], amount)
    return plane


def _head_outline(who: Traits) -> Points:
    turns = np.linspace(0, np.pi, 13)
    radius = np.interp(turns / np.pi, _OUTLINE_TURNS, who.outline)
    right = np.stack([np.sin(turns) * radius, HEAD_Y - np.cos(turns) * radius], axis=1)
    left = right[-2:0:-1] * (-1, 1)
    return smooth_outline(np.concatenate([right, left]).astype(np.float32))


def _body_outline(who: Traits) -> Points:
    neck = float(who.outline[4]) * (0.62 + 0.2 * who.fur_length)
    corners = [
        (-neck, 0.3),
        (neck, 0.3),
        (neck * 1.08, 0.8),
        (neck * 1.5, 1.5),
        (-neck * 1.5, 1.5),
        (-neck * 1.08, 0.8),
    ]
    return np.array(corners, np.float32)


def _ear_outlines(who: Traits, side: int) -> tuple[Points, Points]:
    """Outer edge and the skin inside; the skin is empty where an ear hangs or folds over."""
    spacing, width, height, lean = who.ear_spacing, who.ear_width, who.ear_height, who.ear_lean
    base_y = HEAD_Y - float(who.outline[1]) * 0.72
    tip = np.array([spacing + lean, base_y + 0.12 - height])
    inner = np.array([spacing - width, base_y - 0.02])
    outer = np.array([spacing + width * 0.85, base_y + 0.3])
    match who.ear_shape:
        case "pointed":
            bow = np.array([0.035, -0.02])
            corners = [inner, (inner + tip) / 2 - bow, tip, tip, tip, (outer + tip) / 2 + bow, outer]
        case "round":
            flat = tip + np.array([0, 0.3 * height])
            corners = [
                inner,
                flat - np.array([width * 0.9, 0]),
                flat + np.array([0, -0.16 * height]),
                flat + np.array([width * 0.9, 0.05]),
                outer,
            ]
        case "folded":
            flap = np.array([spacing - 0.25 * width + lean, base_y + 0.1 - 0.12 * height])
            fold = tip * 0.55 + np.array([spacing + lean, base_y]) * 0.45
            corners = [
                inner,
                fold - np.array([0.5 * width, 0]),
                fold + np.array([0.5 * width, 0]),
                outer,
                flap + np.array([0.1, 0.05]),
                flap,
                flap,
            ]
        case "floppy":
            drop, out = base_y + 0.14 + height, spacing + 0.5 * lean
            corners = [
                np.array([spacing - 0.5 * width, base_y - 0.06]),
                np.array([out + 0.9 * width, base_y - 0.02]),
                np.array([out + 1.5 * width, drop - 0.45 * height]),
                np.array([out + 1.3 * width, drop]),
                np.array([out + 0.7 * width, drop + 0.04]),
                np.array([out + 0.3 * width, drop - 0.35 * height]),
                np.array([out - 0.1 * width, base_y + 0.25 * height]),
            ]
    edge = smooth_outline(np.array(corners, np.float32))
    center = edge.mean(axis=0)
    skin = center + (edge - center) * np.float32(0.62) + np.array([-0.005, 0.03], np.float32)
    mirrored = np.array([side, 1], np.float32)
    return edge * mirrored, (skin if who.ear_shape in ("pointed", "round") else skin[:0]) * mirrored


def _ears(who: Traits, rgb: Planes, skull: Plane, board: Canvas, fur: Plane) -> Plane:
    """Draws both ears, before or behind the head as their shape wants, and returns what they cover."""
    before = who.ear_shape in ("floppy", "folded")
    covered = np.zeros_like(skull)
    color = tuple(channel * who.ear_tone for channel in who.coat.base)
    if who.markings in ("points", "mask") or (who.markings == "tan" and who.ear_tone < 0.8):
        color = who.coat.dark
    for side in (-1, 1):
        edge, skin = _ear_outlines(who, side)
        mask, window = board.shape(edge, 0.008, margin=0.1)
        mask = _furry(mask, fur[window], 0.22)
        seen = mask if before else mask * (1 - skull[window])
        if before:
            for plane in rgb:
                plane[window] *= 1 - 0.42 * blurred(mask, 0.035 * board.pixels_per_unit) * (1 - mask)
        paint(rgb, seen * np.float32(0.85), color, window)
        if len(skin):
            inner, part = board.shape(skin, 0.022, margin=0.03)
            inner = _furry(inner, fur[part], 0.5) * (1 - skull[part])
            paint(rgb, inner * np.float32(0.75), who.ear_skin, part)
            near_middle = np.float32(who.ear_spacing) - np.abs(board.x[part])
            tufts = inner * step(fur[part] + 2.2 * near_middle, 0.3, 1.2)
            paint(rgb, tufts * np.float32(0.7), who.coat.light, part)
        if who.ear_notch > 0.84 and not before and (who.ear_notch > 0.92) == (side > 0):
            at = edge[np.argmin(edge[:, 1]) + 6]
            notch = length(board.x[window] - at[0], (board.y[window] - at[1]) * 1.4)
            mask = mask * step(notch, 0.05, 0.02)
        covered[window] = np.maximum(covered[window], mask)
    return covered


def _slopes(who: Traits, board: Canvas) -> tuple[Plane, Plane]:
    """The turn of a rounded head with cheeks, brow and muzzle, for light from the side."""
    side = max(16, board.size_px // 4)
    ticks = (((np.arange(side) + 0.5) / side * 2 - 1) * SPAN).astype(np.float32)
    x, y = ticks[None, :], ticks[:, None]
    dome = -((x / 0.8) ** 2 + ((y - HEAD_Y) / 0.85) ** 2) * 0.45
    across, down = (
        (np.abs(x) / who.muzzle_half_width - 0.5) ** 2,
        ((y - who.muzzle_y) / who.muzzle_height) ** 2,
    )
    pads = np.exp(-1.6 * across - down)
    bridge = np.exp(-((x * 7) ** 2) - ((y - 0.1) * 3) ** 2)
    brow = np.exp(-(((np.abs(x) - who.eye_spacing) * 5) ** 2) - ((y - who.eye_y + 0.17) * 7) ** 2)
    relief = dome + (0.06 + 0.1 * who.muzzle_depth) * pads + 0.06 * bridge + 0.03 * brow
    down_slope, side_slope = (np.asarray(slope, np.float32) for slope in np.gradient(relief, 2 * SPAN / side))
    size = (board.size_px, board.size_px)
    return cv2.resize(side_slope, size), cv2.resize(down_slope, size)


def _muzzle(who: Traits, rgb: Planes, board: Canvas) -> None:
    """Light spectacles, whisker pads with their dark crease, and the lips."""
    window = board.window(0.0, who.muzzle_y - 0.05, 0.62)
    x, y = board.x[window], board.y[window]
    wide = np.abs(x)
    ring = length((wide - who.eye_spacing) / 1.25, y - who.eye_y) - who.eye_half_width
    paint(rgb, np.exp(-((ring * 14) ** 2)) * np.float32(0.55 * who.spectacles), who.coat.light, window)
    width, height = who.muzzle_half_width, who.muzzle_height
    pad = length((wide - 0.52 * width) / width, (y - who.muzzle_y) / height)
    dark_muzzle = who.markings in ("mask", "points")
    light = 0.25 * who.muzzle_light if dark_muzzle else 0.25 + 0.6 * who.muzzle_light
    paint(rgb, step(-pad, -0.85, 0.7) * np.float32(light), who.coat.light, window)
    # Pads stand out by the shade under them.
    under = np.exp(-(((pad - 1.02) * 5) ** 2)) * step(y, who.muzzle_y, 0.15)
    for plane in rgb:
        plane[window] *= 1 - 0.35 * under
    lip, nose_bottom = who.muzzle_y + 0.5 * height, who.nose_y + who.nose_height
    drop = np.linspace(0, 1, 9)
    curve = np.stack([drop * who.mouth_width, lip + 0.045 * np.sin(drop * np.pi * 0.85) + 0.01 * drop], axis=1)
    middle = np.array([(0.0, nose_bottom), (0.0, lip)])
    mask, window = board.lines([line.astype(np.float32) for line in (curve, curve * (-1, 1), middle)], 0.013, 0.007)
    paint(rgb, mask * np.float32(0.85), (42, 28, 26), window)
    dots = [
        np.array([(side * column * width, who.muzzle_y + row * height)] * 2, np.float32)
        for column, row in ((0.35, -0.1), (0.6, -0.3), (0.6, 0.2), (0.85, -0.05), (0.85, 0.4))
        for side in (-1, 1)
    ]
    mask, window = board.lines(dots, 0.02, 0.006)
    paint(rgb, mask * np.float32(0.5), who.coat.dark, window)


def _nose(who: Traits, rgb: Planes, board: Canvas) -> None:
    half, tall, y = who.nose_half_width, who.nose_height, who.nose_y
    low = half * who.nose_taper
    right = [
        (0.0, y - tall * 0.95),
        (half * 0.8, y - tall),
        (half * 1.2, y - tall * 0.3),
        (low + half * 0.25, y + tall * 0.7),
        (low * 0.4, y + tall * 1.15),
    ]
    corners = np.array(right + [(-at_x, at_y) for at_x, at_y in reversed(right[1:])], np.float32)
    mask, window = board.shape(smooth_outline(corners, 48), 0.009)
    paint(rgb, mask, who.nose_color, window)
    dark = tuple(channel * 0.3 for channel in who.nose_color)
    for side in (-1, 1):
        nostril = ellipse(side * half * 0.48, y + tall * 0.22, half * 0.24, tall * 0.24, side * -0.5)
        mask, window = board.shape(nostril, 0.008)
        paint(rgb, mask * np.float32(0.9), dark, window)
    mask, window = board.shape(ellipse(0.0, y - tall * 0.5, half * 0.5, tall * 0.2), 0.02)
    paint(rgb, mask * np.float32(0.3), (255, 246, 240), window)
