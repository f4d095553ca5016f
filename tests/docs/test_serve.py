"""docs/serve.md: its commands parse, its Python runs, and its table lists the API's paths."""

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from urllib.request import urlopen

import pytest

from familiar.cli.main import familiar
from familiar.web.settings import Settings
from support import color_album
from support.server import running_server

PAGE = (Path(__file__).parents[2] / "docs" / "serve.md").read_text()
(CONSOLE,) = re.findall(r"```console\n(.*?)```", PAGE, flags=re.DOTALL)
(PYTHON,) = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)
METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")


@pytest.fixture
def url(tmp_path: Path, mean_color_bundle: Path) -> Iterator[str]:
    with running_server(Settings(gallery=tmp_path / "album", model=mean_color_bundle)) as url:
        yield url


@pytest.mark.parametrize("line", [line for line in CONSOLE.splitlines() if line.startswith("familiar")])
def test_every_command_parses(line: str, tmp_path: Path):
    _, name, *arguments = shlex.split(line.replace("~/Pictures", str(tmp_path)), comments=True)
    familiar.commands[name].make_context(name, arguments)


@pytest.mark.slow
def test_python_example_runs(url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    photos = color_album.draw_album(tmp_path / "photos", red=3, green=2)
    namespace = {"photos": photos}
    exec(PYTHON.replace("http://127.0.0.1:8000", url), namespace)
    *_, last, known = capsys.readouterr().out.splitlines()
    assert last == "2 None 2"
    assert "identity=1" in known


@pytest.mark.slow
def test_table_lists_exactly_the_api_paths(url: str):
    """The table lists each path of the API, and no other."""
    listed: set[str] = set()
    for row in re.findall(r"^\| [^|]+ \| (`(?:GET|POST).*?) \|$", PAGE, flags=re.MULTILINE):
        last = ""
        for path in re.findall(r"`([^`]+)`", row):
            path = path.removeprefix(next((f"{method} " for method in METHODS if path.startswith(method)), ""))
            if not path.startswith("/"):  # the previous path with another last part
                path = f"{last.rpartition('/')[0]}/{path}"
            listed.add(last := path)
    with urlopen(f"{url}/api/v1/openapi.json") as response:
        paths = json.load(response)["paths"]
    assert listed == {re.sub(r"\{\w+\}", "N", path.removeprefix("/api/v1")) for path in paths}
