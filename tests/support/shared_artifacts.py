"""What takes long to make, and is made once in a test run for all of its processes. Copy it where a test damages it."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from familiar.training import trainer

if TYPE_CHECKING:  # the plain environment has no torch
    from familiar.training.run import RunFolder


def made_once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], object]) -> Path:
    """The folder that `make` filled in the first process to ask for it; the others wait."""
    from filelock import FileLock

    root = factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        root = root.parent  # which all workers share
    folder, made = root / name, root / f"{name}.made"
    with FileLock(root / f"{name}.lock"):
        if not made.exists():
            folder.mkdir()
            make(folder)
            made.touch()
    return folder


@pytest.fixture(scope="session")
def shared_run(tmp_path_factory: pytest.TempPathFactory) -> "RunFolder":
    """Two epochs of the tiny recipe on the drawn `my cats` beside it, with its bundle. Not to be changed."""
    from familiar.export.bundle import export_run
    from familiar.training.fit import fit
    from familiar.training.run import RunFolder
    from support.tiny_run import TINY, save_photos

    def make(folder: Path) -> None:
        cats = save_photos(folder / "my cats", "synthetic:cats:12x8")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(trainer, "draw_curves", lambda *_: None)
            fit(TINY.with_settings(["budget.epochs=2", "split.validation=0.4"]), cats, folder / "tiny")
        export_run(folder / "tiny", RunFolder(folder / "tiny").bundle)

    return RunFolder(made_once(tmp_path_factory, "shared-run", make) / "tiny")


@pytest.fixture(scope="session")
def shared_bundle(shared_run: "RunFolder") -> Path:
    """The bundle of `shared_run`. Not to be changed."""
    return shared_run.bundle
