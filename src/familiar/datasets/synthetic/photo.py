"""One photo of a drawn pet: expression, pose, light, background and camera, which differ from photo to photo.

The random draws here never depend on the identity, so that neither background nor light reveals it.
"""

import math
from dataclasses import dataclass

import cv2
import numpy as np
from jaxtyping import Float32, UInt8

from familiar.datasets.synthetic.canvas import (
    Canvas,
    Plane,
    Planes,
    blur,
    ellipse,
    magnitude,
    make_canvas,
    paint,
    ramp,
    smooth_field,
    smooth_outline,
    white_noise,
)
from familiar.datasets.synthetic.face import HEAD_Y, Drawing
from familiar.datasets.synthetic.species import Color

_POSE_GRID = 25  # points per side; a turned head is a smooth warp, so few points suffice


@dataclass(frozen=True)
class Shot:
    """The random conditions of one photo. Angles in radians, lengths in face units."""

    roll_rad: float
    yaw: float
    pitch: float
    half_view: float
    offset: tuple[float, float]
    eyes_open: float
    gaze: tuple[float, float]
    pupil: float
    mouth_open: float
    tongue: bool
    light: tuple[float, float]
    exposure: float
    contrast: float
    warmth: float
    blur: float
    grain: float
    collar: Color | None
    occluders: int


def random_shot(rng: np.random.Generator, difficulty: float) -> Shot:
    """Draw a random pose, expression, light and camera for one photo; higher `difficulty` gives more variation."""
    strength = 0.25 + 0.75 * difficulty
    light_angle, light_strength = rng.uniform(0, 2 * math.pi), rng.uniform(0.2, 1.0) * strength
    roll, yaw, pitch, shift_x, shift_y, exposure, contrast, warmth = rng.uniform(-1, 1, 8)
    eyes_chance, mouth_chance, collar_chance = rng.uniform(0, 1, 3)
    return Shot(
        roll_rad=roll * 0.5 * strength,
        yaw=yaw * 0.5 * strength,
        pitch=pitch * 0.28 * strength,
        half_view=rng.uniform(0.84 - 0.24 * strength, 0.92 + 0.08 * strength),
        offset=(shift_x * 0.16 * strength, shift_y * 0.16 * strength),
        eyes_open=1.0 if eyes_chance > 0.35 * strength else rng.uniform(0.1, 0.8),
        gaze=(float(rng.uniform(-1, 1)), float(rng.uniform(-1, 1))),
        pupil=rng.uniform(0.15, 0.85),
        mouth_open=rng.uniform(0.3, 1.0) if mouth_chance < 0.3 * strength else 0.0,
        tongue=rng.uniform() < 0.5,
        light=(light_strength * math.cos(light_angle), light_strength * math.sin(light_angle)),
        exposure=2.0 ** ((exposure * 0.7 - 0.1) * strength),
        contrast=1.0 + contrast * 0.3 * strength,
        warmth=warmth * 0.2 * strength,
        blur=rng.exponential(0.006) * strength,
        grain=rng.uniform(0, 9) * strength,
        collar=_random_color(rng, 1.0) if collar_chance < 0.3 else None,
        occluders=int(rng.binomial(2, 0.45 * max(0.0, difficulty - 0.15))),
    )


def draw_photo(face: Drawing, rng: np.random.Generator, difficulty: float, size_px: int) -> UInt8[np.ndarray, "s s 3"]:
    """Draw one photo of a face under random conditions."""
    shot = random_shot(rng, difficulty)
    canvas = make_canvas(face.cover.shape[0])
    rgb = face.rgb.copy()
    _paint_mouth(face, rgb, canvas, shot)
    _paint_whiskers(face, rgb, canvas, rng)
    for side in (-1, 1):
        _paint_eye(face, rgb, canvas, shot, side)
    if shot.collar is not None:
        _paint_collar(face, rgb, canvas, shot.collar)
    rgb *= _shading(face, shot)
    layer = cv2.merge([*(plane * face.cover for plane in rgb), face.cover * np.float32(255)])
    columns, rows = _pose_map(face, canvas, shot, rng, size_px)
    layer = cv2.remap(
        np.clip(layer, 0, 255).astype(np.uint8),
        columns,
        rows,
        cv2.INTER_LINEAR,
        borderMode=cv2.BORDER_REPLICATE,
    )
    picture = _random_background(rng, size_px)
    _composite(picture, layer[..., :3].astype(np.float32), layer[..., 3:].astype(np.float32) * np.float32(1 / 255))
    for _ in range(shot.occluders):
        _paint_occluder(picture, rng, size_px)
    return _simulate_camera(picture, shot, rng, size_px)


