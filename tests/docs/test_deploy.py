"""The Python of docs/deploy.md runs, and what it says without familiar is what familiar says."""

import re
import textwrap
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from familiar.datasets.synthetic import SyntheticPhoto
from familiar.embedding.bundle import load_bundle
from familiar.embedding.embedder import Embedder
from familiar.embedding.verification import verify_photos
from familiar.photos.preprocessing import Preprocessing
from support.random_bundle import random_bundle

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "deploy.md").read_text(encoding="utf-8")
READ_METADATA, WITH_FAMILIAR, WITHOUT_FAMILIAR = (
    textwrap.dedent(block) for block in re.findall(r"```python\n(.*?) *```", PAGE, flags=re.DOTALL)
)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A bundle and photos of the names the page uses: larger than a crop, and one turned."""
    turned = Image.Exif()
    turned[0x0112] = 6
    for name, index, extra in (("a.jpg", 0, {}), ("b.jpg", 1, {"exif": turned}), ("c.jpg", 2, {})):
        drawn = SyntheticPhoto("cats", 3, index, difficulty=1.0, size_px=256).draw().rgb_u8
        Image.fromarray(drawn[:, : 200 + 20 * index]).save(tmp_path / name, quality=85, **extra)
    (tmp_path / "notes.txt").write_text("no photo")
    preprocessing = Preprocessing(size_px=48, resize_px=48, color_order="BGR")
    random_bundle(tmp_path / "model.onnx", sorted(tmp_path.glob("*.jpg")), preprocessing)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def executed(block: str) -> dict[str, Any]:
    names: dict[str, Any] = {}
    exec(block, names)
    return names


def test_metadata_code_reads_the_file_id(place: Path):
    metadata = executed(READ_METADATA)["metadata"]
    assert metadata["file_id"] == load_bundle(place / "model.onnx").file_id


def test_code_with_familiar_verifies_and_lists_skipped_files(place: Path, capsys: pytest.CaptureFixture[str]):
    found = executed(WITH_FAMILIAR)
    assert found["answer"] == verify_photos(Embedder(place / "model.onnx"), place / "a.jpg", place / "b.jpg")
    assert len(found["found"].embeddings) == 2
    assert "notes.txt: no photo" in capsys.readouterr().out


def test_code_without_familiar_matches_verify_photos(place: Path, capsys: pytest.CaptureFixture[str]):
    found = executed(WITHOUT_FAMILIAR)
    answer = verify_photos(Embedder(place / "model.onnx"), place / "a.jpg", place / "b.jpg")
    assert found["similarity"] == pytest.approx(answer.similarity, abs=1e-5)
    assert found["same"] == answer.same
    assert float(capsys.readouterr().out.split()[2]) == pytest.approx(answer.probability, abs=1e-4)


def test_code_without_familiar_accepts_uncalibrated_bundle(
    place: Path, uncalibrated_bundle: Path, capsys: pytest.CaptureFixture[str]
):
    (place / "model.onnx").write_bytes(uncalibrated_bundle.read_bytes())
    assert executed(WITHOUT_FAMILIAR)["same"]
    assert capsys.readouterr().out == ""


def test_links_point_to_existing_files():
    prose = re.sub(r"```.*?```", "", PAGE, flags=re.DOTALL)
    targets = re.findall(r"\]\(([^)#]+)\)", prose)
    assert len(targets) >= 3
    assert [target for target in targets if not (ROOT / "docs" / target).exists()] == []
