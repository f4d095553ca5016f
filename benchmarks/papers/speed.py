"""Measure how fast bundles load and embed, and their memory; alternately, so that other load affects all alike."""

import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import numpy as np
import onnxruntime as ort

from familiar.embedding.bundle import Bundle, load_bundle
from familiar.embedding.embedder import Embedder

OPENED, SINGLE, BATCHES = 15, 300, 30  # rounds
BATCH = 32
# Runs in its own process: memory after one photo, less memory with everything imported and no bundle opened.
MEMORY = """
import os, sys
import numpy as np
import onnxruntime as ort
from familiar.embedding.embedder import Embedder
def resident_bytes():
    return int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
before = resident_bytes()
embedder = Embedder(sys.argv[1], threads=1)
side = embedder.metadata.preprocessing.size_px
embedder.run(np.zeros((1, 3, side, side), np.float32))
print(resident_bytes() - before)
"""


@dataclass(frozen=True)
class Speed:
    """Medians of one bundle.

    `load_ms` is from the file to an open embedder, checksums verified; `photos_per_second` is in batches of 32.
    """

    load_ms: float
    one_thread_ms: float
    two_threads_ms: float
    photos_per_second: float
    memory_mb: float


def speeds(models: Mapping[str, Path]) -> dict[str, Speed]:
    """Measure each bundle, by name, on standardized crops of zeros of the bundle's own crop size."""
    bundles = {name: load_bundle(path) for name, path in models.items()}
    opened = _in_turns({name: lambda path=path: Embedder(path, threads=1) for name, path in models.items()}, OPENED)
    single_thread, two_threads = (
        _in_turns({name: _runner(bundle, 1, threads) for name, bundle in bundles.items()}, SINGLE) for threads in (1, 2)
    )
    batches = _in_turns({name: _runner(bundle, BATCH, 1) for name, bundle in bundles.items()}, BATCHES)
    return {
        name: Speed(
            load_ms=1e3 * opened[name],
            one_thread_ms=1e3 * single_thread[name],
            two_threads_ms=1e3 * two_threads[name],
            photos_per_second=BATCH / batches[name],
            memory_mb=memory_mb(path),
        )
        for name, path in models.items()
    }


def memory_mb(model: Path) -> float:
    done = subprocess.run([sys.executable, "-c", MEMORY, str(model)], capture_output=True, text=True, check=True)
    return int(done.stdout) / 1e6


def _runner(bundle: Bundle, count: int, threads: int) -> Callable[[], object]:
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    session = ort.InferenceSession(bundle.onnx, options, providers=["CPUExecutionProvider"])
    side = bundle.metadata.preprocessing.size_px
    photos = {session.get_inputs()[0].name: np.zeros((count, 3, side, side), np.float32)}
    session.run(None, photos)  # the first run allocates its memory
    return lambda: session.run(None, photos)


def _in_turns(calls: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Time the calls alternately and return the median seconds of each."""
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            began = time.perf_counter()
            call()
            seconds[name].append(time.perf_counter() - began)
    return {name: median(taken) for name, taken in seconds.items()}
