"""Fixtures of the recipes' tests."""

import pytest

from familiar.training import fitting as fit_module
from familiar.training import loop


@pytest.fixture
def quiet(monkeypatch):
    """Skip the pictures of a run, which take longer than its steps."""
    monkeypatch.setattr(loop, "draw_curves", lambda *_: None)
    monkeypatch.setattr(fit_module, "plot_mining", lambda *_: None)
