import pytest
import torch
from torch import nn

from familiar.models.sizes import Layer, NetworkSize, layers, measure


class TinyNetwork(nn.Module):
    """3 x 8 x 8 -> 4 x 4 x 4 -> 5, with modules of every kind, counted or not."""

    def __init__(self):
        super().__init__()
        # Registered in another order than they run.
        self.project = nn.Linear(4 * 4 * 4, 5, bias=False)
        self.conv = nn.Conv2d(3, 4, 3, stride=2, padding=1)
        self.norm = NormWithActivation(4)
        self.nothing = nn.Identity()

    def forward(self, images):
        return self.project(self.nothing(self.norm(self.conv(images))).flatten(1))


class NormWithActivation(nn.BatchNorm2d):
    """A batch norm like timm's, which runs the activation inside it."""

    def __init__(self, channels):
        super().__init__(channels)
        self.act = nn.ReLU()

    def forward(self, features):
        return self.act(super().forward(features))


def test_measure_equals_hand_count():
    weights = (3 * 3 * 3 * 4 + 4) + (4 + 4) + 64 * 5
    flops = 3 * 3 * 3 * 4 * (4 * 4) + 64 * 5  # multiply-adds of the convolution and the linear layer
    assert measure(TinyNetwork(), 8) == NetworkSize(trainable=weights, total=weights + 4 + 4, flops=flops)


def test_grouped_convolution_flops_equal_hand_count():
    network = nn.Conv2d(3, 6, 3, padding=1, groups=3, bias=False)
    assert measure(network, 8).flops == 9 * 6 * 64


def test_frozen_parameters_are_total_but_not_trainable():
    network = TinyNetwork()
    network.conv.requires_grad_(False)
    size = measure(network, 8)
    assert size.trainable == 8 + 320
    assert size.total == 112 + 8 + 320 + 8


def test_layers_are_listed_in_running_order():
    assert layers(TinyNetwork(), 8) == [
        Layer("conv", "Conv2d", (4, 4, 4), 112),
        Layer("norm", "NormWithActivation", (4, 4, 4), 16),
        Layer("norm.act", "ReLU", (4, 4, 4), 0),
        Layer("project", "Linear", (5,), 320),
    ]


def test_a_layer_that_runs_twice_is_counted_once():
    conv, act = nn.Conv2d(3, 3, 1), nn.ReLU()
    rows = layers(nn.Sequential(conv, act, conv, act), 4)
    assert rows == [Layer("0", "Conv2d", (3, 4, 4), 12), Layer("1", "ReLU", (3, 4, 4), 0)]


@pytest.mark.parametrize("look", [measure, layers])
def test_meta_device_gives_same_result(look):
    assert look(TinyNetwork().to("meta"), 8) == look(TinyNetwork(), 8)


@pytest.mark.parametrize("look", [measure, layers])
@pytest.mark.parametrize("training", [True, False])
def test_measuring_does_not_change_network(look, training):
    network = TinyNetwork().train(training)
    network.conv.eval()
    before = {key: tensor.clone() for key, tensor in network.state_dict().items()}
    first = look(network, 8)
    assert network.training is training
    assert network.norm.training is training
    assert not network.conv.training
    assert all(torch.equal(tensor, before[key]) for key, tensor in network.state_dict().items())
    assert all(parameter.grad is None for parameter in network.parameters())
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in network.modules())
    assert look(network, 8) == first


@pytest.mark.parametrize("look", [measure, layers])
def test_failed_measurement_restores_network(look):
    network = TinyNetwork().train()
    with pytest.raises(RuntimeError):
        look(network, 9)
    assert all(module.training for module in network.modules())
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in network.modules())
