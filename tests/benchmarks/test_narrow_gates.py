"""Tests that `narrow_gates` fits gates and projections to those of the whole network."""

from types import SimpleNamespace

import pytest
import torch
from narrow_gates import fit_gate
from timm.models._efficientnet_blocks import SqueezeExcite
from torch import nn

from familiar.models.backbones import NarrowGate

CHANNELS, RANK = 12, 3


def whole_gate(spread: float) -> SqueezeExcite:
    """Build a gate whose logits are a linear function, of rank 3, of the channels' means."""
    torch.manual_seed(0)
    gate = SqueezeExcite(CHANNELS, rd_channels=RANK, act_layer=nn.Identity, gate_layer=nn.Hardsigmoid)
    nn.init.normal_(gate.conv_expand.weight, std=spread)
    return gate


def photos() -> list[torch.Tensor]:
    """Draw maps whose channels' means are around 0."""
    torch.manual_seed(1)
    means = 0.3 * torch.randn(200, CHANNELS, 1, 1)
    return list((means + torch.randn(200, CHANNELS, 4, 4) * 0.1).split(50))


def test_gate_of_the_same_rank_is_reproduced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("narrow_gates.GATE_PENALTY", 0.0)
    whole, narrow = whole_gate(0.5), NarrowGate(CHANNELS, RANK)
    model = SimpleNamespace(conv_expand=whole.conv_expand)
    explained = fit_gate(whole, narrow, model, narrow, photos())
    assert explained == pytest.approx(1, abs=1e-6)
    with torch.no_grad():
        for batch in photos():
            torch.testing.assert_close(narrow(batch), whole(batch), rtol=1e-4, atol=1e-4)


def test_lower_rank_explains_less_of_the_variance(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("narrow_gates.GATE_PENALTY", 0.0)
    whole = whole_gate(0.5)
    model = SimpleNamespace(conv_expand=whole.conv_expand)
    gates = [NarrowGate(CHANNELS, rank) for rank in (1, 2, 3)]
    explained = [fit_gate(whole, gate, model, gate, photos()) for gate in gates]
    assert 0 < explained[0] < explained[1] < explained[2]


def test_gate_that_never_changes_is_constant() -> None:
    whole, narrow = whole_gate(0.0), NarrowGate(CHANNELS, RANK)
    nn.init.constant_(whole.conv_expand.bias, 9.0)  # open, whatever it sees
    assert fit_gate(whole, narrow, SimpleNamespace(conv_expand=whole.conv_expand), narrow, photos()) == 1
    with torch.no_grad():
        for batch in photos():
            torch.testing.assert_close(narrow(batch), batch)
