"""The Python code in docs/how-to/deploy.md runs, and the code without familiar gives the same results as familiar."""

import re
import textwrap
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from starlette.testclient import TestClient

from familiar import Gallery
from familiar.datasets.synthetic import SyntheticPhoto
from familiar.embedding.bundle import load_bundle
from familiar.embedding.embedder import Embedder
from familiar.embedding.verification import verify
from familiar.photos.preprocessing import Preprocessing
from support.drawn_cats import draw_cats
from support.random_bundle import random_bundle

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "how-to" / "deploy.md").read_text(encoding="utf-8")
READ_METADATA, WITH_FAMILIAR, SERVICE, WITHOUT_FAMILIAR = (
    textwrap.dedent(block) for block in re.findall(r"```python\n(.*?) *```", PAGE, flags=re.DOTALL)
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Create a bundle and photos with the names that the page uses: larger than a crop, and one rotated."""
    rotated = Image.Exif()
    rotated[0x0112] = 6
    for name, index, extra in (("a.jpg", 0, {}), ("b.jpg", 1, {"exif": rotated}), ("c.jpg", 2, {})):
        drawn = SyntheticPhoto("cats", 3, index, difficulty=1.0, size_px=256).draw().rgb_u8
        Image.fromarray(drawn[:, : 200 + 20 * index]).save(tmp_path / name, quality=85, **extra)
    (tmp_path / "notes.txt").write_text("no photo")
    preprocessing = Preprocessing(size_px=48, resize_px=48, color_order="BGR")
    random_bundle(tmp_path / "model.onnx", sorted(tmp_path.glob("*.jpg")), preprocessing)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def execute(block: str) -> dict[str, Any]:
    names: dict[str, Any] = {}
    exec(block, names)
    return names


def test_metadata_code_reads_the_file_id(folder: Path):
    metadata = execute(READ_METADATA)["metadata"]
    assert metadata["file_id"] == load_bundle(folder / "model.onnx").file_id


def test_code_with_familiar_verifies_and_lists_skipped_files(folder: Path, capsys: pytest.CaptureFixture[str]):
    names = execute(WITH_FAMILIAR)
    assert names["answer"] == verify(folder / "a.jpg", folder / "b.jpg", Embedder(folder / "model.onnx"))
    assert len(names["result"].embeddings) == 2
    assert "notes.txt: not a photo" in capsys.readouterr().out


def test_service_answers_uploads(folder: Path):
    draw_cats(folder / "photos", cats=1, photos=4)
    with Gallery.create("album") as album:
        album.enroll("photos")
        album.name(album.split([str(folder / "photos" / "cat-0" / "0.png")], "Mia").identity, "Mia")
    names = execute(SERVICE)
    client = TestClient(names["app"])
    first, second = ((folder / "photos" / "cat-0" / f"{index}.png").read_bytes() for index in (0, 1))
    answer = client.post("/same", files={"first": ("a.png", first), "second": ("b.png", second)}).json()
    assert answer["same"] is True
    assert client.post("/who", files={"photo": ("a.png", first)}).json() == ["Mia"]
    refused = client.post("/same", files={"first": ("a.png", first), "second": ("notes.txt", b"no photo")})
    assert refused.status_code == 422
    assert refused.json()["detail"].startswith("notes.txt: not a photo")
    draw_cats(folder / "new", cats=1, photos=5)
    new = (folder / "new" / "cat-0" / "4.png").read_bytes()
    assert client.post("/add", files={"photo": ("4.png", new)}).json() == 1
    assert client.post("/add", files={"photo": ("notes.txt", b"no photo")}).status_code == 422
    assert [path.read_bytes() for path in (folder / "uploads").iterdir()] == [new]
    names["album"].close()


def test_code_without_familiar_matches_verify_photos(folder: Path, capsys: pytest.CaptureFixture[str]):
    names = execute(WITHOUT_FAMILIAR)
    answer = verify(folder / "a.jpg", folder / "b.jpg", Embedder(folder / "model.onnx"))
    assert names["similarity"] == pytest.approx(answer.similarity, abs=1e-5)
    assert names["same"] == answer.same
    assert float(capsys.readouterr().out.split()[2]) == pytest.approx(answer.probability, abs=1e-4)


def test_code_without_familiar_accepts_uncalibrated_bundle(
    folder: Path, uncalibrated_bundle: Path, capsys: pytest.CaptureFixture[str]
):
    (folder / "model.onnx").write_bytes(uncalibrated_bundle.read_bytes())
    assert execute(WITHOUT_FAMILIAR)["same"] is None
    assert capsys.readouterr().out == ""
