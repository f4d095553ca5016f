"""Vectors of individuals that do not exist: as many, and as unequally many of each, as a large album holds."""

import math

import numpy as np

from familiar.core.vectors import normalize

DIM = 128
LARGEST = 1000  # photos of one individual
NOISE = 0.9  # two photos of one individual are alike by 1 / (1 + .9^2) = .55, strangers by 0
LFW_DECAY = 6.5  # fitted to the spectrum of pet-mobile's embeddings of LFW photos: 16 of 128 directions count


def synthetic(count: int, seed: int = 0, decay: float = math.inf) -> tuple[np.ndarray, np.ndarray]:
    """Unit rows (float32 "count 128") and the individual of each (int64 "count"), in no order.

    Photos per individual follow a power law: a third have one, most have one to five, few a thousand. The variance of
    component i is as (1 + i / decay)^-2: `LFW_DECAY` is how real embeddings lie, though with the first components
    saying most, as harmonic ones do. With an infinite `decay` all components count alike, as an ideal embedder's:
    nothing is harder to search, nothing easier to group.
    """
    rng = np.random.default_rng(seed)
    sizes = np.minimum(LARGEST, np.ceil(rng.pareto(1.0, count) * 2)).astype(np.int64)
    identities = np.repeat(np.arange(count), sizes)[:count]
    spread = 1 / (1 + np.arange(DIM) / decay)
    centers = rng.standard_normal((int(identities.max(initial=0)) + 1, DIM), dtype=np.float32)
    rows = rng.standard_normal((count, DIM), dtype=np.float32)
    rows *= np.float32(NOISE)
    rows += centers[identities]
    rows *= spread.astype(np.float32)
    order = rng.permutation(count)
    return normalize(rows)[order], identities[order]
