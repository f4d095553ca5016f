"""The progress line of commands."""

import time

import pytest

from familiar.cli.console import StatusLine


def test_without_a_terminal_progress_is_a_line_a_minute(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    now = 0.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    status = StatusLine()
    for second in range(200):
        now = float(second)
        status.show(f"step {second}")
    assert capsys.readouterr().err == "step 60\nstep 120\nstep 180\n"
    status.clear()  # as before the line of an epoch, which says as much
    for second in range(200, 300):
        now = float(second)
        status.show(f"step {second}")
    assert capsys.readouterr().err == "step 259\n"
