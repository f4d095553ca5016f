"""Terminal output: results on stdout (or one JSON document), progress and skipped photos on stderr."""

import io
import json
import logging
import sys
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from familiar.core.terminal_text import one_line

if TYPE_CHECKING:  # --help imports nothing heavy
    from familiar.detection.faces import DetectedFaces


def prepare() -> None:
    """Make every file name printable, and keep each log message of a library on one line."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a name may not be UTF-8, or not fit the terminal's encoding
    if logging.lastResort is not None:
        logging.lastResort.setFormatter(_OneLine())
    logging.getLogger("PIL").setLevel(logging.CRITICAL)  # what matters is raised, with the photo's name


def print_json(document: Any) -> None:
    """Print one JSON document on stdout, as UTF-8."""
    text = json.dumps(document, indent=1, ensure_ascii=False, default=str)
    # Bytes, because JSON is UTF-8 whatever the terminal's encoding. For a name that is not UTF-8, Python's escape is
    # valid JSON too.
    click.echo(text.encode("utf-8", "backslashreplace"))


def note(text: str) -> None:
    """Print a line on stderr."""
    click.echo(text, err=True)


def note_face(photo: "DetectedFaces") -> None:
    """Say which face of a photo was taken, if the photo has several."""
    if photo.face_count > 1:
        name, number = one_line(photo.name), photo.faces[0].from_left
        note(f"{name}: face {number} of {photo.face_count}, counted from the left; --face N chooses another")


def list_skipped(errors: Sequence[object], limit: int = 20) -> None:
    """Print each skipped photo and the reason on stderr."""
    for error in errors[:limit]:
        note(f"skipped {one_line(str(error))}")
    if len(errors) > limit:
        note(f"... and {len(errors) - limit} more")


def note_passed_over(counts: Mapping[str, int]) -> None:
    """Print on stderr how many files in folders were not taken for photos, by kind."""
    from familiar.photos.listing import describe_counts

    if counts:
        note(f"passed over: {describe_counts(counts)}")


class StatusLine:
    """A progress line on stderr that overwrites itself; where stderr is not a terminal, a line a minute."""

    def __init__(self) -> None:
        self._is_terminal = sys.stderr.isatty()
        self._next_update = 0.0 if self._is_terminal else time.monotonic() + 60
        self._width = 0

    def show(self, text: str) -> None:
        now = time.monotonic()
        if now < self._next_update:
            return
        if not self._is_terminal:
            self._next_update = now + 60
            note(text)
            return
        self._next_update = now + 0.2  # a terminal over a slow line should not hold up the work
        click.echo("\r" + text.ljust(self._width), err=True, nl=False)
        self._width = len(text)

    def clear(self) -> None:
        """Remove the line, before another is printed."""
        if not self._is_terminal:
            self._next_update = time.monotonic() + 60
        elif self._width:
            click.echo("\r" + " " * self._width + "\r", err=True, nl=False)
            self._width = 0


class _OneLine(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return one_line(super().format(record))


def duration(seconds: float) -> str:
    """Write seconds as h:mm:ss or m:ss.

    >>> duration(7384), duration(65)
    ('2:03:04', '1:05')
    """
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
