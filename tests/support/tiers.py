"""How much of a long test `make test` runs, and how much only `make test-all` does."""

from collections.abc import Iterable
from typing import Any

import pytest


def small_and_exhaustive(small: Any, *exhaustive: Any) -> list[Any]:
    """Parameters of one test: a small case for every run, larger ones for `make test-all`."""
    return [small, *map(_exhaustive, exhaustive)]


def all_exhaustive_but(always: Iterable[Any], cases: Iterable[Any]) -> list[Any]:
    """Parameters of one test: the cases in `always` for every run, the other `cases` for `make test-all`."""
    in_every_run = list(always)
    return [case if case in in_every_run else _exhaustive(case) for case in cases]


def _exhaustive(case: Any) -> Any:
    values = case if isinstance(case, tuple) else (case,)
    return pytest.param(*values, marks=pytest.mark.exhaustive)
