"""Training of the detector's network on scenes."""

import copy
import math
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import torch
from jaxtyping import Float
from onnx import numpy_helper
from torch import Tensor, nn
from torch.nn.functional import logsigmoid
from torch.utils.data import DataLoader, Subset

from familiar.models.weights import load_weights_file, reinflate_batch_norm
from pet_detector.network import MEAN_U8, POINTS, STD_U8, DetectorNetwork, Maps
from pet_detector.scenes import Scenes

BATCH = 32
LR, AGAIN_LR, LAST_LR = 1.5e-3, 1.3e-3, 8e-4
TRUNK_LR_SHARE, WEIGHT_DECAY = 0.4, 1e-4
WARM_UP_STEPS = 200
AVERAGED_STEPS = 400  # of the moving average of the weights
STATE_STEPS = 20
BOX_WEIGHT, POINT_WEIGHT = 4.0, 1.0
STATISTICS_BATCHES = 8
GRADIENT_LIMIT = 20.0


def initial_network(scenes: Scenes, weights: Path) -> DetectorNetwork:
    """Return the network with the trunk's ImageNet weights, whose batch norms get the statistics of some scenes."""
    torch.manual_seed(0)
    network = DetectorNetwork().to(memory_format=torch.channels_last)
    load_weights_file(network.trunk, weights)
    reinflate_batch_norm(network.trunk, statistics_images(scenes))
    return network


def train(network: DetectorNetwork, scenes: Scenes, state: Path, lr: float = LR, workers: int = 1) -> DetectorNetwork:
    """Train on all scenes once, in order; the moving average of the weights is returned.

    Every 20 steps all that is needed to go on is kept in the file `state`; if it exists, training goes on from there.
    """
    network = network.to(memory_format=torch.channels_last)
    in_trunk = list(network.trunk.parameters())
    others = [parameter for name, parameter in network.named_parameters() if not name.startswith("trunk.")]
    optimizer = torch.optim.AdamW(
        [{"params": in_trunk, "lr": lr * TRUNK_LR_SHARE}, {"params": others, "lr": lr}], weight_decay=WEIGHT_DECAY
    )
    steps, done = len(scenes) // BATCH, 0
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: rate(step, steps))
    average = copy.deepcopy(network)
    parts = {"network": network, "average": average, "optimizer": optimizer, "schedule": schedule}
    if state.exists():
        stored = torch.load(state)
        done = stored.pop("done")
        for name, part in parts.items():
            part.load_state_dict(stored[name])
    batches = DataLoader(Subset(scenes, range(done * BATCH, steps * BATCH)), BATCH, num_workers=workers)
    began, sums = time.perf_counter(), torch.zeros(3)
    network.train()
    for step, (photos_u8, *targets) in enumerate(batches, done + 1):
        maps = network(standardized(photos_u8))
        losses = torch.stack(detection_losses(maps, *targets))
        optimizer.zero_grad()
        losses.sum().backward()
        nn.utils.clip_grad_norm_(network.parameters(), GRADIENT_LIMIT)
        optimizer.step()
        schedule.step()
        follow(average, network, 1 / min(step, AVERAGED_STEPS))
        sums += losses.detach()
        if step % 50 == 0:
            means = ", ".join(f"{value:.3f}" for value in (sums / 50).tolist())
            minutes = (time.perf_counter() - began) / 60
            print(f"step {step} of {steps}, {minutes:.1f} min: labels, boxes, landmarks {means}", flush=True)
            sums.zero_()
        if step % STATE_STEPS == 0:
            unfinished = state.with_suffix(".new")
            torch.save({"done": step} | {name: part.state_dict() for name, part in parts.items()}, unfinished)
            unfinished.replace(state)
    return average.eval()


def read_network(file: Path, scenes: Scenes) -> DetectorNetwork:
    """Return the network of a file that `deploy` wrote, for training to go on.

    Its scores stay scaled, and batch norms, which the file has no more, get the statistics of some scenes.
    """
    stored = {tensor.name: numpy_helper.to_array(tensor) for tensor in onnx.load(file).graph.initializer}

    def read(name: str) -> Tensor:
        if f"{name}q" in stored:
            steps = stored[f"{name}q"].astype(np.float32)
            return torch.from_numpy(steps * stored[f"{name}s"].astype(np.float32).reshape(-1, *[1] * (steps.ndim - 1)))
        return torch.from_numpy(stored[f"{name}h" if f"{name}h" in stored else name].astype(np.float32))

    network = DetectorNetwork().to(memory_format=torch.channels_last)
    layers = [each for each in network.named_modules() if isinstance(each[1], nn.Conv2d | nn.BatchNorm2d)]
    with torch.no_grad():
        for (name, layer), (_, norm) in zip(layers, [*layers[1:], ("", None)], strict=True):
            if not isinstance(layer, nn.Conv2d):
                continue
            layer.weight.copy_(read(f"network.{name}.weight"))
            if layer.bias is not None:
                layer.bias.copy_(read(f"network.{name}.bias"))
            else:
                assert isinstance(norm, nn.BatchNorm2d)
                assert norm.running_var is not None
                norm.running_var.fill_(1 - norm.eps)
                norm.bias.copy_(read(f"network.{name}.weight_bias"))
    reinflate_batch_norm(network, statistics_images(scenes))
    return network


