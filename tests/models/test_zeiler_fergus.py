import pytest
import torch
from torch import nn

from familiar.models.catalog import network_spec
from familiar.models.sizes import layers, measure
from familiar.models.zeiler_fergus import ZeilerFergusTrunk, convolution_layers, response_norm

# FaceNet, Table 1: layer, output at 220 px, kernel, stride, inputs, and the parameters in thousands.
TABLE = [
    ("conv1", (64, 110, 110), 7, 2, 3, 9),
    ("pool1", (64, 55, 55), 3, 2, None, None),
    ("rnorm1", (64, 55, 55), None, None, None, None),
    ("conv2a", (64, 55, 55), 1, 1, 64, 4),
    ("conv2", (192, 55, 55), 3, 1, 64, 111),
    ("rnorm2", (192, 55, 55), None, None, None, None),
    ("pool2", (192, 28, 28), 3, 2, None, None),
    ("conv3a", (192, 28, 28), 1, 1, 192, 37),
    ("conv3", (384, 28, 28), 3, 1, 192, 664),
    ("pool3", (384, 14, 14), 3, 2, None, None),
    ("conv4a", (384, 14, 14), 1, 1, 384, 148),
    ("conv4", (256, 14, 14), 3, 1, 384, 885),
    ("conv5a", (256, 14, 14), 1, 1, 256, 66),
    ("conv5", (256, 14, 14), 3, 1, 256, 590),
    ("conv6a", (256, 14, 14), 1, 1, 256, 66),
    ("conv6", (256, 14, 14), 3, 1, 256, 590),
    ("pool4", (256, 7, 7), 3, 2, None, None),
]


@pytest.fixture(scope="module")
def nn1():
    """140 million parameters, so only on the meta device."""
    with torch.device("meta"):
        return network_spec("facenet_nn1").build()


def test_layers_follow_table_1_order(nn1):
    assert [name for name, _ in nn1.trunk.layers.named_children()] == [name for name, *_ in TABLE]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "output", "kernel_px", "stride", "inputs", "thousands"), TABLE)
def test_every_layer_matches_table_1(nn1, name, output, kernel_px, stride, inputs, thousands):
    layer = getattr(nn1.trunk.layers, name)
    shapes = []
    handle = layer.register_forward_hook(lambda _module, _inputs, result: shapes.append(result.shape[1:]))
    measure(nn1, 220)
    handle.remove()
    assert tuple(shapes[0]) == output
    if thousands is not None:
        weight = layer[0].weight
        assert weight.shape == (output[0], inputs, kernel_px, kernel_px)
        assert layer[0].stride == (stride, stride)
        assert round((weight.numel() + output[0]) / 1000) == thousands, "the table counts a bias"
        assert [type(module) for module in layer] == [nn.Conv2d, nn.BatchNorm2d, nn.ReLU]
    elif stride is not None:
        assert isinstance(layer, nn.MaxPool2d)
        assert (layer.kernel_size, layer.stride) == (kernel_px, stride)


def test_fully_connected_layers_match_table_1(nn1):
    fc1, fc2 = nn1.head.hidden[0], nn1.head.hidden[2]
    assert (fc1.pieces, fc2.pieces) == (2, 2)
    assert fc1.weight.numel() == 2 * 7 * 7 * 256 * 32 * 128 == pytest.approx(103e6, abs=5e5)
    assert fc2.weight.numel() == 2 * 4096 * 32 * 128 == pytest.approx(34e6, abs=5e5)
    assert nn1.head.project.weight.numel() == 4096 * 128 == pytest.approx(524e3, abs=500)
    rows = {row.name: row.output for row in layers(nn1, 220)}
    assert rows["head.hidden.0"] == rows["head.hidden.2"] == (4096,)
    assert rows["head.project"] == (128,)


def test_parameters_and_flops_match_publication(nn1):
    size = measure(nn1, 220)
    assert size.trainable == pytest.approx(140.0e6, rel=0.001)
    assert size.flops == pytest.approx(1.606e9, rel=0.001) == pytest.approx(1.6e9, rel=0.02)


def test_without_batch_norm_adds_biases_and_keeps_weights(nn1):
    with torch.device("meta"):
        plain = network_spec("facenet_nn1").build(batch_norm=False)
    assert not any(isinstance(module, nn.BatchNorm1d | nn.BatchNorm2d) for module in plain.modules())
    weights = {name: each.shape for name, each in plain.named_parameters() if name.endswith("weight")}
    biases = [name.replace("bias", "weight") for name, _ in plain.named_parameters() if name.endswith("bias")]
    assert sorted(biases) == sorted(weights)
    layer_types = nn.Conv2d | nn.Linear
    with_norm = [module.weight.shape for module in nn1.modules() if isinstance(module, layer_types)]
    assert list(weights.values()) == with_norm
    layered = [module for module in nn1.modules() if isinstance(module, layer_types) and module.bias is not None]
    assert layered == [nn1.head.project], "a batch norm brings its own bias"


@torch.no_grad()
def test_response_normalization_matches_alexnet_formula():
    """b_i = a_i / (2 + 1e-4 sum of a_j^2 over j = i - 2 .. i + 2) ^ .75."""
    torch.manual_seed(0)
    features = 200 * torch.randn(2, 9, 2, 3)
    expected = torch.empty_like(features)
    for channel in range(9):
        near = features[:, max(0, channel - 2) : channel + 3].square().sum(1)
        expected[:, channel] = features[:, channel] / (2 + 1e-4 * near) ** 0.75
    torch.testing.assert_close(response_norm()(features), expected, rtol=1e-4, atol=1e-4)
    assert (expected / features).min() < 0.3, "the sum of squares must matter next to the constant"


@pytest.mark.slow
@torch.no_grad()
@pytest.mark.parametrize("size_px", [96, 100, 111, 220])
def test_feature_map_has_stride_32(size_px):
    trunk = ZeilerFergusTrunk().to("meta").eval()
    images = torch.zeros(1, 3, size_px, size_px, device="meta")
    assert trunk(images).shape == (1, 256, -(-size_px // 32), -(-size_px // 32))


@pytest.mark.parametrize("batch_norm", [True, False])
def test_convolutions_initialize_with_he_variance_and_zero_bias(batch_norm):
    torch.manual_seed(0)
    convolution, *rest = convolution_layers(64, 192, 3, 1, batch_norm)
    assert convolution.weight.var().item() == pytest.approx(2 / (9 * 64), rel=0.03)
    assert (convolution.bias is None) == batch_norm
    assert batch_norm or not convolution.bias.any()
    assert [type(module) for module in rest] == [nn.BatchNorm2d, nn.ReLU][not batch_norm :]
