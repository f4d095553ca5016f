"""The trial of a network in this process: another one takes longer than the small networks of these tests."""

from pathlib import Path

import pytest

from familiar.conversion import importing, trial


@pytest.fixture(autouse=True)
def _trial_in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial, "_limit_memory", lambda _: None)

    def run_trial(path: Path, layout: trial.Layout | None, size_px: int | None) -> None:
        trial.run_trial(path, layout, size_px, trial.MEMORY_BYTES)

    monkeypatch.setattr(importing, "try_network", run_trial)
