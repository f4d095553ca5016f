"""The fixture `familiar`, which runs a command in this process."""

import sys
from collections.abc import Callable
from typing import NamedTuple

import pytest

from familiar.cli import main


class Answer(NamedTuple):
    code: int
    out: str
    err: str


Familiar = Callable[..., Answer]


@pytest.fixture
def familiar(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Familiar:
    def run(*arguments: object) -> Answer:
        monkeypatch.setattr(sys, "argv", ["familiar", *map(str, arguments)])
        with pytest.raises(SystemExit) as stopped:
            main.main()
        captured = capfd.readouterr()
        return Answer(int(stopped.value.code or 0), captured.out, captured.err)

    return run
