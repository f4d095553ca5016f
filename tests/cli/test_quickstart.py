"""The quickstart as a visitor walks it, on fewer cats."""

import json
import sys
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from familiar.cli import main
from familiar.cli.commands import quickstart
from familiar.gallery.search.statistics import gallery_statistics
from familiar.gallery.store.store import Store
from familiar.recipes import RECIPES, recipe_named

pytestmark = pytest.mark.slow


def test_writes_all_outputs_and_rejects_non_empty_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    recipe = recipe_named("quickstart").with_settings(
        ["budget.epochs=2", "sampler.batch_size=32", "model.name=simple_v2", "model.blocks=3"]
    )
    monkeypatch.setitem(RECIPES, "quickstart", lambda: recipe)
    monkeypatch.setattr(quickstart, "TRAINING", "synthetic:cats:30x4:difficulty=0.2")
    monkeypatch.setattr(quickstart, "UNSEEN", "synthetic:cats:6x3:seed=1:difficulty=0.2")
    (tmp_path / "temporary").mkdir()
    in_sight = partial(TemporaryDirectory, dir=tmp_path / "temporary")
    monkeypatch.setattr(quickstart, "TemporaryDirectory", in_sight)
    output = tmp_path / "first visit"
    monkeypatch.setattr(sys, "argv", ["familiar", "quickstart", "--output", str(output), "--json"])
    with pytest.raises(SystemExit) as stopped:
        main.main()
    output_text = capfd.readouterr()
    assert not stopped.value.code, output_text.err
    document = json.loads(output_text.out)
    assert document["run"] == str(output / "run")
    assert document["verified"].keys() == {"tom_2.png", "kitty.png"}
    assert document["results"]["data"]["identities"] == 6
    assert [text in output_text.err for text in ("1/5", "2/5", "3/5", "4/5", "epoch   2", "exporting")] == [True] * 6
    assert document["album"]["photos"] == 6 * 2
    assert isinstance(document["album"]["shown"], str)
    with Store.open(output / "gallery") as gallery:
        statistics = gallery_statistics(gallery)
    assert (statistics.photos, statistics.faces) == (12, 12)
    assert [identity.name for identity in statistics.identities if identity.name] == ["Tom"]
    assert {path.name for path in output.iterdir()} == {
        "run",
        "report",
        "album",
        "gallery",
        "tom_3.png",
        "tom_1.png",
        "tom_2.png",
        "kitty.png",
    }
    assert Path(document["report"]).is_file()
    assert (output / "run" / "model.onnx").is_file()
    assert not list((tmp_path / "temporary").iterdir()), "the drawn crops are gone"

    with pytest.raises(SystemExit) as stopped:
        main.main()
    assert stopped.value.code == 1
    assert "is not empty" in capfd.readouterr().err
