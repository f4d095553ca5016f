"""What the recipes' short trainings share."""

import pytest

from familiar.datasets.folders import DataSpec
from familiar.export.bundle import export_run
from familiar.training import fit as fitting
from familiar.training import loop
from familiar.training.fit import fit
from support.tiny_run import TINY


@pytest.fixture
def quiet(monkeypatch):
    """Without the pictures of a run, which take longer than its steps."""
    monkeypatch.setattr(loop, "draw_curves", lambda *_: None)
    monkeypatch.setattr(fitting, "picture_of_mining", lambda *_: None)


@pytest.fixture(scope="session")
def old_bundle(tmp_path_factory):
    """A trained bundle, for a network that is to compare with it."""
    folder = tmp_path_factory.mktemp("old")
    fit(TINY.with_settings(["budget.epochs=1"]), DataSpec(("synthetic:cats:20x4",)), folder / "run")
    return export_run(folder / "run", folder / "old.onnx").path
