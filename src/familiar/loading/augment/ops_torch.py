"""Augmentation of a batch on the training device: the operations of `ops_numpy`, vectorized in torch.

Nothing here waits for the device. The processes that load photos draw the changes of a batch, and all their numbers are
sent in one transfer. Each operation is applied only to the photos that it was drawn for. Pixels are float, 0 to 255,
and rounded once, at the end. On a CPU `ops_numpy` is much faster, since a crop fits its cache and a batch does not.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import cv2
import numpy as np
import torch
from jaxtyping import Float32, UInt8
from torch import Tensor
from torch.nn import functional as F

from familiar.loading.augment.jpeg_artifacts import Images, compress, to_luma
from familiar.loading.augment.ops_numpy import SHADOW_BORDER, Blur, Jitter, Window, low_side, matrix_px
from familiar.loading.augment.pipeline import Change
from familiar.loading.augment.settings import MAX_HOLES

Numbers = Float32[Tensor, "k p"]


class ChangeNumbers(NamedTuple):
    """The numbers of a batch's changes, as one tensor: it is made while loading and sent to the device at once.

    Attributes:
        photos: of the batch.
        size_px: side of the result.
        tables: of each operation that was drawn for any photo: its name, then the rows and columns of its table. Each
            row has the index of a photo, and then the operation's numbers.
        values: of all tables, row by row.
        noise_seed: of the generator that draws the noise.
    """

    photos: int
    size_px: int
    tables: Sequence[tuple[str, int, int]]
    values: Float32[Tensor, " v"]
    noise_seed: int


def change_numbers(changes: Sequence[Change], side_px: int, size_px: int | None = None) -> ChangeNumbers:
    """List the numbers with which `augment_batch` applies changes.

    Args:
        changes: one for each photo of a batch.
        side_px: side of the crops.
        size_px: side of the result; None: that of the crops.
    """
    size_px = size_px or side_px
    kernels = (change.blur.scaled_to(size_px) for change in changes if change.blur is not None)
    widest = max((kernel.kernel_px for kernel in kernels), default=1)
    listed: dict[str, list[list[float]]] = {}
    for row, change in enumerate(changes):
        for name, numbers in _operation_numbers(change, side_px, size_px, widest).items():
            listed.setdefault(name, []).append([row, *numbers])
    seed = next((change.noise.seed for change in changes if change.noise is not None), 0)
    values = [number for rows in listed.values() for row in rows for number in row]
    tables = [(name, len(rows), len(rows[0])) for name, rows in listed.items()]
    return ChangeNumbers(len(changes), size_px, tables, torch.tensor(values, dtype=torch.float32), seed)


def augment_batch(rgb_u8: UInt8[Tensor, "n 3 s s"], changes: ChangeNumbers) -> UInt8[Tensor, "n 3 r r"]:
    """Apply one change to each photo, on the device of the photos.

    The result equals that of `apply_change` up to rounding, except for noise: its values depend on the device and on
    the changes of the whole batch.

    Args:
        rgb_u8: square crops.
        changes: `change_numbers` of one change for each.

    Raises:
        ValueError: the numbers of changes and photos differ.
    """
    if changes.photos != len(rgb_u8):
        raise ValueError(f"{changes.photos} changes for {len(rgb_u8)} photos")
    size_px = changes.size_px
    if not len(rgb_u8):
        return rgb_u8.new_empty((0, 3, size_px, size_px))
    images = rgb_u8.to(torch.float32, copy=True, memory_format=torch.contiguous_format)
    generator = torch.Generator(images.device).manual_seed(changes.noise_seed)
    operations: dict[str, Callable[[Images, Numbers], Images]] = {
        "warp": warp,
        "mirror": mirror,
        **{f"{kind} {step}": adjust for step in range(4) for kind, adjust in ADJUSTMENTS.items()},
        "gray": to_gray,
        "blur": blur,
        "sharpness": adjust_sharpness,
        "noise": partial(add_noise, generator=generator),
        "jpeg": compress,
        "downscale": downscale,
        "shadow": cast_shadow,
        "holes": black_out,
        "erase": black_out,
    }
    chosen = _tables_on_device(changes, images.device)
    if size_px != rgb_u8.shape[-1]:  # every photo is in it
        images = warp(images, chosen.pop("warp")[:, 1:], size_px).clamp(0, 255)
    for name, operation in operations.items():
        if name in chosen:
            rows, numbers = chosen[name][:, 0].long(), chosen[name][:, 1:]
            images[rows] = operation(images[rows], numbers).clamp(0, 255)
    return images.round_().to(torch.uint8)


def _tables_on_device(changes: ChangeNumbers, device: torch.device) -> dict[str, Numbers]:
    values = changes.values.to(device, non_blocking=True)
    parts = values.split([rows * columns for _, rows, columns in changes.tables])
    return {name: part.view(rows, columns) for (name, rows, columns), part in zip(changes.tables, parts, strict=True)}


def _operation_numbers(change: Change, side: int, size_px: int, widest_blur: int) -> dict[str, Sequence[float]]:
    """Return the numbers of each operation drawn for one photo, by the operation's name."""
    numbers: dict[str, Sequence[float]] = {}
    if change.warps or size_px != side:
        numbers["warp"] = matrix_px(change.origin(), side, size_px).ravel().tolist()
    elif change.flip:
        numbers["mirror"] = ()
    if change.jitter is not None:
        numbers |= _jitter_numbers(change.jitter)
    if change.gray:
        numbers["gray"] = ()
    if change.blur is not None:
        numbers["blur"] = _kernel_taps(change.blur.scaled_to(size_px), widest_blur)
    if change.sharpness is not None:
        numbers["sharpness"] = (change.sharpness,)
    if change.noise is not None:
        numbers["noise"] = (change.noise.std,)
    if change.jpeg_quality is not None:
        numbers["jpeg"] = (change.jpeg_quality,)
    if change.downscale is not None:
        numbers["downscale"] = (low_side(size_px, change.downscale),)
    if change.shadow is not None:
        numbers["shadow"] = (
            change.shadow.loss,
            *(value for plane in change.shadow.planes for value in plane),
        )
    if change.holes:
        numbers["holes"] = _box_corners(change.holes, MAX_HOLES, size_px)
    if change.erase is not None:
        numbers["erase"] = _box_corners([change.erase], 1, size_px)
    return numbers


