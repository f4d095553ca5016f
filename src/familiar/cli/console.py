"""How commands speak: results on stdout (or one JSON document), progress and skipped photos on stderr."""

import io
import json
import logging
import sys
import time
from collections.abc import Sequence
from typing import Any

import click

from familiar.core.terminal_text import one_line


def prepare() -> None:
    """Any name a file can have can be printed, and what libraries log stays one line each."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a name may be no UTF-8, or not fit the terminal's coding
    if logging.lastResort is not None:
        logging.lastResort.setFormatter(_OneLine())
    logging.getLogger("PIL").setLevel(logging.CRITICAL)  # what matters of it is raised, with the photo's name


def print_json(document: Any) -> None:
    text = json.dumps(document, indent=1, ensure_ascii=False, default=str)
    # Bytes, since JSON is UTF-8 whatever the terminal's coding. Where a name is none, Python's escape is JSON's too.
    click.echo(text.encode("utf-8", "backslashreplace"))


def note(text: str) -> None:
    """A line for the person watching."""
    click.echo(text, err=True)


def list_skipped(errors: Sequence[object], most: int = 20) -> None:
    """Each photo that was passed over, and why."""
    for error in errors[:most]:
        note(f"skipped {one_line(str(error))}")
    if len(errors) > most:
        note(f"... and {len(errors) - most} more")


class StatusLine:
    """One line on stderr that is written over; on anything but a terminal it keeps quiet."""

    def __init__(self) -> None:
        self._alive = sys.stderr.isatty()
        self._next = 0.0
        self._width = 0

    def show(self, text: str) -> None:
        now = time.monotonic()
        if self._alive and now >= self._next:
            self._next = now + 0.2  # a terminal over a slow line should not hold up the work
            click.echo("\r" + text.ljust(self._width), err=True, nl=False)
            self._width = len(text)

    def clear(self) -> None:
        if self._alive and self._width:
            click.echo("\r" + " " * self._width + "\r", err=True, nl=False)
            self._width = 0


class _OneLine(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return one_line(super().format(record))


def duration(seconds: float) -> str:
    """
    >>> duration(7384), duration(65)
    ('2:03:04', '1:05')
    """
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
