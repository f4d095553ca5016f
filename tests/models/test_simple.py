import pytest
import torch
from torch import nn

from familiar.models.catalog import network_spec
from familiar.models.simple import DigitsTrunk, SimpleTrunk, SimpleV2Trunk
from familiar.models.sizes import layers, measure

# As Keras prints them: type, output shape, parameters with running statistics.
SIMPLE = [
    ("Conv2d", (32, 112, 112), 2_400),
    ("BatchNorm2d", (32, 112, 112), 128),
    ("SiLU", (32, 112, 112), 0),
    ("MaxPool2d", (32, 56, 56), 0),
    ("Conv2d", (64, 56, 56), 51_200),
    ("BatchNorm2d", (64, 56, 56), 256),
    ("SiLU", (64, 56, 56), 0),
    ("MaxPool2d", (64, 28, 28), 0),
    ("Conv2d", (128, 28, 28), 73_728),
    ("BatchNorm2d", (128, 28, 28), 512),
    ("SiLU", (128, 28, 28), 0),
    ("MaxPool2d", (128, 14, 14), 0),
    ("Conv2d", (256, 14, 14), 294_912),
    ("BatchNorm2d", (256, 14, 14), 1_024),
    ("SiLU", (256, 14, 14), 0),
    ("MaxPool2d", (256, 7, 7), 0),
    ("Conv2d", (512, 7, 7), 1_179_648),
    ("BatchNorm2d", (512, 7, 7), 2_048),
    ("SiLU", (512, 7, 7), 0),
    ("MaxPool2d", (512, 3, 3), 0),
]
SIMPLE_V2 = [
    ("Conv2d", (32, 56, 56), 864),
    ("BatchNorm2d", (32, 56, 56), 128),
    ("SiLU", (32, 56, 56), 0),
    ("Conv2d", (64, 28, 28), 18_432),
    ("BatchNorm2d", (64, 28, 28), 256),
    ("SiLU", (64, 28, 28), 0),
    ("Conv2d", (128, 14, 14), 73_728),
    ("BatchNorm2d", (128, 14, 14), 512),
    ("SiLU", (128, 14, 14), 0),
    ("Conv2d", (256, 7, 7), 294_912),
    ("BatchNorm2d", (256, 7, 7), 1_024),
    ("SiLU", (256, 7, 7), 0),
    ("Conv2d", (512, 4, 4), 1_179_648),
    ("BatchNorm2d", (512, 4, 4), 2_048),
    ("SiLU", (512, 4, 4), 0),
]


def on_meta(name, size_px, **options):
    with torch.device("meta"):
        return layers(network_spec(name).build(size_px, **options), size_px)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "head", "trunk", "dense"),
    [
        ("simple", "flatten", SIMPLE, 589_824),
        ("simple", "average", SIMPLE, 65_536),
        ("simple_v2", "flatten", SIMPLE_V2, 1_048_576),
        ("simple_v2", "average", SIMPLE_V2, 65_536),
    ],
)
def test_layers_match_printed_summary(name, head, trunk, dense):
    channels, side, _ = trunk[-1][1]
    pooled = head == "average"
    rows = [(row.kind, row.output, row.parameters) for row in on_meta(name, 112, head=head)]
    assert rows == [
        *trunk,
        *([("AdaptiveAvgPool2d", (channels, 1, 1), 0)] if pooled else []),
        ("Dropout", (channels * (1 if pooled else side**2),), 0),
        ("Linear", (128,), dense),
        ("BatchNorm1d", (128,), 512),
    ]


