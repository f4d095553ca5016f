import pytest
import torch
from torch import Tensor, nn

from familiar.core.errors import BadRecipe
from familiar.models.catalog import network_spec
from familiar.models.inception import NN2, NN4, NNS1, NNS2, Inception, InceptionBlock, InceptionTrunk, L2Pool
from familiar.models.sizes import measure

pytestmark = pytest.mark.slow

DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]

# FaceNet, Table 2: output at 224 px, and the exact weights, which the table gives rounded.
BLOCKS = {
    "3a": ((256, 28, 28), 163_328, 164e3),
    "3b": ((320, 28, 28), 227_328, 228e3),
    "3c": ((640, 14, 14), 397_312, 398e3),
    "4a": ((640, 14, 14), 544_768, 545e3),
    "4b": ((640, 14, 14), 594_432, 595e3),
    "4c": ((640, 14, 14), 653_312, 654e3),
    "4d": ((640, 14, 14), 721_408, 722e3),
    "4e": ((1024, 7, 7), 716_800, 717e3),
    "5a": ((1024, 7, 7), 1_587_200, 1.6e6),
    "5b": ((1024, 7, 7), 1_587_200, 1.6e6),
}
STEM = [  # convolution, pooling and normalization in the table's order
    ("Conv2d", (64, 112, 112), 9_408),
    ("MaxPool2d", (64, 56, 56), 0),
    ("LocalResponseNorm", (64, 56, 56), 0),
    ("Conv2d", (64, 56, 56), 4_096),
    ("Conv2d", (192, 56, 56), 110_592),
    ("LocalResponseNorm", (192, 56, 56), 0),
    ("MaxPool2d", (192, 28, 28), 0),
]


def weights_of(module):
    layer_types = nn.Conv2d | nn.Linear
    return sum(each.weight.numel() for each in module.modules() if isinstance(each, layer_types))


def on_meta(name, size_px=None, **options):
    with torch.device("meta"):
        return network_spec(name).build(size_px, **options)


def outputs_of(network, size_px):
    """Return the output shape of each block."""
    shapes = {}
    for name, block in network.trunk.blocks.items():
        block.register_forward_hook(
            lambda _module, _inputs, output, name=name: shapes.update({name: tuple(output.shape[1:])})
        )
    measure(network, size_px)
    return shapes


@pytest.fixture(scope="module")
def nn2():
    return on_meta("facenet_nn2")


def test_blocks_match_table_2(nn2):
    assert outputs_of(nn2, 224) == {name: output for name, (output, *_) in BLOCKS.items()}
    assert {name: weights_of(block) for name, block in nn2.trunk.blocks.items()} == {
        name: weights for name, (_, weights, _) in BLOCKS.items()
    }
    for _, weights, published in BLOCKS.values():
        assert weights == pytest.approx(published, rel=0.01)


def test_stem_matches_table_2():
    rows = [row for row in network_spec("facenet_nn2").layers() if row.name.startswith("trunk.stem")]
    actual = [(row.kind, row.output, row.parameters) for row in rows if row.kind not in ("BatchNorm2d", "ReLU")]
    assert actual == STEM
    assert [row.kind for row in rows].count("BatchNorm2d") == [row.kind for row in rows].count("ReLU") == 3


def test_nn2_pooling_and_strides_match_table_2(nn2):
    pools = {name: block.branches[-1][0] for name, block in nn2.trunk.blocks.items()}
    assert [name for name, pool in pools.items() if isinstance(pool, L2Pool)] == [
        "3b",
        "4a",
        "4b",
        "4c",
        "4d",
        "5a",
    ]
    assert [name for name, pool in pools.items() if pool.stride == 2] == ["3c", "4e"]
    passed_through = [name for name, block in nn2.trunk.blocks.items() if len(block.branches[-1]) == 1]
    assert passed_through == ["3c", "4e"]
    assert [name for name, block in nn2.trunk.blocks.items() if len(block.branches) == 3] == ["3c", "4e"]


