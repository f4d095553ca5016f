"""Measure the clustering of millions of vectors through files: time, memory and quality of each step.

    gallery.py large_clustering FOLDER [--count 1000000] [--predict 10000000,100000000]

Vectors of 128 dimensions as for `gallery.py clustering`, in float16. FOLDER keeps vectors, neighbors and the seconds
that each batch took, so an interrupted measurement goes on. `--predict` computes what other counts would take, from
the seconds of this one and the similarities that each step computes.
"""

import argparse
import json
import resource
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from collection.clustering import figures
from collection.vectors import DIM, NOISE, power_law_identities
from familiar.core.calibration import Calibration
from familiar.core.vectors import normalize
from familiar.neighbors.inverted_file import NPROBE, default_groups
from familiar.neighbors.large_album import NEIGHBORS, LargeAlbum

BLOCK_ROWS = 100_000


def main(options: list[str]) -> None:
    parser = argparse.ArgumentParser(
        prog="gallery.py large_clustering", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--count", type=int, default=1_000_000)
    parser.add_argument("--predict", default="", help="numbers of vectors")
    arguments = parser.parse_args(options)
    rows, identities = stored_vectors(arguments.folder, arguments.count)
    steps = Steps(arguments.folder / "seconds.json")

    def read(chosen: np.ndarray) -> Iterator[np.ndarray]:
        for start in range(0, len(chosen), BLOCK_ROWS):
            yield normalize(rows[chosen[start : start + BLOCK_ROWS]].astype(np.float32))

    album = LargeAlbum(read, len(rows), Calibration.fixed(0.5), arguments.folder, steps.begin)
    album.search()
    clusters = album.cluster()
    steps.begin("end", 0, 1)
    grouping, searching, merging = (steps.total(name) for name in ("grouping", "searching", "merging"))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6
    print(
        "| vectors | grouping s | search s | merging s | total s | peak MB | clusters / true | pairwise F | B-cubed |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    times = f"{grouping:.0f} | {searching:.0f} | {merging:.0f} | {grouping + searching + merging:.0f}"
    print(f"| {arguments.count:,} | {times} | {peak:,.0f} | {figures(clusters, identities)} |")
    for count in [int(each) for each in arguments.predict.split(",") if each]:
        factors = [work / now for work, now in zip(work_of(count), work_of(arguments.count), strict=True)]
        seconds = [factor * second for factor, second in zip(factors, (grouping, searching, merging), strict=True)]
        disk = count * (2 * 2 * DIM + NEIGHBORS * 6) / 1e9
        memory = peak / 1000 * count / arguments.count
        times = " | ".join(f"{second / 60:,.0f} min" for second in (*seconds, sum(seconds)))
        print(f"| {count:,}, predicted | {times} | disk {disk:.0f} GB, memory {memory:.0f} GB |")


def work_of(count: int) -> tuple[float, float, float]:
    """Return what the seconds of grouping, searching and merging grow with: similarities computed, and vectors."""
    groups = default_groups(count)
    return count * groups, count * (groups + NPROBE * count / groups), count


class Steps:
    """Measures the seconds of each step, and keeps them in a file.

    Args:
        path: of the file; steps in it are not measured again if they are skipped.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.seconds: dict[str, float] = json.loads(path.read_text()) if path.exists() else {}
        self._name, self._started = "", 0.0

    def begin(self, what: str, done: int, all_of_them: int) -> None:
        """Note that a step begins, and the one before has ended."""
        now = time.perf_counter()
        if self._name:  # a batch that was skipped takes no time
            self.seconds[self._name] = max(self.seconds.get(self._name, 0.0), now - self._started)
            self.path.write_text(json.dumps(self.seconds, indent=1))
            print(f"{self._name}: {self.seconds[self._name]:.1f} s", flush=True)
        self._name, self._started = f"{what} {done + 1} of {all_of_them}", now

    def total(self, name: str) -> float:
        """Return the seconds of all steps whose name begins with `name`."""
        return sum(seconds for step, seconds in self.seconds.items() if step.startswith(name))


def stored_vectors(folder: Path, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return vectors in a mapped file of float16, drawn if it does not exist, and their identities."""
    path = folder / "vectors" / f"{count}.npy"
    rng = np.random.default_rng(0)
    identities = rng.permutation(power_law_identities(count, rng))
    if not path.exists():
        centers = rng.standard_normal((int(identities.max()) + 1, DIM), dtype=np.float32)
        path.parent.mkdir(parents=True, exist_ok=True)
        drawn = path.with_suffix(".drawn")
        rows = np.lib.format.open_memmap(drawn, "w+", np.float16, (count, DIM))
        for start in range(0, count, BLOCK_ROWS):
            block = centers[identities[start : start + BLOCK_ROWS]]
            block += np.float32(NOISE) * rng.standard_normal(block.shape, dtype=np.float32)
            rows[start : start + BLOCK_ROWS] = normalize(block)
        rows.flush()
        drawn.rename(path)
    return np.load(path, mmap_mode="r"), identities
