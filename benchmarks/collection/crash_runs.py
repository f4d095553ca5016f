"""Run a task on a gallery in its own process, kill it, and check the gallery.

After a kill the gallery must equal one of the states that the uninterrupted task goes through: `run_uninterrupted`
records them by revision, `run_and_kill` compares.
"""

import contextlib
import shutil
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path

from collection.crash_scenarios import (
    SCENARIOS,
    Contents,
    Scenario,
    comparable_contents,
    contents,
    embedder,
    violated_invariants,
)
from familiar.gallery.store.repository import Repository
from familiar.gallery.store.store import Store

_TIMEOUT_SECONDS = 60.0


@dataclass(frozen=True)
class UninterruptedRun:
    """An uninterrupted task: its duration, and the gallery's contents at each revision."""

    seconds: float
    contents: dict[int, Contents]


@dataclass(frozen=True)
class KillResult:
    """Outcome of one kill.

    Whether it hit a transaction or came after the task's end; the last revision that
    was `acknowledged`; and the problems found afterwards.
    """

    in_transaction: bool
    after_end: bool
    acknowledged: int
    problems: tuple[str, ...]


def problems_after_kill(
    scenario: Scenario, gallery: Store, reference: UninterruptedRun, acknowledged: int
) -> list[str]:
    """List the problems of a gallery whose task was killed; empty if there are none."""
    problems = violated_invariants(scenario, gallery)
    revision, current = gallery.revision, contents(gallery)
    if revision < acknowledged:
        problems.append(f"revision {acknowledged} was acknowledged, {revision} is there")
    if revision not in reference.contents:
        problems.append(f"revision {revision} does not occur in the uninterrupted task")
    else:
        expected = reference.contents[revision]
        changed = [table for table in current if current[table] != expected[table]]
        problems += [f"{table} differs from revision {revision}" for table in changed]
    return problems + _deleted_faces_on_disk(gallery, reference)


def _deleted_faces_on_disk(gallery: Store, reference: UninterruptedRun) -> list[str]:
    """List deleted faces whose embeddings are still in the files."""
    first = reference.contents[min(reference.contents)]["faces"]
    present = {row[0] for row in contents(gallery)["faces"]}
    on_disk = b"".join(path.read_bytes() for path in gallery.folder.rglob("*") if path.is_file())
    return [f"face {row[0]} is still on the disk" for row in first if row[0] not in present and row[-1] in on_disk]


class ReportingGallery(Store):
    """A gallery that reports when each transaction begins and when it is durable."""

    def __init__(self, opened: Store, report: Callable[[str], None]) -> None:
        super().__init__(opened.folder)
        self._report = report

    @contextlib.contextmanager
    def write(self, *, faces_change: bool = False) -> Generator[Repository, None, None]:
        is_outermost = not self._writing  # else part of a transaction that is not durable yet
        if is_outermost:
            self._report("begun")
        with super().write(faces_change=faces_change) as repository:
            yield repository
        if is_outermost:
            self._report(str(self.revision))


def run_uninterrupted(task: str, start: Path, photos: Path, scratch: Path) -> UninterruptedRun:
    """Create the initial gallery in `start`, and run the task uninterrupted in copies of it."""
    SCENARIOS[task].prepare(start, photos)
    seen: dict[int, Contents] = {}
    shutil.copytree(start, scratch)
    with Store.open(scratch) as opened:
        seen[opened.revision] = contents(opened)
        watched = ReportingGallery(
            opened, lambda message: seen.update({int(message): contents(opened)}) if message.isdecimal() else None
        )
        SCENARIOS[task].run(watched, photos)
    shutil.rmtree(scratch)
    seconds = min(_timed(task, start, photos, scratch) for _ in range(4))
    return UninterruptedRun(seconds, seen)


def _timed(task: str, start: Path, photos: Path, scratch: Path) -> float:
    shutil.copytree(start, scratch)
    with _task_process(task, scratch, photos) as (_, reports):
        started = time.perf_counter()
        while (message := _next_report(reports)) not in ("", "done"):
            pass
        seconds = time.perf_counter() - started
    assert message == "done", f"{task}: ended before it was done"
    shutil.rmtree(scratch)
    return seconds


def run_and_kill(
    task: str, reference: UninterruptedRun, start: Path, photos: Path, scratch: Path, after: float
) -> KillResult:
    """Kill the task `after` seconds, check the gallery, and run the task again to its end."""
    shutil.copytree(start, scratch)
    with _task_process(task, scratch, photos) as (kill, reports):
        time.sleep(after)
        kill()
        messages: list[str] = []
        while message := _next_report(reports):
            messages.append(message)
    acknowledged = max([int(message) for message in messages if message.isdecimal()], default=0)
    problems: list[str] = []
    try:
        with Store.open(scratch) as gallery:
            problems += problems_after_kill(SCENARIOS[task], gallery, reference, acknowledged)
            SCENARIOS[task].run(gallery, photos)
            last = reference.contents[max(reference.contents)]
            if comparable_contents(contents(gallery)) != comparable_contents(last):
                problems.append("the restarted task ended in a different state")
    except Exception as error:  # any error is a result of the benchmark
        problems.append(f"{type(error).__name__}: {error}")
    shutil.rmtree(scratch)
    return KillResult(messages[-1:] == ["begun"], "done" in messages, acknowledged, tuple(problems))


@contextlib.contextmanager
def _task_process(
    task: str, folder: Path, photos: Path
) -> Generator[tuple[Callable[[], None], Connection], None, None]:
    """Start the task in a process; yield a function that kills it, and the pipe with its reports."""
    context = get_context("forkserver")  # forks a process that has already imported the modules
    context.set_forkserver_preload(
        ["familiar.gallery.edits.corrections", "familiar.gallery.transfer.migrate", "PIL.Image"]
    )
    reports, sender = context.Pipe(duplex=False)
    process = context.Process(target=_run_in_process, args=(task, folder, photos, sender))
    process.start()
    sender.close()
    try:
        assert _next_report(reports) == "ready", f"{task}: did not start"
        yield process.kill, reports
    finally:
        process.kill()
        process.join(_TIMEOUT_SECONDS)
        process.close()
        reports.close()


def _run_in_process(task: str, folder: Path, photos: Path, sender: Connection) -> None:
    def report(message: str) -> None:
        sender.send_bytes(message.encode())

    embedder()  # loads what the task needs before the time is measured
    report("ready")
    with Store.open(folder) as opened:
        SCENARIOS[task].run(ReportingGallery(opened, report), photos)
    report("done")


def _next_report(reports: Connection) -> str:
    """Return the process's next report; empty if it has died."""
    assert reports.poll(_TIMEOUT_SECONDS), "the process hangs"
    try:
        return reports.recv_bytes().decode()
    except EOFError:
        return ""
