"""CPU cores, and memory that is used again."""

import contextlib
import ctypes
import os
from collections.abc import Generator

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # parameters of mallopt, in malloc.h
_KEPT_BYTES = 1 << 30
_MAX_THRESHOLD_BYTES = 1 << 25  # that older versions of glibc accept


def available_cores() -> int:
    """Count the cores this process may run on: in a container or a batch job often fewer than the machine has."""
    affinity = getattr(os, "sched_getaffinity", None)  # not on macOS and Windows
    return len(affinity(0)) if affinity else os.cpu_count() or 1


@contextlib.contextmanager
def one_thread_per_product() -> Generator[None]:
    """Compute each matrix product in one thread, where several threads compute them at once or products are small.

    Does nothing without threadpoolctl: then threads wait for each other, and take longer (searches in threads 1.6 times
    as long, what a gallery learns from an answer up to ten times on busy cores).
    """
    try:
        from threadpoolctl import threadpool_limits  # pyright: ignore[reportMissingTypeStubs]
    except ModuleNotFoundError:
        yield
        return
    with threadpool_limits(1, "blas"):
        yield


def reuse_freed_memory() -> bool:
    """Let the C library keep freed memory for what is allocated next, instead of returning it to the system.

    Each step of training on the CPU allocates and frees the same large tensors. As new pages of the system they would
    have to be cleared every time, by one core while the others wait.

    Returns:
        Whether the C library is glibc, which can do this.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # another C library, or Windows
        return False
    is_set = mallopt(_MMAP_THRESHOLD, _KEPT_BYTES) or mallopt(_MMAP_THRESHOLD, _MAX_THRESHOLD_BYTES)
    return bool(is_set and mallopt(_TRIM_THRESHOLD, _KEPT_BYTES))
