"""What all trainings here share: the schedule, losses, soups of weights, rounding while training, and judging."""

import copy
import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int64
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn.functional import conv2d, normalize

from familiar import metrics
from familiar.export.bias_correction import MIN_KERNEL_TAPS, MIN_MATRIX_COLUMNS
from familiar.export.gptq import MAX_INT4
from familiar.models.network import EmbeddingNetwork

RELATION_WEIGHT = 100.0
NEIGHBOR_SHARPNESS = 20.0
CLIPPED_SHARES = (0.5, 0.6, 0.7, 0.8, 0.9, 1.0)


class Clock:
    """How far a training is: by its steps, or by its time, whichever is further."""

    def __init__(self, steps: int, seconds: float) -> None:
        self.steps, self.seconds, self.began, self.done = steps, seconds, time.monotonic(), 0

    def __iter__(self) -> Iterator[float]:
        while (share := self.share()) < 1:
            yield share
            self.done += 1

    def share(self) -> float:
        return max(self.done / self.steps, (time.monotonic() - self.began) / self.seconds)


@dataclass(frozen=True)
class Layout:
    """How a network's numbers lie in memory, and how many bits they have, while it is trained."""

    memory_format: torch.memory_format
    dtype: torch.dtype

    def raw(self, network: EmbeddingNetwork, images: Tensor) -> Float[Tensor, "n d"]:
        """Compute embeddings that are not normalized."""
        images = images.contiguous(memory_format=self.memory_format)
        half = self.dtype is torch.bfloat16
        with torch.autocast(images.device.type, self.dtype, enabled=half and images.is_cuda):
            return network.raw(images).float()


LAYOUTS = (
    Layout(torch.contiguous_format, torch.bfloat16),
    Layout(torch.contiguous_format, torch.float32),
    Layout(torch.channels_last, torch.bfloat16),
)
TRIED_STEPS = 5
TOO_SLOW_S = 1.0


def fastest_layout(network: EmbeddingNetwork, images: Tensor) -> tuple[Layout, list[float]]:
    """Return the fastest way to train a network on a batch, and the seconds that a step of each takes.

    The gradients of some depthwise kernels take cuDNN seconds in one layout and milliseconds in another. On a CPU
    nothing is timed. The network is left in that layout.
    """
    state = copy.deepcopy(network.state_dict())
    seconds = []
    for layout in LAYOUTS if images.is_cuda else LAYOUTS[1:2]:
        network.to(memory_format=layout.memory_format)
        times = []
        for _ in range(TRIED_STEPS):
            began = time.monotonic()
            layout.raw(network, images).square().mean().backward()
            if images.is_cuda:
                torch.cuda.synchronize()
            times.append(time.monotonic() - began)
            if len(times) > 1 and times[-1] > TOO_SLOW_S:
                break
        seconds.append(min(times))
    network.load_state_dict(state)  # the statistics of batch norms have moved
    network.zero_grad(set_to_none=True)
    best = LAYOUTS[seconds.index(min(seconds))] if images.is_cuda else LAYOUTS[1]
    network.to(memory_format=best.memory_format)
    return best, seconds


def rate(share: float, warm_up: float = 0.05) -> float:
    """Return the learning rate's factor at a share of the training: a linear rise, then half a cosine."""
    return min(1.0, (share + 1e-3) / warm_up) * (0.5 + 0.5 * math.cos(math.pi * share))


def optimizer_of(groups: Sequence[dict[str, Any]], weight_decay: float) -> torch.optim.AdamW:
    groups = [{**group, "peak": group["lr"]} for group in groups if group["params"]]
    return torch.optim.AdamW(groups, weight_decay=weight_decay, fused=torch.cuda.is_available())


def step(optimizer: torch.optim.Optimizer, loss: Tensor, share: float, limit: float = 5.0) -> None:
    """Take one step of the optimizer."""
    for group in optimizer.param_groups:
        group["lr"] = group["peak"] * rate(share)
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    nn.utils.clip_grad_norm_([each for group in optimizer.param_groups for each in group["params"]], limit)
    optimizer.step()


def relation_loss(student: Float[Tensor, "n d"], teacher: Float[Tensor, "n k"]) -> Float[Tensor, ""]:
    """Compare the similarities within a batch with the teacher's: as they are, less the mean, and of the nearest."""
    loss = torch.zeros((), device=student.device)
    for embeddings, vectors in ((student, teacher), (less_the_mean(student), less_the_mean(teacher))):
        ours, target = embeddings @ embeddings.T, vectors @ vectors.T
        loss = loss + RELATION_WEIGHT * (ours - target).square().mean() / 2
    diagonal = torch.eye(len(ours), dtype=torch.bool, device=ours.device)
    ours, target = (each.masked_fill(diagonal, -9) * NEIGHBOR_SHARPNESS for each in (ours, target))
    return loss + 0.5 * nn.functional.kl_div(ours.log_softmax(1), target.softmax(1), reduction="batchmean")


