"""What this process may use of the machine."""

import os


def available_cores() -> int:
    """Those it may run on, which in a container or a batch job are often not all there are."""
    affinity = getattr(os, "sched_getaffinity", None)  # not on macOS and Windows
    return len(affinity(0)) if affinity else os.cpu_count() or 1
