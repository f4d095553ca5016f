import copy
import subprocess
import sys

import numpy as np
import pytest
import torch
from timm.layers.conv2d_same import Conv2dSame
from torch import nn
from torch.nn.functional import conv2d, cross_entropy, linear
from torch.nn.utils.fusion import fuse_conv_bn_eval

from familiar.models.catalog import NETWORKS, network_spec
from familiar.models.heads import Maxout
from familiar.models.quantized import (
    ROUNDED_CLASSES,
    ROUNDED_INPUT_LAYERS,
    fake_quantize_values,
    fake_quantize_weights,
    round_to_8_bits,
)

SIGNED = (-1.7, 0.3, 2.9, 1e-3)


def drawn(*shape, seed=0, dtype=torch.float32):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def rounded(network):
    network = copy.deepcopy(network)
    round_to_8_bits(network)
    return network


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([0.0, 0.4, 0.6, 99.7, 255.0], [0.0, 0.0, 1.0, 100.0, 255.0]),
        ([-128.0, -0.6, 0.6, 127.0], [-128.0, -1.0, 1.0, 127.0]),
        ([-510.0, -3.1, 0.0], [-510.0, -4.0, 0.0]),
        ([-11.5, 0.0, 243.5], [-12.0, 0.0, 243.0]),  # 244 would be the 257th
        ([100.0, 510.0], [100.0, 510.0]),  # the range does not begin at 100, since it always contains 0
    ],
)
def test_values_round_to_expected_steps(values, expected):
    assert fake_quantize_values(torch.tensor(values)).tolist() == expected


@pytest.mark.parametrize("shift", SIGNED)
@pytest.mark.parametrize("scale", [1e-20, 0.2, 1e10])
def test_values_round_to_nearest_of_256_steps(shift, scale):
    """Compared with all 256 steps, in float64."""
    values = (drawn(4, 5, 6, 7) + shift) * scale
    exact = values.double().numpy()
    low, high = min(exact.min(), 0.0), max(exact.max(), 0.0)
    step = (high - low) / 255
    grid = (np.arange(256) - round(-low / step)) * step
    rounded_values = fake_quantize_values(values).double().numpy()
    off, least = np.abs(rounded_values - exact), np.abs(exact[..., None] - grid).min(-1)
    np.testing.assert_allclose(off, least, rtol=0, atol=1e-4 * step)
    assert np.abs(rounded_values[..., None] - grid).min(-1).max() < 1e-4 * step
    assert off.max() <= 0.5001 * step
    assert 100 < len(np.unique(rounded_values)) <= 256


@pytest.mark.parametrize("shift", SIGNED)
def test_values_match_torch_fake_quantize(shift):
    values = drawn(3, 4, 5) + shift
    low, high = min(values.min().item(), 0.0), max(values.max().item(), 0.0)
    step = (high - low) / 255
    expected = torch.fake_quantize_per_tensor_affine(values, step, round(-low / step), 0, 255)
    torch.testing.assert_close(fake_quantize_values(values), expected, rtol=1e-6, atol=1e-3 * step)


@pytest.mark.parametrize("value", [0.0, 5.0, -0.3, 1e-45, -1e-45, 1e-30, 3e38, -3e38])
def test_constant_tensor_keeps_its_value(value):
    same = torch.full((2, 3, 1, 1), value)
    torch.testing.assert_close(fake_quantize_values(same), same, rtol=1e-6, atol=1e-37)


def test_values_with_largest_range_do_not_overflow():
    rounded_values = fake_quantize_values(torch.tensor([3e38, -3e38, 0.0]))
    torch.testing.assert_close(rounded_values, torch.tensor([3e38, -3e38, 0.0]), rtol=0, atol=6e38 / 255 / 1.999)