def less_the_mean(embeddings: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
    return normalize(embeddings - 0.9 * embeddings.mean(0, keepdim=True))


def soup(networks: Sequence[nn.Module], weights: Sequence[float] | None = None) -> Any:
    """Return a network whose weights are the mean of those of others."""
    result = copy.deepcopy(networks[0])
    result.load_state_dict(mean_state([network.state_dict() for network in networks], weights))
    return result


def mean_state(states: Sequence[dict[str, Tensor]], weights: Sequence[float] | None = None) -> dict[str, Tensor]:
    """Return the mean of weights: of trainings that began alike, it is better than most of them (arXiv 2203.05482)."""
    shares = weights or [1 / len(states)] * len(states)
    mean = dict(states[0])
    for name, tensor in mean.items():
        if tensor.is_floating_point() and "extra_state" not in name:
            total = torch.zeros_like(tensor, dtype=torch.float64)
            for share, state in zip(shares, states, strict=True):
                total += share * state[name].double()
            mean[name] = total.to(tensor.dtype)
    return mean


def save(network: nn.Module, file: Path) -> None:
    """Save the weights as a run's `embedder.safetensors` has them, in 16 bits."""
    tensors = {
        f"network.{name}": (each.half() if each.dtype == torch.float32 else each).cpu().contiguous()
        for name, each in network.state_dict().items()
    }
    file.parent.mkdir(parents=True, exist_ok=True)
    save_file(tensors, file)


# --- 4 bits --------------------------------------------------------------------------------------------------------


def has_4_bits(layer: nn.Module) -> bool:
    """Whether an export in int4-weights stores a layer's weights in 4 bits."""
    if not isinstance(layer, nn.Conv2d):
        return False
    _, columns, *kernel = layer.weight.shape
    taps = math.prod(kernel)
    return (taps == 1 and layer.groups == 1 and columns >= MIN_MATRIX_COLUMNS) or (
        columns == 1 and taps >= MIN_KERNEL_TAPS
    )


@torch.no_grad()
def in_4_bits(weight: Float[Tensor, "o i *k"]) -> Float[Tensor, "o i *k"]:
    """Round each row to the nearest of 15 multiples of a scale, the best of some."""
    rows = weight.flatten(1)
    shares = torch.tensor(CLIPPED_SHARES, device=rows.device)[:, None, None]
    scale = rows.abs().amax(1, keepdim=True)[None] * shares / MAX_INT4 + 1e-12
    rounded = (rows[None] / scale).round().clamp(-MAX_INT4, MAX_INT4) * scale
    best = (rounded - rows[None]).square().sum(2).argmin(0)
    return rounded[best, torch.arange(len(rows), device=rows.device)].reshape(weight.shape)


def _rounded_forward(layer: nn.Conv2d, images: Tensor) -> Tensor:
    weight = layer.weight + (in_4_bits(layer.weight) - layer.weight).detach()
    return conv2d(images, weight, layer.bias, layer.stride, layer.padding, layer.dilation, layer.groups)


def round_while_training(network: nn.Module) -> None:
    """Compute with weights in 4 bits from now on, with gradients as if they were not rounded."""
    for layer in network.modules():
        if has_4_bits(layer):
            layer.forward = _rounded_forward.__get__(layer)


@torch.no_grad()
def rounded(network: nn.Module) -> Any:
    """Return a copy that computes with its own weights again, which are rounded."""
    result = copy.deepcopy(network)
    for layer in result.modules():
        if has_4_bits(layer):
            layer.__dict__.pop("forward", None)
            layer.weight.copy_(in_4_bits(layer.weight))
    return result


# --- Judging -------------------------------------------------------------------------------------------------------


@torch.no_grad()
def embed(network: EmbeddingNetwork, photos_u8: Tensor, prepare: Any, batch: int = 256) -> Float[Tensor, "n d"]:
    """Embed photos as a bundle does: all views."""
    network.eval()
    parts = []
    for part in photos_u8.split(batch):
        with torch.autocast(part.device.type, torch.bfloat16, enabled=part.device.type == "cuda"):
            parts.append(network(prepare(part)).float())
    return torch.cat(parts)


def scores(embeddings: Float[Tensor, "n d"], labels: Int64[np.ndarray, " n"]) -> tuple[float, float]:
    """Return ROC AUC of all pairs and recall@1."""
    similarities = (embeddings @ embeddings.T).cpu().numpy()
    left, right = np.triu_indices(len(labels), 1)
    values, same = similarities[left, right], labels[left] == labels[right]
    auc, _ = pair_scores(values, same)
    np.fill_diagonal(similarities, -9)
    queries = np.bincount(labels)[labels] > 1
    hits = labels[similarities.argmax(1)] == labels
    return auc, float(hits[queries].mean())


def pair_scores(values: Float[np.ndarray, " p"], same: Bool[np.ndarray, " p"]) -> tuple[float, float]:
    """Return ROC AUC and best accuracy of pairs; NaN if they are all of one kind, as among a few photos for a try."""
    if same.all() or not same.any():
        return math.nan, math.nan
    counts = metrics.roc_counts(values[same], values[~same])
    return float(metrics.roc_auc(counts)), float(metrics.best_accuracy(counts)[0])


def draw_batches(generator: np.random.Generator, count: int, size: int) -> Iterator[Int64[np.ndarray, " b"]]:
    """Yield batches of row numbers, each row once an epoch, without end."""
    while True:
        order = generator.permutation(count)
        for start in range(0, count - size + 1, size):
            yield order[start : start + size]
        if count < size:
            yield np.resize(order, size)
