"""Training that rounds to 8 bits: begun from a run, resumed, validated as it will compute."""

import pytest
import safetensors.torch
import torch

from familiar.loading.crops import read_table
from familiar.loading.dataset import FaceDataset
from familiar.models.quantized import round_to_8_bits
from familiar.training.checkpoint import load_weights
from familiar.training.fit import fit
from familiar.training.network import build_network
from familiar.training.run import RunFolder
from familiar.training.validation import embed_dataset, validate, validation_pairs
from support.tiers import small_and_exhaustive
from support.tiny_run import TINY, Interrupted, history, stop_after

pytestmark = pytest.mark.slow

AWARE = TINY.with_settings(["quantize.aware=true", "budget.epochs=2", "validation.every_epochs=1"])


def stranger_similarity(network, recipe, data, split):
    read = read_table(data.read().of_identities(split.validation), recipe.input.preprocessing())
    photos = FaceDataset(read.table, read.crops)
    pairs = validation_pairs(photos.table.labels, recipe.validation.pairs, recipe.seed)
    return validate(embed_dataset(network, photos), photos.table.labels, pairs).mean_negative_similarity


@pytest.mark.usefixtures("without_curves")
@pytest.mark.parametrize("chunk_size", small_and_exhaustive(0, 8))
def test_resumed_run_equals_uninterrupted_run(tmp_path, cats, chunk_size):
    """Each step's ranges are its own batch's, or chunk's: nothing of them has to be kept."""
    recipe = AWARE.with_settings([f"sampler.chunk_size={chunk_size}"])
    unbroken, run = RunFolder(tmp_path / "unbroken"), RunFolder(tmp_path / "run")
    fit(recipe, cats, unbroken.path)
    with pytest.raises(Interrupted):
        fit(recipe, cats, run.path, on_epoch=stop_after(1))
    torch.manual_seed(99)
    fit(recipe, cats, run.path, resume=True)
    assert run.last.read_bytes() == unbroken.last.read_bytes()
    assert run.embedder.read_bytes() == unbroken.embedder.read_bytes()
    assert history(run) == history(unbroken)


@pytest.mark.exhaustive
@pytest.mark.usefixtures("without_curves")
def test_validates_rounded_network_and_saves_plain_weights(tmp_path, cats):
    """From a run, another loss on its head."""
    begun, run = RunFolder(tmp_path / "begun"), RunFolder(tmp_path / "run")
    fit(TINY.with_settings(["budget.epochs=1", "input.normalization=symmetric"]), cats, begun.path)
    result = fit(AWARE.with_settings([f"model.initial_weights={begun.path}", "loss.name=cosface"]), cats, run.path)
    recipe = run.recipe()
    assert recipe.quantize.aware
    assert recipe.input.normalization == "symmetric"
    plain = build_network(recipe)
    load_weights(run.embedder, network=plain)
    assert safetensors.torch.load_file(run.embedder).keys() == safetensors.torch.load_file(begun.embedder).keys()
    row = history(run)[result.best_epoch - 1]
    recorded = pytest.approx(float(row["stranger_similarity"]), abs=1e-6)
    assert stranger_similarity(plain, recipe, cats, run.split()) != recorded
    round_to_8_bits(plain)
    assert stranger_similarity(plain, recipe, cats, run.split()) == recorded
