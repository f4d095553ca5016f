"""Photos for the doctests of functions that read some: they run in a folder with `photos/mia-1.png` and so on."""

from pathlib import Path

import pytest

from familiar.datasets.synthetic import SyntheticSource
from familiar.photos.decoding import save_photo


@pytest.fixture(autouse=True)
def _photos(request: pytest.FixtureRequest) -> None:
    if isinstance(request.node, pytest.DoctestItem) and "photos" in (request.node.dtest.docstring or ""):
        folder: Path = request.getfixturevalue("tmp_path")
        source = SyntheticSource.parse("synthetic:cats:2x2")
        (folder / "photos").mkdir()
        for cat, name in enumerate(("mia", "tom")):
            for number, photo in enumerate(source.photos(cat), 1):
                save_photo(photo.draw(), folder / "photos" / f"{name}-{number}.png")
        request.getfixturevalue("monkeypatch").chdir(folder)
