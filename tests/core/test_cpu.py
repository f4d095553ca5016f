import os
import platform
import subprocess
import sys
from types import SimpleNamespace

import pytest

from familiar.core.cpu import available_cores, reuse_freed_memory


def test_available_cores_uses_affinity_then_cpu_count_then_1(monkeypatch):
    assert 1 <= available_cores() <= (os.cpu_count() or 1)
    monkeypatch.setattr("os.sched_getaffinity", lambda _process: {3, 5}, raising=False)
    assert available_cores() == 2
    monkeypatch.delattr("os.sched_getaffinity")
    monkeypatch.setattr("os.cpu_count", lambda: 7)
    assert available_cores() == 7
    monkeypatch.setattr("os.cpu_count", lambda: None)
    assert available_cores() == 1


PAGES_OF_REPEATED_ALLOCATION = """
import resource
import sys

import numpy as np

from familiar.core.cpu import reuse_freed_memory

if sys.argv[1] == "reused":
    assert reuse_freed_memory()
for _ in range(2):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(20):
        np.ones(5_000_000)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc keeps freed memory on request")
def test_memory_that_is_reused_has_no_new_pages():
    pages = [
        int(
            subprocess.run(
                [sys.executable, "-c", PAGES_OF_REPEATED_ALLOCATION, how], capture_output=True, check=True
            ).stdout
        )
        for how in ("plain", "reused")
    ]
    assert pages[1] < pages[0] / 20, pages


@pytest.mark.parametrize("error", [AttributeError, OSError, TypeError])
def test_other_c_libraries_are_left_alone(monkeypatch, error):
    def no_library(_name):
        raise error

    monkeypatch.setattr("ctypes.CDLL", no_library)
    assert reuse_freed_memory() is False


def test_older_glibc_gets_the_highest_threshold_that_it_accepts(monkeypatch):
    calls = []

    def mallopt(parameter, value):
        calls.append((parameter, value))
        return int(parameter != -3 or value <= 1 << 25)

    monkeypatch.setattr("ctypes.CDLL", lambda _name: SimpleNamespace(mallopt=mallopt))
    assert reuse_freed_memory() is True
    assert calls == [(-3, 1 << 30), (-3, 1 << 25), (-1, 1 << 30)]