@pytest.mark.parametrize(
    ("name", "size_px", "flops", "published"),
    [
        ("facenet_nn2", 224, 1.597e9, 1.6e9),
        ("facenet_nn4", 96, 284.7e6, 285e6),
    ],
)
def test_flops_match_publication(name, size_px, flops, published):
    spec = network_spec(name)
    assert spec.input_px == size_px
    assert spec.size().flops == pytest.approx(flops, rel=0.001) == pytest.approx(published, rel=0.02)


def test_parameters_match_publication(nn2):
    assert weights_of(nn2) == pytest.approx(7.448e6, abs=500) == pytest.approx(7.5e6, rel=0.01)
    assert weights_of(nn2.head) == 131_072


def test_nn3_is_nn2_at_160_px(nn2):
    nn3 = on_meta("facenet_nn3")
    assert network_spec("facenet_nn3").input_px == 160
    assert weights_of(nn3) == weights_of(nn2)
    assert outputs_of(nn3, 160)["5b"] == (1024, 5, 5)


@pytest.mark.exhaustive
def test_nn4_has_no_5x5_in_its_last_blocks():
    nn4 = on_meta("facenet_nn4")
    kernels = {
        name: {module.kernel_size[0] for module in block.modules() if isinstance(module, nn.Conv2d)}
        for name, block in nn4.trunk.blocks.items()
    }
    assert [name for name, sizes in kernels.items() if 5 not in sizes] == ["4e", "5a", "5b"]
    # Without them, 4e has 128 outputs fewer, and so have 5a and 5b.
    assert [outputs_of(nn4, 96)[name] for name in ("4e", "5a", "5b")] == [(896, 3, 3)] * 3
    assert measure(on_meta("facenet_nn2", 96), 96).flops == pytest.approx(293.3e6, rel=0.001)
    assert NN4.blocks[:7] == NN2.blocks[:7]


@pytest.mark.parametrize(
    ("name", "size_px", "parameters", "flops"),
    [("facenet_nns1", 165, 26e6, 220e6), ("facenet_nns2", 128, 4.3e6, 20e6)],
)
def test_small_networks_fill_published_budgets(name, size_px, parameters, flops):
    spec = network_spec(name)
    assert spec.input_px == size_px
    size = spec.size()
    assert 0.9 * parameters <= size.trainable <= parameters
    assert 0.9 * flops <= size.flops <= flops


@pytest.mark.parametrize("table", [NN2, NN4, NNS1, NNS2], ids=["NN2", "NN4", "NNS1", "NNS2"])
def test_without_batch_norm_adds_biases_and_keeps_weights(table):
    with torch.device("meta"):
        normed, plain = InceptionTrunk(table), InceptionTrunk(table, batch_norm=False)
    convolutions = [
        [module for module in trunk.modules() if isinstance(module, nn.Conv2d)] for trunk in (normed, plain)
    ]
    assert [each.weight.shape for each in convolutions[0]] == [each.weight.shape for each in convolutions[1]]
    assert all(each.bias is None for each in convolutions[0])
    assert all(each.bias is not None for each in convolutions[1])
    norms = [module.num_features for module in normed.modules() if isinstance(module, nn.BatchNorm2d)]
    assert norms == [each.out_channels for each in convolutions[0]]
    assert not any(isinstance(module, nn.BatchNorm2d) for module in plain.modules())
    assert normed.channels == plain.channels


@pytest.mark.parametrize("name", ["facenet_nns1", "facenet_nns2"])
def test_maxout_head_follows_trunk_batch_norm(name):
    plain, normed = on_meta(name, batch_norm=False), on_meta(name)
    assert not any(isinstance(module, nn.BatchNorm1d | nn.BatchNorm2d) for module in plain.modules())
    assert plain.head.hidden[0].bias is not None
    assert normed.head.hidden[0].bias is None
    assert weights_of(plain) == weights_of(normed)


@torch.no_grad()
def test_block_concatenates_its_branches():
    torch.manual_seed(0)
    block = InceptionBlock(6, Inception("x", 4, 3, 5, 2, 7, "max", 8), True).eval()
    features = torch.randn(2, 6, 9, 9)
    actual = block(features).split([4, 5, 7, 8], 1)
    direct, three, five, pooled = block.branches
    expected = [direct(features), three(features), five(features), pooled(features)]
    assert all(torch.equal(branch, output) for branch, output in zip(actual, expected, strict=True))
    assert [module.kernel_size[0] for module in three if isinstance(module, nn.Conv2d)] == [1, 3]
    assert [module.kernel_size[0] for module in five if isinstance(module, nn.Conv2d)] == [1, 5]


