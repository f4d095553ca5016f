"""The Python of README, the start page and the how-to pages runs: shipped bundles, drawn cats."""

import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from familiar import Gallery
from familiar.evaluation.context import EvaluationOptions
from familiar.evaluation.run_evaluation import evaluate
from familiar.neighbors import search
from support.drawn_cats import draw_cats
from support.foreign_network import DIM, Network

ROOT = Path(__file__).parents[2]


def run_page(name: str) -> dict[str, Any]:
    """Run the only Python block of a page in the current folder; return its variables."""
    (block,) = re.findall(r"```python\n(.*?)```", (ROOT / name).read_text(), flags=re.DOTALL)
    names: dict[str, Any] = {}
    exec(block, names)
    return names


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_start_page(folder: Path) -> None:
    draw_cats(folder, cats=2, photos=1)
    for name, cat in (("a.jpg", "cat-0"), ("b.jpg", "cat-1")):
        shutil.copy(folder / cat / "0.png", folder / name)
    seen = run_page("docs/index.md")
    assert seen["result"].embeddings.shape == (2, 640)
    similarity = float(seen["result"].embeddings[0] @ seen["result"].embeddings[1])
    assert seen["answer"].similarity == pytest.approx(similarity, abs=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("page", ["README.md", "docs/how-to/sort-an-album.md"])
def test_album(page: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    draw_cats(folder / "photos", cats=2, photos=4)
    shutil.copy(folder / "photos" / "cat-0" / "0.png", folder / "new.jpg")
    run_page(page)
    assert "Mia" in capsys.readouterr().out
    assert (folder / "sorted" / "Mia").is_dir()


def test_back_up_an_album(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    draw_cats(folder / "photos", cats=1, photos=2)
    with Gallery.create("album", "pet-nano") as gallery:
        gallery.enroll("photos", detector="none")
    seen = run_page("docs/how-to/back-up-an-album.md")
    assert seen["result"].sha256 in capsys.readouterr().out
    with Gallery.open("restored") as restored:
        assert restored.statistics().faces == 2


def test_scikit_learn(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    draw_cats(folder / "photos", cats=2, photos=4)
    seen = run_page("docs/how-to/scikit-learn.md")
    assert seen["recognizer"].predict(seen["paths"]).tolist() == seen["names"]
    assert "cat-0" in capsys.readouterr().out


@pytest.mark.slow
def test_tables_of_photos(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    draw_cats(folder / "photos", cats=12, photos=4)
    rows = [f"photos/cat-{cat}/{photo}.png,cat-{cat}" for cat in range(12) for photo in range(4)]
    (folder / "cats.csv").write_text("\n".join(["path,identity", *rows]))
    seen = run_page("docs/how-to/tables-of-photos.md")
    assert seen["results"].data.photos == 8
    assert 0 <= float(capsys.readouterr().out) <= 1
    assert (folder / "runs" / "cats" / "photos.csv").is_file()


def test_train_on_my_photos(folder: Path, mean_color_bundle: Path) -> None:
    draw_cats(folder / "photos", cats=1, photos=2)
    (folder / "photos" / "cat-0" / "broken.jpg").write_text("no photo")
    (folder / "runs" / "mine").mkdir(parents=True)
    shutil.copy(mean_color_bundle, folder / "runs" / "mine" / "model.onnx")
    seen = run_page("docs/how-to/train-on-my-photos.md")
    assert seen["similarity"].shape == (2, 2)
    assert len(seen["result"].skipped) == 1


@pytest.mark.slow
@pytest.mark.usefixtures("without_report")
def test_choose_a_model(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    draw_cats(folder / "photos", cats=10, photos=2)
    run_page("docs/how-to/choose-a-model.md")
    compared = capsys.readouterr().out
    assert "verification.auc" in compared
    assert "retrieval.recall_at_1" in compared


@pytest.mark.slow
@pytest.mark.usefixtures("without_report")
def test_evaluate_honestly(folder: Path, mean_color_bundle: Path, capsys: pytest.CaptureFixture[str]) -> None:
    draw_cats(folder / "photos", cats=12, photos=2)
    evaluate(mean_color_bundle, "photos", "evaluation", EvaluationOptions(("verification",)))
    seen = run_page("docs/how-to/evaluate-honestly.md")
    assert f"ROC AUC {seen['auc'].value}" in capsys.readouterr().out


@pytest.mark.slow
def test_find_a_lost_pet(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The photo of one of five missed cats, another one than those enrolled, has that cat among the candidates."""
    draw_cats(folder / "lost", cats=5, photos=4)
    shutil.move(folder / "lost" / "cat-3" / "3.png", folder / "found.jpg")
    seen = run_page("docs/how-to/find-a-lost-pet.md")
    assert {candidate.name for candidate in seen["candidates"]} == {f"cat-{cat}" for cat in range(5)}
    assert np.argmax([candidate.mean for candidate in seen["candidates"]]) == 0
    assert "cat-3" in capsys.readouterr().out


def test_vectors_of_my_own(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("usearch", reason="usearch is not installed")
    page = (ROOT / "docs/how-to/vectors-of-my-own.md").read_text()
    code = "".join(re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL))
    names: dict[str, Any] = {}
    exec(code.replace("100_000", "3_000"), names)
    assert capsys.readouterr().out == "7 1.0\n"
    rows, _ = search(names["vectors"], queries=names["queries"], k=10)
    assert np.isin(names["rows"], rows).mean() > 0.9
    assert len(names["index"]) == 3_000
    assert len(names["groups"]) == 2_000
    assert (folder / "vectors.npy").is_file()


def test_import_a_network(folder: Path) -> None:
    draw_cats(folder, cats=2, photos=1)
    for name, cat in (("a.jpg", "cat-0"), ("b.jpg", "cat-1")):
        shutil.copy(folder / cat / "0.png", folder / name)
    Network().save(folder / "own.onnx")
    seen = run_page("docs/how-to/import-a-network.md")
    assert seen["bundle"].metadata.embedding_dim == DIM
    assert not seen["bundle"].metadata.calibration.fitted
