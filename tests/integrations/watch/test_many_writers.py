"""The server, commands, a watch and the library work on one gallery at the same time, and some of them are killed."""

import multiprocessing
import os
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from multiprocessing.context import ForkServerProcess
from pathlib import Path

import numpy as np
import pytest

from familiar.embedding.embedder import Embedder
from familiar.gallery.cluster.cluster import cluster
from familiar.gallery.enroll.enroll import enroll
from familiar.gallery.store.space import Space
from familiar.gallery.store.store import Store
from familiar.gallery.transfer.check import check
from support.color_album import SquareDetector
from support.gallery_history import record_history
from support.gallery_history_checks import Operation, check_history, read_operations
from support.gallery_writers import ROLES, Task, draw, read_log, work
from support.mean_color_bundle import CALIBRATED, write_mean_color_bundle

# Operations x kills of the long test; docs/benchmarks/trust.md has the result of 10000x60.
LONG = tuple(map(int, os.environ.get("FAMILIAR_HISTORY_SIZE", "2000x12").split("x")))


def prepare(root: Path, seed: int, photos: int = 20) -> Path:
    """Make a gallery with some photos, of which everything that is committed from now on is recorded."""
    bundle, rng = write_mean_color_bundle(root / "model.onnx", CALIBRATED), random.Random(seed)
    embedder = Embedder(bundle, threads=1)
    with Store.create(root / "gallery", Space.from_metadata(embedder.metadata)) as gallery:
        paths = [draw(root / "start" / f"{index}.png", rng, 1 + index % 2) for index in range(photos)]
        enroll(gallery, embedder, paths, SquareDetector())
        cluster(gallery)
    record_history(root / "gallery")
    return root / "gallery"


def progress(task: Task) -> tuple[int, bool]:
    """Return the number of the next operation of a task, and whether all are done."""
    entries = list(read_log(task.log))
    started = [int(entry["op"].rpartition("-")[2]) for entry in entries if "kind" in entry]
    return max(started, default=task.first - 1) + 1, any("done" in entry or "crash" in entry for entry in entries)


def run_all(root: Path, seed: int, operations: int, kills: int) -> int:
    """Run the processes until each has done its share; kill some of them and start them again. Return the kills."""
    context, rng = multiprocessing.get_context("forkserver"), random.Random(seed)
    context.set_forkserver_preload(["support.gallery_writers"])
    share = operations // len(ROLES)
    tasks = {role: Task(role, root, seed, 0, share) for role in ROLES}
    running: dict[str, ForkServerProcess] = {}
    killed = 0
    next_kill = share // (kills + 1)
    while tasks:
        for role, task in list(tasks.items()):
            process = running.get(role)
            if process is None or not process.is_alive():
                first, is_done = progress(task)
                if process is not None and (is_done or process.exitcode != -signal.SIGKILL):
                    assert is_done, f"{role} ended with {process.exitcode} at {first}: {task.stacks.read_text()}"
                    del tasks[role]
                    continue
                running[role] = context.Process(target=work, args=(Task(role, root, seed, first, share),))
                running[role].start()
        done = sum(progress(task)[0] for task in tasks.values())
        if tasks and killed < kills and done > next_kill * len(tasks):
            role = rng.choice(sorted(tasks))
            time.sleep(rng.random() * 0.05)
            running[role].kill()  # which may have ended just now
            running[role].join()
            killed += 1
            next_kill += share // (kills + 1)
        time.sleep(0.05)
    return killed


def check_that_false_reports_are_noticed(folder: Path, logs: list[Path]) -> None:
    """Check that the checker would notice an undo of another decision, a lost change, and a read of no state."""

    def is_noticed(change: Callable[[dict[str, Operation]], None]) -> bool:
        operations = read_operations(logs)
        change(operations)
        try:
            check_history(folder, operations)
        except AssertionError:
            return True
        return False

    def acknowledged(operations: dict[str, Operation], *among: str) -> Operation:
        return next(each for each in operations.values() if each.is_acknowledged and each.kind in among)

    def report_another_undo(operations: dict[str, Operation]) -> None:
        acknowledged(operations, "undo").result["number"] += 1

    def lose_a_change(operations: dict[str, Operation]) -> None:
        lost = replace(acknowledged(operations, "split", "undo"), name="api-lost")
        operations[lost.name] = lost

    def read_half(operations: dict[str, Operation]) -> None:
        acknowledged(operations, "read", "state").result["counts"]["faces"] += 1

    def change_while_reading(operations: dict[str, Operation]) -> None:
        changed = acknowledged(operations, "split", "undo")
        changed.kind = "read"

    def refuse_and_change(operations: dict[str, Operation]) -> None:
        acknowledged(operations, "split", "undo").error = "refused"

    for change in (report_another_undo, lose_a_change, read_half, change_while_reading, refuse_and_change):
        assert is_noticed(change), change.__name__


@pytest.mark.slow
@pytest.mark.parametrize(("operations", "kills"), [(150, 1), pytest.param(*LONG, marks=pytest.mark.exhaustive)])
def test_history_of_four_processes_is_that_of_one_after_another(tmp_path: Path, operations: int, kills: int):
    seed = int(os.environ.get("FAMILIAR_HISTORY_SEED") or np.random.default_rng().integers(2**31))
    sys.stdout.write(f"FAMILIAR_HISTORY_SEED={seed} draws the same operations; how they meet is up to the machine\n")
    folder = prepare(tmp_path, seed)
    killed = run_all(tmp_path, seed, operations, kills)
    logs = [tmp_path / f"{role}.log" for role in ROLES]
    counts: Counter[str] = check_history(folder, read_operations(logs))
    for kind, count in sorted(counts.items()):
        sys.stdout.write(f"{count:6d} {kind}\n")
    assert killed == kills
    assert sum(count for kind, count in counts.items() if kind.endswith(("acknowledged", "refused"))) >= (
        operations - operations % len(ROLES) - kills
    )
    assert counts["undo checked"]
    assert counts["reads equal to their state"]
    check_that_false_reports_are_noticed(folder, logs)
    with Store.open(folder) as gallery:
        assert not check(gallery).problems