def _jitter_numbers(jitter: Jitter) -> dict[str, Sequence[float]]:
    """Return the numbers of the four adjustments, named by kind and position; three of them blend with a gray."""
    operations = {
        0: ("blend", (jitter.brightness, 0, 0)),
        1: ("blend", (jitter.contrast, 1, 0)),
        2: ("blend", (jitter.saturation, 0, 1)),
        3: ("hue", (jitter.hue,)),
    }
    return {f"{operations[kind][0]} {step}": operations[kind][1] for step, kind in enumerate(jitter.order)}


def _kernel_taps(by: Blur, widest: int) -> list[float]:
    """Return OpenCV's kernel, padded with zeros to the widest one."""
    taps = cv2.getGaussianKernel(by.kernel_px, by.sigma_px)[:, 0]
    return np.pad(taps, (widest - by.kernel_px) // 2).tolist()


def _box_corners(boxes: Sequence[Window], most: int, side: int) -> list[float]:
    """Return boxes in pixels, padded with empty ones."""
    corners = [float(corner) for box in boxes for corner in box.in_px(side)]
    return corners + [0.0] * (4 * most - len(corners))


def warp(images: Images, origin_px: Numbers, size_px: int | None = None) -> Float32[Tensor, "k 3 r r"]:
    """Warp as `ops_numpy.warp` does, by the six numbers of `matrix_px`."""
    size_px = size_px or images.shape[-1]
    half, result_half = (images.shape[-1] - 1) / 2, (size_px - 1) / 2
    matrix = origin_px.view(-1, 2, 3)
    turn = matrix[:, :, :2] * (result_half / half)
    shift = turn.sum(2) - 1 + matrix[:, :, 2] / half  # between coordinates from -1 to 1
    grid = F.affine_grid(
        torch.cat([turn, shift[:, :, None]], 2), [len(images), 3, size_px, size_px], align_corners=True
    )
    return F.grid_sample(images, grid, padding_mode="reflection", align_corners=True)


def mirror(images: Images, _: Numbers) -> Images:
    """Flip left and right."""
    return images.flip(3)


def blend(images: Images, numbers: Numbers) -> Images:
    """Adjust brightness, contrast or saturation: (factor, share of the mean gray, share of each pixel's gray)."""
    factor, mean_share, pixel_share = numbers.T[..., None, None, None]
    gray = to_luma(images)
    target = mean_share * gray.mean((2, 3), keepdim=True) + pixel_share * gray
    return target + factor * (images - target)


def shift_hue(images: Images, turns: Numbers) -> Images:
    """Rotate the hue as in HSV, without converting: value and chroma stay, only the sextant of the circle changes."""
    red, green, blue = images.unbind(1)
    value = images.amax(1)
    chroma = value - images.amin(1)
    span = chroma.clamp(min=1e-6)
    sixth = torch.where(value == green, (blue - red) / span + 2, (red - green) / span + 4)
    sixth = torch.where(value == red, (green - blue) / span, sixth) + 6 * turns[:, :, None]
    away = (sixth[:, None] + torch.arange(5, 0, -2, device=images.device)[:, None, None]) % 6
    return value[:, None] - chroma[:, None] * torch.minimum(away, 4 - away).clamp(0, 1)


ADJUSTMENTS = {"blend": blend, "hue": shift_hue}


def to_gray(images: Images, _: Numbers) -> Images:
    """Convert to luma in all three channels."""
    return to_luma(images).expand_as(images)


def blur(images: Images, taps: Numbers) -> Images:
    """Blur each image with its own kernel, in one convolution; narrow kernels are padded with zeros."""
    count, channels, side, _ = images.shape
    reach = taps.shape[1] // 2
    planes = F.pad(images, (reach, reach, reach, reach), mode="reflect").view(1, count * channels, -1, side + 2 * reach)
    kernels = taps.repeat_interleave(channels, 0)
    across = F.conv2d(planes, kernels[:, None, None, :], groups=count * channels)
    return F.conv2d(across, kernels[:, None, :, None], groups=count * channels).view_as(images)


def adjust_sharpness(images: Images, factor: Numbers) -> Images:
    """Scale the difference from a smoothed copy, as `ops_numpy.adjust_sharpness` does."""
    images = images.round()  # a large factor would amplify fractions that the version for one photo does not have
    smooth = images.clone()
    neighbors = 9 * F.avg_pool2d(images, 3, stride=1)
    smooth[:, :, 1:-1, 1:-1] = ((neighbors + 4 * images[:, :, 1:-1, 1:-1]) / 13).round()
    return smooth + factor[:, :, None, None] * (images - smooth)


def add_noise(images: Images, std: Numbers, generator: torch.Generator) -> Images:
    """Add Gaussian noise, independent in every pixel and channel."""
    change = torch.randn(images.shape, generator=generator, device=images.device)
    return images + 255 * std[:, :, None, None] * change


def downscale(images: Images, low: Numbers) -> Images:
    """Reduce to `low` pixels a side and enlarge again, as one matrix multiplied from both sides."""
    side = images.shape[-1]
    ticks = torch.arange(side, device=images.device)
    low = low[:, :, None]
    step = side / low
    # Down: the share of each small pixel that a large one covers. Rows beyond `low` have no effect.
    begin = ticks[:, None] * step
    covered = torch.minimum(ticks + 1, begin + step) - torch.maximum(ticks, begin)
    down = covered.clamp(min=0) / step
    # Up: linear between the centers of the small pixels, constant beyond the outermost.
    positions = ((ticks[:, None] + 0.5) / step - 0.5).clamp(min=0).minimum(low - 1)
    up = (1 - (positions - ticks).abs()).clamp(min=0)
    matrix = (up @ down)[:, None]
    return matrix @ images @ matrix.mT


def cast_shadow(images: Images, numbers: Numbers) -> Images:
    """Darken by shadows, given as (loss, then the three half-planes) of `ops_numpy.Shadow`."""
    side = images.shape[-1]
    ticks = (torch.arange(side, device=images.device) + 0.5) / side
    a, b, d = numbers[:, 1:].view(-1, 3, 3, 1, 1).unbind(2)
    depth = (a * ticks + b * ticks[:, None] + d).amin(1, keepdim=True)
    shade = (depth / SHADOW_BORDER + 0.5).clamp(0, 1)
    return images * (1 - numbers[:, :1, None, None] * shade)


def black_out(images: Images, corners: Numbers) -> Images:
    """Fill boxes with black, given as (left, top, right, bottom) in pixels one after another."""
    ticks = torch.arange(images.shape[-1], device=images.device)
    left, top, right, bottom = corners.view(len(corners), -1, 4, 1).unbind(2)
    columns, rows = (ticks >= left) & (ticks < right), (ticks >= top) & (ticks < bottom)
    inside = (rows[:, :, :, None] & columns[:, :, None, :]).any(1)
    return images.masked_fill(inside[:, None], 0)
