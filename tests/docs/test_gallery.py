"""The corrections that docs/how-to/sort-an-album.md lists are commands, and its Python runs."""

import re
from pathlib import Path

import pytest

from familiar.cli.main import familiar
from familiar.datasets.synthetic import SyntheticSource
from familiar.photos.decoding import save_photo

PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "sort-an-album.md").read_text()
(PYTHON,) = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)


@pytest.mark.parametrize("correction", re.findall(r"^\| `(.*?)` \|", PAGE, flags=re.MULTILINE))
def test_every_correction_in_the_table_is_a_command(correction: str):
    assert correction.split()[0] in familiar.commands["gallery"].commands


@pytest.mark.slow
def test_python_example_runs(tmp_path: Path):
    for cat in (0, 1):
        for index, photo in enumerate(SyntheticSource.parse("synthetic:cats:2x4").photos(cat)):
            save_photo(photo.draw(), tmp_path / f"{cat}-{index}.png")
    names = {"folder": tmp_path / "gallery", "photos": tmp_path}
    exec(PYTHON, names)
    assert names["matches"][0].best == pytest.approx(1, abs=1e-3)
