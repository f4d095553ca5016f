"""Blended faces: faces that nobody has, made of one or two crops, for a teacher to embed.

A few thousand people are few points of the space that a teacher knows. Between and around them there are as many as one
likes: a face bent a little, the mean of two faces, the eyes of one above the mouth of another (mixup, arXiv 1710.09412;
CutMix, arXiv 1905.04899; for teachers "function matching", arXiv 2106.05237). They have no label: only a teacher knows
where they lie.
"""

import cv2
import numpy as np
from jaxtyping import Float32

from familiar.datasets.identity_table import IdentityTable
from familiar.loading.augment.settings import Augmentation
from familiar.loading.cache import Pixels
from familiar.loading.crops import Crops
from familiar.loading.dataset import FaceDataset

BLEND_STREAM = 7  # makes these draws independent of others with the same seed
NO_LABEL = -1

BENT_SHARE, MIXED_SHARE = 0.25, 0.35  # of the blends; the others are cut along a line
BENDS = (0.009, 0.04)  # standard deviation of the displacement, in sides
STRETCH = 0.08
GRID = 4  # nodes of the displacement's grid along a side
MIXES = (0.3, 0.7)  # share of the first crop in a mix
CUT_OFFSET, CUT_SOFTNESS = 0.14, (0.01, 0.055)  # of the line from the center, and of its edge, in sides
SAME_COLORS_SHARE = 0.7


class BlendedDataset(FaceDataset):
    """The crops of a table, followed by blended ones.

    Row `len(table) + i` is blend i; its label is `NO_LABEL`. Blend i depends only on the seed, on i and on the crops.

    Args:
        table: as for `FaceDataset`.
        crops: as for `FaceDataset`.
        augmentation: as for `FaceDataset`; applied to blends too.
        seed: of the augmentation and the blends.
        blends: how many.
    """

    def __init__(
        self,
        table: IdentityTable,
        crops: Crops,
        augmentation: Augmentation | None = None,
        seed: int = 0,
        *,
        blends: int,
    ) -> None:
        super().__init__(table, crops, augmentation, seed)
        self.labels = np.concatenate([table.labels, np.full(blends, NO_LABEL, np.int64)])

    def crop(self, row: int) -> Pixels:
        """Return a crop or a blend without augmentation.

        Args:
            row: of the dataset; those after the photos are blends.
        """
        photos = len(self.table)
        return super().crop(row) if row < photos else blend(self.crops, row - photos, self.seed)


def blend(crops: Crops, index: int, seed: int) -> Pixels:
    """Draw a blended face.

    Args:
        crops: of faces, aligned alike.
        index: which blend, from 0.
        seed: of the draw.
    """
    generator = np.random.default_rng((BLEND_STREAM, seed, index))
    first, second = (_mirrored(crops[int(row)], generator) for row in generator.integers(len(crops), size=2))
    kind = generator.random()
    if kind < BENT_SHARE:
        return bend(first, generator)
    first, second = (bend(pixels, generator) if generator.random() < 0.5 else pixels for pixels in (first, second))
    if generator.random() < SAME_COLORS_SHARE:
        second = match_colors(second, first)
    side = len(first)
    share = np.full((side, side, 1), generator.uniform(*MIXES), np.float32)
    if kind >= BENT_SHARE + MIXED_SHARE:
        share = _soft_half_plane(side, generator)
    return np.rint(share * first + (1 - share) * second).clip(0, 255).astype(np.uint8)


def bend(pixels: Pixels, generator: np.random.Generator) -> Pixels:
    """Move the features of a face by a smooth random displacement, and stretch it a little.

    Args:
        pixels: the crop.
        generator: of the draw.
    """
    side = len(pixels)
    strength = generator.uniform(*BENDS) * side
    nodes = generator.normal(0, strength, (GRID, GRID, 2)).astype(np.float32)
    shift = cv2.resize(nodes, (side, side), interpolation=cv2.INTER_CUBIC)
    stretch = generator.uniform(1 - STRETCH, 1 + STRETCH, 2).astype(np.float32)
    center = (side - 1) / 2
    grid = np.indices((side, side), np.float32)[::-1].transpose(1, 2, 0)
    x, y = cv2.split((grid - center) * stretch + center + shift)
    return cv2.remap(np.ascontiguousarray(pixels), x, y, cv2.INTER_LINEAR, borderMode=cv2.BORDER_REPLICATE)


def match_colors(pixels: Pixels, model: Pixels) -> Float32[np.ndarray, "s s 3"]:
    """Give each channel the mean and the standard deviation of another crop's; the result is not clipped.

    Args:
        pixels: the crop to change.
        model: the crop whose colors it is given.
    """
    mean, std = _channel_statistics(pixels)
    to_mean, to_std = _channel_statistics(model)
    return (pixels - mean) * (to_std / np.maximum(std, 1e-3)) + to_mean


def _channel_statistics(pixels: Pixels) -> tuple[Float32[np.ndarray, " 3"], Float32[np.ndarray, " 3"]]:
    """Return mean and standard deviation of each channel: ten times as fast as NumPy's."""
    mean, std = cv2.meanStdDev(np.ascontiguousarray(pixels))
    return mean[:, 0].astype(np.float32), std[:, 0].astype(np.float32)


def _mirrored(pixels: Pixels, generator: np.random.Generator) -> Pixels:
    return pixels[:, ::-1] if generator.random() < 0.5 else pixels


def _soft_half_plane(side: int, generator: np.random.Generator) -> Float32[np.ndarray, "s s 1"]:
    """Return a map that rises from 0 to 1 across a line near the center: horizontal, vertical or slanted."""
    angle = generator.choice([0.0, np.pi / 2, generator.uniform(0, np.pi)])
    offset, softness = generator.uniform(-CUT_OFFSET, CUT_OFFSET), generator.uniform(*CUT_SOFTNESS)
    y, x = np.indices((side, side), np.float32) / side - 0.5
    distance = np.cos(angle) * x + np.sin(angle) * y - offset
    return (1 / (1 + np.exp(np.clip(-distance / softness, -30, 30)))).astype(np.float32)[..., None]
