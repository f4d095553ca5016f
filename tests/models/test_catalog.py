import functools

import pytest
import torch
from torch import nn

from familiar.core.errors import BadRecipe
from familiar.models.catalog import NETWORKS, network_spec
from familiar.models.heads import HEADS
from familiar.models.sizes import NetworkSize, measure
from support.tiers import all_exhaustive_but

# 140 million parameters: only used on the meta device.
BUILT = [name for name in NETWORKS if name != "facenet_nn1"]
SMALL_PX = 64  # the smallest crop that every network accepts


def on_meta(name, size_px=None, **options):
    with torch.device("meta"):
        return network_spec(name).build(size_px, **options)


@pytest.mark.one_case
@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "options", "trainable", "total"),
    [
        ("simple", {}, 2_193_952, 2_196_192),
        ("simple", {"head": "average"}, 1_669_664, 1_671_904),
        ("simple_v2", {}, 2_618_400, 2_620_640),
        ("simple_v2", {"head": "average"}, 1_635_360, 1_637_600),
        ("efficientnet_b0_rebuilt", {}, 4_189_948, 4_231_971),
        ("efficientnet_b0_frozen", {}, 2_621_568, 6_671_139),
        ("efficientnet_b0_flatten", {"frozen_trunk": True}, 2_621_568, 6_671_139),
    ],
)
def test_parameter_counts_match_coursework(name, options, trainable, total):
    spec = network_spec(name)
    size = measure(on_meta(name, **options), spec.input_px)
    assert (size.trainable, size.total + spec.constants) == (trainable, total)
    assert spec.constants == (7 if name.startswith("efficientnet") else 0)
    if not options:
        assert (spec.size().trainable, spec.size().total) == (trainable, total)


@functools.cache
def size_of(name):
    return network_spec(name).size()


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    all_exhaustive_but(["mobilenetv3_small_100", "efficientnet_b0_frozen", "facenet_nns2", "nano", "digits"], NETWORKS),
)
def test_every_spec_matches_its_network(name):
    spec = network_spec(name)
    network = on_meta(name)
    assert isinstance(network.head, getattr(HEADS[spec.head], "func", HEADS[spec.head]))
    assert network.head.dropout.p == spec.dropout
    assert network.frozen_trunk == spec.frozen_trunk
    assert len(spec.summary) <= 90
    assert spec.summary.count("\n") == 0
    parameters = sum(each.numel() for each in network.parameters())
    trainable = sum(each.numel() for each in network.parameters() if each.requires_grad)
    norms = [each for each in network.modules() if isinstance(each, nn.BatchNorm1d | nn.BatchNorm2d)]
    statistics = sum(2 * norm.num_features for norm in norms)
    assert size_of(name).trainable == trainable
    assert size_of(name).total == parameters + statistics + spec.constants
    assert (trainable == parameters) == (not spec.frozen_trunk)


@pytest.mark.one_case
@pytest.mark.slow
@pytest.mark.parametrize("name", all_exhaustive_but(["nano", "simple_v2", "facenet_nns2", "digits"], NETWORKS))
def test_layers_add_up_to_network_size(name):
    spec = network_spec(name)
    rows = spec.layers()
    assert sum(row.parameters for row in rows) == size_of(name).total
    assert (rows[-1].kind, rows[-1].output) == ("unit length", (spec.embedding_dim,))
    assert rows[-2].output in ((spec.embedding_dim,), (spec.embedding_dim, 1, 1))
    names = [row.name for row in rows if row.name]
    assert len(names) == len(set(names))
    in_head = [part.startswith("head.") for part in names]
    assert in_head == sorted(in_head), "the trunk runs first"
    assert all(part.startswith(("head.", "trunk.")) for part in names)


@pytest.mark.one_case
@pytest.mark.slow
@pytest.mark.parametrize("name", BUILT)
def test_spec_size_matches_built_network(name):
    spec = network_spec(name)
    size = measure(spec.build(), spec.input_px)
    assert size_of(name) == NetworkSize(size.trainable, size.total + spec.constants, size.flops)


@pytest.mark.one_case
@pytest.mark.slow
@torch.no_grad()
@pytest.mark.parametrize("name", BUILT)
def test_embeddings_have_unit_length_and_requested_size(name):
    network = network_spec(name).build(SMALL_PX, 6, 0.5).eval()
    images = torch.randn(3, 3, SMALL_PX, SMALL_PX)
    embeddings = network(images)
    assert embeddings.shape == (3, 6)
    torch.testing.assert_close(embeddings.norm(dim=1), torch.ones(3))
    torch.testing.assert_close(network(images[:1]), embeddings[:1], rtol=1e-4, atol=1e-5)


