import pytest
import torch
from torch import nn

from familiar.core.errors import BadRecipe
from familiar.models.catalog import NETWORKS, NetworkSize, layers, measure, network_spec


class TinyNetwork(nn.Module):
    """3 x 8 x 8 -> 4 x 4 x 4 -> 5, with every kind of part that is counted or is not."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, stride=2, padding=1)
        self.norm = nn.BatchNorm2d(4)
        self.nothing = nn.Identity()
        self.act = nn.ReLU()
        self.project = nn.Linear(4 * 4 * 4, 5, bias=False)

    def forward(self, images):
        return self.project(self.act(self.nothing(self.norm(self.conv(images)))).flatten(1))


def test_sizes_of_a_network_counted_by_hand():
    weights = (3 * 3 * 3 * 4 + 4) + (4 + 4) + 64 * 5
    flops = 3 * 3 * 3 * 4 * (4 * 4) + 64 * 5  # multiply-adds of the convolution and the linear layer
    assert measure(TinyNetwork(), 8) == NetworkSize(trainable=weights, total=weights + 4 + 4, flops=flops)


def test_frozen_parameters_are_total_but_not_trainable():
    network = TinyNetwork()
    network.conv.requires_grad_(False)
    size = measure(network, 8)
    assert size.trainable == 8 + 320
    assert size.total == 112 + 8 + 320 + 8


def test_layers_in_running_order():
    assert layers(TinyNetwork(), 8) == [
        ("conv", "Conv2d", (4, 4, 4), 112),
        ("norm", "BatchNorm2d", (4, 4, 4), 8),
        ("act", "ReLU", (4, 4, 4), 0),
        ("project", "Linear", (5,), 320),
    ]


@pytest.mark.parametrize("name", NETWORKS)
def test_counts_are_sums_over_parameters_and_statistics(name):
    network = network_spec(name).build(64, 32, 0.1)
    size = measure(network, 64)
    parameters = sum(parameter.numel() for parameter in network.parameters())
    statistics = sum(
        2 * module.num_features for module in network.modules() if isinstance(module, nn.BatchNorm2d)
    )
    assert size.trainable == parameters
    assert size.total == parameters + statistics
    assert sum(own for *_, own in layers(network, 64)) == parameters


@pytest.mark.parametrize("name", NETWORKS)
def test_every_row_builds_as_it_says(name):
    spec = network_spec(name)
    network = spec.build(spec.input_px, spec.embedding_dim, spec.dropout)
    *_, last = layers(network, spec.input_px)
    assert last[2] == (spec.embedding_dim, 1, 1)
    assert network.head.dropout.p == spec.dropout
    assert spec.timm_name == name


@pytest.mark.parametrize("look", [measure, layers])
@pytest.mark.parametrize("training", [True, False])
def test_looking_changes_nothing(look, training):
    network = TinyNetwork().train(training)
    before = {key: tensor.clone() for key, tensor in network.state_dict().items()}
    first = look(network, 8)
    assert network.training is training
    assert network.norm.training is training
    assert all(torch.equal(tensor, before[key]) for key, tensor in network.state_dict().items())
    assert all(parameter.grad is None for parameter in network.parameters())
    assert not any(module._forward_hooks for module in network.modules())
    assert look(network, 8) == first


def test_an_unknown_network_is_told_the_known_ones():
    with pytest.raises(BadRecipe, match=r"'resnet'.*mobilenetv3_small_100, mobilenetv3_small_050"):
        network_spec("resnet")