def _composite(picture: Float32[np.ndarray, "s s 3"], premultiplied: np.ndarray, cover: np.ndarray) -> None:
    """Composite a layer with premultiplied colors over the picture, in place."""
    picture *= 1 - cover
    picture += premultiplied


def _random_color(rng: np.random.Generator, vivid: float = 0.5) -> Color:
    """Draw a color of any hue, mostly muted as in rooms and gardens; `vivid` limits its distance from gray."""
    gray, stray = rng.uniform(25, 225), rng.uniform(-1, 1, 3) * rng.uniform(0, 130 * vivid)
    red, green, blue = np.clip(gray + stray - stray.mean(), 8, 245)
    return float(red), float(green), float(blue)


def _shading(face: Drawing, shot: Shot) -> Plane:
    """Compute the factor of brightness that the direction of light gives each pixel."""
    x, y = shot.light
    shade = np.float32(1) - np.float32(0.75 * x) * face.slope_x - np.float32(0.75 * y + 0.25) * face.slope_y
    return np.clip(shade, 0.25, 1.7)


def _paint_eye(face: Drawing, rgb: Planes, canvas: Canvas, shot: Shot, side: int) -> None:
    """Paint lids, iris, pupil and catchlight, in a window around the eye."""
    pet = face.traits
    cat = pet.species == "cats"
    center_x, center_y, half = side * pet.eye_spacing, pet.eye_y, pet.eye_half_width
    window = canvas.window(center_x, center_y, half * 1.7)
    x, y = canvas.x[window] - np.float32(center_x), canvas.y[window] - np.float32(center_y)
    # With a positive slant the outer corner is higher.
    cos, sin = np.float32(math.cos(pet.eye_slant_rad)), np.float32(math.sin(pet.eye_slant_rad) * side)
    u, v = (x * cos - y * sin) / half, (x * sin + y * cos) / (half * pet.eye_roundness)
    bow = np.maximum(1 - (u * u) ** np.float32(1.15), -1)
    lower_bow = bow * np.float32(0.35 + 0.65 * max(shot.eyes_open, 0.3))
    upper = bow * np.float32(shot.eyes_open * 1.25 - 0.25) + v
    lower = lower_bow - v
    opening = np.minimum(upper, lower)
    sharp = half * canvas.pixels_per_unit / 1.4
    rim = np.clip((opening + 0.26) * 3.2, 0, 1) * (u * u < 1.6)
    paint(rgb, rim * np.float32(0.92), (24, 19, 18), window)
    inside = np.clip(opening * np.float32(sharp), 0, 1)
    color = pet.eye_colors[0 if side < 0 else 1]
    gaze_x, gaze_y = (np.float32(0.12 * half * value) for value in shot.gaze)
    from_center = magnitude(x - gaze_x, y - gaze_y) / np.float32(half * (0.98 if cat else 0.86))
    white = (206, 200, 194) if not cat else tuple(0.5 * channel for channel in color)
    paint(rgb, inside, white, window)
    iris = inside * ramp(-from_center, -0.95, 0.12)
    paint(rgb, iris, tuple(0.62 * channel for channel in color), window)
    glow = np.clip(1.15 - from_center + 0.35 * v, 0, 1)
    paint(rgb, iris * glow, tuple(min(255.0, 1.08 * channel) for channel in color), window)
    narrow = (0.16 + 0.6 * shot.pupil if cat else 0.42 + 0.2 * shot.pupil) * half
    tall = (0.62 + 0.2 * shot.pupil if cat else 0.42 + 0.2 * shot.pupil) * half
    pupil = magnitude((x - gaze_x) / np.float32(narrow), (y - gaze_y) / np.float32(tall))
    paint(rgb, inside * ramp(-pupil, -1.0, 0.25), (10, 9, 10), window)
    lid = 1 - 0.55 * inside * np.clip(1 - upper * 2.2, 0, 1)
    for plane in rgb:
        plane[window] *= lid
    shine_x, shine_y = 0.25 * shot.light[0] * half, -0.34 * half + 0.1 * shot.light[1] * half
    shine = magnitude(x - np.float32(shine_x), y - np.float32(shine_y)) / np.float32(half * 0.2)
    paint(rgb, inside * ramp(-shine, -1.0, 0.6), (252, 252, 250), window)


