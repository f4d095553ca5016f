"""Training with a function of the user: tried before photos are read, stored with the run, used when it is resumed."""

import re
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from familiar.cli.commands import train as command
from familiar.core.errors import BadRecipe, BadRun
from familiar.loading.augment.custom import import_function
from familiar.training.fitting import fit
from familiar.training.run import RunFolder
from support.tiny_run import TINY, Interrupted, history, save_photos, stop_after

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "train-on-my-photos.md"
RECIPE = TINY.with_settings(["augmentation=none", "augmentation.custom=my_photos:sharpen", "budget.epochs=2"])


@pytest.fixture(autouse=True)
def page_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The module of the how-to page in the current folder."""
    (code,) = re.findall(r'```python title="my_photos\.py"\n(.*?)```', PAGE.read_text(), flags=re.DOTALL)
    (tmp_path / "my_photos.py").write_text(code)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "my_photos", raising=False)
    import_function.cache_clear()
    return tmp_path / "my_photos.py"


def test_function_that_fails_is_refused_before_photos_are_read(tmp_path: Path) -> None:
    wrong = RECIPE.with_settings(["augmentation.custom=my_photos:blur"])
    with pytest.raises(BadRecipe, match=r"my_photos\.py has no function blur"):
        fit(wrong, tmp_path / "no photos", tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.usefixtures("without_curves")
@pytest.mark.slow
def test_resumed_run_uses_function_of_its_recipe(tmp_path: Path) -> None:
    photos = save_photos(tmp_path / "photos")
    with pytest.raises(Interrupted):
        fit(RECIPE, photos, tmp_path / "run", on_epoch=stop_after(1))
    assert RunFolder(tmp_path / "run").recipe().augmentation.custom == "my_photos:sharpen"
    with pytest.raises(BadRun, match=r"augmentation\.custom was my_photos:sharpen, is "):
        fit(RECIPE.with_settings(["augmentation.custom="]), photos, tmp_path / "run", resume=True)
    fit(RECIPE, photos, tmp_path / "run", resume=True)
    fit(RECIPE, photos, tmp_path / "uninterrupted")
    fit(RECIPE.with_settings(["augmentation.custom="]), photos, tmp_path / "plain")
    resumed, uninterrupted, plain = (history(RunFolder(tmp_path / name)) for name in ("run", "uninterrupted", "plain"))
    assert resumed == uninterrupted
    assert resumed != plain


@pytest.mark.parametrize("option", ["--augment my_photos:sharpen", "--set augmentation.custom=my_photos:sharpen"])
def test_option_sets_function_of_recipe(option: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recipes: list[Any] = []

    def stop(recipe: Any, *_: Any, **__: Any) -> None:
        recipes.append(recipe)
        raise Interrupted

    monkeypatch.setattr(command, "train_and_export", stop)
    arguments = [str(tmp_path), "--output", "run", "--set", "augmentation=circle", *option.split()]
    with pytest.raises(Interrupted):
        CliRunner().invoke(command.train, arguments, catch_exceptions=False)
    assert (recipes[0].augmentation.custom, recipes[0].augmentation.flip_p) == ("my_photos:sharpen", 0.3)
