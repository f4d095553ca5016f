"""How processes that load photos are started. Imports nothing heavy, since each of them imports it."""

import multiprocessing
from multiprocessing.context import BaseContext


def process_context() -> BaseContext:
    """Never a plain fork: a process copied while its threads hold locks may wait for them for ever."""
    known = multiprocessing.get_all_start_methods()
    return multiprocessing.get_context("forkserver" if "forkserver" in known else "spawn")
