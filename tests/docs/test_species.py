"""The Python code in docs/how-to/several-species.md runs."""

import re
from pathlib import Path

import pytest

from familiar.embedding.species.router_file import write_router
from support.tiny_router import save_colored, tiny_router

PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "several-species.md").read_text()


def block(language: str) -> str:
    (code,) = re.findall(rf"```{language}\n(.*?)```", PAGE, flags=re.DOTALL)
    return code.replace("\\\n", "")


def test_python_example_runs(
    tmp_path: Path,
    mean_color_bundle: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):
    write_router(tmp_path / "router.json", tiny_router(mean_color_bundle, tmp_path))
    (tmp_path / "album").mkdir()
    for name, rgb in (("a", (200, 20, 20)), ("b", (20, 20, 200)), ("c", (20, 200, 20))):
        save_colored(tmp_path / "album" / f"{name}.png", rgb)
    monkeypatch.chdir(tmp_path)
    exec(block("python"), {})
    output = capsys.readouterr().out
    assert "cat [0]" in output
    assert "dog [2]" in output
    assert "b.png: shows a person" in output