@pytest.mark.parametrize("spoilt", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("round_", [fake_quantize_values, fake_quantize_weights])
def test_nonfinite_input_gives_nan(spoilt, round_):
    """Training stops at a loss that is not finite, which rounding must not turn into a finite one."""
    rounded_values = round_(torch.tensor([[1.0, spoilt, -2.0]]))
    assert rounded_values.isnan().all()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("round_", [fake_quantize_values, fake_quantize_weights])
def test_keeps_dtype_and_memory_layout(dtype, round_):
    values = drawn(4, 8, 5, 5).to(dtype).to(memory_format=torch.channels_last)
    rounded_values = round_(values)
    assert rounded_values.dtype == dtype
    assert rounded_values.is_contiguous(memory_format=torch.channels_last)
    reach = values.double().amax() - values.double().amin()
    step = reach / 255 if round_ is fake_quantize_values else values.double().abs().max() / 127
    torch.testing.assert_close(rounded_values.float(), values.float(), rtol=2**-8, atol=step.item() / 2)


@pytest.mark.parametrize("round_", [fake_quantize_values, fake_quantize_weights])
def test_gradients_pass_through_rounding_unchanged(round_):
    """Also those of the smallest and the largest value: none is clipped in the batch's own range."""
    values, slopes = drawn(6, 7).requires_grad_(), drawn(6, 7, seed=1)
    round_(values).mul(slopes).sum().backward()
    assert torch.equal(values.grad, slopes)
    with torch.no_grad():
        assert torch.equal(round_(values), round_(values.detach()))


def test_weights_round_to_expected_steps_per_channel():
    """Each row, an output channel, has its own step."""
    weights = torch.tensor([[127.0, -0.6, 0.4], [-254.0, 3.1, 0.9], [0.0, 0.0, 0.0], [1e-45, 0.0, 0.0]])
    expected = [[127.0, -1.0, 0.0], [-254.0, 4.0, 0.0], [0.0, 0.0, 0.0], [0.0, 0.0, 0.0]]
    assert fake_quantize_weights(weights).tolist() == expected


@pytest.mark.parametrize("shape", [(5, 7), (6, 4, 3, 3), (8, 1, 5, 5), (1, 1, 1, 1)])
def test_weights_match_torch_fake_quantize(shape):
    weights = drawn(*shape) * torch.logspace(-6, 6, shape[0]).reshape(-1, *[1] * (len(shape) - 1))
    steps = weights.flatten(1).abs().amax(1) / 127
    zeros = torch.zeros(shape[0], dtype=torch.int32)
    expected = torch.fake_quantize_per_channel_affine(weights, steps, zeros, 0, -127, 127)
    rounded_values = fake_quantize_weights(weights)
    torch.testing.assert_close(rounded_values, expected, rtol=1e-6, atol=0)
    assert ((rounded_values - weights).flatten(1).abs().amax(1) <= 0.5001 * steps).all()


@pytest.mark.parametrize("factor", [*SIGNED, -1e4])
def test_weight_rounding_scales_with_a_factor(factor):
    weights = drawn(6, 4, 3, 3)
    torch.testing.assert_close(fake_quantize_weights(weights * factor), fake_quantize_weights(weights) * factor)


@torch.no_grad()
@pytest.mark.parametrize("groups", [1, 8])
def test_rounding_matches_rounding_after_batch_norm_folding(groups):
    """An export stores the same 8-bit weights that training used, although it folds batch norms first."""
    convolution, norm = nn.Conv2d(8, 8, 3, groups=groups, bias=False), nn.BatchNorm2d(8)
    nn.init.uniform_(norm.running_var, 0.01, 4)
    nn.init.normal_(norm.running_mean)
    nn.init.normal_(norm.weight)  # some below 0
    nn.init.normal_(norm.bias)
    network = nn.Sequential(convolution, norm).eval()
    folded = fuse_conv_bn_eval(convolution, norm)
    images = drawn(2, 8, 9, 9)
    stored = conv2d(fake_quantize_values(images), fake_quantize_weights(folded.weight), folded.bias, groups=groups)
    torch.testing.assert_close(rounded(network)(images), stored, rtol=1e-4, atol=1e-5)
    assert (network(images) - stored).abs().max() > 1e-3, "nothing was rounded"


LAYERS = {
    "plain": nn.Conv2d(6, 4, 3, padding=1, bias=False),
    "strided": nn.Conv2d(6, 4, 3, stride=2),
    "depthwise": nn.Conv2d(6, 6, 3, padding=1, groups=6),
    "1x1": nn.Conv2d(6, 4, 1),
    "padded as in TensorFlow": Conv2dSame(6, 4, 3, stride=2),
    "depthwise, padded as in TensorFlow": Conv2dSame(6, 6, 5, stride=2, groups=6, bias=False),
}


@torch.no_grad()
@pytest.mark.parametrize("name", LAYERS)
def test_convolution_uses_rounded_inputs_and_weights(name):
    layer, images = LAYERS[name], drawn(2, 6, 8, 8)
    expected = copy.deepcopy(layer)
    expected.weight.copy_(fake_quantize_weights(layer.weight))
    assert torch.equal(rounded(layer)(images), expected(fake_quantize_values(images)))
    assert not torch.equal(rounded(layer)(images), layer(images))


@torch.no_grad()
def test_linear_layers_use_rounded_inputs_and_weights():
    features = drawn(5, 6)
    layer, maxout = nn.Linear(6, 4), Maxout(6, 4, pieces=3)
    product = linear(fake_quantize_values(features), fake_quantize_weights(layer.weight), layer.bias)
    assert torch.equal(rounded(layer)(features), product)
    product = linear(fake_quantize_values(features), fake_quantize_weights(maxout.weight), maxout.bias)
    assert torch.equal(rounded(maxout)(features), product.unflatten(1, (3, 4)).amax(1))


@torch.no_grad()
@pytest.mark.parametrize("activation", [nn.Hardswish, nn.SiLU, nn.Sigmoid, nn.Hardsigmoid])
def test_activations_except_relu_round_their_inputs(activation):
    """These run as separate kernels that read 8-bit inputs; a ReLU is part of the convolution."""
    values = drawn(2, 3, 20, 20)
    assert torch.equal(rounded(activation())(values), activation()(fake_quantize_values(values)))
    in_place = activation() if activation is nn.Sigmoid else activation(inplace=True)
    assert torch.equal(rounded(in_place)(values.clone()), activation()(fake_quantize_values(values)))
    assert torch.equal(rounded(nn.ReLU())(values), values.relu())


@pytest.mark.one_case
@pytest.mark.slow
@pytest.mark.parametrize("name", NETWORKS)
def test_every_network_rounds_layers_and_keeps_parameters(name):
    with torch.device("meta"):
        network = network_spec(name).build()
    parameters, keys = dict(network.named_parameters()), list(network.state_dict())
    round_to_8_bits(network)
    layers = [each for each in network.modules() if isinstance(each, nn.Conv2d | nn.Linear)]
    assert layers
    assert {type(each) for each in layers} <= {*ROUNDED_CLASSES.values()}
    for module in network.modules():
        assert len(module._forward_pre_hooks) == isinstance(module, ROUNDED_INPUT_LAYERS)
    assert list(network.state_dict()) == keys
    assert dict(network.named_parameters()).keys() == parameters.keys()
    assert all(each is parameters[key] for key, each in network.named_parameters())


@pytest.mark.one_case
@pytest.mark.slow
@pytest.mark.parametrize("name", ["nano", "nano_mobile", "simple", "facenet_nns2"])
def test_rounded_network_trains_and_loads_without_rounding(name):
    """Batch norms move, every parameter has a gradient, and the state loads into a network without rounding."""
    torch.manual_seed(0)
    plain = network_spec(name).build(64, 16).to(memory_format=torch.channels_last)
    network = rounded(plain).train()
    images = drawn(4, 3, 64, 64).to(memory_format=torch.channels_last)
    embeddings = network(images)
    embeddings.mul(drawn(4, 16, seed=1)).sum().backward()
    assert all(each.grad is not None and each.grad.isfinite().all() for each in network.parameters())
    assert sum(bool(each.grad.any()) for each in network.parameters()) > 0.9 * len([*network.parameters()])
    torch.testing.assert_close((embeddings * embeddings).sum(1), torch.ones(4))
    plain.load_state_dict(network.state_dict())
    with torch.no_grad():
        assert torch.equal(rounded(plain).eval()(images), network.eval()(images))
        assert not torch.equal(plain.eval()(images), network(images))


def test_rejects_unknown_layer_type():
    class Strange(nn.Conv2d):
        pass

    with pytest.raises(KeyError, match="Strange"):
        round_to_8_bits(nn.Sequential(Strange(3, 4, 1)))


def uneven_network():
    """A network that trains in a second, with channels of such different ranges that 8 bits are too few for all."""
    torch.manual_seed(0)
    network = nn.Sequential(
        *(nn.Conv2d(3, 16, 3, stride=2, bias=False), nn.BatchNorm2d(16), nn.Hardswish()),
        *(nn.Conv2d(16, 16, 3, groups=16, bias=False), nn.BatchNorm2d(16), nn.Hardswish()),
        *(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 8)),
    )
    with torch.no_grad():
        network[1].weight.copy_(torch.logspace(-1.5, 1.5, 16))
    return network


