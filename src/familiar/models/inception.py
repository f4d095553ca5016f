"""FaceNet's Inception networks (arXiv 1503.03832, Table 2): NN2, its variants NN3 and NN4, and two small ones.

For NNS1 and NNS2 the paper gives only their budgets of parameters and multiply-adds; the tables here are ours.
"""

from dataclasses import dataclass, replace
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import avg_pool2d

from familiar.models.zeiler_fergus import convolution_layers, response_norm


@dataclass(frozen=True)
class Inception:
    """One block, a row of the paper's table: output channels of each branch, 0 if the block has no such branch.

    `pool` 0: the pooling branch has no projection. In the 3x3 and 5x5 branches a 1x1 reduction comes first, and the
    convolution has the block's stride.
    """

    name: str
    direct: int
    reduce3: int
    out3: int
    reduce5: int
    out5: int
    pooling: Literal["max", "l2"]
    pool: int
    stride: int = 1


@dataclass(frozen=True)
class InceptionTable:
    """A whole network: stem (a strided 7x7), a 1x1 reduction, a 3x3 convolution to `second` channels, the blocks."""

    stem: int
    reduce: int
    second: int
    blocks: tuple[Inception, ...]


NN2 = InceptionTable(
    64,
    64,
    192,
    (
        Inception("3a", 64, 96, 128, 16, 32, "max", 32),
        Inception("3b", 64, 96, 128, 32, 64, "l2", 64),
        Inception("3c", 0, 128, 256, 32, 64, "max", 0, stride=2),
        Inception("4a", 256, 96, 192, 32, 64, "l2", 128),
        Inception("4b", 224, 112, 224, 32, 64, "l2", 128),
        Inception("4c", 192, 128, 256, 32, 64, "l2", 128),
        Inception("4d", 160, 144, 288, 32, 64, "l2", 128),
        Inception("4e", 0, 160, 256, 64, 128, "max", 0, stride=2),
        Inception("5a", 384, 192, 384, 48, 128, "l2", 128),
        Inception("5b", 384, 192, 384, 48, 128, "max", 128),
    ),
)
# "Without 5x5 convolutions in the higher layers": taken to mean the last three, whose map is 3 x 3 or smaller at 96 px.
NN4 = replace(
    NN2,
    blocks=tuple(
        replace(block, reduce5=0, out5=0) if block.name in ("4e", "5a", "5b") else block for block in NN2.blocks
    ),
)
NNS1 = InceptionTable(
    32,
    32,
    72,
    (
        Inception("3a", 32, 40, 48, 8, 16, "max", 16),
        Inception("3b", 32, 48, 64, 16, 32, "l2", 32),
        Inception("3c", 0, 64, 128, 16, 32, "max", 0, stride=2),
        Inception("4a", 128, 48, 80, 16, 32, "l2", 64),
        Inception("4b", 96, 64, 128, 16, 32, "l2", 64),
        Inception("4e", 0, 80, 128, 32, 64, "max", 0, stride=2),
        Inception("5a", 192, 96, 192, 24, 64, "l2", 64),
        Inception("5b", 192, 96, 192, 24, 64, "max", 64),
    ),
)
NNS2 = InceptionTable(
    12,
    12,
    24,
    (
        Inception("3a", 16, 16, 20, 4, 8, "max", 8),
        Inception("3c", 0, 16, 32, 8, 16, "max", 0, stride=2),
        Inception("4a", 40, 20, 40, 8, 16, "l2", 32),
        Inception("4e", 0, 32, 64, 16, 32, "max", 0, stride=2),
        Inception("5a", 96, 48, 96, 12, 32, "max", 32),
    ),
)


class InceptionTrunk(nn.Module):
    """The network of `table` up to its last block; with `batch_norm` after each convolution, instead of its bias."""

    def __init__(self, table: InceptionTable, batch_norm: bool = True) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            *convolution_layers(3, table.stem, 7, 2, batch_norm),
            nn.MaxPool2d(3, stride=2, padding=1),
            response_norm(),
            *convolution_layers(table.stem, table.reduce, 1, 1, batch_norm),
            *convolution_layers(table.reduce, table.second, 3, 1, batch_norm),
            response_norm(),
            nn.MaxPool2d(3, stride=2, padding=1),
        )
        blocks: dict[str, nn.Module] = {}
        self.channels = table.second
        for row in table.blocks:
            block = InceptionBlock(self.channels, row, batch_norm)
            blocks[row.name], self.channels = block, block.channels
        self.blocks = nn.ModuleDict(blocks)

    def forward(self, images: Float[Tensor, "n 3 s s"]) -> Float[Tensor, "n c k k"]:
        """Compute the feature maps of images."""
        features = self.stem(images)
        for block in self.blocks.values():
            features = block(features)
        return features


class InceptionBlock(nn.Module):
    """One Inception block: its branches' outputs, concatenated."""

    def __init__(self, inputs: int, row: Inception, batch_norm: bool) -> None:
        super().__init__()
        branches: list[nn.Module] = []
        if row.direct:
            branches.append(nn.Sequential(*convolution_layers(inputs, row.direct, 1, 1, batch_norm)))
        for kernel_px, reduced, outputs in ((3, row.reduce3, row.out3), (5, row.reduce5, row.out5)):
            if outputs:
                branches.append(
                    nn.Sequential(
                        *convolution_layers(inputs, reduced, 1, 1, batch_norm),
                        *convolution_layers(reduced, outputs, kernel_px, row.stride, batch_norm),
                    )
                )
        pool = nn.MaxPool2d(3, row.stride, padding=1) if row.pooling == "max" else L2Pool(row.stride)
        project = convolution_layers(inputs, row.pool, 1, 1, batch_norm) if row.pool else []
        branches.append(nn.Sequential(pool, *project))
        self.branches = nn.ModuleList(branches)
        self.channels = row.direct + row.out3 + row.out5 + (row.pool or inputs)

    def forward(self, features: Float[Tensor, "n i h w"]) -> Float[Tensor, "n o h2 w2"]:
        """Compute the layer's output."""
        return torch.cat([branch(features) for branch in self.branches], 1)


class L2Pool(nn.Module):
    """Root mean square over 3x3 windows."""

    def __init__(self, stride: int) -> None:
        super().__init__()
        self.stride = stride

    def forward(self, features: Float[Tensor, "n c h w"]) -> Float[Tensor, "n c h2 w2"]:
        """Compute the layer's output."""
        half = features.dtype in (torch.float16, torch.bfloat16)  # in float16 256^2 overflows and 1e-12 is 0
        squares = (features.float() if half else features).square()
        if squares.is_cuda:
            squares = squares.contiguous()  # the gradient of padded channels-last maps was wrong (pytorch #188344)
        mean = avg_pool2d(squares, 3, self.stride, padding=1, count_include_pad=False)
        return (mean + 1e-12).sqrt().to(features.dtype)  # 1e-12, since the root's slope is infinite at 0
