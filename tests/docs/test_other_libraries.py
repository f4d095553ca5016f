"""Our side of coming-from-other-libraries.md runs: drawn cats in the place of people, pet-nano in that of SFace."""

import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from familiar.embedding.bundle import load_bundle, network_bytes, serialize_bundle
from support.drawn_cats import draw_cats

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "coming-from-other-libraries.md"
LIBRARIES = ("face_recognition", "DeepFace", "InsightFace")


def block(library: str) -> str:
    """Return the only Python block under a library's heading."""
    section = PAGE.read_text().partition(f"\n## {library}\n")[2].partition("\n## ")[0]
    (code,) = re.findall(r"```python\n(.*?)```", section, flags=re.DOTALL)
    return code


def run(library: str) -> dict[str, Any]:
    """Run a library's block in the current folder; return its variables."""
    names: dict[str, Any] = {}
    exec(block(library), names)
    return names


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    draw_cats(tmp_path / "people", cats=3, photos=3)
    for name, file in (("a.jpg", "cat-1/0.png"), ("b.jpg", "cat-1/1.png")):
        shutil.copy(tmp_path / "people" / file, tmp_path / name)
    shipped = load_bundle("pet-nano")
    for_crops = replace(shipped.metadata, detector="none")
    (tmp_path / "sface.onnx").write_bytes(serialize_bundle(network_bytes(shipped), for_crops))
    return tmp_path


@pytest.mark.parametrize("library", LIBRARIES)
def test_at_least_ten_calls_are_compared(library: str) -> None:
    calls = re.findall(r"^# .*$", block(library), flags=re.MULTILINE)
    assert len(calls) >= 10


@pytest.mark.usefixtures("folder")
def test_face_recognition_block_finds_enrolled_cat() -> None:
    seen = run("face_recognition")
    assert seen["name"] == "cat-1"
    assert seen["matches"].shape == seen["similarities"].shape == (9,)
    assert int(np.argmax(seen["similarities"])) == 3  # the first photo of the second cat is a.jpg
    assert len(seen["many"]) == 9
    assert seen["boxes"][0] == (0.0, 0.0, *seen["photo"].size_px)


@pytest.mark.usefixtures("folder")
def test_deepface_block_agrees_with_itself(capsys: pytest.CaptureFixture[str]) -> None:
    seen = run("DeepFace")
    vectors = seen["result"].embeddings
    assert seen["answer"].similarity == pytest.approx(float(vectors[0] @ vectors[1]), abs=1e-5)
    np.testing.assert_allclose(seen["embeddings"][0], vectors[0], atol=1e-5)
    assert len(seen["whole"].rows) == 1
    assert len(seen["hits"]) == 5
    assert seen["hits"][0].path.endswith("cat-1/0.png")
    assert "cat-1/0.png" in capsys.readouterr().out


@pytest.mark.usefixtures("folder")
def test_insightface_block_recognizes_its_own_crop() -> None:
    seen = run("InsightFace")
    assert seen["similarity"] == pytest.approx(1.0, abs=1e-5)
    assert seen["score"] == 1.0
    assert seen["points"] is None  # the drawn cats are whole photos
