from functools import cache

import pytest
import torch
from torch import nn
from torchvision.ops import StochasticDepth

from familiar.core.errors import BadRecipe
from familiar.models.catalog import network_spec
from familiar.models.efficientnet import EfficientNetTrunk, InvertedResidual, SqueezeExcite, Stage

NAME = "efficientnet_b0_rebuilt"
# The printed summary: parameters with running statistics, and the output.
STAGES = {
    "stem": (864 + 128, (32, 56, 56)),
    "mbconv1": (1_544, (16, 56, 56)),
    "mbconv2": (17_770, (24, 28, 28)),
    "mbconv3": (48_336, (40, 14, 14)),
    "mbconv4": (248_210, (80, 7, 7)),
    "mbconv5": (551_116, (112, 3, 3)),
    "mbconv6": (2_044_396, (192, 1, 1)),
    "mbconv7": (740_912, (320, 1, 1)),
    "top": (409_600 + 5_120, (1280, 1, 1)),
}


@cache
def layers():
    return network_spec(NAME).layers()


@pytest.mark.slow
@pytest.mark.parametrize("stage", STAGES)
def test_stage_parameters_and_outputs_match_printed_summary(stage):
    rows = [row for row in layers() if row.name.startswith(f"trunk.layers.{stage}.")]
    count, output = STAGES[stage]
    assert sum(row.parameters for row in rows) == count
    assert rows[-1].output == output


@pytest.mark.slow
def test_input_and_head_layers_match_printed_summary():
    rows = layers()
    assert (rows[0].kind, rows[0].parameters) == ("input normalization", 7)
    assert rows[1].output == (3, 113, 113), "padded by one, as the seed's stem"
    assert [(row.kind, row.output, row.parameters) for row in rows[-3:]] == [
        ("Dropout", (1280,), 0),
        ("Linear", (128,), 163_968),
        ("unit length", (128,), 0),
    ]


def test_blocks_follow_seed_where_it_differs_from_paper():
    trunk = EfficientNetTrunk()
    blocks = [module for module in trunk.modules() if isinstance(module, InvertedResidual)]
    depthwise = [block.branch.depthwise[1] for block in blocks]
    kernels = [3, 3, 3, 5, 5, 3, 3, 3, 5, 5, 5, 5, 5, 5, 5, 5]
    strides = [1, 2, 1, 2, 1, 2, 1, 1, 2, 1, 1, 2, 1, 1, 1, 1]
    assert [(layer.kernel_size[0], layer.stride[0]) for layer in depthwise] == list(zip(kernels, strides, strict=True))
    assert all(layer.groups == layer.in_channels == layer.out_channels for layer in depthwise)
    assert [block.branch.squeeze.weigh[1].out_channels for block in blocks] == (
        [8, 4, 6, 6, 10, 10, 20, 20, 20, 28, 28, 28, 48, 48, 48, 48]
    )
    layer_types = [type(module) for module in trunk.layers.stem] + [type(module) for module in trunk.layers.top]
    assert layer_types.count(nn.ReLU6) == 2
    assert not any(isinstance(module, nn.ReLU | nn.ReLU6) for block in blocks for module in block.modules())
    assert {module.eps for module in trunk.modules() if isinstance(module, nn.BatchNorm2d)} == {1e-3}


def test_drop_rates_grow_linearly_with_depth():
    """The coursework multiplies the rate by itself, block after block."""
    rates = [module.p for module in EfficientNetTrunk(0.2).modules() if isinstance(module, StochasticDepth)]
    assert rates == pytest.approx([0.2 * block / 16 for block in range(16)])


@pytest.fixture
def block():
    torch.manual_seed(0)
    made = InvertedResidual(8, Stage(8, 3, 1, 2, 1), 1, 0.3)
    for module in made.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.normal_(module.weight)
    return made.eval()


@torch.no_grad()
def test_stochastic_depth_drops_whole_branch_per_photo(block):
    features = torch.randn(1, 8, 3, 3).expand(4000, -1, -1, -1)
    branch = block.branch(features[:1])[0]
    block.drop.train()
    added = block(features) - features
    survived = added.flatten(1).abs().amax(1) > 0
    assert survived.float().mean().item() == pytest.approx(0.7, abs=0.03)
    torch.testing.assert_close(added[survived], (branch / 0.7).expand_as(added[survived]), rtol=1e-3, atol=1e-4)
    assert not added[~survived].any()
    scale = branch.abs().max().item()
    torch.testing.assert_close(added.mean(0), branch, rtol=0, atol=0.04 * scale)


@torch.no_grad()
def test_evaluation_drops_no_branch(block):
    features = torch.randn(50, 8, 3, 3)
    assert torch.equal(block(features), features + block.branch(features))
    trunk = EfficientNetTrunk(0.9).eval()
    images = torch.randn(2, 3, 64, 64)
    assert torch.equal(trunk(images), trunk(images))


@torch.no_grad()
@pytest.mark.parametrize(("outputs", "stride"), [(8, 2), (6, 1), (6, 2)])
def test_block_has_no_skip_connection_when_shape_changes(outputs, stride):
    block = InvertedResidual(8, Stage(outputs, 3, stride, 2, 1), stride, 0.99).train()
    block.branch.eval()
    features = torch.randn(20, 8, 7, 7)
    assert torch.equal(block(features), block.branch(features)), "what has no other way is never dropped"
    assert block(features).shape == (20, outputs, 7 // stride, 7 // stride)


@torch.no_grad()
def test_squeeze_excite_equals_hand_computation():
    torch.manual_seed(0)
    made = SqueezeExcite(6, 2)
    features = torch.randn(3, 6, 4, 4)
    _, reduce, _, expand, _ = made.weigh
    for photo, output in zip(features, made(features), strict=True):
        hidden = reduce.weight[:, :, 0, 0] @ photo.mean((1, 2)) + reduce.bias
        weights = torch.sigmoid(expand.weight[:, :, 0, 0] @ (hidden * torch.sigmoid(hidden)) + expand.bias)
        torch.testing.assert_close(output, photo * weights[:, None, None])


@pytest.mark.slow
@torch.no_grad()
@pytest.mark.parametrize("size_px", [64, 65, 90, 112, 127, 128])
def test_feature_map_has_stride_64_rounded_down(size_px):
    assert EfficientNetTrunk().eval()(torch.randn(1, 3, size_px, size_px)).shape[-1] == size_px // 64


@pytest.mark.slow
def test_rejects_crops_below_64_px():
    with pytest.raises(BadRecipe, match=r"input\.size_px=63"):
        network_spec(NAME).build(63)
    network_spec(NAME).build(64)


def test_initial_weights_follow_keras():
    torch.manual_seed(0)
    for module in EfficientNetTrunk().modules():
        if isinstance(module, nn.Conv2d):
            if module.weight.numel() > 10_000:
                variance = 2 / module.weight[0].numel()
                assert module.weight.var().item() == pytest.approx(variance, rel=0.06)
            assert module.bias is None or not module.bias.any()
