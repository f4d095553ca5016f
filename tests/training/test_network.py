from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import timm
import torch
import torchvision
from torch import nn

from familiar.core.errors import BadRecipe, BadWeights
from familiar.datasets.folders import DataSpec
from familiar.loading.augment.settings import Augmentation
from familiar.loading.batches import PhotoBatches
from familiar.loading.crops import read_table
from familiar.loading.dataset import FaceDataset, sequential_batches
from familiar.models.weights import has_folded_batch_norm
from familiar.photos.preprocessing import Preprocessing
from familiar.training.checkpoint import load_weights, save_weights
from familiar.training.network import (
    build_network,
    estimate_batch_norm_statistics,
    initial_network,
    initial_run,
    initialize_projection,
    with_normalization,
)
from familiar.training.recipe import Recipe
from familiar.training.run import RunFolder

pytestmark = pytest.mark.slow

TINY = Recipe(name="tiny").with_settings(
    [
        "model.name=mobilenetv3_small_050",
        "model.embedding_dim=8",
        "input.size_px=32",
        "model.initial_weights=none",
    ]
)


def batch_norms(network):
    return [module for module in network.modules() if isinstance(module, nn.BatchNorm2d)]


@pytest.fixture
def folded_file(tmp_path):
    """torchvision's network with folded batch norms, as a conversion for inference leaves it."""
    torch.manual_seed(0)
    network = torchvision.models.mobilenet_v3_small(weights=None)
    with torch.no_grad():
        for norm in batch_norms(network):
            norm.running_var.fill_(1 - 1e-3)
            norm.bias.normal_(std=0.2)
    torch.save(network.state_dict(), tmp_path / "folded.pth")
    return tmp_path / "folded.pth"


def with_initial_weights(weights, **model):
    return replace(TINY, model=replace(TINY.model, initial_weights=str(weights), **model))


def photos(count=6, augmentation=None):
    read = read_table(DataSpec((f"synthetic:cats:{count}x2",)).read(), Preprocessing(size_px=32, resize_px=32))
    return FaceDataset(read.table, read.crops, augmentation)


def images_of(dataset):
    ((images, *_),) = PhotoBatches(dataset, sequential_batches(range(len(dataset)), len(dataset)), torch.device("cpu"))
    return images


def test_network_matches_recipe():
    network = build_network(TINY)
    assert network.head.project.out_channels == 8
    assert network.head.dropout.p == 0.4
    assert network.head.pool.kernel_size == (1, 1)


def test_rejects_unknown_network():
    with pytest.raises(BadRecipe, match="'resnet'"):
        build_network(TINY.with_settings(["model.name=resnet"]))


def test_random_weights_use_imagenet_normalization():
    _, recipe = initial_network(TINY)
    assert recipe == TINY.with_settings(["input.normalization=imagenet"])


def test_timm_weights_use_imagenet_normalization(monkeypatch):
    published = timm.create_model("mobilenetv3_small_050", num_classes=0)
    create = timm.create_model
    monkeypatch.setattr(
        timm, "create_model", lambda name, **how: published if how["pretrained"] else create(name, **how)
    )
    network, recipe = initial_network(with_initial_weights("imagenet"))
    assert recipe.input.normalization == "imagenet"
    assert torch.equal(network.trunk.backbone.conv_stem.weight, published.conv_stem.weight)


def test_folded_weights_use_symmetric_normalization(folded_file):
    network, recipe = initial_network(with_initial_weights(folded_file, name="mobilenetv3_small_100"))
    assert recipe.input.normalization == "symmetric"
    assert has_folded_batch_norm(network.trunk)


def test_unfolded_weights_use_imagenet_normalization(tmp_path):
    whole = timm.create_model("mobilenetv3_small_050", num_classes=0)
    for norm in batch_norms(whole):
        nn.init.uniform_(norm.running_var, 0.5, 2)
    torch.save(whole.state_dict(), tmp_path / "whole.pth")
    network, recipe = initial_network(with_initial_weights(tmp_path / "whole.pth"))
    assert recipe.input.normalization == "imagenet"
    assert torch.equal(network.trunk.backbone.bn1.running_var, whole.bn1.running_var)


