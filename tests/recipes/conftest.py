"""What the recipes' short trainings share."""

import pytest

from familiar.training import fit as fitting
from familiar.training import trainer


@pytest.fixture
def quiet(monkeypatch):
    """Without the pictures of a run, which take longer than its steps."""
    monkeypatch.setattr(trainer, "draw_curves", lambda *_: None)
    monkeypatch.setattr(fitting, "picture_of_mining", lambda *_: None)
