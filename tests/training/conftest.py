from collections.abc import Iterator

import numpy as np
import pytest
import torch

from familiar.datasets.folders import DataSpec
from familiar.training import fitting, loop
from familiar.training.step import StepFigures
from support.tiny_run import save_photos


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def without_curves(monkeypatch: pytest.MonkeyPatch) -> None:
    """Skip drawing, which takes longer than training here."""
    monkeypatch.setattr(loop, "draw_curves", lambda *_: None)
    monkeypatch.setattr(fitting, "plot_mining", lambda *_: None)


@pytest.fixture
def without_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Skip all computation in epochs, for tests of what follows from their validations."""
    figures = torch.tensor(1.0), torch.tensor(1.0), torch.tensor(float("nan"))
    monkeypatch.setattr(loop, "draw_curves", lambda *_: None)
    monkeypatch.setattr(loop, "take_step", lambda *_: StepFigures(1e-3, 1, *figures))
    monkeypatch.setattr(loop, "embed_by_ranks", lambda *_, **__: np.zeros((1, 1), np.float32))


@pytest.fixture(scope="session")
def cats(tmp_path_factory: pytest.TempPathFactory) -> DataSpec:
    """Twelve identities of four photos, as files. Tests must not change them."""
    return save_photos(tmp_path_factory.mktemp("photos") / "cats")
