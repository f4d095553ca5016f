import math

import pytest
import torch
from torch import nn

from familiar.models.initialization import TRUNCATED_NORMAL_STD, scale_convolutions_, variance_scaling_


@pytest.mark.parametrize("scale", [0.2, 2.0])
@pytest.mark.parametrize("shape", [(400, 500), (64, 32, 5, 5), (20000, 1, 3, 3)])
def test_weights_have_requested_variance_and_truncation(scale, shape):
    torch.manual_seed(0)
    weight = torch.empty(shape)
    variance_scaling_(weight, scale)
    expected = scale / math.prod(shape[1:])
    assert weight.mean().item() == pytest.approx(0, abs=0.02 * expected**0.5)
    assert weight.var().item() == pytest.approx(expected, rel=0.02)
    # Truncated at two deviations of the normal, which is 2 / .8796 of the deviation after truncation.
    cut = 2 * expected**0.5 / 0.8796
    assert 0.99 * cut < weight.abs().max().item() <= 1.0001 * cut


def test_truncated_normal_deviation_equals_closed_form():
    """Closed form: variance 1 - 2 c pdf(c) / (cdf(c) - cdf(-c)) at c = 2."""
    pdf = math.exp(-2.0) / math.sqrt(2 * math.pi)
    assert pytest.approx(math.sqrt(1 - 4 * pdf / math.erf(math.sqrt(2.0))), rel=1e-12) == TRUNCATED_NORMAL_STD


def test_scales_only_convolutions():
    network = nn.Sequential(nn.Conv2d(50, 400, 3), nn.BatchNorm2d(400), nn.Linear(4, 4))
    linear = network[2].weight.detach().clone()
    torch.manual_seed(0)
    scale_convolutions_(network, 2.0)
    assert network[0].weight.var().item() == pytest.approx(2 / 450, rel=0.02)
    assert not network[0].bias.any()
    assert torch.equal(network[1].weight, torch.ones(400))
    assert torch.equal(network[2].weight, linear)
