import math

import pytest
import torch
from torch import nn

from familiar.core.errors import BadRecipe
from familiar.models.heads import (
    HEADS,
    AverageGroupsHead,
    AverageMLPHead,
    GDConvHead,
    HiddenHead,
    LinearHead,
    Maxout,
    MaxoutHead,
)

CHANNELS, DIM = 6, 3


def shaken(head, seed=0):
    """Return the head in evaluation mode with random weights and statistics."""
    torch.manual_seed(seed)
    with torch.no_grad():
        for parameter in head.parameters():
            parameter.normal_()
        for module in head.modules():
            if isinstance(module, nn.BatchNorm1d | nn.BatchNorm2d):
                module.running_mean.normal_()
                module.running_var.uniform_(0.5, 2.0)
    return head.eval()


def gdconv(map_px=3, dropout=0.0):
    return shaken(GDConvHead(CHANNELS, map_px, DIM, dropout))


def normed(norm, values):
    deviation = (norm.running_var + norm.eps).sqrt()
    return (values - norm.running_mean) / deviation * norm.weight + norm.bias


def average_of(photo):
    return torch.stack([sum(row.sum() for row in channel) / channel.numel() for channel in photo])


def slow_gdconv(head, photo):
    pooled = torch.stack([(photo[c] * head.pool.weight[c, 0]).sum() for c in range(CHANNELS)])
    return normed(head.norm, head.project.weight[:, :, 0, 0] @ pooled)


def slow_linear(head, photo, average, norm):
    values = head.project.weight @ (average_of(photo) if average else photo.reshape(-1))
    return normed(head.norm, values) if norm else values + head.project.bias


def slow_average_mlp(head, photo):
    linear, norm, _ = head.hidden
    hidden = normed(norm, linear.weight @ average_of(photo)).clamp_min(0)
    return normed(head.norm, head.project.weight @ hidden)


def slow_average_wide(head, photo):
    convolution, norm, _ = head.widen
    positions = photo.flatten(1).T
    widened = [normed(norm, convolution.weight.flatten(1) @ position) for position in positions]
    active = [values * (values + 3).clamp(0, 6) / 6 for values in widened]
    return normed(head.norm, head.project.weight @ (sum(active) / len(active)))


def slow_maxout(layer, values):
    width = layer.weight.shape[0] // layer.pieces
    outputs = []
    for output in range(width):
        rows = [piece * width + output for piece in range(layer.pieces)]
        bias = [0.0 if layer.bias is None else layer.bias[row] for row in rows]
        outputs.append(max((layer.weight[row] @ values + each) for row, each in zip(rows, bias, strict=True)))
    return torch.stack(outputs)


def slow_maxout_head(head, photo):
    values = photo.reshape(-1)
    for layer in head.hidden:
        values = slow_maxout(layer, values) if isinstance(layer, Maxout) else normed(layer, values)
    return head.project.weight @ values + head.project.bias


def slow_hidden(head, photo):
    linear, norm, _ = head.hidden
    hidden = normed(norm, linear.weight @ photo.reshape(-1)).clamp_min(0)
    return head.project.weight @ hidden + head.project.bias


SLOW = {
    "gdconv": slow_gdconv,
    "flatten": lambda head, photo: slow_linear(head, photo, average=False, norm=True),
    "flatten_bias": lambda head, photo: slow_linear(head, photo, average=False, norm=False),
    "average": lambda head, photo: slow_linear(head, photo, average=True, norm=True),
    "average_bias": lambda head, photo: slow_linear(head, photo, average=True, norm=False),
    "average_groups": lambda _, photo: average_of(photo).reshape(-1, 2).mean(1),
    "average_groups_root": lambda _, photo: torch.tensor(
        [math.sqrt(max(float(mean), 0) + 0.01) - 0.1 for mean in average_of(photo).reshape(-1, 2).mean(1)]
    ),
    "average_wide": slow_average_wide,
    "average_mlp": slow_average_mlp,
    "maxout": slow_maxout_head,
    "hidden": slow_hidden,
}
NARROW = {"average_wide": {"width": 11}, "maxout": {"widths": (7, 4)}, "hidden": {"width": 9}}


