import copy

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from familiar.losses import BatchAll, PartialFC, SemiHard
from familiar.models.catalog import network_spec
from familiar.training import gradient_caching
from familiar.training.fit import fit
from familiar.training.gradient_caching import backward
from familiar.training.run import RunFolder
from support.tiny_run import TINY, history

SIZE_PX = 32
LABELS = torch.tensor([0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 0])


def small_network(dropout=0.0):
    torch.manual_seed(0)
    network = network_spec("simple_v2").build(SIZE_PX, 8, dropout, blocks=4).double()
    for norm in norms_of(network):  # statistics that are not where they began
        norm.running_mean.normal_()
        norm.running_var.uniform_(0.5, 2)
    return network


def norms_of(network):
    return [module for module in network.modules() if isinstance(module, nn.modules.batchnorm._BatchNorm)]


def images(count=11):
    return torch.randn(count, 3, SIZE_PX, SIZE_PX, generator=torch.Generator().manual_seed(1)).double()


def gradients(network):
    return {name: parameter.grad.clone() for name, parameter in network.named_parameters()}


def assert_same(found, wanted, atol=1e-10):
    assert found.keys() == wanted.keys()
    for name in wanted:
        torch.testing.assert_close(found[name], wanted[name], atol=atol, rtol=1e-7, msg=name)


def loss_of(embeddings):
    return BatchAll(0.5)(embeddings, LABELS)


@pytest.mark.slow
@pytest.mark.parametrize("chunk_size", [4, 5, 6, 10])
def test_frozen_statistics_match_whole_batch(chunk_size, monkeypatch):
    monkeypatch.setattr(torch.Tensor, "float", lambda tensor: tensor)  # double throughout
    network = small_network().eval()
    value = loss_of(network(images()))
    value.backward()
    wanted = gradients(network)
    network.zero_grad()
    before = copy.deepcopy(network.state_dict())
    assert backward(network, network, loss_of, images(), chunk_size) == pytest.approx(value.item(), rel=1e-12)
    assert_same(gradients(network), wanted)
    assert all(torch.equal(tensor, before[key]) for key, tensor in network.state_dict().items())


@pytest.mark.slow
@pytest.mark.parametrize("momentum", [0.1, 1.0, 0.3])
@pytest.mark.parametrize("chunk_size", [4, 6])
def test_moving_statistics_match_chunked_reference(chunk_size, momentum, monkeypatch):
    """Also with dropout: the second pass draws what the first drew."""
    monkeypatch.setattr(torch.Tensor, "float", lambda tensor: tensor)
    network = small_network(dropout=0.4).train()
    for norm in norms_of(network):
        norm.momentum = momentum
    count = -(-len(LABELS) // chunk_size)
    chunks = [images()[first::count] for first in range(count)]
    reference = copy.deepcopy(network)
    statistics = {name: [] for name, _ in reference.named_buffers() if "running" in name}
    torch.manual_seed(7)
    parts = []
    for chunk in chunks:  # each chunk's own statistics, by a momentum of 1
        for norm in norms_of(reference):
            norm.momentum = 1.0
        parts.append(reference(chunk))
        for name, seen in statistics.items():
            seen.append(len(chunk) / len(LABELS) * reference.get_buffer(name).clone())
    places = torch.cat([torch.arange(len(LABELS))[first::count] for first in range(count)])
    value = loss_of(torch.cat(parts)[places.argsort()])
    value.backward()
    after = torch.rand(3)

    torch.manual_seed(7)
    before = {name: network.get_buffer(name).clone() for name in statistics}
    assert backward(network, network, loss_of, images(), chunk_size) == pytest.approx(value.item(), rel=1e-12)
    assert torch.equal(torch.rand(3), after), "whatever is drawn next is as it would have been"
    assert_same(gradients(network), gradients(reference))
    for name, seen in statistics.items():
        wanted = (1 - momentum) * before[name] + momentum * sum(seen)
        torch.testing.assert_close(network.get_buffer(name), wanted, msg=name)
    assert [norm.momentum for norm in norms_of(network)] == [momentum] * len(norms_of(network))
    assert {int(norm.num_batches_tracked) for norm in norms_of(network)} == {1}


def test_cumulative_batch_norm_counts_chunks_as_one_step():
    network = small_network().train().float()
    for norm in norms_of(network):
        norm.momentum = None
        norm.num_batches_tracked.fill_(3)
    first = norms_of(network)[0]
    before, seen = first.running_mean.clone(), []
    hook = first.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0].mean((0, 2, 3))))
    backward(network, network, loss_of, images().float(), 6)
    hook.remove()
    weights = torch.tensor([6.0, 5.0]) / 11
    chunks_mean = (torch.stack(seen[:2]) * weights[:, None]).sum(0)
    torch.testing.assert_close(first.running_mean, 0.75 * before + 0.25 * chunks_mean)
    assert first.momentum is None


