import copy
import re

import pytest
import torch
from torch import nn
from torch.nn.functional import normalize

from familiar.core.errors import BadRecipe
from familiar.models.catalog import network_spec
from familiar.models.network import EmbeddingNetwork, unit_length


@pytest.fixture
def network():
    torch.manual_seed(0)
    trunk = nn.Sequential(nn.Conv2d(3, 4, 3, stride=2), nn.BatchNorm2d(4), nn.ReLU(), nn.Dropout(0.5))
    return EmbeddingNetwork(trunk, nn.Sequential(nn.Flatten(), nn.Linear(4 * 3 * 3, 5), nn.BatchNorm1d(5)))


@torch.no_grad()
def test_forward_applies_trunk_head_and_unit_length(network):
    network.eval()
    images = torch.randn(3, 3, 7, 7)
    raw = network.head(network.trunk(images))
    assert torch.equal(network.raw(images), raw)
    torch.testing.assert_close(network(images), raw / raw.square().sum(1, keepdim=True).sqrt())


@torch.no_grad()
@pytest.mark.parametrize("factor", [1e-3, 1.0, 1e4])
def test_is_invariant_to_raw_embedding_length(network, factor):
    network.eval()
    images = torch.randn(3, 3, 7, 7)
    before, raw = network(images), network.raw(images)
    network.head.append(Scaled(factor))
    torch.testing.assert_close(network.raw(images), factor * raw)
    torch.testing.assert_close(network(images), before)


class Scaled(nn.Module):
    def __init__(self, factor):
        super().__init__()
        self.factor = factor

    def forward(self, values):
        return values * self.factor


def test_frozen_trunk_does_not_change_in_training(network):
    network.freeze_trunk()
    before = {key: tensor.clone() for key, tensor in network.trunk.state_dict().items()}
    head = copy.deepcopy(network.head.state_dict())
    optimizer = torch.optim.SGD([p for p in network.parameters() if p.requires_grad], lr=0.1)
    for _ in range(3):
        assert network.train() is network
        assert network.training
        assert network.head.training
        assert not any(module.training for module in network.trunk.modules())
        optimizer.zero_grad()
        network(torch.randn(4, 3, 7, 7))[:, 0].sum().backward()
        optimizer.step()
    assert all(parameter.grad is None for parameter in network.trunk.parameters())
    assert all(torch.equal(tensor, before[key]) for key, tensor in network.trunk.state_dict().items())
    assert not any(torch.equal(tensor, head[key]) for key, tensor in network.head.state_dict().items())


def test_unfrozen_trunk_is_trained(network):
    network.eval().train()
    assert all(module.training for module in network.modules())
    before = network.trunk[1].running_mean.clone()
    network(torch.randn(4, 3, 7, 7))[:, 0].sum().backward()
    assert not torch.equal(network.trunk[1].running_mean, before)
    assert network.trunk[0].weight.grad.any()
    assert not any(module.training for module in network.eval().modules())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_norm_does_not_overflow(dtype):
    """The squares sum to about 1e7, beyond float16's 65504."""
    embeddings = unit_length((300 * torch.randn(3, 128)).to(dtype))
    assert embeddings.dtype == torch.float32
    torch.testing.assert_close(embeddings.norm(dim=1), torch.ones(3))


@torch.no_grad()
def test_autocast_normalizes_in_float32(network):
    network.eval()
    images = torch.randn(3, 3, 7, 7)
    with torch.autocast("cpu", torch.bfloat16):
        embeddings = network(images)
    assert embeddings.dtype == torch.float32
    torch.testing.assert_close(embeddings.norm(dim=1), torch.ones(3))
    assert (embeddings * network(images)).sum(1).min() > 0.99


def test_float64_keeps_dtype_and_passes_gradcheck():
    rows = torch.randn(3, 4, dtype=torch.float64, requires_grad=True)
    assert unit_length(rows).dtype == torch.float64
    assert torch.autograd.gradcheck(unit_length, (rows,))


def test_zero_embedding_stays_zero_without_nan():
    assert torch.equal(unit_length(torch.zeros(2, 5)), normalize(torch.zeros(2, 5)))
    assert not unit_length(torch.zeros(2, 5)).any()


def test_frozen_statistics_stay_while_weights_are_trained(network):
    network.freeze_statistics()
    norm = network.trunk[1]
    mean, weight = norm.running_mean.clone(), norm.weight.detach().clone()
    train_steps(network)
    assert torch.equal(norm.running_mean, mean)
    assert not torch.equal(norm.weight, weight)
    assert network.trunk[3].training, "dropout stays in training mode"
    assert not torch.equal(network.head[2].running_mean, torch.zeros(5)), "the head's statistics are not the trunk's"


def test_first_stages_stay_and_later_ones_are_trained():
    torch.manual_seed(0)
    network = network_spec("mobilenetv3_small_050").build(32, 8)
    network.freeze_stages(2)
    frozen = [network.trunk.backbone.conv_stem, network.trunk.backbone.bn1, *network.trunk.backbone.blocks[:2]]
    trained = [*network.trunk.backbone.blocks[2:], network.trunk.backbone.conv_head, network.head]
    before = [copy.deepcopy(module.state_dict()) for module in (*frozen, *trained)]
    train_steps(network, size_px=32)
    changed = [
        any(not torch.equal(tensor, then[key]) for key, tensor in module.state_dict().items())
        for module, then in zip((*frozen, *trained), before, strict=True)
    ]
    assert changed == [False] * len(frozen) + [True] * len(trained)


@pytest.mark.parametrize(
    ("name", "stages", "message"),
    [
        ("mobilenetv3_small_050", 7, "model.frozen_stages: mobilenetv3_small_050 has 6 stages, not 7"),
        ("resnet18", 1, "model.frozen_stages: resnet18 is not made of stages; set it to 0"),
        ("simple", 1, "model.frozen_stages: this network is not made of stages; set it to 0"),
    ],
)
def test_stages_that_do_not_exist_are_refused(name, stages, message):
    with torch.device("meta"):
        network = network_spec(name).build()
    with pytest.raises(BadRecipe, match=re.escape(message)):
        network.freeze_stages(stages)


def train_steps(network, size_px=7):
    optimizer = torch.optim.SGD([p for p in network.parameters() if p.requires_grad], lr=0.1)
    for _ in range(3):
        network.train()
        optimizer.zero_grad()
        network(torch.randn(4, 3, size_px, size_px))[:, 0].sum().backward()
        optimizer.step()
