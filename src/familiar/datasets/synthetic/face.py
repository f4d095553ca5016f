"""Rendering of a drawn pet's face in frontal pose and even light: the part that all its photos share."""

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
    blur,
    ellipse,
    magnitude,
    make_canvas,
    paint,
    ramp,
    smooth_outline,
)
from familiar.datasets.synthetic.coat import coat_colors
from familiar.datasets.synthetic.species import Species
from familiar.datasets.synthetic.traits import Traits, random_traits

_OUTLINE_TURNS = (0.0, 0.18, 0.36, 0.52, 0.68, 0.84, 1.0)  # of half a turn, from the crown to the chin
HEAD_Y = 0.1


@dataclass(frozen=True, eq=False)
class Drawing:
    """A rendered face, drawn once for an identity and shared read-only by its photos."""

    traits: Traits
    rgb: Planes  # 0 to 255
    cover: Plane  # 1 on the pet, 0 on the background
    head: Plane  # 1 on head and ears, 0 on neck and chest
    slope_x: Plane  # slope of the surface to the right, for shading
    slope_y: Plane  # slope downwards


@lru_cache(maxsize=4)  # photos of one identity are usually drawn one after another
def render_face(seed: int, species: Species, identity: int, difficulty: float, size_px: int) -> Drawing:
    """Render the face of an identity on a canvas of `size_px` (cached)."""
    pet = random_traits(seed, species, identity, difficulty)
    canvas = make_canvas(size_px)
    fur = _fur_texture(pet, canvas)
    rgb = coat_colors(pet, canvas, fur)
    skull = _furry_shape(canvas, _head_outline(pet), 0.016, fur, 0.35 * pet.fur_length)
    ears = _paint_ears(pet, rgb, skull, canvas, fur)
    body = _furry_shape(canvas, _body_outline(pet), 0.02, fur, 0.35)
    head = np.maximum(skull, ears)

    shadow = blur(head, 0.07 * canvas.pixels_per_unit)
    rgb *= 1 - (1 - head) * (0.25 + 0.4 * shadow)
    rgb *= 1 + np.float32(pet.fur_contrast) * fur * (0.6 + 0.4 * head)
    slope_x, slope_y = _surface_slopes(pet, canvas)
    _paint_muzzle(pet, rgb, canvas)
    _paint_nose(pet, rgb, canvas)
    return Drawing(pet, rgb, np.maximum(head, body), head, slope_x, slope_y)


def _fur_texture(pet: Traits, canvas: Canvas) -> Plane:
    """Blend two of the shared fur textures, selected by the pet's traits."""
    first, second = pet.patch_field[0, :2]
    textures = canvas.fur_textures
    first_index = int(abs(float(first)) * 1000) % len(textures)
    offset = 1 + int(abs(float(second)) * 1000) % (len(textures) - 1)  # never 0: two different textures
    second_index = (first_index + offset) % len(textures)
    return np.float32(0.8) * textures[first_index] + np.float32(0.6) * textures[second_index]


def _fur_edge(mask: Plane, fur: Plane, amount: float) -> Plane:
    """Roughen the edge of a soft mask along the strands of fur."""
    return ramp(mask + np.float32(0.2 * amount) * fur, 0.5, 0.75)


def _furry_shape(canvas: Canvas, outline: Points, soft: float, fur: Plane, amount: float) -> Plane:
    """Draw a polygon with a furry edge on a plane as large as the canvas."""
    plane = np.zeros((canvas.size_px, canvas.size_px), np.float32)
    mask, window = canvas.filled_polygon(outline, soft, margin=0.03)
    plane[window] = _fur_edge(mask, fur[window], amount)
    return plane


def _head_outline(pet: Traits) -> Points:
    turns = np.linspace(0, np.pi, 13)
    radius = np.interp(turns / np.pi, _OUTLINE_TURNS, pet.outline)
    right = np.stack([np.sin(turns) * radius, HEAD_Y - np.cos(turns) * radius], axis=1)
    left = right[-2:0:-1] * (-1, 1)
    return smooth_outline(np.concatenate([right, left]).astype(np.float32))


