"""The pages about losses list every loss with its settings; its examples run and its pictures can be drawn."""

import doctest
import re
import runpy
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import torch

from familiar import losses
from familiar.photos.decoding import load_photo
from familiar.training.loss_catalog import LOSSES
from familiar.training.recipe import MiningSettings, Recipe
from support.docs_tables import with_tables

DOCS = Path(__file__).parents[2] / "docs"
REFERENCE = with_tables((DOCS / "reference" / "losses.md").read_text())
EXPLANATION = (DOCS / "explanation" / "losses.md").read_text()
PAGE = REFERENCE + EXPLANATION
SCRIPT = DOCS.parent / "examples" / "losses_on_a_circle.py"
PICTURES = re.findall(r"images/(losses\S*\.png)\)", PAGE)


@pytest.mark.parametrize("name", losses.__all__)
def test_every_public_name_is_documented(name: str) -> None:
    assert re.search(rf"\b{name}\b", REFERENCE)


def test_every_setting_is_documented() -> None:
    owned = {setting for loss in LOSSES.values() for setting in loss.settings()}
    mining = {f"mining.{field.name}" for field in fields(MiningSettings)}
    assert {name for name in owned | mining if name not in REFERENCE} == set()


def test_every_documented_setting_parses() -> None:
    typed = re.findall(r"--set (?:\"([^\"]+)\"|([^\s`\"]+))", PAGE)
    changes = [quoted or bare for quoted, bare in typed if "NAME" not in bare]
    assert len(changes) > 5
    for change in changes:
        together = [each for each in changes if "prefix" in each] if "prefix" in change else [change]
        loss = {"loss.gamma": "circle", "mining.mode": "batch_hard"}.get(change.split("=")[0])
        Recipe("any").with_settings([*together, *([f"loss.name={loss}"] if loss else [])])


def test_python_examples_run() -> None:
    seen: dict[str, Any] = {}
    blocks = re.findall(r"```(python|pycon)\n(.*?)```", PAGE, flags=re.DOTALL)
    assert {language for language, _ in blocks} == {"python", "pycon"}
    for language, block in blocks:
        if language == "python":
            exec(block, seen)
            assert torch.isfinite(seen["loss"])
        else:
            test = doctest.DocTestParser().get_doctest(block, seen, "losses.md", None, None)
            assert doctest.DocTestRunner(verbose=False).run(test, clear_globs=False).failed == 0


def test_training_loop_of_the_page_learns_its_photos() -> None:
    section = REFERENCE.partition("## In a training loop of yours")[2]
    (code,) = re.findall(r"```python\n(.*?)```", section, flags=re.DOTALL)
    assert 20 <= len(code.splitlines()) <= 30
    torch.manual_seed(0)
    seen: dict[str, Any] = {}
    exec(code, seen)
    with torch.no_grad():
        cosines = seen["network"](seen["photos"]) @ torch.nn.functional.normalize(seen["classifier"].centers).T
    assert (cosines.argmax(dim=1) == seen["labels"]).float().mean() > 0.9


@pytest.mark.exhaustive
def test_script_draws_every_picture_at_its_documented_size(tmp_path: Path) -> None:
    made = tmp_path / "pictures"
    printed = subprocess.run([sys.executable, SCRIPT, made], check=True, capture_output=True, text=True)
    assert sorted(PICTURES) == sorted(path.name for path in made.iterdir())
    assert len(printed.stdout.splitlines()) == len(PICTURES) == 3
    for name in PICTURES:
        assert load_photo(made / name).size_px == load_photo(DOCS / "images" / name).size_px


def test_arrows_reduce_the_loss_and_equal_the_sum_over_lines() -> None:
    script = runpy.run_path(str(SCRIPT))
    photos, centers = script["start"]()
    for name, (loss, _) in script["LOSSES"].items():
        photo_arrows, center_arrows = script["downhill"](loss, photos, centers)
        step = 1e-4 / photo_arrows.abs().max()
        there = script["cost"](loss, photos + step * photo_arrows, centers + step * center_arrows)
        assert there < script["cost"](loss, photos, centers), name
        if name not in ("normface", "arcface"):
            # Along the circle, each photo's arrow is the sum of what its lines do to it.
            across = (photos[None] - photos[:, None]).sin()
            torch.testing.assert_close(
                (script["pulls"](loss, photos) * across).sum(1), photo_arrows, atol=1e-5, rtol=1e-5
            )
