"""Retrieval and verification over every pair of many embeddings: seconds and peak memory of the whole process.

Usage: metrics_at_scale.py [ROWS...], 128-d, ten photos an identity.
"""

import resource
import sys
import time

import numpy as np

from familiar.core.vectors import normalise
from familiar.metrics.retrieval import retrieval
from familiar.metrics.roc import roc_counts_all_pairs
from familiar.metrics.verification import verification

DIMENSIONS = 128
PHOTOS_EACH = 10


def drawn(rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Unit rows around one direction per identity, far enough apart that the figures are not trivial."""
    generator = np.random.default_rng(0)
    labels = np.repeat(np.arange(rows // PHOTOS_EACH), PHOTOS_EACH)
    centres = generator.normal(size=(rows // PHOTOS_EACH, DIMENSIONS)).astype(np.float32)
    noise = generator.normal(size=(rows, DIMENSIONS)).astype(np.float32)
    return normalise(centres[labels] + 1.6 * noise), labels


def main() -> None:
    for rows in [int(text) for text in sys.argv[1:]] or [20_000]:
        embeddings, labels = drawn(rows)
        started = time.perf_counter()
        found = retrieval(embeddings, labels)
        retrieved = time.perf_counter()
        figures = verification(roc_counts_all_pairs(embeddings, labels))
        verified = time.perf_counter()
        peak_gb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
        print(
            f"{rows:,} x {DIMENSIONS}: retrieval {retrieved - started:.1f} s (recall@1 {found.recall_at_k[1]:.4f}), "
            f"verification over {figures.same_pairs + figures.different_pairs:,} pairs {verified - retrieved:.1f} s "
            f"(AUC {figures.auc:.6f}); peak {peak_gb:.2f} GB"
        )


if __name__ == "__main__":
    main()
