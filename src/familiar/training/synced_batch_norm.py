"""Batch norm over the rows of all ranks, on any device.

torch's own needs a GPU, where it is faster.
"""

from typing import Any, cast

import torch
import torch.distributed as dist
from jaxtyping import Float
from timm.layers.norm_act import BatchNormAct2d, SyncBatchNormAct
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.modules.batchnorm import _BatchNorm


def synchronize_batch_norms(network: nn.Module, device: torch.device) -> None:
    """Make the batch norms of a network in training mode normalize by the photos of all ranks, in place.

    Parameters and statistics stay the same, under the same names. In evaluation mode nothing changes.

    Args:
        network: with batch norms of torch and timm.
        device: on which it will compute.
    """
    for module in network.modules():
        if isinstance(module, _BatchNorm):
            with_activation = isinstance(module, BatchNormAct2d)
            if device.type == "cuda":
                module.process_group = cast("Any", dist.group.WORLD)
                chosen = SyncBatchNormAct if with_activation else nn.SyncBatchNorm
            else:
                chosen = SyncedBatchNormAct if with_activation else SyncedBatchNorm
            module.__class__ = chosen  # pyright: ignore[reportAttributeAccessIssue]


class SyncedBatchNorm(_BatchNorm):
    """A batch norm whose mean and variance in training are those over the rows of all ranks.

    Every rank must call it equally often, and each waits for the others. A rank may have no rows.
    """

    def forward(self, input: Float[Tensor, "n c *map"]) -> Float[Tensor, "n c *map"]:  # noqa: A002 (torch's name)
        """Normalize rows."""
        return self._normalize(input) if self.training else super().forward(input)

    def _normalize(self, rows: Tensor) -> Tensor:
        mean, squares, count = _statistics_of_all(rows)
        variance = squares / count
        if self.running_mean is not None:
            self._update_statistics(mean, squares / (count - 1).clamp_min(1))
        scale = torch.rsqrt(variance + self.eps)
        return _Normalize.apply(rows, self.weight, self.bias, mean, scale, count)

    @torch.no_grad()
    def _update_statistics(self, mean: Tensor, variance: Tensor) -> None:
        running_mean, running_variance, batches = self.running_mean, self.running_var, self.num_batches_tracked
        assert running_mean is not None
        assert running_variance is not None
        assert batches is not None
        batches.add_(1)
        share = 1 / batches.item() if self.momentum is None else self.momentum
        running_mean.lerp_(mean.to(running_mean.dtype), share)
        running_variance.lerp_(variance.to(running_variance.dtype), share)

    def _check_input_dim(self, input: Tensor) -> None:  # noqa: A002 (torch's name)
        """Accept any: each channel is normalized over all other axes."""


class SyncedBatchNormAct(SyncedBatchNorm):
    """The same, followed by an activation, as timm's `BatchNormAct2d` is."""

    drop: nn.Module
    act: nn.Module

    def forward(self, input: Float[Tensor, "n c h w"]) -> Float[Tensor, "n c h w"]:  # noqa: A002 (torch's name)
        """Normalize rows and apply the activation."""
        return self.act(self.drop(super().forward(input)))


class _Normalize(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, weight: Tensor | None, bias: Tensor | None, *statistics: Tensor) -> Tensor:
        mean, scale, count = statistics
        ctx.save_for_backward(rows, weight, mean, scale, count)
        normalized = (rows - _by_channel(mean, rows)) * _by_channel(scale, rows)
        if weight is not None and bias is not None:
            normalized = normalized * _by_channel(weight, rows) + _by_channel(bias, rows)
        return normalized.to(rows.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore
        rows, weight, mean, scale, count = ctx.saved_tensors
        gradient = gradients[0].to(mean.dtype)
        axes = [axis for axis in range(rows.ndim) if axis != 1]
        normalized = (rows - _by_channel(mean, rows)) * _by_channel(scale, rows)
        bias_gradient, weight_gradient = gradient.sum(axes), (gradient * normalized).sum(axes)
        sums = torch.stack([bias_gradient, weight_gradient])
        dist.all_reduce(sums)
        means = sums / count
        rows_gradient = gradient - _by_channel(means[0], rows) - normalized * _by_channel(means[1], rows)
        factor = scale if weight is None else scale * weight
        rows_gradient = (rows_gradient * _by_channel(factor, rows)).to(rows.dtype)
        if weight is None:
            return rows_gradient, None, None, None, None, None
        return rows_gradient, weight_gradient.to(weight.dtype), bias_gradient.to(weight.dtype), None, None, None


def _statistics_of_all(rows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return mean, sum of squared deviations from it, and count, over the rows of all ranks, by channel.

    Combined from each rank's own mean (Chan et al. 1979): sums of squares alone would lose digits.
    """
    values = rows.detach().transpose(0, 1).flatten(1).to(torch.promote_types(rows.dtype, torch.float32))
    channels, count = values.shape
    mean = values.mean(dim=1) if count else values.new_zeros(channels)
    squares = (values - mean[:, None]).square().sum(dim=1)
    statistics = torch.stack([mean, squares, torch.full_like(mean, count)])
    parts = [torch.empty_like(statistics) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, statistics)
    means, all_squares, counts = torch.stack(parts).unbind(dim=1)
    total = counts.sum(dim=0)
    joint = (means * counts).sum(dim=0) / total
    return joint, (all_squares + counts * (means - joint).square()).sum(dim=0), total


def _by_channel(values: Tensor, rows: Tensor) -> Tensor:
    """Shape one value for each channel so that it is broadcast over rows and positions."""
    return values.view(1, -1, *[1] * (rows.ndim - 2))
