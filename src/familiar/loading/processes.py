"""How processes that load photos are started. Imports nothing heavy, since each of them imports it."""

import multiprocessing
import os
import threading
from multiprocessing.context import BaseContext

SCRIPTS_NEED_A_GUARD = 'A script keeps its calls under if __name__ == "__main__":, since each such process imports it'


def process_context() -> BaseContext:
    """Never a plain fork: a process copied while its threads hold locks may wait for them for ever."""
    known = multiprocessing.get_all_start_methods()
    return multiprocessing.get_context("forkserver" if "forkserver" in known else "spawn")


def end_with_parent() -> None:
    """To be called in such a process: it ends when the one that asked for it does, however that was ended.

    A fork server outlives a killed run, and the processes it forked would wait for work for ever.
    """
    parent = multiprocessing.parent_process()
    if parent is None:
        return

    def wait() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()
