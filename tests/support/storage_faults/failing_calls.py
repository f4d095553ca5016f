"""Let each system call of an operation fail in turn."""

import errno
import random
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from familiar.core.errors import FamiliarError
from support.storage_faults.disk import Contents, write_contents
from support.storage_faults.recording import Library, Operation, Snapshot, run_with_library

# Kinds of calls, as in preload.c.
OPEN, CREATE, READ, WRITE, SYNC, NAMES = 1, 2, 4, 8, 16, 32
CALLS_OF_ERROR = {  # of calls that each error can come from
    errno.EIO: OPEN | CREATE | READ | WRITE | SYNC | NAMES,
    errno.ENOSPC: CREATE | WRITE | SYNC | NAMES,
    errno.EACCES: OPEN | CREATE | NAMES,
    errno.EMFILE: OPEN | CREATE,
}
_ALWAYS = 1 << 40


@dataclass(frozen=True)
class Failure:
    """Calls that fail: the `first` of their kind (from 1), and all after it if it `lasts`."""

    error: int
    first: int
    lasts: bool

    def __str__(self) -> str:
        return f"{errno.errorcode[self.error]} at call {self.first}{' and after' if self.lasts else ''}"


def check_failures(
    library: Path, work: Path, operation: Operation, most: int, seed: int = 0
) -> tuple[int, int, list[str]]:
    """Run an operation again and again in a new process; in each run a call fails. Then look for damage and repeat it.

    Args:
        library: from `preload_library`.
        work: a folder for it; created.
        operation: can be pickled. It must raise a FamiliarError, or succeed.
        most: number of runs for each error; if there are more calls, some are drawn.
        seed: of the drawing.

    Returns:
        The number of runs, in how many of them the operation raised an error, and the problems.
    """
    run_with_library(library, f"{__name__}:_check_here", work, operation, most, seed)
    runs, errors, *problems = (work / "failures.txt").read_text().split("\0")
    return int(runs), int(errors), problems


def assert_survives_failures(library: Path, work: Path, operation: Operation, most: int, seed: int = 0) -> None:
    """Check an operation as `check_failures`."""
    runs, errors, problems = check_failures(library, work, operation, most, seed)
    assert 0 < errors <= runs
    assert not problems, "\n".join(problems[:20])


def _check_here(work: Path, operation: Operation, most: int, seed: int) -> None:
    root = work / "disk"
    root.mkdir(parents=True)
    library = Library(root)
    operation.prepare(work)
    before = Snapshot.read(root).by_path()
    reference = operation.run(work, lambda _: None)  # also imports what it needs
    runs = errors = 0
    problems: list[str] = []
    for failure in _failures(lambda: operation.run(work, lambda _: None), root, before, library, most, seed):
        write_contents(root, before)
        error, seen = _run_and_check(work, operation, library, failure, reference)
        runs, errors = runs + 1, errors + (error is not None)
        problems += [f"{failure}: {problem}" for problem in seen]
    (work / "failures.txt").write_text("\0".join([str(runs), str(errors), *problems]))


def _failures(
    run: Callable[[], object], root: Path, before: Contents, library: Library, most: int, seed: int
) -> Iterator[Failure]:
    rng = random.Random(seed)
    for error, chosen in CALLS_OF_ERROR.items():
        write_contents(root, before)
        library.fail_calls(chosen, 0, 0, 0)
        run()
        calls = range(1, library.count_calls() + 1)
        for first in calls if len(calls) <= most else sorted(rng.sample(calls, most)):
            for lasts in (False, True):
                yield Failure(error, first, lasts)


def _run_and_check(
    work: Path, operation: Operation, library: Library, failure: Failure, reference: object
) -> tuple[Exception | None, list[str]]:
    """Run an operation in which calls fail; return its error, and the problems of it and of what it left."""
    acknowledged: list[str] = []
    problems: list[str] = []
    raised: Exception | None = None
    library.fail_calls(CALLS_OF_ERROR[failure.error], failure.first, _ALWAYS if failure.lasts else 1, failure.error)
    try:
        operation.run(work, acknowledged.append)
    except FamiliarError as error:
        raised = error
        if "\n" in str(error):
            problems.append(f"the message has several lines: {error}")
    except Exception as error:
        raised = error
        lines = [f"{Path(frame.filename).name}:{frame.lineno}" for frame in traceback.extract_tb(error.__traceback__)]
        problems.append(f"unclear error {type(error).__name__}: {error} ({' '.join(lines[-6:])})")
    library.fail_calls(0, 0, 0, 0)
    try:
        problems += operation.problems(work, acknowledged, reference)
    except Exception as error:
        problems.append(f"afterwards {type(error).__name__}: {error}")
    return raised, problems