def _body_outline(pet: Traits) -> Points:
    neck = float(pet.outline[4]) * (0.62 + 0.2 * pet.fur_length)
    corners = [
        (-neck, 0.3),
        (neck, 0.3),
        (neck * 1.08, 0.8),
        (neck * 1.5, 1.5),
        (-neck * 1.5, 1.5),
        (-neck * 1.08, 0.8),
    ]
    return np.array(corners, np.float32)


def _ear_outlines(pet: Traits, side: int) -> tuple[Points, Points]:
    """Return an ear's outer edge and the skin inside; the skin is empty for hanging and folded ears."""
    spacing, width, height, lean = pet.ear_spacing, pet.ear_width, pet.ear_height, pet.ear_lean
    base_y = HEAD_Y - float(pet.outline[1]) * 0.72
    tip = np.array([spacing + lean, base_y + 0.12 - height])
    inner = np.array([spacing - width, base_y - 0.02])
    outer = np.array([spacing + width * 0.85, base_y + 0.3])
    match pet.ear_shape:
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
    return edge * mirrored, (skin if pet.ear_shape in ("pointed", "round") else skin[:0]) * mirrored


def _paint_ears(pet: Traits, rgb: Planes, skull: Plane, canvas: Canvas, fur: Plane) -> Plane:
    """Paint both ears, in front of or behind the head depending on their shape, and return the mask of both."""
    in_front = pet.ear_shape in ("floppy", "folded")
    covered = np.zeros_like(skull)
    color = tuple(channel * pet.ear_tone for channel in pet.coat.base)
    if pet.markings in ("points", "mask") or (pet.markings == "tan" and pet.ear_tone < 0.8):
        color = pet.coat.dark
    for side in (-1, 1):
        edge, skin = _ear_outlines(pet, side)
        mask, window = canvas.filled_polygon(edge, 0.008, margin=0.1)
        mask = _fur_edge(mask, fur[window], 0.22)
        seen = mask if in_front else mask * (1 - skull[window])
        if in_front:
            for plane in rgb:
                plane[window] *= 1 - 0.42 * blur(mask, 0.035 * canvas.pixels_per_unit) * (1 - mask)
        paint(rgb, seen * np.float32(0.85), color, window)
        if len(skin):
            inner, part = canvas.filled_polygon(skin, 0.022, margin=0.03)
            inner = _fur_edge(inner, fur[part], 0.5) * (1 - skull[part])
            paint(rgb, inner * np.float32(0.75), pet.ear_skin, part)
            near_middle = np.float32(pet.ear_spacing) - np.abs(canvas.x[part])
            tufts = inner * ramp(fur[part] + 2.2 * near_middle, 0.3, 1.2)
            paint(rgb, tufts * np.float32(0.7), pet.coat.light, part)
        if pet.ear_notch > 0.84 and not in_front and (pet.ear_notch > 0.92) == (side > 0):
            tip = edge[np.argmin(edge[:, 1]) + 6]
            notch = magnitude(canvas.x[window] - tip[0], (canvas.y[window] - tip[1]) * 1.4)
            mask = mask * ramp(notch, 0.05, 0.02)
        covered[window] = np.maximum(covered[window], mask)
    return covered


