"""Compare `embed --engine ray` with one worker and with several, and its embeddings with those of this process.

    ray_workers.py PHOTOS [--model person-mobile] [--workers 2] [--rounds 3] [--detector none]

The numbers of workers alternate. A rate is that between the first part of the photos and the last, so that it is
without the start of Ray, which is printed by itself.
"""

import argparse
import tempfile
import time
from pathlib import Path
from statistics import median

import numpy as np
import pyarrow.parquet as pq

from familiar import Embedder, embed_photos, find_photos
from familiar.integrations.ray.engine import embed_with_ray
from familiar.integrations.ray.worker import EmbeddingSettings


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("photos", help="folder of photos")
    parser.add_argument("--model", default="person-mobile")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--detector", default="none")
    options = parser.parse_args()
    settings = EmbeddingSettings((options.model,), options.detector)
    rates: dict[int, list[float]] = {1: [], options.workers: []}
    starts: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        for number in range(options.rounds):
            for workers in rates:
                output = Path(folder) / f"{number}-{workers}"
                started, rate = measure(settings, options.photos, output, workers)
                rates[workers].append(rate)
                starts.append(started)
                print(f"{workers} workers: {rate:.0f} photos/s", flush=True)
        compare(options, output)
    single, several = (median(rate) for rate in rates.values())
    ratios = [faster / slower for slower, faster in zip(*rates.values(), strict=True)]
    print(
        f"1 worker {single:.0f} photos/s, {options.workers} workers {several:.0f}, median ratio {median(ratios):.2f}; "
        f"first part after {median(starts):.1f} s"
    )


def measure(settings: EmbeddingSettings, photos: str, output: Path, workers: int) -> tuple[float, float]:
    """Return the seconds until the first part was written, and the photos per second from then on."""
    moments: list[tuple[float, int]] = []
    started = time.perf_counter()
    embed_with_ray(
        settings,
        [photos],
        output,
        workers=workers,
        on_photos=lambda done, _: moments.append((time.perf_counter(), done)),
    )
    (first_time, first_done), (last_time, last_done) = moments[0], moments[-1]
    return first_time - started, (last_done - first_done) / (last_time - first_time)


def compare(options: argparse.Namespace, output: Path) -> None:
    """Print how far the embeddings of the best faces are from those of this process."""
    paths = find_photos(Path(options.photos).absolute())
    expected = embed_photos(Embedder(options.model), paths, options.detector)
    rows = {
        row["photo"]: row["embedding"]
        for part in output.glob("*.parquet")
        for row in pq.read_table(part, columns=["photo", "face", "embedding"]).to_pylist()
        if row["face"] == 1
    }
    actual = np.array([rows[str(paths[row])] for row in expected.rows.tolist()])
    print(f"{len(actual):,} embeddings, largest difference {np.abs(actual - expected.embeddings).max():.1e}")


if __name__ == "__main__":
    main()