def test_efficientnet_lite_uses_symmetric_normalization(tmp_path):
    """As its library trained it."""
    recipe = TINY.with_settings(["model.name=efficientnet_lite0"])
    network = build_network(recipe)
    torch.save(network.trunk.backbone.state_dict(), tmp_path / "lite0.pth")
    _, resolved = initial_network(recipe.with_settings([f"model.initial_weights={tmp_path}/lite0.pth"]))
    assert resolved.input.normalization == "symmetric"


def test_joined_networks_take_a_file_each(tmp_path):
    recipe = TINY.with_settings(["model.name=efficientnet_lite_pair"])
    source = build_network(recipe).trunk
    files = [str(tmp_path / f"lite{number}.pth") for number in range(2)]
    for backbone, file in zip(source.backbone, files, strict=True):
        torch.save(backbone.state_dict(), file)
    network, resolved = initial_network(recipe.with_settings([f"model.initial_weights={','.join(files)}"]))
    assert all(torch.equal(value, network.trunk.state_dict()[key]) for key, value in source.state_dict().items())
    assert resolved.input.normalization == "symmetric"
    with pytest.raises(BadWeights, match="name the files of tf_efficientnet_lite0 and tf_efficientnet_lite1, in this"):
        initial_network(recipe.with_settings([f"model.initial_weights={files[0]}"]))


def test_keeps_explicit_normalization(folded_file):
    chosen = with_initial_weights(folded_file, name="mobilenetv3_small_100").with_settings(
        ["input.normalization=imagenet"]
    )
    assert initial_network(chosen)[1] == chosen


def test_rejects_missing_weights():
    with pytest.raises(BadWeights, match=r"gone\.npz: no such file"):
        initial_network(with_initial_weights("gone.npz"))


@pytest.fixture
def run(tmp_path):
    """The weights and recipe of a run with Keras's normalization and batch norm epsilon."""
    torch.manual_seed(3)
    run = RunFolder(tmp_path / "run")
    run.path.mkdir()
    recipe = TINY.with_settings(["input.normalization=symmetric"])
    network, objective = build_network(recipe), nn.Linear(8, 5)
    network.trunk.batch_norm_eps = 1e-3
    for norm in batch_norms(network):
        nn.init.uniform_(norm.running_var, 0.5, 2)
    run.recipe_json.write_text(recipe.to_json())
    save_weights(run.embedder, network=network)
    save_weights(run.best, network=network, objective=objective)
    return run


def assert_same_tensors(network, other):
    actual, expected = network.state_dict(), other.state_dict()
    assert actual.keys() == expected.keys()
    assert all(torch.equal(actual[key], expected[key]) for key in actual)


@pytest.mark.one_case
@torch.no_grad()
@pytest.mark.parametrize("source", ["path", "embedder", "best"])
def test_run_restores_trunk_head_and_normalization(run, source):
    expected = build_network(run.recipe())
    load_weights(run.embedder, network=expected)
    recipe = with_initial_weights(getattr(run, source))
    network, resolved = initial_network(recipe)
    assert_same_tensors(network, expected)
    assert network.trunk.batch_norm_eps == 1e-3
    assert resolved == recipe.with_settings(["input.normalization=symmetric"])
    images = torch.randn(2, 3, 32, 32)
    assert torch.equal(network.eval()(images), expected.eval()(images))


def test_explicit_normalization_overrides_run(run):
    chosen = with_initial_weights(run.path).with_settings(["input.normalization=imagenet"])
    assert initial_network(chosen)[1] == chosen
    run.recipe_json.unlink()
    assert initial_network(chosen)[1] == chosen


def test_rejects_run_weights_without_recipe(run):
    run.recipe_json.unlink()
    with pytest.raises(
        BadRecipe,
        match=r"embedder\.safetensors: there is no recipe\.json in .*set input\.normalization to imagenet or symm",
    ):
        initial_network(with_initial_weights(run.path))


def test_rejects_run_without_weights(run):
    run.embedder.unlink()
    with pytest.raises(BadWeights, match=r"run/embedder\.safetensors: no such file"):
        initial_network(with_initial_weights(run.path))


