import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

LOAD = """
from familiar.datasets.folders import DataSpec
from familiar.photos.preprocessing import Preprocessing
from familiar.loading.batches import PhotoBatches
from familiar.loading.crops import read_table
from familiar.loading.dataset import FaceDataset, sequential_batches
import torch

read = read_table(DataSpec(("synthetic:cats:3x3",)).read(), Preprocessing(size_px=32, resize_px=32))
keys = sequential_batches(range(9), 1)
batches = PhotoBatches(FaceDataset(read.table, read.crops), keys, torch.device("cpu"), workers=1)
for _ in batches:
    print(batches._loader._iterator._workers[0].pid, flush=True)
    input()
"""
DECODE = """
import familiar.loading.crops as crops
from familiar.datasets.folders import DataSpec
from familiar.photos.preprocessing import Preprocessing

crops._MIN_PHOTOS_FOR_POOL = 2
photos = DataSpec(("synthetic:cats:20x20",)).read().photos
decoded = crops._decode_all(photos, list(range(len(photos))), Preprocessing(size_px=32, resize_px=32))
next(decoded)
import multiprocessing
print(*[process.pid for process in multiprocessing.active_children()], flush=True)
input()
"""


def is_alive(process: int) -> bool:
    """One that ended, but that nobody asked after yet, still has a number."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.exhaustive
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="this system does not list its processes")
@pytest.mark.parametrize("work", [LOAD, DECODE])
def test_killed_program_leaves_no_child_processes(work: str) -> None:
    run = subprocess.Popen([sys.executable, "-c", work], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert run.stdin is not None
    assert run.stdout is not None
    processes = [int(word) for word in run.stdout.readline().split()]
    assert processes
    assert all(map(is_alive, processes))
    run.kill()
    run.stdin.close()
    run.stdout.close()  # such a process would keep it open too
    run.wait()
    for _ in range(200):
        if not any(map(is_alive, processes)):
            break
        time.sleep(0.05)
    remaining = [process for process in processes if is_alive(process)]
    for process in remaining:
        os.kill(process, signal.SIGKILL)
    assert not remaining