@pytest.mark.one_case
@pytest.mark.slow
@pytest.mark.parametrize("name", BUILT)
def test_every_unfrozen_parameter_receives_gradient(name):
    torch.manual_seed(0)
    network = network_spec(name).build(SMALL_PX, 6).train()
    network.raw(torch.randn(4, 3, SMALL_PX, SMALL_PX)).square().sum().backward()
    frozen = network_spec(name).frozen_trunk
    for key, parameter in network.named_parameters():
        trained = not (frozen and key.startswith("trunk."))
        assert (parameter.grad is not None) == trained, key
        assert not trained or parameter.grad.isfinite().all(), key


@pytest.mark.one_case
@pytest.mark.slow
@pytest.mark.parametrize("name", ["mobilenetv3_small_050", "simple", "efficientnet_b0_rebuilt", "facenet_nns2"])
def test_building_is_deterministic(name):
    states = []
    for seed in (3, 3, 4):
        torch.manual_seed(seed)
        states.append(network_spec(name).build(SMALL_PX).state_dict())
    first, again, other = states
    assert all(torch.equal(tensor, again[key]) for key, tensor in first.items())
    assert not all(torch.equal(tensor, other[key]) for key, tensor in first.items())


@pytest.mark.one_case
@pytest.mark.slow
@pytest.mark.parametrize("head", HEADS)
def test_any_head_fits_any_trunk(head):
    # NN1's own widths are for the meta device.
    for name in ("resnet18", "simple_v2", "facenet_nns2"):
        network = on_meta(name, 96, embedding_dim=8, head=head)
        assert network(torch.zeros(2, 3, 96, 96, device="meta")).shape == (2, 8)
        assert isinstance(network.head, getattr(HEADS[head], "func", HEADS[head]))


@pytest.mark.exhaustive
def test_head_options_apply_only_to_the_default_head():
    assert on_meta("facenet_nns2").head.project.in_features == 496
    assert on_meta("facenet_nns2", head="maxout").head.project.in_features == 496
    assert on_meta("facenet_nn2", head="maxout").head.project.in_features == 4096


@pytest.mark.slow
def test_build_uses_spec_defaults_for_missing_options():
    spec = network_spec("mobilenetv3_small_100")
    network = spec.build(96)
    assert network.head.project.out_channels == 128
    assert network.head.dropout.p == 0.4
    assert network.head.pool.kernel_size == (3, 3)
    network = spec.build(96, 8, 0.0, frozen_trunk=True)
    assert network.head.project.out_channels == 8
    assert network.head.dropout.p == 0.0
    assert network.frozen_trunk
    assert not network_spec("efficientnet_b0_frozen").build(64, frozen_trunk=False).frozen_trunk


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("simple", {"depth": 3}, r"this network does not have the option\(s\) depth; it has blocks, pooling$"),
        ("simple_v2", {"pooling": "max"}, r"option\(s\) pooling; it has blocks$"),
        (
            "facenet_nn2",
            {"blocks": 4, "pooling": "max"},
            r"option\(s\) blocks, pooling; it has batch_norm$",
        ),
        ("resnet18", {"batch_norm": False}, r"option\(s\) batch_norm; it has none$"),
        ("resnet18", {"head": "gdcnv"}, r"unknown head 'gdcnv'; choose one of gdconv, flatten"),
    ],
)
def test_rejects_unknown_options_and_heads(name, options, message):
    with pytest.raises(BadRecipe, match=message):
        network_spec(name).build(**options)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "too_small"), [("efficientnet_b0_rebuilt", 63), ("simple", 31), ("digits", 3), ("resnet18", 0)]
)
def test_rejects_crops_below_minimum_size(name, too_small):
    with pytest.raises(BadRecipe, match=rf"input\.size_px={too_small} is too small for this network"):
        network_spec(name).build(too_small)
    with torch.device("meta"):
        network_spec(name).build(too_small + 1)


def test_unknown_network_error_lists_known_networks():
    with pytest.raises(BadRecipe, match=r"'resnet'.*mobilenetv3_small_100, mobilenetv3_large_100, .*digits"):
        network_spec("resnet")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "size_px", "channels"),
    [("mobilenetv4_conv_small_050", 64, 480), ("swin_tiny_patch4_window7_224", 224, 768)],
)
def test_timm_network_by_name(name, size_px, channels):
    """The second has its channels last."""
    spec = network_spec(f"timm:{name}")
    network = spec.build(size_px, 8, 0.0).eval()
    assert (spec.input_px, network.head.pool.in_channels) == (224, channels)
    assert network(torch.zeros(2, 3, size_px, size_px)).shape == (2, 8)


@pytest.mark.slow
def test_timm_networks_that_cannot_be_used():
    with pytest.raises(BadRecipe, match=r"timm has no network 'resnet43'; similar: resnet34"):
        network_spec("timm:resnet43")
    with pytest.raises(BadRecipe, match="does not end in a feature map"):
        network_spec("timm:vit_tiny_patch16_224").build()
    with pytest.raises(BadRecipe, match=r"input\.size_px=112 is no size for this network"):
        network_spec("timm:vit_tiny_patch16_224").build(112)
