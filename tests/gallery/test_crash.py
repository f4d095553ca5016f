"""Killed processes leave an intact gallery, whatever they were doing."""

import random
import shutil
import time
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path

import pytest
from collection.crash_runs import run_and_kill, run_uninterrupted
from collection.crash_scenarios import SCENARIOS, Contents, contents

from familiar.gallery.edits.corrections import merge
from familiar.gallery.store.connection import DATABASE
from familiar.gallery.store.store import Store
from familiar.gallery.transfer.backup import backup, restore
from familiar.gallery.transfer.check import check
from familiar.gallery.transfer.repair import repair
from support.damaged_gallery import damage_table
from support.tiers import small_and_exhaustive

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("kills", small_and_exhaustive(1, 4))  # benchmarks/crash.py does 200 of all tasks
@pytest.mark.parametrize("task", SCENARIOS)
def test_kill_keeps_acknowledged_writes_and_no_partial_write(task: str, kills: int, drawings: Path, tmp_path: Path):
    start, scratch = tmp_path / "start", tmp_path / "scratch"
    rehearsal = run_uninterrupted(task, start, drawings, scratch)
    rng = random.Random()  # unseeded: another moment in every run
    for _ in range(kills):
        after = rng.uniform(0, rehearsal.seconds)
        outcome = run_and_kill(task, rehearsal, start, drawings, scratch, after)
        assert not outcome.problems, f"killed after {after:.4f} of {rehearsal.seconds:.4f} s, {outcome}"


def back_up(folder: Path) -> None:
    with Store.open(folder) as gallery:
        backup(gallery, folder.parent / "later.zip")


def restore_backup(folder: Path) -> None:
    restore(folder, folder.parent / "backup.zip")


TASKS = {"backup": back_up, "restore": restore_backup, "replace": restore_backup, "repair": repair}


def run_task(task: str, folder: Path, sender: Connection) -> None:
    sender.send("ready")
    TASKS[task](folder)
    sender.send("done")


def run_for(task: str, folder: Path, seconds: float) -> float:
    """Run a task in its own process and kill that after some seconds; return how long it ran."""
    context = get_context("forkserver")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=run_task, args=(task, folder, sender))
    process.start()
    sender.close()
    assert receiver.recv() == "ready"
    started = time.perf_counter()
    process.join(seconds)
    seconds = time.perf_counter() - started
    process.kill()
    process.join(60)
    return seconds


def people(folder: Path) -> Contents:
    """Check a gallery, and return its rows."""
    with Store.open(folder) as gallery:
        assert check(gallery).problems == ()
        return {table: rows for table, rows in contents(gallery).items() if table in ("photos", "faces", "identities")}


@pytest.mark.parametrize("kills", small_and_exhaustive(1, 20))
@pytest.mark.parametrize("task", TASKS)
def test_kill_during_backup_restore_or_repair_leaves_the_state_before_or_after(
    task: str, kills: int, drawings: Path, tmp_path: Path
):
    start = tmp_path / "start" / "gallery"
    SCENARIOS["merge"].prepare(start, drawings)
    before = people(start)
    with Store.open(start) as gallery:
        backup(gallery, start.parent / "backup.zip")
        if task == "restore":
            merge(gallery, 1, [2])
    after, before = before, people(start)
    if task in ("repair", "replace"):
        damage_table(start, "changes" if task == "repair" else "gallery")
    harmed = (start / DATABASE).read_bytes()
    shutil.copytree(start.parent, tmp_path / "whole")
    duration = run_for(task, tmp_path / "whole" / "gallery", 60)
    rng = random.Random()
    for number in range(kills):
        folder = Path(shutil.copytree(start.parent, tmp_path / str(number))) / "gallery"
        moment = rng.uniform(0, duration)
        run_for(task, folder, moment)
        if task in ("backup", "restore") or (folder / DATABASE).read_bytes() != harmed:
            assert people(folder) in (before, after), f"killed after {moment:.4f} of {duration:.4f} s"
        if task == "backup" and (file := folder.parent / "later.zip").exists():
            restore(tmp_path / f"restored {number}", file)
            file.unlink()
        TASKS[task](folder)
        assert people(folder) == (before if task == "backup" else after)
