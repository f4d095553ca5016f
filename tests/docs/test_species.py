"""The Python code in docs/how-to/several-species.md runs, and its example of a species file is one."""

import re
from pathlib import Path

import pytest
from PIL import Image

from familiar.core.types import LABELS
from familiar.embedding.species import read_species_file
from support.drawn_cats import draw_cats

PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "several-species.md").read_text()


def block(language: str) -> str:
    (code,) = re.findall(rf"```{language}\n(.*?)```", PAGE, flags=re.DOTALL)
    return code


def test_python_example_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    draw_cats(tmp_path / "photos", cats=2, photos=1)
    Image.new("RGB", (320, 240)).save(tmp_path / "photos" / "black.png")
    (tmp_path / "photos" / "broken.jpg").write_text("no photo")
    monkeypatch.chdir(tmp_path)
    exec(block("python"), {})
    output = capsys.readouterr().out
    assert "0.png cat (768,)" in output
    assert "broken.jpg: not a photo" in output
    assert re.search(r"^cat \w+ \(2, 640\)$", output, re.MULTILINE)
    assert re.search(r"^person \w+ \(0, 128\)$", output, re.MULTILINE)


def test_species_file_example_is_read(tmp_path: Path):
    (tmp_path / "family.json").write_text(block("json"))
    models = read_species_file(tmp_path / "family.json")
    assert tuple(models) == LABELS
    assert models["person"] == tmp_path / "models" / "people.onnx"