def _surface_slopes(pet: Traits, canvas: Canvas) -> tuple[Plane, Plane]:
    """Compute the slopes, right and down, of a rounded head with cheeks, brow and muzzle, for light from the side."""
    side = max(16, canvas.size_px // 4)
    ticks = (((np.arange(side) + 0.5) / side * 2 - 1) * SPAN).astype(np.float32)
    x, y = ticks[None, :], ticks[:, None]
    dome = -((x / 0.8) ** 2 + ((y - HEAD_Y) / 0.85) ** 2) * 0.45
    across, down = (
        (np.abs(x) / pet.muzzle_half_width - 0.5) ** 2,
        ((y - pet.muzzle_y) / pet.muzzle_height) ** 2,
    )
    pads = np.exp(-1.6 * across - down)
    bridge = np.exp(-((x * 7) ** 2) - ((y - 0.1) * 3) ** 2)
    brow = np.exp(-(((np.abs(x) - pet.eye_spacing) * 5) ** 2) - ((y - pet.eye_y + 0.17) * 7) ** 2)
    relief = dome + (0.06 + 0.1 * pet.muzzle_depth) * pads + 0.06 * bridge + 0.03 * brow
    down_slope, side_slope = (np.asarray(slope, np.float32) for slope in np.gradient(relief, 2 * SPAN / side))
    size = (canvas.size_px, canvas.size_px)
    return cv2.resize(side_slope, size), cv2.resize(down_slope, size)


def _paint_muzzle(pet: Traits, rgb: Planes, canvas: Canvas) -> None:
    """Paint light fur around the eyes, whisker pads with their dark crease, and the lips."""
    window = canvas.window(0.0, pet.muzzle_y - 0.05, 0.62)
    x, y = canvas.x[window], canvas.y[window]
    wide = np.abs(x)
    ring = magnitude((wide - pet.eye_spacing) / 1.25, y - pet.eye_y) - pet.eye_half_width
    paint(rgb, np.exp(-((ring * 14) ** 2)) * np.float32(0.55 * pet.spectacles), pet.coat.light, window)
    width, height = pet.muzzle_half_width, pet.muzzle_height
    pad = magnitude((wide - 0.52 * width) / width, (y - pet.muzzle_y) / height)
    dark_muzzle = pet.markings in ("mask", "points")
    light = 0.25 * pet.muzzle_light if dark_muzzle else 0.25 + 0.6 * pet.muzzle_light
    paint(rgb, ramp(-pad, -0.85, 0.7) * np.float32(light), pet.coat.light, window)
    # The shade under the pads makes them visible.
    under = np.exp(-(((pad - 1.02) * 5) ** 2)) * ramp(y, pet.muzzle_y, 0.15)
    for plane in rgb:
        plane[window] *= 1 - 0.35 * under
    lip, nose_bottom = pet.muzzle_y + 0.5 * height, pet.nose_y + pet.nose_height
    drop = np.linspace(0, 1, 9)
    curve = np.stack([drop * pet.mouth_width, lip + 0.045 * np.sin(drop * np.pi * 0.85) + 0.01 * drop], axis=1)
    middle = np.array([(0.0, nose_bottom), (0.0, lip)])
    lines = [line.astype(np.float32) for line in (curve, curve * (-1, 1), middle)]
    mask, window = canvas.polylines(lines, 0.013, 0.007)
    paint(rgb, mask * np.float32(0.85), (42, 28, 26), window)
    dots = [
        np.array([(side * column * width, pet.muzzle_y + row * height)] * 2, np.float32)
        for column, row in ((0.35, -0.1), (0.6, -0.3), (0.6, 0.2), (0.85, -0.05), (0.85, 0.4))
        for side in (-1, 1)
    ]
    mask, window = canvas.polylines(dots, 0.02, 0.006)
    paint(rgb, mask * np.float32(0.5), pet.coat.dark, window)


def _paint_nose(pet: Traits, rgb: Planes, canvas: Canvas) -> None:
    half, tall, y = pet.nose_half_width, pet.nose_height, pet.nose_y
    low = half * pet.nose_taper
    right = [
        (0.0, y - tall * 0.95),
        (half * 0.8, y - tall),
        (half * 1.2, y - tall * 0.3),
        (low + half * 0.25, y + tall * 0.7),
        (low * 0.4, y + tall * 1.15),
    ]
    corners = np.array(right + [(-at_x, at_y) for at_x, at_y in reversed(right[1:])], np.float32)
    mask, window = canvas.filled_polygon(smooth_outline(corners, 48), 0.009)
    paint(rgb, mask, pet.nose_color, window)
    dark = tuple(channel * 0.3 for channel in pet.nose_color)
    for side in (-1, 1):
        nostril = ellipse(side * half * 0.48, y + tall * 0.22, half * 0.24, tall * 0.24, side * -0.5)
        mask, window = canvas.filled_polygon(nostril, 0.008)
        paint(rgb, mask * np.float32(0.9), dark, window)
    mask, window = canvas.filled_polygon(ellipse(0.0, y - tall * 0.5, half * 0.5, tall * 0.2), 0.02)
    paint(rgb, mask * np.float32(0.3), (255, 246, 240), window)