@torch.no_grad()
def test_strided_block_max_pools_its_input():
    block = InceptionBlock(6, Inception("x", 0, 3, 5, 2, 7, "max", 0, stride=2), True).eval()
    features = torch.randn(2, 6, 9, 9)
    actual = block(features)
    assert actual.shape == (2, 5 + 7 + 6, 5, 5)
    padded = nn.functional.pad(features, (1, 1, 1, 1), value=-torch.inf)
    for row in range(5):
        for column in range(5):
            window = padded[:, :, 2 * row : 2 * row + 3, 2 * column : 2 * column + 3]
            assert torch.equal(actual[:, -6:, row, column], window.amax((2, 3)))


@torch.no_grad()
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("side", [1, 2, 7, 8])
def test_l2_pooling_matches_slow_reference(stride, side):
    torch.manual_seed(0)
    features = torch.randn(2, 3, side, side)
    actual = L2Pool(stride)(features)
    steps = range(0, side, stride)
    assert actual.shape == (2, 3, len(steps), len(steps))
    for row, top in enumerate(steps):
        for column, start in enumerate(steps):
            window = features[:, :, max(0, top - 1) : top + 2, max(0, start - 1) : start + 2]
            expected = window.square().mean((2, 3)).sqrt()
            torch.testing.assert_close(actual[:, :, row, column], expected, rtol=1e-4, atol=2e-6)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("stride", [1, 2])
def test_l2_pooling_has_the_same_gradient_in_every_memory_format(device: str, stride: int):
    """On a GPU torch's average pooling had another one for channels-last maps with padding."""
    torch.manual_seed(0)
    maps, weights = torch.randn(2, 5, 7, 7, dtype=torch.float64), torch.rand(2, 5, 7, 7, dtype=torch.float64)

    def gradient(device: str, memory_format: torch.memory_format) -> Tensor:
        leaf = maps.to(device).clone(memory_format=memory_format).requires_grad_()
        pooled = L2Pool(stride)(leaf)
        (pooled * weights[..., : pooled.shape[2], : pooled.shape[3]].to(device)).sum().backward()
        return leaf.grad.cpu()

    expected = gradient("cpu", torch.contiguous_format)
    torch.testing.assert_close(gradient(device, torch.channels_last), expected)


def test_l2_pooling_keeps_constant_maps():
    torch.testing.assert_close(L2Pool(1)(torch.full((1, 1, 5, 5), 3.0)), torch.full((1, 1, 5, 5), 3.0))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_l2_pooling_gradient_at_zero_is_zero(dtype):
    features = torch.zeros(1, 1, 4, 4, dtype=dtype, requires_grad=True)
    actual = L2Pool(1)(features)
    assert actual.dtype == dtype
    actual.sum().backward()
    assert not features.grad.any()
    assert actual.abs().max() <= 1e-5


def test_l2_pooling_does_not_overflow_in_half_precision():
    actual = L2Pool(1)(torch.full((1, 1, 4, 4), 1000.0, dtype=torch.float16))
    assert actual.flatten().tolist() == [1000.0] * 16


@pytest.mark.parametrize("stride", [1, 2])
def test_l2_pooling_passes_gradcheck(stride):
    torch.manual_seed(0)
    features = torch.rand(1, 2, 4, 4, dtype=torch.float64).add_(0.1).requires_grad_()
    assert torch.autograd.gradcheck(L2Pool(stride), (features,))


@torch.no_grad()
@pytest.mark.parametrize("size_px", [32, 96, 111, 128])
def test_feature_map_has_stride_32(size_px):
    trunk = InceptionTrunk(NNS2).eval()
    assert trunk(torch.randn(1, 3, size_px, size_px)).shape == (1, trunk.channels, *2 * [-(-size_px // 32)])


def test_rejects_unknown_options():
    with pytest.raises(BadRecipe, match=r"option\(s\) blocks; it has batch_norm"):
        network_spec("facenet_nn2").build(blocks=4)
