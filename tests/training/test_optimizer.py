from dataclasses import replace

import pytest
import torch

from familiar.losses.classifiers import ArcFace
from familiar.models.catalog import network_spec
from familiar.training.optimizer import build_optimizer
from familiar.training.schedule import decaying_rate, learning_rate
from familiar.training.settings import OptimizerSettings

pytestmark = pytest.mark.slow

SETTINGS = OptimizerSettings(lr=1e-2, backbone_lr=1e-3, weight_decay=0.1, warmup_epochs=2, final_lr=1e-6)


@pytest.fixture
def parts():
    torch.manual_seed(0)
    return network_spec("mobilenetv3_small_050").build(32, 8, 0.0), ArcFace(8, 3)


def test_every_parameter_is_in_exactly_one_group(parts):
    network, objective = parts
    trunk, rest = build_optimizer(network, objective, SETTINGS, 10).parts[0].param_groups
    in_trunk, in_rest = ([id(parameter) for parameter in group["params"]] for group in (trunk, rest))
    assert sorted(in_trunk) == sorted(id(parameter) for parameter in network.trunk.parameters())
    expected = [*network.head.parameters(), *objective.parameters()]
    assert sorted(in_rest) == sorted(map(id, expected))
    assert not set(in_trunk) & set(in_rest)
    assert len(in_trunk) + len(in_rest) == len([*network.parameters(), *objective.parameters()])
    assert id(objective.centers) in in_rest
    assert trunk["weight_decay"] == rest["weight_decay"] == 0.1


@pytest.mark.parametrize("at_epoch", [0, 0.5, 2, 6.25, 9.99])
def test_both_groups_follow_schedule_with_own_peak(parts, at_epoch):
    optimizer = build_optimizer(*parts, SETTINGS, 10)
    optimizer.set_rates(at_epoch)
    head, trunk = optimizer.current_rates
    assert head == learning_rate(1e-2, 1e-6, 2, 10, at_epoch)
    assert trunk == learning_rate(1e-3, 1e-6, 2, 10, at_epoch)
    assert [group["lr"] for group in optimizer.parts[0].param_groups] == [trunk, head]


def test_zero_trunk_rate_freezes_trunk(parts):
    network, objective = parts
    optimizer = build_optimizer(network, objective, OptimizerSettings(backbone_lr=0.0), 10)
    before = [parameter.clone() for parameter in network.trunk.parameters()]
    for at_epoch in (0, 4.5, 7, 9.9):
        optimizer.set_rates(at_epoch)
        objective(network(torch.randn(4, 3, 32, 32)), torch.tensor([0, 1, 2, 0])).backward()
        optimizer.parts[0].step()
        assert optimizer.current_rates[1] == 0.0
    assert all(torch.equal(*pair) for pair in zip(before, network.trunk.parameters(), strict=True))


@pytest.mark.parametrize(("backbone_lr", "rest"), [(0.0, "nothing"), (1e-3, "only the trunk")])
def test_zero_rate_is_said(parts, caplog, backbone_lr: float, rest: str):
    build_optimizer(*parts, OptimizerSettings(lr=0.0, backbone_lr=backbone_lr), 10)
    assert caplog.messages == [f"{rest} will learn (optimizer.lr=0)"]


def test_peak_rates_survive_state_round_trip(parts):
    optimizer = build_optimizer(*parts, SETTINGS, 10)
    optimizer.set_rates(7)
    again = build_optimizer(*parts, SETTINGS, 10)
    again.load_state_dict(optimizer.state_dict())
    again.set_rates(2)
    assert again.current_rates == (1e-2, 1e-3)


def test_frozen_trunk_is_not_optimized():
    network = network_spec("mobilenetv3_small_050").build(32, 8, 0.0, frozen_trunk=True)
    optimizer = build_optimizer(network, ArcFace(8, 3), SETTINGS, 10)
    assert optimizer.parts[0].param_groups[0]["params"] == []
    optimizer.set_rates(3)
    network(torch.randn(4, 3, 32, 32)).sum().backward()
    assert optimizer.step() > 0


@pytest.mark.parametrize(
    ("name", "optimizer_class"),
    [("adamw", torch.optim.AdamW), ("adam", torch.optim.Adam), ("adagrad", torch.optim.Adagrad)],
)
def test_name_selects_optimizer_class(parts, name, optimizer_class):
    optimizer = build_optimizer(*parts, replace(SETTINGS, name=name), 10)
    assert type(optimizer.parts[0]) is optimizer_class
    assert {group["weight_decay"] for group in optimizer.parts[0].param_groups} == {0.1}


def test_adagrad_matches_closed_form(parts):
    """w -= lr g / sqrt(accumulator + sum of g^2), with the schedule's lr."""
    network, objective = parts
    settings = OptimizerSettings(
        "adagrad", 0.05, 0.05, weight_decay=0.0, warmup_epochs=0, accumulator=0.1, schedule="exponential",
        decay_from=0.75, final_lr=5e-4, gradient_norm=1e9,
    )  # fmt: skip
    optimizer = build_optimizer(network, objective, settings, 100)
    weight = objective.centers
    expected, squared_sum = weight.detach().clone().double(), torch.full_like(weight, 0.1).double()
    for at_epoch, rate in ((1, 0.05), (75, 0.05), (87.5, 0.005), (100, 5e-4)):
        optimizer.set_rates(at_epoch)
        assert optimizer.current_rates == pytest.approx((rate, rate))
        optimizer.zero_grad()
        gradient = torch.randn_like(weight)
        weight.grad = gradient.clone()
        optimizer.step()
        squared_sum += gradient.double() ** 2
        expected -= rate * gradient / squared_sum.sqrt()
        torch.testing.assert_close(weight.detach().double(), expected, atol=1e-6, rtol=1e-5)


def test_embedding_l2_matches_keras_gradient(parts):
    """l2 |w|^2 added to the loss gives 2 l2 w in the gradient of that layer only."""
    network, objective = parts
    settings = OptimizerSettings(name="adam", embedding_l2=0.25, gradient_norm=1e9)
    optimizer = build_optimizer(network, objective, settings, 10)
    for parameter in [*network.parameters(), *objective.parameters()]:
        parameter.grad = torch.zeros_like(parameter)
    weight = network.head.project.weight
    expected = weight.detach().square().sum().sqrt().item() * 0.5
    assert optimizer.step().item() == pytest.approx(expected, rel=1e-5)
    assert [name for name, parameter in network.named_parameters() if parameter.grad.any()] == ["head.project.weight"]


@pytest.mark.parametrize("at_epoch", [0, 9.5, 10, 20, 29, 30, 80])
def test_exponential_schedule_uses_fractions_of_epochs(parts, at_epoch):
    settings = replace(SETTINGS, schedule="exponential", decay_from=0.1, decay_to=0.3, warmup_epochs=0)
    optimizer = build_optimizer(*parts, settings, 100)
    optimizer.set_rates(at_epoch)
    assert optimizer.current_rates == (
        decaying_rate(1e-2, 1e-6, 0, (10, 30), at_epoch),
        decaying_rate(1e-3, 1e-6, 0, (10, 30), at_epoch),
    )
