"""Slow and obvious classifiers: row by row and class by class, with angles, in plain Python numbers."""

import math

import torch
from torch.nn.functional import normalize


def arcface_angle(theta, margin_rad, branch="penalty"):
    if theta < math.pi - margin_rad:
        return math.cos(theta + margin_rad)
    if branch == "continuous":
        return -2 - math.cos(theta + margin_rad)
    return math.cos(theta) - margin_rad * math.sin(margin_rad)


def combined_angle(theta, margin_factor, margin_rad, margin, branch="penalty"):
    phi = margin_factor * theta + margin_rad
    if phi < math.pi:
        return math.cos(phi) - margin
    if branch == "continuous":
        half_turns = int(phi / math.pi)
        return (-1) ** half_turns * math.cos(phi) - 2 * half_turns - margin
    before_pi = math.pi - (math.pi - margin_rad) / margin_factor
    return math.cos(theta) - before_pi * math.sin(before_pi) - margin


def cosine_of(row, center):
    cosine = math.fsum(a * b for a, b in zip(row, center, strict=True)) / math.hypot(*row) / math.hypot(*center)
    return max(-1.0, min(1.0, cosine))


def cross_entropy_of(logits, label, smoothing):
    log_sum = max(logits) + math.log(math.fsum(math.exp(z - max(logits)) for z in logits))
    spread = smoothing / len(logits)
    return math.fsum(-(spread + (1 - smoothing) * (index == label)) * (z - log_sum) for index, z in enumerate(logits))


def reference_loss(embeddings, centers, labels, target_of_angle, scale, smoothing=0.0):
    """`centers` is classes x d, or k x classes x d, of which the nearest counts."""
    sets = centers.tolist() if centers.ndim == 3 else [centers.tolist()]
    losses = []
    for row, label in zip(embeddings.tolist(), labels.tolist(), strict=True):
        logits = []
        for index in range(len(sets[0])):
            theta = math.acos(max(cosine_of(row, centers_of[index]) for centers_of in sets))
            logits.append(scale * (target_of_angle(theta) if index == label else math.cos(theta)))
        losses.append(cross_entropy_of(logits, label, smoothing))
    return math.fsum(losses) / len(losses)


def rows(n=6, dim=4, dtype=torch.float64, seed=1, classes=5):
    generator = torch.Generator().manual_seed(seed)
    embeddings = normalize(torch.randn(n, dim, generator=generator, dtype=torch.float64)).to(dtype)
    return embeddings, torch.randint(classes, (n,), generator=generator)
