import copy
import weakref

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from familiar.losses import BatchAll, PartialFC, SemiHard
from familiar.models.catalog import network_spec
from familiar.training import state
from familiar.training.fitting import fit
from familiar.training.run import RunFolder
from support.chunks import backward_in_chunks
from support.tiny_run import TINY, history

SIZE_PX = 32
LABELS = torch.tensor([0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 0])


def small_network(dropout=0.0):
    torch.manual_seed(0)
    network = network_spec("simple_v2").build(SIZE_PX, 8, dropout, blocks=4).double()
    for norm in batch_norms(network):  # statistics that differ from the initial ones
        norm.running_mean.normal_()
        norm.running_var.uniform_(0.5, 2)
    return network


def batch_norms(network):
    return [module for module in network.modules() if isinstance(module, nn.modules.batchnorm._BatchNorm)]


def images(count=11):
    return torch.randn(count, 3, SIZE_PX, SIZE_PX, generator=torch.Generator().manual_seed(1)).double()


def gradients(network):
    return {name: parameter.grad.clone() for name, parameter in network.named_parameters()}


def assert_same(actual, expected, atol=1e-10):
    assert actual.keys() == expected.keys()
    for name in expected:
        torch.testing.assert_close(actual[name], expected[name], atol=atol, rtol=1e-7, msg=name)


def batch_all_loss(embeddings):
    return BatchAll(0.5)(embeddings, LABELS)


@pytest.mark.slow
@pytest.mark.parametrize("chunk_size", [4, 5, 6, 10])
def test_frozen_statistics_match_whole_batch(chunk_size, monkeypatch):
    monkeypatch.setattr(torch.Tensor, "float", lambda tensor: tensor)  # double throughout
    network = small_network().eval()
    value = batch_all_loss(network(images()))
    value.backward()
    expected = gradients(network)
    network.zero_grad()
    before = copy.deepcopy(network.state_dict())
    assert backward_in_chunks(network, network, batch_all_loss, images(), chunk_size) == pytest.approx(
        value.item(), rel=1e-12
    )
    assert_same(gradients(network), expected)
    assert all(torch.equal(tensor, before[key]) for key, tensor in network.state_dict().items())


