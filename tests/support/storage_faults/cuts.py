"""Check an operation after many power cuts."""

import hashlib
import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

from support.storage_faults.disk import Contents, Disk, Loss, Model, write_contents
from support.storage_faults.recording import Operation, Recording, record

_SURVIVALS = (0.0, 0.1, 0.5, 0.9, 1.0)
_SECTORS_BYTES = (512, 4096)


@dataclass(frozen=True)
class Cut:
    """A power cut before a call (by index), and what it loses, drawn with a seed."""

    call: int
    loss: Loss
    seed: int = 0


@dataclass(frozen=True)
class Outcome:
    """The number of different disks that were checked, and the problems, each with its cut."""

    disks: int
    problems: tuple[tuple[Cut, str], ...]


def worst_cuts(disk: Disk) -> Iterator[Cut]:
    """List cuts around each sync and acknowledgement that lose all pending changes of names, of data, or of both."""
    marked = [index for index, call in enumerate(disk.calls) if call.operation in "SA"]
    for index in sorted({0, len(disk.calls), *marked, *(index + 1 for index in marked)}):
        for model in get_args(Model):
            for names, data in ((0, 0), (1, 0), (0, 1)):
                yield Cut(index, Loss(model, names, data))


def random_cuts(disk: Disk, count: int, rng: random.Random) -> Iterator[Cut]:
    """Draw cuts anywhere, which lose, tear and reorder anything that is not durable."""
    for _ in range(count):
        model, sector_bytes = rng.choice(get_args(Model)), rng.choice(_SECTORS_BYTES)
        loss = Loss(model, rng.choice(_SURVIVALS), rng.choice(_SURVIVALS), sector_bytes)
        yield Cut(rng.randint(0, len(disk.calls)), loss, rng.randrange(1 << 32))


def assert_survives_cuts(library: Path, work: Path, operation: Operation, worst: int, drawn: int, seed: int) -> None:
    """Record an operation and check it after power cuts.

    Args:
        library: from `preload_library`.
        work: a folder for the operation.
        operation: can be pickled.
        worst: number of `worst_cuts`, spread evenly over all; the last, after the last promise, is among them.
        drawn: number of `random_cuts`.
        seed: of the drawing.
    """
    recording = record(library, work, operation)
    disk = Disk.from_recording(recording)
    assert disk.syncs
    cuts = list(worst_cuts(disk))[::-1]
    cuts = cuts[:: max(1, len(cuts) // worst)] + list(random_cuts(disk, drawn, random.Random(seed)))
    outcome = check_cuts(recording, work, operation, disk, cuts)
    assert outcome.disks
    assert not outcome.problems, "\n".join(f"{cut}: {problem}" for cut, problem in outcome.problems[:20])


def check_cuts(
    recording: Recording, work: Path, operation: Operation, disk: Disk, cuts: Iterable[Cut], *, stop: bool = False
) -> Outcome:
    """Make the disk after each cut and look for problems. Equal disks are checked once.

    Args:
        recording: of the operation.
        work: the folder that it was recorded in.
        operation: the same.
        disk: of the recording, or one without some of its calls.
        cuts: which.
        stop: at the first problem.
    """
    seen: set[tuple[bytes, int]] = set()
    problems: list[tuple[Cut, str]] = []
    for cut in cuts:
        contents = disk.after_cut(cut.call, cut.loss, random.Random(cut.seed))
        acknowledged = disk.acknowledged(cut.call)
        key = _digest(contents), len(acknowledged)
        if key in seen:
            continue
        seen.add(key)
        write_contents(recording.root, contents)
        try:
            problems += [(cut, problem) for problem in operation.problems(work, acknowledged, recording.reference)]
        except Exception as error:
            problems.append((cut, f"{type(error).__name__}: {error}"))
        if stop and problems:
            break
    return Outcome(len(seen), tuple(problems))


def unneeded_syncs(recording: Recording, work: Path, operation: Operation, disk: Disk) -> list[int]:
    """List the syncs (by call) without which no cut shows a problem, as a test of the checks themselves."""
    unneeded: list[int] = []
    for sync in disk.syncs:
        without = disk.without(sync, recording.before)
        cuts = [cut for cut in worst_cuts(without) if cut.call >= sync]
        if not check_cuts(recording, work, operation, without, cuts, stop=True).problems:
            unneeded.append(sync)
    return unneeded


def unprotected_promises(recording: Recording, work: Path, operation: Operation, disk: Disk) -> list[str]:
    """List the promises that no sync protects: whichever is left out, a cut right after the promise shows no problem.

    As `unneeded_syncs`, for long operations. The checks would be blind for what was promised.
    """
    unprotected: list[str] = []
    promised: set[str] = set()
    first = 0
    for index, call in enumerate(disk.calls):
        if call.operation != "A":
            continue
        syncs = [sync for sync in disk.syncs if first <= sync < index]
        first, text = index, call.data.decode()
        if text not in promised and not any(
            _is_noticed(recording, work, operation, disk, sync, index) for sync in reversed(syncs)
        ):
            unprotected.append(text)
        promised.add(text)
    return unprotected


def _is_noticed(recording: Recording, work: Path, operation: Operation, disk: Disk, sync: int, cut: int) -> bool:
    """Whether a cut before a call shows that a sync was left out."""
    without = disk.without(sync, recording.before)
    cuts = [each for each in worst_cuts(without) if each.call == cut]  # one call later, since a sync before it is gone
    return bool(check_cuts(recording, work, operation, without, cuts, stop=True).problems)


def _digest(contents: Contents) -> bytes:
    digest = hashlib.sha256()
    for path, content in contents.items():
        digest.update(f"{path} {type(content)} {len(content or '')} ".encode())
        digest.update(content.encode() if isinstance(content, str) else content or b"")
    return digest.digest()
