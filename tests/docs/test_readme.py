"""What README tells a newcomer to type is understood, and its Python runs."""

import re
import shlex
import shutil
from pathlib import Path

import numpy as np
import pytest

from familiar.core.types import Photo
from familiar.photos.decoding import save_photo

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, flags=re.DOTALL)


def lines(start: str) -> list[str]:
    typed = (line for block in blocks("console") for line in block.splitlines())
    return [line for line in typed if line.startswith(start)]


def test_every_make_target_exists():
    makefile = (ROOT / "Makefile").read_text()
    targets = [shlex.split(line, comments=True)[1] for line in lines("make ")]
    assert targets == ["quickstart", "test"]
    assert all(re.search(rf"^{target}:", makefile, flags=re.MULTILINE) for target in targets)


def test_python_example_runs(tmp_path: Path, mean_color_bundle: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "runs" / "mine").mkdir(parents=True)
    shutil.copy(mean_color_bundle, tmp_path / "runs" / "mine" / "model.onnx")
    (tmp_path / "photos" / "rex").mkdir(parents=True)
    for name, value in (("a.png", 90), ("b.png", 200)):
        pixels = np.full((40, 50, 3), value, np.uint8)
        save_photo(Photo(pixels, "drawn", (50, 40)), tmp_path / "photos" / "rex" / name)
    monkeypatch.chdir(tmp_path)
    (block,) = blocks("python")
    seen: dict[str, object] = {}
    exec(block, seen)
    np.testing.assert_allclose(np.asarray(seen["similarity"]), np.ones((2, 2)), atol=1e-6)


def test_links_point_to_existing_files():
    targets = re.findall(r"\]\(([^)#]+)\)", README)
    assert len(targets) > 10
    assert [target for target in targets if not (ROOT / target).exists()] == []