def fitted(network, images, labels, steps, lr):
    optimizer = torch.optim.Adam(network.parameters(), lr)
    network.train()
    for _ in range(steps):
        optimizer.zero_grad()
        cross_entropy(network(images), labels).backward()
        optimizer.step()
    return network.eval()


@torch.no_grad()
def loss_of(network, images, labels):
    return cross_entropy(network(images), labels).item()


@pytest.mark.slow
def test_training_with_rounding_recovers_the_loss():
    """A trained network loses accuracy in 8 bits, and recovers only if it is trained with rounding."""
    data = drawn(64, 3, 16, 16), torch.arange(64) % 8
    network = fitted(uneven_network(), *data, steps=150, lr=1e-2)
    before, in_8_bits = loss_of(network, *data), loss_of(rounded(network), *data)
    assert in_8_bits > 5 * before
    aware = fitted(rounded(network), *data, steps=60, lr=3e-3)
    unaware = rounded(fitted(copy.deepcopy(network), *data, steps=60, lr=3e-3))
    assert loss_of(aware, *data) < in_8_bits / 5
    assert loss_of(aware, *data) < loss_of(unaware, *data) / 5
    plain = uneven_network().eval()
    plain.load_state_dict(aware.state_dict())
    assert abs(loss_of(aware, *data) - loss_of(plain, *data)) < in_8_bits - before


COMPILED = """
import copy
import torch
from familiar.models.nano import NanoBlock, NanoStage
from familiar.models.quantized import round_to_8_bits

torch.manual_seed(0)
plain = NanoBlock(8, NanoStage(8, 2, 1, 1), 1, "hardswish", 0.25)
round_to_8_bits(plain)
images, found = torch.randn(4, 8, 9, 9), []
for compiled in (False, True):
    network = copy.deepcopy(plain)
    embed = torch.compile(network, fullgraph=True, dynamic=False, backend="aot_eager") if compiled else network
    features = embed(images)
    features.square().sum().backward()
    found.append([features.detach(), *(each.grad for each in network.parameters())])
assert all(map(torch.equal, *found)), "another function"
"""


@pytest.mark.exhaustive
@pytest.mark.slow
def test_compiles_as_full_graph():
    """In a new process, since the tests' signature checks cannot be compiled."""
    subprocess.run([sys.executable, "-c", COMPILED], check=True)
