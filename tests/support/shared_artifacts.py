"""Slow artifacts, made once in a test run for all of its processes.

A test that changes an artifact must copy it first.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:  # the plain environment has no torch
    from familiar.training.run import RunFolder


def made_once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], object]) -> Path:
    """Return a folder that `make` fills in the first process that asks for it; the others wait."""
    from filelock import FileLock

    root = factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        root = root.parent  # shared by all workers
    folder, marker = root / name, root / f"{name}.made"
    with FileLock(root / f"{name}.lock"):
        if not marker.exists():
            folder.mkdir()
            make(folder)
            marker.touch()
    return folder


@pytest.fixture(scope="session")
def shared_run(tmp_path_factory: pytest.TempPathFactory) -> "RunFolder":
    """A run of the tiny recipe, two epochs on synthetic `my cats` in the same folder, with its bundle. Read only."""
    from familiar.export.run_export import export_bundle
    from familiar.training import loop
    from familiar.training.fitting import fit
    from familiar.training.run import RunFolder
    from support.tiny_run import TINY, save_photos

    def make(folder: Path) -> None:
        cats = save_photos(folder / "my cats", "synthetic:cats:12x8")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(loop, "draw_curves", lambda *_: None)
            # Exporting a network of few operations takes a second, that of MobileNetV3 ten.
            network = ["model.name=simple_v2", "model.blocks=3"]
            fit(TINY.with_settings([*network, "budget.epochs=2", "split.validation=0.4"]), cats, folder / "tiny")
        export_bundle(folder / "tiny", RunFolder(folder / "tiny").bundle)

    return RunFolder(made_once(tmp_path_factory, "shared-run", make) / "tiny")


@pytest.fixture(scope="session")
def shared_bundle(shared_run: "RunFolder") -> Path:
    """The bundle of `shared_run`. Read only."""
    return shared_run.bundle