def test_rejects_run_with_different_network(run):
    with pytest.raises(
        BadWeights, match=r"embedder\.safetensors: trunk\.backbone\.\S+ is .*; it is of another network"
    ):
        initial_network(with_initial_weights(run.path, name="mobilenetv3_small_100"))


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ("model.embedding_dim=16", r"head\.project\.weight is \(8, 1024, 1, 1\), expected \(16, 1024, 1, 1\)"),
        ("input.size_px=64", r"head\.pool\.weight is \(1024, 1, 1, 1\), expected \(1024, 1, 2, 2\)"),
        ("model.head=average", r"head\.project\.weight is \(8, 1024, 1, 1\), expected \(8, 1024\)"),
    ],
)
def test_rejects_run_with_different_head(run, changed, message):
    message += r"; its trunk fits, but .* another model\.embedding_dim, model\.head or input\.size_px"
    with pytest.raises(BadWeights, match=message):
        initial_network(with_initial_weights(run.path).with_settings([changed]))


def test_resumed_run_keeps_resolved_normalization():
    earlier = TINY.with_settings(["input.normalization=symmetric", "seed=7"])
    assert with_normalization(TINY, earlier.input.normalization) == TINY.with_settings(
        ["input.normalization=symmetric"]
    )
    chosen = TINY.with_settings(["input.normalization=imagenet"])
    assert with_normalization(chosen, earlier.input.normalization) == chosen


@torch.no_grad()
def test_unfolding_batch_norm_preserves_network_output(folded_file):
    network, _ = initial_network(with_initial_weights(folded_file, name="mobilenetv3_small_100"))
    network.eval()
    images = images_of(photos(5))
    before = network.trunk(images)
    estimate_batch_norm_statistics(network, photos(5, Augmentation(rotate_p=1.0)))
    assert not has_folded_batch_norm(network.trunk)
    scale = before.abs().max().item()
    torch.testing.assert_close(network.trunk(images), before, rtol=0, atol=1e-3 * scale)
    torch.testing.assert_close(network.trunk.train()(images), before, rtol=0, atol=1e-3 * scale)


