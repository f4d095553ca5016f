"""The Python of the HTTP API's page runs."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from familiar.web.settings import Settings
from support import color_album
from support.server import running_server

DOCS = Path(__file__).parents[2] / "docs"
(PYTHON,) = re.findall(r"```python\n(.*?)```", (DOCS / "reference" / "http-api.md").read_text(), flags=re.DOTALL)


@pytest.fixture
def url(tmp_path: Path, mean_color_bundle: Path) -> Iterator[str]:
    with running_server(Settings(gallery=tmp_path / "album", models=(mean_color_bundle,))) as url:
        yield url


@pytest.mark.slow
def test_python_example_runs(url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    photos = color_album.draw_album(tmp_path / "photos", red=3, green=2)
    namespace = {"photos": photos}
    exec(PYTHON.replace("http://127.0.0.1:8000", url), namespace)
    *_, last, known = capsys.readouterr().out.splitlines()
    assert last == "2 None 2"
    assert "identity=1" in known
