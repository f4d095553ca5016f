import pytest
import timm
import torch
import torchvision
from timm.models._efficientnet_blocks import SqueezeExcite

from familiar.core.errors import BadRecipe, BadWeights
from familiar.models.backbones import (
    BackboneTrunk,
    FineEfficientNetTrunk,
    JoinedTimmTrunk,
    MobileNetV3Trunk,
    NarrowGate,
    NarrowGateMobileNetV3Trunk,
    ShortMobileNetV3Trunk,
    TimmTrunk,
)
from familiar.models.catalog import NETWORKS, network_spec
from familiar.models.weights import load_published_weights, load_weights_file
from support.tiers import all_exhaustive_but

pytestmark = pytest.mark.slow

SMALL = "mobilenetv3_small_050"


TRUNKS = {
    "mobilenetv3_small_100": 1024,
    "mobilenetv3_large_100": 1280,
    "efficientnet_b0": 1280,
    **{f"efficientnet_lite{number}": 1280 for number in range(3)},
    "efficientnet_lite_pair": 2560,
    "resnet18": 512,
    "shufflenet_v2": 1024,
    SMALL: 1024,
    "efficientnet_b0_flatten": 1280,
    "efficientnet_b0_frozen": 1280,
}


@pytest.mark.exhaustive
def test_trunk_table_lists_every_library_network():
    def is_one(spec):
        with torch.device("meta"):
            trunk = spec.build().trunk
        return isinstance(trunk, BackboneTrunk) and not isinstance(
            trunk, ShortMobileNetV3Trunk | FineEfficientNetTrunk | NarrowGateMobileNetV3Trunk
        )

    assert [name for name, spec in NETWORKS.items() if is_one(spec)] == list(TRUNKS)


@torch.no_grad()
def test_joined_maps_are_those_of_each_network():
    torch.manual_seed(0)
    joined = JoinedTimmTrunk("tf_efficientnet_lite0", "mobilenetv3_small_050").eval()
    images = torch.randn(2, 3, 64, 64)
    parts = [backbone.forward_features(images) for backbone in joined.backbone]
    assert torch.equal(joined(images), torch.cat(parts, dim=1))
    assert joined.channels == sum(part.shape[1] for part in parts)


def test_first_stages_of_joined_networks_are_those_of_each():
    joined = JoinedTimmTrunk("tf_efficientnet_lite0", "mobilenetv3_small_050")
    stages = joined.first_stages(2)
    for backbone in joined.backbone:
        assert any(module is backbone.conv_stem for module in stages)
        assert [any(stage is module for module in stages) for stage in backbone.blocks[:3]] == [True, True, False]
    with pytest.raises(BadRecipe, match="mobilenetv3_small_050 has 6 stages, not 7"):
        joined.first_stages(7)


def test_joined_networks_download_the_weights_of_each(monkeypatch):
    published = {name: timm.create_model(name, num_classes=0) for name in ("mobilenetv3_small_050", "resnet18")}
    create = timm.create_model
    monkeypatch.setattr(
        timm, "create_model", lambda name, **how: published[name] if how["pretrained"] else create(name, **how)
    )
    joined = JoinedTimmTrunk(*published)
    load_published_weights(joined)
    assert torch.equal(joined.backbone[0].conv_stem.weight, published["mobilenetv3_small_050"].conv_stem.weight)
    assert torch.equal(joined.backbone[1].conv1.weight, published["resnet18"].conv1.weight)