def rate(step: int, steps: int) -> float:
    """Return the learning rate's factor: a linear rise, then half a cosine."""
    return min(1.0, (step + 1) / WARM_UP_STEPS) * (0.5 + 0.5 * math.cos(math.pi * min(step / steps, 1.0)))


def standardized(photos_u8: Tensor) -> Float[Tensor, "n 3 s s"]:
    """Bring pixels to the range that the trunk was trained with."""
    images = (photos_u8.permute(0, 3, 1, 2).float() - MEAN_U8) / STD_U8
    return images.contiguous(memory_format=torch.channels_last)


def statistics_images(scenes: Scenes) -> Iterator[Float[Tensor, "n 3 s s"]]:
    """Return scenes that the batch norms' first statistics are computed from."""
    for start in range(0, STATISTICS_BATCHES * BATCH, BATCH):
        yield standardized(torch.stack([scenes[index][0] for index in range(start, start + BATCH)]))


@torch.no_grad()
def follow(average: nn.Module, network: nn.Module, share: float) -> None:
    """Move the average's parameters and statistics a step towards the network's."""
    for mean, value in zip(average.state_dict().values(), network.state_dict().values(), strict=True):
        if mean.is_floating_point():
            mean.lerp_(value, share)
        else:
            mean.copy_(value)


def detection_losses(
    maps: Maps,
    heat: Float[Tensor, "n l h w"],
    counted: Float[Tensor, "n h w"],
    boxes: Float[Tensor, "n 4 h w"],
    box_weights: Float[Tensor, "n h w"],
    points: Float[Tensor, "n k h w"],
    point_weights: Float[Tensor, "n k h w"],
) -> tuple[Tensor, Tensor, Tensor]:
    """Compute the losses of labels and boxes, per head, and of landmarks, per scene that has some."""
    heads = (heat == 1).sum().clamp_min(1)
    labels = focal_loss(maps.logits, heat, counted[:, None]) / heads
    box = ((1 - generalized_iou(maps.boxes_xyxy_px, boxes)) * box_weights).sum() / box_weights.sum().clamp_min(1)
    known = point_weights.reshape(len(heat), POINTS * 2, -1).sum(2).gt(0).any(1).sum().clamp_min(1)
    landmark = ((maps.points_px.flatten(1, 2) - points).abs() * point_weights).sum() / known
    return labels, BOX_WEIGHT * box, POINT_WEIGHT * landmark


def focal_loss(
    logits: Float[Tensor, "n l h w"], heat: Float[Tensor, "n l h w"], counted: Float[Tensor, "n 1 h w"]
) -> Tensor:
    """Sum CenterNet's focal loss over the cells that count (arXiv 1904.07850, equation 1)."""
    probabilities = logits.sigmoid()
    positive = (heat == 1).float()
    hits = positive * (1 - probabilities).square() * logsigmoid(logits)
    spared = (1 - positive) * (1 - heat).pow(4) * probabilities.square() * logsigmoid(-logits)
    return -((hits + spared) * counted).sum()


def generalized_iou(first: Float[Tensor, "n 4 h w"], second: Float[Tensor, "n 4 h w"]) -> Float[Tensor, "n h w"]:
    """Compute the generalized intersection over union of boxes (Rezatofighi et al. 2019, arXiv 1902.09630).

    In [-1, 1]: 1 if they are the same, 0 if they share one whole side, below if they are apart.
    """
    left, top = (torch.maximum(first[:, each], second[:, each]) for each in (0, 1))
    right, bottom = (torch.minimum(first[:, each], second[:, each]) for each in (2, 3))
    both = (right - left).clamp_min(0) * (bottom - top).clamp_min(0)
    areas = [(each[:, 2] - each[:, 0]) * (each[:, 3] - each[:, 1]) for each in (first, second)]
    union = areas[0] + areas[1] - both
    hull_width = torch.maximum(first[:, 2], second[:, 2]) - torch.minimum(first[:, 0], second[:, 0])
    hull_height = torch.maximum(first[:, 3], second[:, 3]) - torch.minimum(first[:, 1], second[:, 1])
    hull = (hull_width * hull_height).clamp_min(1e-6)
    return both / union.clamp_min(1e-6) - (hull - union) / hull
