"""What running a command gives: the fixture `familiar` of tests/app runs them in this process."""

from collections.abc import Callable
from typing import NamedTuple


class Answer(NamedTuple):
    code: int
    out: str
    err: str


Familiar = Callable[..., Answer]