@torch.no_grad()
@pytest.mark.parametrize("map_px", [1, 3, 7])
@pytest.mark.parametrize("name", HEADS)
def test_every_head_matches_slow_reference(name, map_px):
    head = shaken(HEADS[name](CHANNELS, map_px, DIM, 0.0, **NARROW.get(name, {})))
    features = torch.randn(4, CHANNELS, map_px, map_px)
    embeddings = head(features)
    assert embeddings.shape == (4, DIM)
    expected = torch.stack([SLOW[name](head, photo) for photo in features])
    torch.testing.assert_close(embeddings, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", [name for name in HEADS if not name.startswith("average_groups")])
def test_every_head_with_weights_applies_dropout_before_project(name):
    head = shaken(HEADS[name](CHANNELS, 3, DIM, 0.5, **NARROW.get(name, {})))
    assert head.dropout.p == 0.5
    assert head.project.weight.shape[0] == DIM
    inputs_seen = []
    head.project.register_forward_pre_hook(lambda _module, inputs: inputs_seen.append(inputs[0]))
    features = torch.randn(8, CHANNELS, 3, 3)
    assert torch.equal(head(features), head(features))
    head.dropout.train()
    assert not torch.equal(head(features), head(features))
    assert (inputs_seen[-1] == 0).sum() > inputs_seen[-1].numel() / 4


@pytest.mark.slow
@pytest.mark.parametrize("name", HEADS)
@pytest.mark.parametrize("map_px", [1, 3])
def test_every_head_passes_gradcheck(name, map_px):
    head = shaken(HEADS[name](4, map_px, 2, 0.0, **NARROW.get(name, {}))).double()
    features = torch.randn(2, 4, map_px, map_px, dtype=torch.float64, requires_grad=True)
    assert head(features).dtype == torch.float64
    assert torch.autograd.gradcheck(head, (features,))


def test_groups_have_no_weights_and_as_many_channels_each():
    head = AverageGroupsHead(6, 3, 3, 0.5)
    assert not list(head.parameters())
    features = torch.randn(8, 6, 3, 3)
    assert not torch.equal(head(features), head(features)), "dropout"
    with pytest.raises(BadRecipe, match=r"average_groups: 6 channels cannot be divided into 4 groups; set .* to 6"):
        AverageGroupsHead(6, 3, 4, 0.0)


def test_roots_lie_between_0_and_root_of_activation_and_slope_is_bounded():
    head = AverageGroupsHead(4, 1, 4, 0.0, root=True)
    features = torch.tensor([-1.0, 1e-9, 1.0, 1e6]).reshape(1, 4, 1, 1).requires_grad_()
    embedding = head(features)
    torch.testing.assert_close(embedding.detach(), torch.tensor([[0.0, 0.0, 1.01**0.5 - 0.1, 1e3 - 0.1]]))
    (slopes,) = torch.autograd.grad(embedding.sum(), features)
    assert slopes.flatten().tolist() == pytest.approx([0.0, 5.0, 0.5 / 1.01**0.5, 5e-4], abs=1e-5)


@torch.no_grad()
def test_gdconv_initializes_as_global_average():
    made = GDConvHead(6, 7, 5, 0.4).eval()
    features = torch.randn(2, 6, 7, 7)
    torch.testing.assert_close(made.pool(features)[..., 0, 0], features.mean((2, 3)), rtol=1e-4, atol=1e-6)


@torch.no_grad()
@pytest.mark.parametrize("name", HEADS)
def test_only_average_heads_ignore_feature_position(name):
    head = shaken(HEADS[name](CHANNELS, 3, DIM, 0.0, **NARROW.get(name, {})))
    features = torch.randn(1, CHANNELS, 3, 3)
    moved = (head(features) - head(features.flip(3))).abs().max()
    assert moved < 1e-4 if name.startswith("average") else moved > 1e-2


def test_gdconv_projection_keeps_input_scale():
    torch.manual_seed(0)
    made = GDConvHead(1024, 1, 128, 0.0)
    projected = made.project(torch.randn(256, 1024, 1, 1))
    assert projected.std().item() == pytest.approx(1.0, rel=0.05)
    assert made.project.weight.std().item() == pytest.approx(1 / math.sqrt(1024), rel=0.02)


def count(module):
    return sum(parameter.numel() for parameter in module.parameters())


@pytest.mark.parametrize(
    ("head", "parameters"),
    [
        (GDConvHead(6, 3, 5, 0.0), 6 * 9 + 6 * 5 + 2 * 5),
        (LinearHead(6, 3, 5, 0.0, pool="flatten"), 54 * 5 + 2 * 5),
        (LinearHead(6, 3, 5, 0.0, pool="flatten", norm=False), 54 * 5 + 5),
        (LinearHead(6, 3, 5, 0.0, pool="average"), 6 * 5 + 2 * 5),
        (LinearHead(6, 3, 5, 0.0, pool="average", norm=False), 6 * 5 + 5),
        (AverageMLPHead(6, 3, 5, 0.0), 6 * 6 + 2 * 6 + 6 * 5 + 2 * 5),
        (MaxoutHead(6, 3, 5, 0.0, widths=(7, 4)), 2 * 54 * 7 + 2 * 7 + 2 * 7 * 4 + 2 * 4 + 4 * 5 + 5),
        (
            MaxoutHead(6, 3, 5, 0.0, widths=(7, 4), batch_norm=False),
            2 * (54 * 7 + 7) + 2 * (7 * 4 + 4) + 4 * 5 + 5,
        ),
        (HiddenHead(6, 3, 5, 0.0, width=9), 54 * 9 + 2 * 9 + 9 * 5 + 5),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, nn.Module) else str(value),
)
def test_parameter_counts_equal_hand_computation(head, parameters):
    assert count(head) == parameters


@torch.no_grad()
def test_maxout_with_opposite_pieces_equals_absolute_value():
    layer = Maxout(3, 3, pieces=2)
    layer.weight.copy_(torch.cat([torch.eye(3), -torch.eye(3)]))
    layer.bias.zero_()
    values = torch.randn(4, 3)
    assert torch.equal(layer(values), values.abs())


@torch.no_grad()
@pytest.mark.parametrize("pieces", [1, 2, 3])
@pytest.mark.parametrize("bias", [True, False])
def test_maxout_matches_slow_reference(pieces, bias):
    torch.manual_seed(0)
    layer = Maxout(4, 6, pieces, bias)
    values = torch.randn(5, 4)
    assert layer(values).shape == (5, 6)
    torch.testing.assert_close(layer(values), torch.stack([slow_maxout(layer, row) for row in values]))


def test_maxout_gradient_reaches_only_largest_piece():
    torch.manual_seed(0)
    layer = Maxout(3, 4).double()
    values = torch.randn(2, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(layer, (values,))
    layer(values[:1]).sum().backward()
    pieces_reached = layer.weight.grad.unflatten(0, (2, 4)).any(2)
    assert pieces_reached.sum(0).tolist() == [1, 1, 1, 1]
