"""The detector's network: MobileNetV3-Small, a feature pyramid, and one map of stride 8 that tells what is where."""

from typing import NamedTuple

import torch
from jaxtyping import Float, UInt8
from torch import Tensor, nn
from torch.nn.functional import interpolate, max_pool2d

from familiar.detection.heads import LABELS
from familiar.models.backbones import MobileNetV3Trunk
from familiar.models.weights import TORCHVISION_BATCH_NORM_EPS

POINTS = 5  # left eye, right eye, nose, corners of the mouth; pets have the first three
STRIDE_PX = 8
WIDTH = 96  # channels of the pyramid
BOX_UNIT_PX, POINT_UNIT_PX = 16.0, 32.0
MAX_LOG_SIDE = 4.0  # exp(4) * 16 px = 870 px from the middle of a head to its edge
RARE = -4.6  # initial logit of a head: a hundredth, as in focal loss (arXiv 1708.02002)
MEAN_U8 = STD_U8 = 127.5


class Maps(NamedTuple):
    """What the network says of each cell of 8 px.

    Attributes:
        logits: of a head of each label whose middle is here.
        boxes_xyxy_px: of that head, in pixels of the image.
        points_px: its landmarks.
    """

    logits: Float[Tensor, "n l h w"]
    boxes_xyxy_px: Float[Tensor, "n 4 h w"]
    points_px: Float[Tensor, "n p 2 h w"]


class Block(nn.Sequential):
    """A depthwise convolution of 5 x 5 and one of 1 x 1, each with batch norm."""

    def __init__(self, channels: int) -> None:
        super().__init__(
            nn.Conv2d(channels, channels, 5, padding=2, groups=channels, bias=False),
            nn.BatchNorm2d(channels),
            nn.Hardswish(),
            nn.Conv2d(channels, channels, 1, bias=False),
            nn.BatchNorm2d(channels),
            nn.Hardswish(),
        )


def lateral(channels: int, width: int) -> nn.Sequential:
    """Bring a map of the trunk to the pyramid's width."""
    return nn.Sequential(nn.Conv2d(channels, width, 1, bias=False), nn.BatchNorm2d(width))


class DetectorNetwork(nn.Module):
    """Finds heads of cats, dogs and people.

    The label of a head is told by the cell that its middle lies in (Zhou et al. 2019, "Objects as points",
    arXiv 1904.07850); cells around it also tell its box (Liu et al. 2019, TTFNet, arXiv 1909.00700).
    """

    def __init__(self, width: int = WIDTH) -> None:
        super().__init__()
        self.trunk = trunk = MobileNetV3Trunk("mobilenetv3_small_100")
        trunk.batch_norm_eps = TORCHVISION_BATCH_NORM_EPS  # that of the initial weights
        self.lateral_8, self.lateral_16, self.lateral_32 = (lateral(each, width) for each in (24, 48, trunk.channels))
        self.merge_8, self.merge_16, self.merge_32 = Block(width), Block(width), Block(width)
        self.tower = nn.Sequential(Block(width), Block(width))
        self.top = nn.Conv2d(width, len(LABELS) + 4 + 2 * POINTS, 1)
        nn.init.normal_(self.top.weight, std=0.01)
        nn.init.zeros_(self.top.bias)
        nn.init.constant_(self.top.bias[: len(LABELS)], RARE)

    def forward(self, images: Float[Tensor, "n 3 s t"]) -> Maps:
        """Compute the maps of standardized images whose sides are multiples of 32 px."""
        return to_maps(self.values(images))

    def values(self, images: Float[Tensor, "n 3 s t"]) -> Float[Tensor, "n k h w"]:
        """Compute the last layer's channels."""
        network = self.trunk.backbone
        features = network.bn1(network.conv_stem(images))
        stages: list[Tensor] = []
        for stage in network.blocks:
            features = stage(features)
            stages.append(features)
        last = network.act2(network.norm_head(network.conv_head(features)))
        coarse = self.merge_32(self.lateral_32(last))
        middle = self.merge_16(self.lateral_16(stages[3]) + interpolate(coarse, scale_factor=2.0))
        fine = self.merge_8(self.lateral_8(stages[1]) + interpolate(middle, scale_factor=2.0))
        return self.top(self.tower(fine))


def to_maps(values: Float[Tensor, "n k h w"]) -> Maps:
    """Give the last layer's channels their meanings."""
    logits, sides, shifts = values.split([len(LABELS), 4, 2 * POINTS], 1)
    middles = cell_middles_px(values)
    distances = sides.clamp_max(MAX_LOG_SIDE).exp() * BOX_UNIT_PX
    boxes = torch.cat([middles - distances[:, :2], middles + distances[:, 2:]], 1)
    return Maps(logits, boxes, middles + shifts.unflatten(1, (POINTS, 2)) * POINT_UNIT_PX)


def cell_middles_px(values: Float[Tensor, "n k h w"]) -> Float[Tensor, "2 h w"]:
    """Return (x, y) of the middle of each cell."""
    height, width = values.shape[2:]
    y = (torch.arange(height, device=values.device, dtype=values.dtype) + 0.5) * STRIDE_PX
    x = (torch.arange(width, device=values.device, dtype=values.dtype) + 0.5) * STRIDE_PX
    return torch.stack([x.expand(height, width), y[:, None].expand(height, width)])


class Plain(nn.Module):
    """The network without what comes before and after its layers, for the rounding of their weights."""

    def __init__(self, network: DetectorNetwork) -> None:
        super().__init__()
        self.network = network

    def forward(self, images: Float[Tensor, "n 3 s t"]) -> Float[Tensor, "n k h w"]:
        """Compute the last layer's channels."""
        return self.network.values(images)


class Deployed(nn.Module):
    """The network as the package has it: from pixels to heads, one a cell; a cell beside a better one has score 0."""

    def __init__(self, network: DetectorNetwork) -> None:
        super().__init__()
        self.network = network

    def forward(
        self, photo_u8: UInt8[Tensor, "1 s t 3"]
    ) -> tuple[Float[Tensor, "c 4"], Float[Tensor, "c l"], Float[Tensor, "c p 2"]]:
        """Find boxes, scores of each label, and landmarks."""
        images = (photo_u8.permute(0, 3, 1, 2).float() - MEAN_U8) / STD_U8
        maps = to_maps(self.network.values(images))
        best = maps.logits.amax(1, keepdim=True)
        is_peak = (max_pool2d(best, 3, 1, 1) == best).to(maps.logits.dtype)
        scores = maps.logits.sigmoid() * is_peak
        return (
            maps.boxes_xyxy_px[0].flatten(1).T,
            scores[0].flatten(1).T,
            maps.points_px[0].flatten(2).permute(2, 0, 1),
        )
