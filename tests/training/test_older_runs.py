"""Runs written before version 0.2, which used British spelling for a few keys, are still read."""

from pathlib import Path

import pytest
import safetensors.torch
import torch

from familiar.losses import ArcFace
from familiar.training import run
from familiar.training.checkpoint import load_weights, with_current_names
from familiar.training.recipe import Recipe

OLDER_RECIPE = """{
 "name": "pet-mobile",
 "input": {"size_px": 224, "resize": "centre_crop", "resize_px": 256, "margin": 0.0, "normalisation": "symmetric"},
 "loss": {"name": "subcenter_arcface", "scale": 32.0, "centres_per_class": 4}
}"""  # parts of a recipe.json of version 0.1


def test_reads_recipe_with_british_keys():
    recipe = Recipe.from_json(OLDER_RECIPE)
    assert (recipe.input.resize, recipe.input.normalization) == ("center_crop", "symmetric")
    assert recipe.loss.centers_per_class == 4
    assert Recipe.from_json(recipe.to_json()) == recipe


def test_reads_recipe_file_with_british_keys(tmp_path: Path):
    folder = run.RunFolder(tmp_path)
    folder.recipe_json.write_text(OLDER_RECIPE)
    assert folder.recipe().loss.centers_per_class == 4


def test_reads_class_centers_under_their_older_name(tmp_path: Path):
    torch.manual_seed(0)
    older, newer = ArcFace(4, 3), ArcFace(4, 3)
    tensors = {"objective.centres": older.centers.detach().clone()}
    (tmp_path / "best.safetensors").write_bytes(safetensors.torch.save(tensors))
    assert not torch.equal(older.centers, newer.centers)
    load_weights(tmp_path / "best.safetensors", objective=newer)
    assert torch.equal(older.centers, newer.centers)


@pytest.mark.parametrize("name", ["centres", "loss.centres", "center_loss.centres"])
def test_resumed_objective_state_gets_current_names(name: str):
    assert with_current_names({name: torch.zeros(1)}).keys() == {name.replace("centres", "centers")}
