import pytest
import torch

from familiar.losses.softmax import ArcFace
from familiar.models.mobile import mobilenet_embedder
from familiar.training.optimizer import build_optimizer
from familiar.training.recipe import OptimizerSettings
from familiar.training.schedule import learning_rate

SETTINGS = OptimizerSettings(lr=1e-2, backbone_lr=1e-3, weight_decay=0.1, warmup_epochs=2, final_lr=1e-6)


@pytest.fixture
def parts():
    torch.manual_seed(0)
    return mobilenet_embedder("mobilenetv3_small_050", 32, 8, 0.0), ArcFace(8, 3)


def test_every_parameter_stands_in_exactly_one_group(parts):
    network, objective = parts
    trunk, rest = build_optimizer(network, objective, SETTINGS, 10).adamw.param_groups
    in_trunk, in_rest = ([id(parameter) for parameter in group["params"]] for group in (trunk, rest))
    assert sorted(in_trunk) == sorted(id(parameter) for parameter in network.trunk.parameters())
    wanted = [*network.head.parameters(), *objective.parameters()]
    assert sorted(in_rest) == sorted(map(id, wanted))
    assert not set(in_trunk) & set(in_rest)
    assert len(in_trunk) + len(in_rest) == len([*network.parameters(), *objective.parameters()])
    assert id(objective.centres) in in_rest
    assert trunk["weight_decay"] == rest["weight_decay"] == 0.1


@pytest.mark.parametrize("at_epoch", [0, 0.5, 2, 6.25, 9.99])
def test_both_groups_follow_the_schedule_to_their_own_peak(parts, at_epoch):
    optimizer = build_optimizer(*parts, SETTINGS, 10)
    optimizer.set_rates(at_epoch)
    head, trunk = optimizer.rates
    assert head == learning_rate(1e-2, 1e-6, 2, 10, at_epoch)
    assert trunk == learning_rate(1e-3, 1e-6, 2, 10, at_epoch)
    assert [group["lr"] for group in optimizer.adamw.param_groups] == [trunk, head]


def test_a_trunk_rate_of_zero_freezes_it_to_the_end(parts):
    network, objective = parts
    optimizer = build_optimizer(network, objective, OptimizerSettings(backbone_lr=0.0), 10)
    before = [parameter.clone() for parameter in network.trunk.parameters()]
    for at_epoch in (0, 4.5, 7, 9.9):
        optimizer.set_rates(at_epoch)
        objective(network(torch.randn(4, 3, 32, 32)), torch.tensor([0, 1, 2, 0])).backward()
        optimizer.adamw.step()
        assert optimizer.rates[1] == 0.0
    assert all(torch.equal(*pair) for pair in zip(before, network.trunk.parameters(), strict=True))


def test_the_peaks_survive_saving(parts):
    optimizer = build_optimizer(*parts, SETTINGS, 10)
    optimizer.set_rates(7)
    again = build_optimizer(*parts, SETTINGS, 10)
    again.load_state_dict(optimizer.state_dict())
    again.set_rates(2)
    assert again.rates == (1e-2, 1e-3)
