"""Training of the detector's network on scenes."""

import copy
import math
import time
from collections.abc import Iterator
from pathlib import Path

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import logsigmoid
from torch.utils.data import DataLoader

from familiar.models.weights import load_weights_file, reinflate_batch_norm
from pet_detector.network import MEAN_U8, POINTS, STD_U8, DetectorNetwork, Maps
from pet_detector.scenes import Scenes

BATCH = 32
LR, AGAIN_LR, LAST_LR = 1.5e-3, 1.3e-3, 8e-4
TRUNK_LR_SHARE, WEIGHT_DECAY = 0.4, 1e-4
WARM_UP_STEPS = 200
AVERAGED_STEPS = 400  # of the moving average of the weights
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


def train(network: DetectorNetwork, scenes: Scenes, output: Path, lr: float = LR, workers: int = 1) -> DetectorNetwork:
    """Train on all scenes once, in order; the moving average of the weights is returned.

    After every 500 steps the average so far is kept in `output`.
    """
    network = network.to(memory_format=torch.channels_last)
    batches = DataLoader(scenes, BATCH, num_workers=workers, drop_last=True)
    in_trunk = list(network.trunk.parameters())
    others = [parameter for name, parameter in network.named_parameters() if not name.startswith("trunk.")]
    optimizer = torch.optim.AdamW(
        [{"params": in_trunk, "lr": lr * TRUNK_LR_SHARE}, {"params": others, "lr": lr}], weight_decay=WEIGHT_DECAY
    )
    steps = len(batches)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: rate(step, steps))
    average = copy.deepcopy(network)
    began, sums = time.perf_counter(), torch.zeros(3)
    network.train()
    for step, (photos_u8, *targets) in enumerate(batches, 1):
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
        if step % 500 == 0:
            torch.save(average.state_dict(), output)
    torch.save(average.state_dict(), output)
    return average.eval()


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
