"""ONNX export of every network, including local response norm, maxout, L2 pooling and stochastic depth."""

import pytest
import torch
from torch import nn

from familiar.export.onnx import onnx_bytes
from familiar.export.parity import embed_with_export, embed_with_source, require_parity
from familiar.models.catalog import NETWORKS, network_spec
from familiar.models.heads import HEADS, MaxoutHead
from familiar.models.network import EmbeddingNetwork
from familiar.models.zeiler_fergus import ZeilerFergusTrunk
from support.tiers import all_exhaustive_but, small_and_exhaustive

pytestmark = pytest.mark.slow

SIZE_PX, DIM = 64, 8
QUICK = ("simple", "simple_v2", "digits", "facenet_nns2")


def assert_exports(network, size_px=SIZE_PX):
    """Batch norms get the statistics of noise, so that embeddings of different noise differ."""
    torch.manual_seed(0)
    network._in_evaluation = ()  # a frozen trunk too, or its statistics would stay at their initial values
    for module in network.modules():
        if isinstance(module, nn.BatchNorm1d | nn.BatchNorm2d):
            module.momentum = None  # the mean of all batches, instead of a running one that includes the initial value
    with torch.no_grad():
        for _ in range(5):
            network.train()(torch.randn(8, 3, size_px, size_px))
    # Noise and a crop of one color, in batches of other sizes than the exporter's example.
    batches = [torch.randn(3, 3, size_px, size_px), torch.ones(1, 3, size_px, size_px)]
    source = embed_with_source(network, batches)
    exported = embed_with_export(onnx_bytes(network, size_px), batches)
    assert abs(source[0] - source[1]).max() > 1e-2, "the embeddings are all one: nothing is compared"
    assert require_parity(source, exported).crops == 4


@pytest.mark.exhaustive
@pytest.mark.one_case
@pytest.mark.parametrize("name", all_exhaustive_but(["simple_v2", "digits"], QUICK))
def test_onnx_matches_torch_for_small_networks(name):
    torch.manual_seed(0)
    assert_exports(network_spec(name).build(SIZE_PX, DIM))


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "name",
    all_exhaustive_but(["nano"], [name for name in NETWORKS if name not in (*QUICK, "facenet_nn1")]),
)
def test_onnx_matches_torch_for_larger_networks(name):
    torch.manual_seed(0)
    assert_exports(network_spec(name).build(SIZE_PX, DIM))


@pytest.mark.exhaustive
def test_onnx_matches_torch_for_narrow_nn1():
    """At its own width it would be half a gigabyte."""
    torch.manual_seed(0)
    assert_exports(EmbeddingNetwork(ZeilerFergusTrunk(), MaxoutHead(256, 2, DIM, 0.5, widths=(24, 16))))


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", small_and_exhaustive("simple", "facenet_nns2"))
def test_onnx_matches_torch_for_optional_layers(name):
    torch.manual_seed(0)
    options = {"batch_norm": False} if name.startswith("facenet") else {"pooling": "average", "blocks": 4}
    assert_exports(network_spec(name).build(SIZE_PX, DIM, **options))


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "head", all_exhaustive_but(["gdconv"], [head for head in HEADS if head not in ("flatten", "maxout")])
)
def test_onnx_matches_torch_for_each_head(head):
    torch.manual_seed(0)
    assert_exports(network_spec("simple_v2").build(32, DIM, 0.3, blocks=4, head=head), 32)
