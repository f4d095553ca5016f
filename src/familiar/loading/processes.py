"""Start of processes that load photos. Imports nothing heavy, since each of them imports this module."""

import multiprocessing
import os
import threading
from multiprocessing.context import BaseContext

SCRIPTS_NEED_A_GUARD = 'A script keeps its calls under if __name__ == "__main__":, since each such process imports it'


def process_context() -> BaseContext:
    """Choose forkserver or spawn; a process forked while threads hold locks could wait for them forever."""
    methods = multiprocessing.get_all_start_methods()
    return multiprocessing.get_context("forkserver" if "forkserver" in methods else "spawn")


def end_with_parent() -> None:
    """End this process when its parent ends, even if that was killed. To be called in the loading process.

    A fork server outlives a killed run, and the processes it forked would wait for work forever.
    """
    parent = multiprocessing.parent_process()
    if parent is None:
        return

    def wait() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()
