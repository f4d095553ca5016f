"""Changes of photos, for whole batches on the GPU."""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float, UInt8
from torch import Tensor
from torch.nn.functional import affine_grid, grid_sample, interpolate

LOW_SHARE = 4  # one photo in so many is made coarse


@dataclass(frozen=True)
class Changes:
    """How much photos are changed: the least share of the area that is kept, degrees, and shares of a color's value."""

    crop: float = 0.5
    ratio: float = 1.25
    turn_deg: float = 12.0
    shift: float = 0.0  # of the side, beyond what cropping leaves
    light: float = 0.35
    saturation: float = 0.3
    hue: float = 0.04
    gray: float = 0.05
    coarsest: float = 0.3  # side of a coarse photo, as a share
    covered: float = 0.0  # share of photos of which a bar or block is covered


STRONG = Changes()
MILD = Changes(crop=0.75, ratio=1.1, turn_deg=8.0, light=0.2, saturation=0.15, hue=0.02, gray=0.02)
MILDER = Changes(
    crop=0.85, ratio=1.06, turn_deg=4.0, light=0.12, saturation=0.1, hue=0.01, gray=0.0, coarsest=0.5
)  # than what is changed already
FACES = Changes(
    crop=0.85,
    ratio=1.06,
    turn_deg=7.0,
    shift=0.04,
    light=0.3,
    saturation=0.3,
    hue=0.03,
    gray=0.15,
    coarsest=0.2,
    covered=0.15,
)


def change(photos_u8: UInt8[Tensor, "n s s 3"], changes: Changes, size_px: int) -> Float[Tensor, "n 3 p p"]:
    """Return changed photos, standardized to [-1, 1]."""
    images = photos_u8.permute(0, 3, 1, 2).float()
    count, device = len(images), images.device

    def draw(low: float, high: float) -> Float[Tensor, " n"]:
        return torch.empty(count, device=device).uniform_(low, high)

    area, ratio = draw(changes.crop, 1), draw(-1, 1).mul(math.log(changes.ratio) / 2).exp()
    width, height = (area.sqrt() * ratio).clamp_max(1), (area.sqrt() / ratio).clamp_max(1)
    turn = draw(-1, 1) * math.radians(changes.turn_deg)
    mirror = torch.where(draw(0, 1) < 0.5, -1.0, 1.0)
    x = draw(-1, 1) * (1 - width + 2 * changes.shift)
    y = draw(-1, 1) * (1 - height + 2 * changes.shift)
    cosine, sine = turn.cos(), turn.sin()
    rows = (width * cosine * mirror, -height * sine, x, width * sine * mirror, height * cosine, y)
    theta = torch.stack(rows, 1).reshape(count, 2, 3)
    grid = affine_grid(theta, [count, 3, size_px, size_px], align_corners=False)
    images = grid_sample(images, grid, mode="bilinear", padding_mode="reflection", align_corners=False)
    coarse = images[: count // LOW_SHARE]
    if len(coarse):
        share = float(torch.empty(()).uniform_(changes.coarsest, 0.8))
        small = interpolate(coarse, scale_factor=share, mode="bilinear", antialias=True)
        images[: len(coarse)] = interpolate(small, (size_px, size_px), mode="bilinear")
    images = recolored(images, changes, draw)
    if changes.covered:
        images = covered(images, changes.covered, draw)
    return images.clamp(0, 255).div(127.5).sub(1).contiguous(memory_format=torch.channels_last)


def recolored(images: Tensor, changes: Changes, draw) -> Tensor:
    """Change brightness, contrast, saturation and hue, and take the color out of some."""
    shape = (-1, 1, 1, 1)
    weights = torch.tensor([0.299, 0.587, 0.114], device=images.device).reshape(1, 3, 1, 1)
    images = images * draw(1 - changes.light, 1 + changes.light).reshape(shape)
    mean = images.mean((1, 2, 3), keepdim=True)
    images = mean + (images - mean) * draw(1 - changes.light, 1 + changes.light).reshape(shape)
    gray = (images * weights).sum(1, keepdim=True)
    keep = draw(1 - changes.saturation, 1 + changes.saturation) * (draw(0, 1) >= changes.gray)
    images = gray + (images - gray) * keep.reshape(shape)
    tint = torch.stack([draw(1 - changes.hue, 1 + changes.hue) for _ in range(3)], 1)
    return images * tint[:, :, None, None]


def covered(images: Tensor, share: float, draw) -> Tensor:
    """Cover a bar across the eyes, or a block anywhere, of a share of the photos with one color."""
    size_px = images.shape[-1]
    position = (torch.arange(size_px, device=images.device) + 0.5) / size_px
    bar = draw(0, 1) < 0.5
    top = torch.where(bar, draw(0.36, 0.42), draw(0, 0.8))
    bottom = top + torch.where(bar, draw(0.1, 0.16), draw(0.15, 0.35))
    left = torch.where(bar, draw(0.12, 0.2), draw(0, 0.8))
    right = torch.where(bar, draw(0.8, 0.88), left + draw(0.15, 0.35))
    inside_y = (position >= top[:, None]) & (position < bottom[:, None])
    inside_x = (position >= left[:, None]) & (position < right[:, None])
    chosen = (draw(0, 1) < share)[:, None, None]
    inside = (inside_y[:, :, None] & inside_x[:, None, :] & chosen)[:, None]
    color = torch.stack([draw(0, 90) for _ in range(3)], 1)[:, :, None, None]
    return torch.where(inside, color, images)


def plain(photos_u8: UInt8[Tensor, "n s s 3"]) -> Float[Tensor, "n 3 s s"]:
    """Return photos as they are, standardized to [-1, 1]."""
    images = photos_u8.permute(0, 3, 1, 2).float().div(127.5).sub(1)
    return images.contiguous(memory_format=torch.channels_last)