def _paint_mouth(face: Drawing, rgb: Planes, canvas: Canvas, shot: Shot) -> None:
    if shot.mouth_open == 0:
        return
    pet = face.traits
    lip = pet.muzzle_y + 0.5 * pet.muzzle_height + 0.01
    width, drop = pet.mouth_width * 0.82, 0.04 + 0.1 * shot.mouth_open
    gap = [(-width, lip), (-width / 2, lip + 0.035), (0, lip), (width / 2, lip + 0.035), (width, lip)]
    jaw = [(width * 0.7, lip + drop), (0, lip + drop * 1.5), (-width * 0.7, lip + drop)]
    mask, window = canvas.filled_polygon(smooth_outline(np.array(gap + jaw, np.float32), 48), 0.01)
    paint(rgb, mask, (58, 26, 28), window)
    if shot.tongue or pet.species == "dogs":
        long = drop * (1.0 if pet.species == "cats" else 1.9)
        tongue = ellipse(0.0, lip + 0.35 * drop + 0.5 * long, width * 0.5, 0.55 * long + 0.01)
        mask, window = canvas.filled_polygon(tongue, 0.01)
        paint(rgb, mask, (214, 116, 122), window)
        groove = np.array([(0, lip + 0.4 * drop), (0, lip + 0.3 * drop + 0.8 * long)], np.float32)
        mask, window = canvas.polylines([groove], 0.012, 0.01)
        paint(rgb, mask * np.float32(0.6), (160, 72, 82), window)


def _paint_whiskers(face: Drawing, rgb: Planes, canvas: Canvas, rng: np.random.Generator) -> None:
    pet = face.traits
    lines = []
    reach = np.linspace(0, 1, 7)
    for side in (-1, 1):
        for row, jitter in zip(np.linspace(-1, 1, 5), rng.normal(0, 0.05, 5), strict=True):
            x = 0.5 * pet.muzzle_half_width + reach * 0.62
            y = pet.muzzle_y + 0.3 * pet.muzzle_height * row + reach * (0.14 * row + jitter) + 0.1 * reach**2
            lines.append(np.stack([side * x, y], axis=1).astype(np.float32))
    mask, window = canvas.polylines(lines, 0.007)
    paint(rgb, mask * np.float32(0.75 * pet.whiskers), (246, 243, 238), window)


def _paint_collar(face: Drawing, rgb: Planes, canvas: Canvas, color: Color) -> None:
    low = HEAD_Y + float(face.traits.outline[6]) * 0.92
    reach = np.linspace(-0.9, 0.9, 15)
    line = np.stack([reach, low + 0.14 - 0.35 * reach**2], axis=1).astype(np.float32)
    mask, window = canvas.polylines([line], 0.09, 0.006)
    paint(rgb, mask * (1 - face.head[window]), color, window)
    mask, window = canvas.filled_polygon(ellipse(0.0, low + 0.24, 0.055, 0.06), 0.008)
    paint(rgb, mask * (1 - face.head[window]), (214, 196, 132), window)


def _pose_map(face: Drawing, canvas: Canvas, shot: Shot, rng: np.random.Generator, size_px: int) -> tuple[Plane, Plane]:
    """Compute the source column and row in the face's canvas of each pixel of the photo."""
    ticks = ((np.arange(_POSE_GRID) + 0.5) / _POSE_GRID * 2 - 1) * shot.half_view
    x, y = np.meshgrid(ticks, ticks)
    x, y = x - shot.offset[0], y - shot.offset[1]
    cos, sin = math.cos(shot.roll_rad), math.sin(shot.roll_rad)
    x, y = x * cos + y * sin, y * cos - x * sin
    # Parts nearer to the camera move further as the head turns: the muzzle most, the ears least.
    pet = face.traits
    dome = np.maximum(0, 1 - (x / 0.85) ** 2 - ((y - HEAD_Y) / 0.9) ** 2)
    snout = np.exp(-((x / (1.6 * pet.muzzle_half_width)) ** 2) - ((y - pet.muzzle_y + 0.05) / 0.3) ** 2)
    depth = 0.42 * np.sqrt(dome + 0.02) + 0.35 * pet.muzzle_depth * snout
    jitter = rng.normal(0, 0.012, (2, 4, 4)).astype(np.float32)
    x = x - shot.yaw * depth + cv2.resize(jitter[0], (_POSE_GRID, _POSE_GRID), interpolation=cv2.INTER_CUBIC)
    y = y - shot.pitch * depth + cv2.resize(jitter[1], (_POSE_GRID, _POSE_GRID), interpolation=cv2.INTER_CUBIC)
    grid = canvas.to_px(np.stack([x, y], axis=-1).astype(np.float32))
    grid = cv2.resize(grid, (size_px, size_px), interpolation=cv2.INTER_CUBIC)
    return np.ascontiguousarray(grid[..., 0]), np.ascontiguousarray(grid[..., 1])


