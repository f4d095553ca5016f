"""Which of the automatic copies of a gallery are kept."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path

_NAME = re.compile(r"\d{4}-\d\d-\d\dT\d{6}(-[\w-]+)?\.sqlite")


@dataclass(frozen=True)
class Retention:
    """How many automatic copies a gallery keeps: of each of the last days the newest, and of each of the last weeks.

    Attributes:
        days: so many days, and at least so many copies.
        weeks: so many weeks. Both 0: no copies are made.
    """

    days: int = 3
    weeks: int = 3

    def __post_init__(self) -> None:
        if self.days < 0 or self.weeks < 0:
            raise ValueError(f"give numbers of days and weeks, not {self.days} and {self.weeks}")

    def __bool__(self) -> bool:
        """Whether copies are made."""
        return self.days + self.weeks > 0

    def keep(self, copies: Sequence[Path]) -> set[Path]:
        """Choose the copies to keep.

        Args:
            copies: newest first.
        """
        newest_of_day: dict[date, Path] = {}
        newest_of_week: dict[tuple[int, int], Path] = {}
        for path in copies:
            newest_of_day.setdefault(day_of(path), path)
            newest_of_week.setdefault(day_of(path).isocalendar()[:2], path)
        by_day, by_week = list(newest_of_day.values()), list(newest_of_week.values())
        return {*copies[: self.days], *by_day[: self.days], *by_week[: self.weeks]}


def is_copy(path: Path) -> bool:
    """Whether a file has the name of an automatic copy."""
    return _NAME.fullmatch(path.name) is not None


def day_of(path: Path) -> date:
    """Return the day of a copy."""
    return date.fromisoformat(path.name[:10])
