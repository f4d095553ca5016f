import numpy as np
import onnx
import pytest
import torch
from torch import nn

from familiar.core.calibration import Calibration, Threshold
from familiar.embedding.bundle import BundleMetadata, load_bundle, serialize_bundle
from familiar.export.onnx import onnx_bytes
from familiar.export.parity import embed_with_export, embed_with_source, require_parity
from familiar.export.precision import to_float16
from familiar.models.catalog import network_spec
from familiar.models.efficientnet import SqueezeExcite
from familiar.models.nano import NANO, NANO_WIDE, NanoBlock, NanoConfig, NanoStage, NanoTrunk, squeeze_excite
from familiar.recipes import recipe_named
from support.tiers import small_and_exhaustive

MOST_BYTES = 308_000


def trained_looking(name, size_px=112):
    """Randomize the batch norms of a network, so that folding them leaves biases."""
    torch.manual_seed(0)
    network = network_spec(name).build(size_px).eval()
    for norm in network.modules():
        if isinstance(norm, nn.BatchNorm2d):
            norm.running_mean.normal_(std=0.1)
            norm.running_var.uniform_(0.5, 2)
            norm.bias.data.normal_(std=0.1)
    return network


def long_metadata(dim):
    """Metadata as `familiar train` writes it for five sources with long names."""
    threshold = Threshold(similarity=0.512345678901234, far=0.0001234567890123, tar=0.912345678901234)
    number = 0.1234567890123456
    return BundleMetadata(
        space_id="0" * 32,
        embedding_dim=dim,
        preprocessing=recipe_named("pet-nano").with_settings(["input.normalization=imagenet"]).input.preprocessing(),
        calibration=Calibration(threshold, threshold, threshold, number, number, number, 10**6, 10**9),
        prefixes=(dim,),
        recipe="pet-nano",
        network="nano",
        precision="float16",
        trained_on={f"a folder with a long name {root}": {"identities": 9999, "photos": 99999} for root in range(5)},
        results={"on": "the run's validation identities", **{f"figure {row}": number for row in range(6)}},
        parity={"crops": 10_000, "max_difference": number, "min_cosine": number},
        license="Apache-2.0; trained on synthetic pets, ImageNet weights and photos under the MIT license",
    )  # fmt: skip


@pytest.mark.exhaustive
@pytest.mark.parametrize("size_px", small_and_exhaustive(112, 96))
def test_bundle_fits_byte_limit_and_keeps_parity(size_px, tmp_path):
    network = trained_looking("nano", size_px)
    model = to_float16(onnx_bytes(network, size_px))
    (tmp_path / "nano.onnx").write_bytes(serialize_bundle(model, long_metadata(128)))
    assert 290_000 < (tmp_path / "nano.onnx").stat().st_size <= MOST_BYTES, "and it makes use of them"
    assert load_bundle(tmp_path / "nano.onnx").metadata.network == "nano"
    assert not [tensor for tensor in onnx.load_from_string(model).graph.initializer if tensor.external_data]
    images = [torch.randn(4, 3, size_px, size_px)]
    source, exported = embed_with_source(network, images), embed_with_export(model, images)
    require_parity(source, exported, "float16")
    np.testing.assert_allclose(np.linalg.norm(exported, axis=1), 1, atol=1e-5)


@pytest.mark.exhaustive
@pytest.mark.slow
def test_wide_network_fits_byte_limit_at_int8():
    network = trained_looking("nano_wide")
    model = onnx.load_from_string(onnx_bytes(network, 112))
    tensors = [tuple(tensor.dims) for tensor in model.graph.initializer]
    weights = sum(int(np.prod(dims)) for dims in tensors if len(dims) > 1)
    channels = sum(dims[0] for dims in tensors if len(dims) > 1)
    rest = len(model.SerializeToString()) - 4 * sum(int(np.prod(dims)) for dims in tensors)
    # For each channel a bias, its scale and the weights' scale; for each node its quantization nodes; and the metadata.
    overhead_bytes = 12 * channels + 150 * len(model.graph.node) + 3000
    assert weights + overhead_bytes + rest <= MOST_BYTES
    op_types = {node.op_type for node in model.graph.node}
    assert not op_types & {"HardSwish", "HardSigmoid", "Sigmoid", "GlobalAveragePool", "Mul"}, "what int8 minds"


@pytest.mark.parametrize(("table", "channels"), [(NANO, 152), (NANO_WIDE, 216)])
@pytest.mark.parametrize(("size_px", "map_px"), [(96, 6), (112, 7)])
def test_feature_map_has_stride_16(table, channels, size_px, map_px):
    trunk = NanoTrunk(table).eval()
    assert trunk(torch.zeros(2, 3, size_px, size_px)).shape == (2, channels, map_px, map_px)


def test_block_has_skip_connection_when_shape_stays():
    stage = NanoStage(8, 2, 2, stride=1)
    staying, changing = NanoBlock(8, stage, 1, "relu", 0.0), NanoBlock(6, stage, 1, "relu", 0.0)
    nn.init.zeros_(staying.branch[-1].weight)
    features = torch.randn(3, 8, 5, 5)
    assert torch.equal(staying.eval()(features), features), "a branch that gives nothing changes nothing"
    assert changing(torch.randn(3, 6, 5, 5)).shape == (3, 8, 5, 5)
    assert NanoBlock(8, stage, 2, "relu", 0.0)(features).shape == (3, 8, 3, 3)


def test_small_table_parameters_equal_hand_count():
    table = NanoConfig(4, (NanoStage(6, 2, 2, stride=2),), top=10)
    stem = 3 * 9 * 4 + 2 * 4 + 9 * 4 + 2 * 4
    first = (4 * 8 + 2 * 8) + (9 * 8 + 2 * 8) + (8 * 6 + 2 * 6)
    second = (6 * 12 + 2 * 12) + (9 * 12 + 2 * 12) + (12 * 6 + 2 * 6)
    top = 6 * 10 + 2 * 10
    trunk = NanoTrunk(table)
    assert sum(parameter.numel() for parameter in trunk.parameters()) == stem + first + second + top


def test_squeeze_excite_scales_whole_channels():
    squeeze = squeeze_excite(3, 4)
    features = torch.randn(2, 3, 4, 4)
    with torch.no_grad():
        weights = (squeeze(features) / features).amax((2, 3))
    mean = features.mean((2, 3))
    reduced = torch.relu(mean @ squeeze.weigh[1].weight.flatten(1).T + squeeze.weigh[1].bias)
    expected = nn.functional.hardsigmoid(reduced @ squeeze.weigh[3].weight.flatten(1).T + squeeze.weigh[3].bias)
    torch.testing.assert_close(weights, expected.detach())
    inside = NanoTrunk(NANO, squeeze=0.25)
    assert sum(isinstance(module, SqueezeExcite) for module in inside.modules()) == 8