def _random_background(rng: np.random.Generator, size_px: int) -> Float32[np.ndarray, "s s 3"]:
    """Draw a blurred room or garden: a few hues, blotches of all sizes, a texture."""
    first_color, second_color = np.array(_random_color(rng)), np.array(_random_color(rng))
    blotches = rng.uniform(0, 1, (int(rng.integers(2, 12)), int(rng.integers(2, 12)), 1))
    small = first_color * blotches + second_color * (1 - blotches) + rng.normal(0, 12, (*blotches.shape[:2], 3))
    picture = smooth_field(small.astype(np.float32), size_px)
    texture = _random_noise_patch(rng, int(rng.integers(24, 100)))
    texture = cv2.resize(texture, (size_px, size_px), interpolation=cv2.INTER_LINEAR)
    picture += (texture * min(rng.exponential(5), 12.0))[..., None]
    return np.clip(picture, 4, 250)


def _random_noise_patch(rng: np.random.Generator, side: int) -> Float32[np.ndarray, "a a"]:
    row, column = (int(start) for start in rng.integers(0, white_noise().shape[0] - side, 2))
    return white_noise()[row : row + side, column : column + side]


def _paint_occluder(picture: Float32[np.ndarray, "s s 3"], rng: np.random.Generator, size_px: int) -> None:
    """Paint an object in front of the face, from the edge inwards, as a leaf, a finger or a cage bar would be."""
    angle, long, thick = rng.uniform(0, 2 * math.pi), rng.uniform(0.35, 0.8), rng.uniform(0.06, 0.28)
    x, y = math.cos(angle), math.sin(angle)
    shape = ellipse(1.05 * x, 1.05 * y, long, thick, angle + rng.normal(0, 0.3))
    mask = np.zeros((size_px, size_px), np.uint8)
    corners = ((shape + 1) * (size_px / 2) * 16).astype(np.int32)
    cv2.fillPoly(mask, [corners], 255, cv2.LINE_AA, 4)
    cover = blur(mask, size_px * rng.uniform(0.004, 0.02)).astype(np.float32)[..., None] * np.float32(1 / 255)
    color = np.array(_random_color(rng), np.float32) + cv2.resize(
        _random_noise_patch(rng, 32), (size_px, size_px), interpolation=cv2.INTER_LINEAR
    )[..., None] * np.float32(12)
    _composite(picture, np.clip(color, 0, 255) * cover, cover)


def _simulate_camera(
    picture: Float32[np.ndarray, "s s 3"], shot: Shot, rng: np.random.Generator, size_px: int
) -> UInt8[np.ndarray, "s s 3"]:
    """Apply focus, exposure, color temperature, contrast and grain."""
    picture = blur(picture, shot.blur * size_px / 2)
    gains = shot.exposure * np.array([1 + shot.warmth, 1.0, 1 - shot.warmth])
    levels = np.arange(256)[:, None] / 255 * gains
    # A soft shoulder instead of clipping keeps bright fur from burning out.
    levels = levels * 1.25 / (1 + levels * 0.25 + np.maximum(levels - 0.9, 0) * 0.5)
    levels = np.clip((levels - 0.45) * shot.contrast + 0.45, 0, 1) * 255
    curve = np.round(levels).astype(np.uint8).reshape(1, 256, 3)
    graded = cv2.LUT(np.clip(picture, 0, 255).astype(np.uint8), curve)
    if shot.grain * size_px / 224 < 1:
        return graded
    grain = cv2.resize(_random_noise_patch(rng, 224), (size_px, size_px), interpolation=cv2.INTER_AREA)
    return np.clip(graded + (grain * np.float32(shot.grain))[..., None], 0, 255).astype(np.uint8)