@pytest.mark.slow
@pytest.mark.parametrize("momentum", [0.1, 1.0, 0.3])
@pytest.mark.parametrize("chunk_size", [4, 6])
def test_updated_statistics_match_chunked_reference(chunk_size, momentum, monkeypatch):
    """With dropout too: the second pass draws the same random numbers as the first."""
    monkeypatch.setattr(torch.Tensor, "float", lambda tensor: tensor)
    network = small_network(dropout=0.4).train()
    for norm in batch_norms(network):
        norm.momentum = momentum
    count = -(-len(LABELS) // chunk_size)
    chunks = [images()[first::count] for first in range(count)]
    reference = copy.deepcopy(network)
    statistics = {name: [] for name, _ in reference.named_buffers() if "running" in name}
    torch.manual_seed(7)
    parts = []
    for chunk in chunks:  # a momentum of 1 gives each chunk's own statistics
        for norm in batch_norms(reference):
            norm.momentum = 1.0
        parts.append(reference(chunk))
        for name, chunk_values in statistics.items():
            chunk_values.append(len(chunk) / len(LABELS) * reference.get_buffer(name).clone())
    rows = torch.cat([torch.arange(len(LABELS))[first::count] for first in range(count)])
    value = batch_all_loss(torch.cat(parts)[rows.argsort()])
    value.backward()
    after = torch.rand(3)

    torch.manual_seed(7)
    before = {name: network.get_buffer(name).clone() for name in statistics}
    assert backward_in_chunks(network, network, batch_all_loss, images(), chunk_size) == pytest.approx(
        value.item(), rel=1e-12
    )
    assert torch.equal(torch.rand(3), after), "later random draws are unchanged"
    assert_same(gradients(network), gradients(reference))
    for name, chunk_values in statistics.items():
        expected = (1 - momentum) * before[name] + momentum * sum(chunk_values)
        torch.testing.assert_close(network.get_buffer(name), expected, msg=name)
    assert [norm.momentum for norm in batch_norms(network)] == [momentum] * len(batch_norms(network))


def test_frozen_trunk_is_unchanged():
    network = small_network().float()
    network.freeze_trunk()
    network.train()
    before = copy.deepcopy(network.trunk.state_dict())
    backward_in_chunks(network, network, batch_all_loss, images().float(), 4)
    assert all(torch.equal(tensor, before[key]) for key, tensor in network.trunk.state_dict().items())
    assert all(parameter.grad is None for parameter in network.trunk.parameters())
    assert network.head.project.weight.grad.any()


def test_each_chunk_spans_all_identities():
    """45 identities of 40 photos each, in order: 60 consecutive photos would show only two of them."""
    identities = torch.arange(45).repeat_interleave(40).float()
    identity_counts = []

    def embed(chunk):
        identity_counts.append(chunk[:, 0, 0, 0].unique().numel())
        return chunk.flatten(1).requires_grad_()

    backward_in_chunks(
        nn.Identity(),
        embed,
        lambda embeddings: embeddings.sum(),
        identities.reshape(-1, 1, 1, 1).expand(-1, 3, 1, 1),
        60,
    )
    assert min(identity_counts[:30]) == 45


@given(count=st.integers(4, 40), chunk_size=st.integers(4, 12))
def test_chunks_are_even_and_limited_to_chunk_size(count, chunk_size):
    network = nn.Sequential(nn.Flatten(), nn.Linear(3, 2), nn.BatchNorm1d(2))
    sizes = []
    network.register_forward_hook(lambda _, __, output: sizes.append(len(output)))
    backward_in_chunks(
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


def test_one_chunk_at_a_time_is_in_memory():
    """Of what the network computes on the way to the embeddings: saving that memory is the purpose."""
    network = small_network().train().float()
    activations: list[weakref.ref] = []
    alive = []

    def keep(_, inputs, __):
        activations.append(weakref.ref(inputs[0]))
        alive.append(sum(each() is not None for each in activations))

    network.head.project.register_forward_hook(keep)
    backward_in_chunks(network, network, batch_all_loss, images().float(), 4)
    assert len(activations) == 6, "each of three chunks twice"
    assert max(alive) <= 2, "that of the chunk, and of the one before while it is replaced"


def test_loss_parameters_receive_gradient_once():
    network, centers = small_network().eval().float(), PartialFC(8, 5, rate=1.0)
    backward_in_chunks(network, network, lambda embeddings: centers(embeddings, LABELS), images().float(), 4)
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
    value = backward_in_chunks(
        network, embed, lambda raw: loss(nn.functional.normalize(raw), LABELS), images().float(), 4
    )
    assert value >= 0
    assert all(parameter.grad.isfinite().all() for parameter in network.parameters())


def test_error_restores_batch_norm_momenta():
    network = small_network().train().float()

    def broken(_):
        raise RuntimeError("the loss")

    with pytest.raises(RuntimeError, match="the loss"):
        backward_in_chunks(network, network, broken, images().float(), 4)
    assert {norm.momentum for norm in batch_norms(network)} == {0.1}


@pytest.mark.exhaustive
@pytest.mark.usefixtures("without_curves")
def test_chunk_size_enables_gradient_caching(tmp_path, cats, monkeypatch):
    """Chunks give other losses than whole batches here, since batch norms are in training mode."""
    recipe = TINY.with_settings(["loss.name=semi_hard", "sampler.identities=6", "sampler.photos=4"])
    calls = []
    original = state.embed_in_chunks
    monkeypatch.setattr(state, "embed_in_chunks", lambda *arguments: calls.append(1) or original(*arguments))
    runs = {size: RunFolder(tmp_path / str(size)) for size in (0, 24, 8)}
    for size, run in runs.items():
        fit(recipe.with_settings([f"sampler.chunk_size={size}"]), cats, run.path)
        assert len(calls) == (3 if size == 8 else 0), "one step per epoch"
    assert runs[0].last.read_bytes() == runs[24].last.read_bytes() != runs[8].last.read_bytes()
    assert history(runs[0])[0]["loss"] != history(runs[8])[0]["loss"]
