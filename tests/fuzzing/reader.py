"""What is fuzzed: a function of bytes, valid inputs of it, and how they are changed."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

Read = Callable[[bytes], object]
Mutator = Callable[[bytes, Random], bytes]


def unchanged(data: bytes) -> bytes:
    """Repair nothing."""
    return data


@dataclass(frozen=True)
class Reader:
    """A reader of bytes that may come from anybody.

    Attributes:
        prepare: imports what is fuzzed, makes in an empty folder whatever it needs besides, and returns the function
            that reads bytes. That may raise `FamiliarError` and nothing else.
        seeds: valid inputs, from which others are made.
        mutate: changes an input where a change of single bytes would seldom lead anywhere.
        repair: makes checksums right again, which would refuse nearly every change.
        starts_processes: whether it may start other processes.
    """

    prepare: Callable[[Path], Read]
    seeds: Callable[[], Sequence[bytes]]
    mutate: Mutator
    repair: Callable[[bytes], bytes] = unchanged
    starts_processes: bool = False


def reading_file(path: Path, read: Callable[[Path], object]) -> Read:
    """Return a function that writes bytes to a file and reads that."""

    def run(data: bytes) -> object:
        path.write_bytes(data)
        return read(path)

    return run