def test_frozen_trunk_is_unchanged():
    network = small_network().float()
    network.freeze_trunk()
    network.train()
    before = copy.deepcopy(network.trunk.state_dict())
    backward(network, network, loss_of, images().float(), 4)
    assert all(torch.equal(tensor, before[key]) for key, tensor in network.trunk.state_dict().items())
    assert all(parameter.grad is None for parameter in network.trunk.parameters())
    assert network.head.project.weight.grad.any()


@pytest.mark.parametrize("chunk_size", [0, 11, 400])
def test_a_batch_that_fits_is_embedded_once(chunk_size):
    network = small_network().train().float()
    sizes = []
    network.register_forward_hook(lambda _, __, output: sizes.append(len(output)))
    backward(network, network, loss_of, images().float(), chunk_size)
    assert sizes == [11]


def test_each_chunk_spans_all_identities():
    """45 identities of 40 photos each, side by side: a chunk of 60 in a row would hold two of them."""
    identities = torch.arange(45).repeat_interleave(40).float()
    seen = []

    def embed(chunk):
        seen.append(chunk[:, 0, 0, 0].unique().numel())
        return chunk.flatten(1).requires_grad_()

    backward(
        nn.Identity(),
        embed,
        lambda found: found.sum(),
        identities.reshape(-1, 1, 1, 1).expand(-1, 3, 1, 1),
        60,
    )
    assert min(seen[:30]) == 45


@given(count=st.integers(4, 40), chunk_size=st.integers(4, 12))
def test_chunks_are_even_and_limited_to_chunk_size(count, chunk_size):
    network = nn.Sequential(nn.Flatten(), nn.Linear(3, 2), nn.BatchNorm1d(2))
    sizes = []
    network.register_forward_hook(lambda _, __, output: sizes.append(len(output)))
    backward(
        network,
        network,
        lambda embeddings: embeddings.square().sum(),
        torch.randn(count, 3, 1, 1),
        chunk_size,
    )
    assert max(sizes) <= chunk_size
    assert min(sizes) >= 2, "batch norm needs two"
    assert max(sizes) - min(sizes) <= 1
    assert sum(sizes) in (count, 2 * count)


def test_only_second_pass_builds_graph():
    """That is what it is for: in the first pass nothing is kept."""
    network = small_network().train().float()
    kept = []

    def embed(chunk):
        embeddings = network(chunk)
        kept.append(embeddings.requires_grad)
        return embeddings

    backward(network, embed, loss_of, images().float(), 4)
    assert kept == [False] * 3 + [True] * 3


def test_loss_parameters_receive_gradient_once():
    network, centers = small_network().eval().float(), PartialFC(8, 5, rate=1.0)
    backward(network, network, lambda embeddings: centers(embeddings, LABELS), images().float(), 4)
    cached = centers.centers.grad.to_dense().clone()
    centers.zero_grad()
    centers(network(images().float()).detach(), LABELS).backward()
    torch.testing.assert_close(cached, centers.centers.grad.to_dense())


@pytest.mark.slow
def test_half_precision_embeddings_get_finite_gradients():
    network = small_network().train().float()

    def embed(chunk):
        with torch.autocast("cpu", torch.bfloat16):
            return network.raw(chunk)

    assert embed(images(4).float()).dtype in (torch.bfloat16, torch.float32)
    loss = SemiHard(0.2)
    value = backward(network, embed, lambda raw: loss(nn.functional.normalize(raw), LABELS), images().float(), 4)
    assert value >= 0
    assert all(parameter.grad.isfinite().all() for parameter in network.parameters())


def test_error_restores_batch_norm_momenta():
    network = small_network().train().float()

    def broken(_):
        raise RuntimeError("the loss")

    with pytest.raises(RuntimeError, match="the loss"):
        backward(network, network, broken, images().float(), 4)
    assert {norm.momentum for norm in norms_of(network)} == {0.1}


@pytest.mark.exhaustive
@pytest.mark.usefixtures("without_curves")
def test_chunk_size_enables_gradient_caching(tmp_path, cats, monkeypatch):
    """A frozen batch norm is what makes chunks and whole batches the same; here momentum alone is not enough."""
    recipe = TINY.with_settings(["loss.name=semi_hard", "sampler.identities=6", "sampler.photos=4"])
    seen = []
    original = gradient_caching._freeze_statistics
    monkeypatch.setattr(gradient_caching, "_statistics_stay", lambda network: seen.append(1) or original(network))
    whole, chunked = RunFolder(tmp_path / "whole"), RunFolder(tmp_path / "chunked")
    fit(recipe, cats, whole.path)
    assert not seen
    fit(recipe.with_settings(["sampler.chunk_size=8"]), cats, chunked.path)
    assert len(seen) == 3, "a step an epoch"
    assert history(whole)[0]["loss"] != history(chunked)[0]["loss"]
    assert whole.last.read_bytes() != chunked.last.read_bytes()