@pytest.mark.one_case
@pytest.mark.slow
@pytest.mark.parametrize("name", ["simple", "simple_v2"])
@pytest.mark.parametrize("blocks", [4, 5, 6])
def test_blocks_double_the_channels_and_halve_the_side(name, blocks):
    convolutions = [row for row in on_meta(name, 112, blocks=blocks) if row.kind == "Conv2d"]
    assert [row.output[0] for row in convolutions] == [32 * 2**block for block in range(blocks)]
    channels, side, _ = [row for row in on_meta(name, 112, blocks=blocks) if row.name.startswith("trunk")][-1].output
    halved = {"simple": 112 // 2**blocks, "simple_v2": -(-112 // 2**blocks)}
    assert (channels, side) == (32 * 2 ** (blocks - 1), halved[name])


def test_first_two_kernels_are_5x5_and_others_3x3():
    kernels = [m.kernel_size for m in SimpleTrunk(5).modules() if isinstance(m, nn.Conv2d)]
    assert kernels == [(5, 5), (5, 5), (3, 3), (3, 3), (3, 3)]


@pytest.mark.parametrize(("pooling", "kind"), [("max", nn.MaxPool2d), ("average", nn.AvgPool2d)])
def test_pooling_option_selects_pooling_layers(pooling, kind):
    trunk = network_spec("simple").build(64, pooling=pooling).trunk
    pools = [module for module in trunk.modules() if isinstance(module, nn.MaxPool2d | nn.AvgPool2d)]
    assert [type(module) for module in pools] == [kind] * 5


@pytest.mark.parametrize(("trunk", "scale"), [(SimpleTrunk, 0.2), (SimpleV2Trunk, 2.0)])
def test_initial_weights_follow_keras(trunk, scale):
    torch.manual_seed(0)
    for module in trunk(5).modules():
        if isinstance(module, nn.Conv2d) and module.weight.numel() > 10_000:
            variance = scale / module.weight[0].numel()
            assert module.weight.var().item() == pytest.approx(variance, rel=0.05)
        if isinstance(module, nn.BatchNorm2d):
            assert module.eps == 1e-3


@pytest.mark.slow
@pytest.mark.parametrize(("name", "scale"), [("simple", 0.2), ("simple_v2", 2.0)])
@pytest.mark.parametrize("head", ["flatten", "average"])
def test_embedding_layer_initializes_like_convolutions(name, scale, head):
    torch.manual_seed(0)
    weight = network_spec(name).build(64, head=head).head.project.weight
    assert weight.var().item() == pytest.approx(scale / weight.shape[1], rel=0.05)


@torch.no_grad()
def test_one_block_equals_hand_computation():
    torch.manual_seed(0)
    images = torch.randn(2, 3, 9, 9)
    for trunk, pool in (
        (SimpleTrunk(1, "max"), lambda values: values.amax(-1)),
        (SimpleTrunk(1, "average"), lambda values: values.mean(-1)),
        (SimpleV2Trunk(1), None),
    ):
        trunk.eval()
        convolution, norm = trunk.layers[0], trunk.layers[1]
        norm.running_mean.normal_()
        norm.running_var.uniform_(0.5, 2.0)
        values = convolution(images)
        shaped = (norm.running_var + 1e-3).sqrt()[:, None, None], norm.running_mean[:, None, None]
        values = (values - shaped[1]) / shaped[0]
        values = values * torch.sigmoid(values)
        if pool:
            windows = values[:, :, :8, :8].unflatten(3, (4, 2)).unflatten(2, (4, 2)).transpose(3, 4)
            values = pool(windows.flatten(4))
        torch.testing.assert_close(trunk(images), values, rtol=1e-4, atol=1e-5)


def test_digits_layers_equal_hand_count():
    """9 x 32, two per channel of each norm, and so on; 28 -> 14 -> 7 px."""
    rows = network_spec("digits").layers()
    shapes = [(row.kind, row.output, row.parameters) for row in rows if row.parameters]
    assert shapes == [
        ("Conv2d", (32, 28, 28), 9 * 32),
        ("BatchNorm2d", (32, 28, 28), 4 * 32),
        ("Conv2d", (64, 14, 14), 9 * 32 * 64),
        ("BatchNorm2d", (64, 14, 14), 4 * 64),
        ("Linear", (128,), 64 * 7 * 7 * 128),
        ("BatchNorm1d", (128,), 4 * 128),
        ("Linear", (2,), 128 * 2 + 2),
    ]
    assert measure(DigitsTrunk(), 28).flops == 9 * 32 * 28**2 + 9 * 32 * 64 * 14**2


@torch.no_grad()
def test_digits_trunk_converts_color_to_gray():
    trunk = DigitsTrunk().eval()
    gray = torch.randn(2, 1, 28, 28)
    colored = gray + torch.tensor([0.5, -0.2, -0.3])[:, None, None]
    torch.testing.assert_close(trunk(colored), trunk(gray.expand(-1, 3, -1, -1)), rtol=1e-4, atol=1e-5)
    assert trunk(colored).shape == (2, 64, 7, 7)