@pytest.mark.one_case
@pytest.mark.parametrize("name", TRUNKS)
@pytest.mark.parametrize("size_px", all_exhaustive_but([33, 112], [32, 33, 96, 112, 224]))
def test_feature_map_has_stride_32(name, size_px):
    with torch.device("meta"):
        trunk = network_spec(name).build(size_px).trunk.eval()
        features = trunk(torch.zeros(2, 3, size_px, size_px))
    assert features.shape == (2, TRUNKS[name], *2 * [-(-size_px // 32)])
    assert trunk.channels == TRUNKS[name]


@torch.no_grad()
@pytest.mark.parametrize(
    ("name", "library_network"),
    [
        ("efficientnet_b0", lambda: timm.create_model("efficientnet_b0")),
        ("resnet18", lambda: timm.create_model("resnet18")),
        ("shufflenet_v2", torchvision.models.shufflenet_v2_x1_0),
    ],
)
def test_matches_library_network_after_pooling_and_classifier(name, library_network):
    torch.manual_seed(0)
    library = library_network().eval()
    trunk = network_spec(name).build(64).trunk.eval()
    weights = library.state_dict()
    trunk.backbone.load_state_dict({key: weights[key] for key in trunk.backbone.state_dict()})
    images = torch.randn(2, 3, 64, 64)
    classifier = library.fc if hasattr(library, "fc") else library.classifier
    torch.testing.assert_close(classifier(trunk(images).mean((2, 3))), library(images), rtol=1e-3, atol=1e-5)


@pytest.mark.one_case
@pytest.mark.parametrize("name", TRUNKS)
def test_trunk_has_no_classifier_weights(name):
    with torch.device("meta"):
        keys = network_spec(name).build().trunk.backbone.state_dict()
    assert not [key for key in keys if key.startswith(("fc.", "classifier."))]


@torch.no_grad()
def test_layout_at_224_px_matches_publication():
    """FACTS 5: conv_head 576 -> 1024 on a 7x7 map, GDConv 7x7, then 128."""
    network = network_spec("mobilenetv3_small_100").build(224, 128, 0.4).eval()
    images = torch.zeros(1, 3, 224, 224)
    assert network.trunk.backbone.forward_features(images).shape == (1, 576, 7, 7)
    assert network.trunk(images).shape == (1, 1024, 7, 7)
    assert network.head.pool.weight.shape == (1024, 1, 7, 7)
    assert network.head.dropout.p == 0.4
    assert network(images).shape == (1, 128)


@torch.no_grad()
def test_map_size_rounds_up_for_every_input_size():
    trunk = MobileNetV3Trunk(SMALL).eval()
    edges = [edge + offset for edge in range(32, 257, 32) for offset in (-1, 0, 1)]
    for size_px in sorted({*range(16, 257, 12), *edges}):
        map_px = trunk(torch.zeros(1, 3, size_px, size_px)).shape[-1]
        assert map_px == -(-size_px // 32), f"at {size_px} px"


@pytest.mark.one_case
@torch.no_grad()
@pytest.mark.parametrize(("size_px", "map_px"), [(32, 1), (33, 2), (100, 4), (112, 4), (224, 7)])
def test_pooling_kernel_covers_map_at_even_and_odd_sizes(size_px, map_px):
    network = network_spec(SMALL).build(size_px, 8, 0.0).eval()
    assert network.head.pool.kernel_size == (map_px, map_px)
    assert network(torch.randn(1, 3, size_px, size_px)).shape == (1, 8)


@torch.no_grad()
def test_conv_head_on_map_equals_conv_head_per_position():
    trunk = MobileNetV3Trunk(SMALL).eval()
    images = torch.randn(2, 3, 64, 64)
    features = trunk.backbone.forward_features(images)
    activations = trunk(images)
    for row in range(2):
        patch = features[:, :, row : row + 1, 1:2]
        patch_activation = trunk.backbone.act2(trunk.backbone.conv_head(patch))
        torch.testing.assert_close(activations[:, :, row : row + 1, 1:2], patch_activation, rtol=1e-4, atol=1e-6)


@torch.no_grad()
def test_channels_last_matches_contiguous_layout():
    network = network_spec(SMALL).build(64, 8, 0.0).eval()
    images = torch.randn(3, 3, 64, 64)
    before = network(images)
    network.to(memory_format=torch.channels_last)
    after = network(images.to(memory_format=torch.channels_last))
    torch.testing.assert_close(after, before, rtol=1e-4, atol=1e-5)


def test_rejects_input_size_other_than_built():
    network = network_spec(SMALL).build(64, 8, 0.0).eval()
    with pytest.raises(RuntimeError, match=r"[Kk]ernel size"):
        network(torch.randn(1, 3, 32, 32))


def test_batch_norm_epsilon_loads_with_weights():
    """torchvision's weights were trained with another epsilon than timm's default."""
    trained = network_spec(SMALL).build(32, 8, 0.0).eval()
    trained.trunk.batch_norm_eps = 1e-3
    for module in trained.trunk.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            assert module.eps == 1e-3
            module.running_var.mul_(0.01)
            module.weight.data.mul_(0.1)
    loaded = network_spec(SMALL).build(32, 8, 0.0).eval()
    loaded.load_state_dict(trained.state_dict())
    images = torch.randn(2, 3, 32, 32)
    assert loaded(images).norm(dim=1).min() > 0.99
    assert torch.equal(loaded(images), trained(images))


@torch.no_grad()
def test_short_trunk_equals_full_trunk_at_stride_16(monkeypatch):
    whole, short = (make("mobilenetv3_small_100").eval() for make in (MobileNetV3Trunk, ShortMobileNetV3Trunk))
    monkeypatch.setattr(timm, "create_model", lambda *_, **__: whole.backbone)
    load_published_weights(short)
    images = torch.randn(2, 3, 112, 112)
    expected = whole.backbone.bn1(whole.backbone.conv_stem(images))
    for stage in whole.backbone.blocks[:4]:
        expected = stage(expected)
    map_features = short(images)
    assert map_features.shape == (2, short.channels, 7, 7)
    assert expected.std() > 0
    torch.testing.assert_close(map_features, expected)


@torch.no_grad()
def test_short_trunk_loads_matching_torchvision_weights(tmp_path):
    library_network = torchvision.models.mobilenet_v3_small(weights=None).eval()
    for norm in (module for module in library_network.modules() if isinstance(module, torch.nn.BatchNorm2d)):
        norm.running_var.uniform_(0.5, 2)
        norm.bias.normal_(std=0.1)
    torch.save(library_network.state_dict(), tmp_path / "weights.pth")
    short = ShortMobileNetV3Trunk("mobilenetv3_small_100").eval()
    load_weights_file(short, tmp_path / "weights.pth")
    images = torch.randn(2, 3, 64, 64)
    torch.testing.assert_close(short(images), library_network.features[:9](images), rtol=1e-4, atol=1e-4)


@torch.no_grad()
def test_fine_trunk_has_all_weights_and_a_map_of_stride_16(monkeypatch):
    whole, fine = (make("tf_efficientnet_lite0").eval() for make in (TimmTrunk, FineEfficientNetTrunk))
    original = timm.create_model
    monkeypatch.setattr(timm, "create_model", lambda *_, **__: whole.backbone)
    load_published_weights(fine)
    monkeypatch.setattr(timm, "create_model", original)
    images = torch.randn(2, 3, 112, 112)
    features = fine(images)
    assert features.shape == (2, fine.channels, 7, 7)
    assert fine.channels == 1280
    whole.backbone.blocks[5][0].conv_dw.stride = (1, 1)
    expected = whole.backbone.forward_features(images)
    assert expected.std() > 0
    torch.testing.assert_close(features, expected)


@torch.no_grad()
def test_narrow_gate_is_a_hard_sigmoid_of_a_linear_function_of_the_means():
    torch.manual_seed(0)
    gate = NarrowGate(6, 2)
    features = torch.randn(5, 6, 3, 4) * 9
    means = features.double().mean((2, 3))
    weight = gate.expand.weight[:, :, 0, 0].double() @ gate.reduce.weight[:, :, 0, 0].double()
    bias = gate.expand.weight[:, :, 0, 0].double() @ gate.reduce.bias.double() + gate.expand.bias.double()
    factors = ((means @ weight.T + bias + 3) / 6).clamp(0, 1)  # MobileNetV3's hard sigmoid
    torch.testing.assert_close(gate(features), (features * factors[:, :, None, None]).float())


def test_narrow_gate_has_the_gradient_of_its_function():
    torch.manual_seed(0)
    gate = NarrowGate(4, 2).double()
    features = torch.randn(2, 4, 3, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(gate, (features,))


@torch.no_grad()
def test_narrow_gates_that_are_open_leave_the_whole_network_without_its_gates(monkeypatch):
    whole, narrow = (make("mobilenetv3_small_100").eval() for make in (MobileNetV3Trunk, NarrowGateMobileNetV3Trunk))
    state = whole.state_dict()
    missing, unexpected = narrow.load_state_dict(
        {key: state[key] for key in narrow.state_dict() if key in state}, strict=False
    )
    gates = [module for module in narrow.modules() if isinstance(module, NarrowGate)]
    assert (len(missing), unexpected) == (4 * len(gates), [])
    assert all(".se." in key for key in missing)
    for module in whole.modules():
        if isinstance(module, SqueezeExcite):
            monkeypatch.setattr(module, "forward", lambda features: features)
    for gate in gates:
        gate.expand.weight.zero_()
        gate.expand.bias.fill_(3.0)
    images = torch.randn(2, 3, 64, 64)
    features = narrow(images)
    assert features.shape == (2, 576, 2, 2)
    assert features.std() > 0
    torch.testing.assert_close(features, whole.backbone.forward_features(images))


def test_nobody_publishes_weights_of_narrow_gates():
    with pytest.raises(BadWeights, match=r"benchmarks/narrow_gates\.py"):
        load_published_weights(NarrowGateMobileNetV3Trunk("mobilenetv3_small_100"))
