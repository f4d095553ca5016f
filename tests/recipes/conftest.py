"""What the recipes' short trainings share."""

import pytest

from familiar.training import fit as fitting
from familiar.training import loop


@pytest.fixture
def quiet(monkeypatch):
    """Without the pictures of a run, which take longer than its steps."""
    monkeypatch.setattr(loop, "draw_curves", lambda *_: None)
    monkeypatch.setattr(fitting, "picture_of_mining", lambda *_: None)
