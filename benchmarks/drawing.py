"""Measure how many synthetic photos of 224 px are drawn per second, by one process and by one process per core.

drawing.py [--identities 200] [--photos 6] [--rounds 3]
"""

import argparse
import os
import time
from concurrent.futures import ProcessPoolExecutor
from statistics import median

import cv2

from familiar.datasets.synthetic import SyntheticPhoto, SyntheticSource
from familiar.loading.processes import process_context


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--identities", type=int, default=200)
    parser.add_argument("--photos", type=int, default=6)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    cores = os.cpu_count() or 1
    for species in ("cats", "dogs"):
        source = SyntheticSource(species, options.identities, options.photos)
        photos = [photo for identity in range(source.identities) for photo in source.photos(identity)]
        for processes in (1, cores):
            with ProcessPoolExecutor(processes, process_context(), cv2.setNumThreads, (0,)) as pool:
                list(pool.map(shape, photos[: 8 * processes]))  # starts the processes and fills their caches
                speeds: list[float] = []
                for _ in range(options.rounds):
                    started = time.perf_counter()
                    list(pool.map(shape, photos, chunksize=4 * options.photos))
                    speeds.append(len(photos) / (time.perf_counter() - started))
            print(f"{species}, {processes} processes: {median(speeds):.0f} photos/s", flush=True)


def shape(photo: SyntheticPhoto) -> tuple[int, ...]:
    """Draw a photo; only its shape is sent back."""
    return photo.draw().rgb_u8.shape


if __name__ == "__main__":
    main()
