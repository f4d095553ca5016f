"""The Python and the gallery commands of the start page and the how-to pages run: shipped bundles, drawn cats."""

import re
import shlex
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from familiar.cli.main import familiar
from familiar.datasets.folders import DataSpec
from familiar.datasets.synthetic import SyntheticSource
from familiar.evaluation.context import EvaluationOptions
from familiar.evaluation.run_evaluation import evaluate
from familiar.photos.decoding import save_photo

DOCS = Path(__file__).parents[2] / "docs"


def run_page(name: str) -> dict[str, Any]:
    """Run the only Python block of a page in the current folder; return its variables."""
    (block,) = re.findall(r"```python\n(.*?)```", (DOCS / name).read_text(), flags=re.DOTALL)
    names: dict[str, Any] = {}
    exec(block, names)
    return names


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def draw_cats(folder: Path, cats: int, photos: int) -> None:
    """Draw FOLDER/cat-0/0.png and so on."""
    for cat in range(cats):
        for index, photo in enumerate(SyntheticSource.parse(f"synthetic:cats:{cats}x{photos}").photos(cat)):
            (folder / f"cat-{cat}").mkdir(parents=True, exist_ok=True)
            save_photo(photo.draw(), folder / f"cat-{cat}" / f"{index}.png")


def test_start_page(folder: Path) -> None:
    draw_cats(folder, cats=2, photos=1)
    for name, cat in (("a.jpg", "cat-0"), ("b.jpg", "cat-1")):
        shutil.copy(folder / cat / "0.png", folder / name)
    seen = run_page("index.md")
    assert seen["result"].embeddings.shape == (2, 128)
    similarity = float(seen["result"].embeddings[0] @ seen["result"].embeddings[1])
    assert seen["answer"].similarity == pytest.approx(similarity, abs=1e-5)


def test_train_on_my_photos(folder: Path, mean_color_bundle: Path) -> None:
    draw_cats(folder / "photos", cats=1, photos=2)
    (folder / "photos" / "cat-0" / "broken.jpg").write_text("no photo")
    (folder / "runs" / "mine").mkdir(parents=True)
    shutil.copy(mean_color_bundle, folder / "runs" / "mine" / "model.onnx")
    seen = run_page("how-to/train-on-my-photos.md")
    assert seen["similarity"].shape == (2, 2)
    assert len(seen["result"].skipped) == 1


@pytest.mark.slow
@pytest.mark.usefixtures("without_report")
def test_choose_a_model(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    draw_cats(folder / "photos", cats=10, photos=2)
    run_page("how-to/choose-a-model.md")
    compared = capsys.readouterr().out
    assert "verification.auc" in compared
    assert "retrieval.recall_at_1" in compared


@pytest.mark.slow
@pytest.mark.usefixtures("without_report")
def test_evaluate_honestly(folder: Path, mean_color_bundle: Path, capsys: pytest.CaptureFixture[str]) -> None:
    draw_cats(folder / "photos", cats=12, photos=2)
    evaluate(mean_color_bundle, DataSpec(("photos",)), Path("evaluation"), EvaluationOptions(("verification",)))
    seen = run_page("how-to/evaluate-honestly.md")
    assert f"ROC AUC {seen['verification']['auc']}" in capsys.readouterr().out
    assert seen["results"]["data"]["identities_seen_in_training"] == 0


@pytest.mark.slow
def test_find_a_lost_pet(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The photo of one of five missed cats, another one than those enrolled, has that cat among the candidates."""
    draw_cats(folder / "lost", cats=5, photos=4)
    shutil.move(folder / "lost" / "cat-3" / "3.png", folder / "found.jpg")
    seen = run_page("how-to/find-a-lost-pet.md")
    assert {candidate.name for candidate in seen["candidates"]} == {f"cat-{cat}" for cat in range(5)}
    assert np.argmax([candidate.mean for candidate in seen["candidates"]]) == 0
    assert "cat-3" in capsys.readouterr().out


def run_commands(name: str) -> list[tuple[str, str]]:
    """Run a page's gallery commands on crops, so without a detector, and return each with what it printed."""
    text = (DOCS / name).read_text()
    lines = [line for block in re.findall(r"```console\n(.*?)```", text, re.DOTALL) for line in block.splitlines()]
    done: list[tuple[str, str]] = []
    for line in lines:
        if "--interactive" not in line:
            arguments = shlex.split(line.replace(" --detector haar-cat", ""), comments=True)[1:]
            result = CliRunner().invoke(familiar, arguments)
            assert result.exit_code == 0, (line, result.output, result.exception)
            done.append((line, result.output))
    return done


@pytest.mark.slow
def test_commands_find_a_lost_pet(folder: Path) -> None:
    draw_cats(folder / "lost", cats=3, photos=4)
    (folder / "lost" / "cat-0").rename(folder / "lost" / "Luna, Elm Street 4")
    shutil.move(folder / "lost" / "Luna, Elm Street 4" / "3.png", folder / "found.jpg")
    draw_cats(folder / "found-photos", cats=1, photos=2)
    shutil.copy(folder / "found.jpg", folder / "luna.jpg")
    printed = dict(run_commands("how-to/find-a-lost-pet.md"))
    (searched,) = (output for line, output in printed.items() if "--by identity" in line)
    assert "Luna, Elm Street 4" in searched
    assert len(printed) == 8


@pytest.mark.slow
def test_commands_sort_an_album(folder: Path) -> None:
    draw_cats(folder / "photos", cats=3, photos=3)
    shutil.copy(folder / "photos" / "cat-0" / "0.png", folder / "new.jpg")
    printed = run_commands("how-to/sort-an-album.md")
    assert "Mia" in dict(printed)[printed[2][0]]
    assert list((folder / "sorted").iterdir())