@torch.no_grad()
def test_batch_norm_statistics_ignore_augmentation(folded_file):
    network, _ = initial_network(with_initial_weights(folded_file, name="mobilenetv3_small_100"))
    stem = network.trunk.backbone.conv_stem(images_of(photos(5)))
    estimate_batch_norm_statistics(network, photos(5, Augmentation(rotate_p=1.0)))
    variance, mean = torch.var_mean(stem, (0, 2, 3), correction=0)
    norm = network.trunk.backbone.bn1
    torch.testing.assert_close(norm.running_mean, mean, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(norm.running_var, variance, rtol=1e-4, atol=1e-5)


def test_initialize_batch_norm_ignores_unfolded_networks():
    network = build_network(TINY)
    before = {key: tensor.clone() for key, tensor in network.state_dict().items()}
    estimate_batch_norm_statistics(network, photos())
    assert all(torch.equal(tensor, before[key]) for key, tensor in network.state_dict().items())


@torch.no_grad()
def test_frozen_random_trunk_takes_photo_statistics(caplog):
    """Each batch norm has the statistics of its own input, with the earlier batch norms initialized."""
    recipe = TINY.with_settings(["model.frozen_trunk=true"])
    network = build_network(recipe)
    before = {name: parameter.clone() for name, parameter in network.named_parameters()}
    cats = photos(5, Augmentation(rotate_p=1.0))
    estimate_batch_norm_statistics(network, cats)
    assert caplog.messages == [
        "the trunk is frozen with random weights: only the head will learn (model.initial_weights=none)"
    ]
    assert not network.trunk.training
    assert {norm.momentum for norm in batch_norms(network.trunk)} == {0.1}
    assert all(torch.equal(parameter, before[name]) for name, parameter in network.named_parameters())
    for norm in batch_norms(network.trunk)[:9]:  # deeper ones see 2 x 2 pixels of ten photos, too few for variances
        inputs_seen = []
        hook = norm.register_forward_pre_hook(lambda _, inputs, seen=inputs_seen: seen.append(inputs[0]))
        network.train()(images_of(photos(5)))
        hook.remove()
        variance, mean = torch.var_mean(inputs_seen[0], (0, 2, 3), correction=0)
        torch.testing.assert_close(norm.running_mean, mean, rtol=0, atol=0.05 * variance.max().sqrt().item())
        torch.testing.assert_close(norm.running_var, variance, rtol=0.1, atol=0.01 * variance.max().item())


@torch.no_grad()
def test_saved_weights_reproduce_network_output(folded_file, tmp_path):
    """The recipe and the tensors alone determine the network."""
    network, recipe = initial_network(with_initial_weights(folded_file, name="mobilenetv3_small_100"))
    for norm in batch_norms(network.trunk):
        norm.running_var.mul_(0.01)
        norm.weight.mul_(0.1)
    save_weights(tmp_path / "embedder.safetensors", network=network)
    again = build_network(recipe)
    load_weights(tmp_path / "embedder.safetensors", network=again)
    images = torch.randn(2, 3, 32, 32)
    assert torch.equal(again.eval()(images), network.eval()(images))


@torch.no_grad()
@pytest.mark.shared_data
def test_dequantized_weights_use_symmetric_normalization(shared_data):
    weights = shared_data / Path("weights", "mobilenet_v3_small_imagenet_dequant_torchvision_keys.npz")
    network, recipe = initial_network(with_initial_weights(weights, name="mobilenetv3_small_100"))
    assert recipe.input.normalization == "symmetric"
    table = DataSpec((str(shared_data / "cats23_gpriamo"),), max_identities=4, max_photos=6).read()
    read = read_table(table, Preprocessing(size_px=112, resize_px=112, mean=(0.5,) * 3, std=(0.5,) * 3))
    cats = FaceDataset(read.table, read.crops)
    network.trunk.eval()
    images = images_of(cats)
    before = network.trunk(images)
    estimate_batch_norm_statistics(network, cats)
    largest = np.abs(before.numpy()).max()
    assert (network.trunk(images) - before).abs().max() < 1e-3 * largest
    assert (network.trunk.train()(images) - before).abs().max() < 2e-3 * largest


@torch.no_grad()
@pytest.mark.parametrize("head", ["average_bias", "gdconv"])
def test_projection_starts_as_principal_components(head):
    """With as many components as photos, products are those of the pooled features; with fewer, as close as can be."""
    cats, errors = photos(6), {}
    for dim in (4, 12):
        torch.manual_seed(0)
        recipe = TINY.with_settings([f"model.embedding_dim={dim}", f"model.head={head}", "model.dropout=0"])
        network = build_network(recipe).eval()
        features = nn.functional.normalize(network.trunk(images_of(cats)).mean((2, 3)))
        projection = network.head.project
        for kind in ("random", "pca"):
            if kind == "pca":
                initialize_projection(network, cats)
            projected = features @ projection.weight.flatten(1).T
            errors[kind, dim] = (projected @ projected.T - features @ features.T).square().mean()
    assert errors["pca", 12] < 1e-10
    spectrum = torch.linalg.svdvals(features)
    torch.testing.assert_close(errors["pca", 4] * 144, spectrum[4:].pow(4).sum(), rtol=1e-3, atol=1e-7)
    assert errors["pca", 4] < errors["random", 4]


def test_projection_longer_than_the_photos_allow_is_refused():
    network = build_network(TINY.with_settings(["model.embedding_dim=13"]))
    with pytest.raises(BadRecipe, match=r"allow 12 components at most; lower model\.embedding_dim from 13,"):
        initialize_projection(network, photos(6))


def test_recipe_freezes_stages_and_statistics():
    network = build_network(TINY.with_settings(["model.frozen_stages=2", "model.frozen_statistics=true"]))
    assert not any(parameter.requires_grad for parameter in network.trunk.backbone.blocks[1].parameters())
    assert all(parameter.requires_grad for parameter in network.trunk.backbone.blocks[2].parameters())
    assert not any(norm.training for norm in batch_norms(network.train().trunk))


def test_initial_run_is_the_one_whose_folder_or_file_is_named(tmp_path):
    run = RunFolder(tmp_path / "run")
    run.path.mkdir()
    for weights in ("none", "imagenet", run.path, run.embedder):
        assert initial_run(with_initial_weights(weights)) is None
    for file in (run.data_json, run.recipe_json, run.embedder):
        file.write_text("{}")
    assert initial_run(with_initial_weights(run.path)) == run
    assert initial_run(with_initial_weights(run.embedder)) == run
    assert initial_run(with_initial_weights("imagenet")) is None
