"""Synthetic embeddings of individuals, with the number and unequal frequencies of a large album."""

import math

import numpy as np

from familiar.core.vectors import normalize

DIM = 128
LARGEST = 1000  # photos of one individual
NOISE = 0.9  # expected cosine: 1 / (1 + .9^2) = .55 for one individual, 0 for two
LFW_DECAY = 6.5  # fitted to the spectrum of pet-mobile's embeddings of LFW photos: effective dimension 16 of 128


def synthetic(count: int, seed: int = 0, decay: float = math.inf) -> tuple[np.ndarray, np.ndarray]:
    """Draw unit embeddings of individuals, in random order.

    Photos per individual follow a power law: a third have one, most have one to five, few a thousand.

    Args:
        count: number of rows.
        seed: of the random generator.
        decay: the variance of component i is proportional to (1 + i / decay)^-2. `LFW_DECAY` matches real embeddings,
            except that the first components have the largest variance, as in harmonic embeddings. With an infinite
            `decay` all components have the same variance, as an ideal embedder's: the hardest to search and the
            easiest to cluster.

    Returns:
        Rows (float32 "count 128") and the individual of each (int64 "count").
    """
    rng = np.random.default_rng(seed)
    identities = power_law_identities(count, rng)
    spread = 1 / (1 + np.arange(DIM) / decay)
    centers = rng.standard_normal((int(identities.max(initial=0)) + 1, DIM), dtype=np.float32)
    rows = rng.standard_normal((count, DIM), dtype=np.float32)
    rows *= np.float32(NOISE)
    rows += centers[identities]
    rows *= spread.astype(np.float32)
    order = rng.permutation(count)
    return normalize(rows)[order], identities[order]


def power_law_identities(count: int, rng: np.random.Generator) -> np.ndarray:
    """Draw the individuals of `count` photos, rising: a third have one photo, few a thousand."""
    sizes = np.minimum(LARGEST, np.ceil(rng.pareto(1.0, count) * 2)).astype(np.int64)
    return np.repeat(np.arange(count), sizes)[:count]
