"""Quantization-aware training: from another run's weights, resumed, validated with rounding."""

import pytest
import safetensors.torch
import torch

from familiar.loading.crops import read_table
from familiar.loading.dataset import FaceDataset
from familiar.metrics.pairs import sample_pairs
from familiar.models.quantized import round_to_8_bits
from familiar.training.checkpoint import load_weights
from familiar.training.fitting import fit
from familiar.training.network import build_network
from familiar.training.run import RunFolder
from familiar.training.validation import embed_dataset, validate
from support.tiers import small_and_exhaustive
from support.tiny_run import TINY, Interrupted, history, stop_after

pytestmark = pytest.mark.slow

AWARE = TINY.with_settings(["quantize.aware=true", "budget.epochs=2", "validation.every_epochs=1"])


def negative_similarity(network, recipe, data, split):
    read = read_table(data.read().select_identities(split.validation), recipe.input.preprocessing())
    photos = FaceDataset(read.table, read.crops)
    pairs = sample_pairs(photos.table.labels, recipe.validation.pairs, recipe.seed)
    return validate(embed_dataset(network, photos), photos.table.labels, pairs).mean_negative_similarity


@pytest.mark.usefixtures("without_curves")
@pytest.mark.parametrize("chunk_size", small_and_exhaustive(0, 8))
def test_resumed_run_equals_uninterrupted_run(tmp_path, cats, chunk_size):
    """Rounding ranges depend only on the current batch or chunk, so a checkpoint needs none of them."""
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
    """Starts from a run that was trained with another loss."""
    earlier, run = RunFolder(tmp_path / "earlier"), RunFolder(tmp_path / "run")
    fit(TINY.with_settings(["budget.epochs=1", "input.normalization=symmetric"]), cats, earlier.path)
    result = fit(AWARE.with_settings([f"model.initial_weights={earlier.path}", "loss.name=cosface"]), cats, run.path)
    recipe = run.recipe()
    assert recipe.quantize.aware
    assert recipe.input.normalization == "symmetric"
    plain = build_network(recipe)
    load_weights(run.embedder, network=plain)
    assert safetensors.torch.load_file(run.embedder).keys() == safetensors.torch.load_file(earlier.embedder).keys()
    row = history(run)[result.best_epoch - 1]
    recorded = pytest.approx(float(row["stranger_similarity"]), abs=1e-6)
    assert negative_similarity(plain, recipe, cats, run.split()) != recorded
    round_to_8_bits(plain)
    assert negative_similarity(plain, recipe, cats, run.split()) == recorded
