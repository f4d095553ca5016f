"""CPU affinity."""

import os


def available_cores() -> int:
    """Count the cores this process may run on: in a container or a batch job often fewer than the machine has."""
    affinity = getattr(os, "sched_getaffinity", None)  # not on macOS and Windows
    return len(affinity(0)) if affinity else os.cpu_count() or 1
