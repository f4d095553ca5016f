import itertools
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.functional import normalize

from familiar.losses import Contrastive, blockwise


def batch(n=15, k=3, d=6, seed=0, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    rows = normalize(torch.randn(n, d, generator=generator, dtype=torch.float64))
    return rows.to(dtype), torch.arange(n) // k


def value_and_gradient(loss, embeddings, labels, **settings_):
    leaf = embeddings.clone().requires_grad_()
    value = loss(leaf, labels, **settings_)
    (gradient,) = torch.autograd.grad(value, leaf)
    return value.detach(), gradient


def slow(embeddings, labels, margin=1.0, reduction="active", anchors=None):
    costs = {True: [], False: []}
    for a, b in itertools.product(range(len(embeddings) if anchors is None else anchors), range(len(embeddings))):
        if a != b:
            distance = (embeddings[a] - embeddings[b]).square().sum()
            positive = bool(labels[a] == labels[b])
            cost = distance if positive else (margin - distance).clamp_min(0)
            if cost > 0 or positive or reduction == "all":
                costs[positive].append(cost)
    return sum((torch.stack(kind).mean() for kind in costs.values() if kind), start=0.0 * embeddings.sum())


def test_loss_equals_hand_computation():
    """Positives at 90 degrees: 2. Negatives at 60 and 30 degrees: 1 and 2 - sqrt 3."""
    angles = torch.tensor([0.0, math.pi / 2, math.pi / 3], dtype=torch.float64)
    embeddings = torch.stack([angles.cos(), angles.sin()], dim=1)
    labels = torch.tensor([0, 0, 1])
    near = 1.5 - 1, 1.5 - (2 - math.sqrt(3))
    assert Contrastive(1.5)(embeddings, labels).item() == pytest.approx(2 + sum(near) / 2, abs=1e-12)
    nearest = 0.5 - (2 - math.sqrt(3))
    assert Contrastive(0.5)(embeddings, labels).item() == pytest.approx(2 + nearest, abs=1e-12)
    every = Contrastive(0.5, reduction="all")(embeddings, labels)
    assert every.item() == pytest.approx(2 + nearest / 2, abs=1e-12)


@pytest.mark.slow
@given(
    n=st.integers(0, 9),
    names=st.integers(1, 4),
    margin=st.floats(0, 4),
    reduction=st.sampled_from(["active", "all"]),
    seed=st.integers(0, 9999),
    block=st.sampled_from([1, 12, 10_000]),
)
def test_matches_slow_reference(n, names, margin, reduction, seed, block):
    embeddings, _ = batch(n=n, seed=seed)
    labels = torch.randint(names, (n,), generator=torch.Generator().manual_seed(seed))
    loss = Contrastive(margin, reduction)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(blockwise.VALUES_PER_BLOCK, "cpu", block)
        actual = value_and_gradient(loss, embeddings, labels)
    expected = value_and_gradient(slow, embeddings, labels, margin=margin, reduction=reduction)
    torch.testing.assert_close(actual, expected, rtol=1e-9, atol=1e-10)
    again = Contrastive(margin, reduction=reduction)(embeddings, labels)
    assert again.item() == pytest.approx(actual[0].item(), rel=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("reduction", ["active", "all"])
def test_passes_gradcheck(reduction):
    embeddings, labels = batch(n=8, k=2)
    assert torch.autograd.gradcheck(
        lambda rows: Contrastive(1.5, reduction=reduction)(rows, labels), embeddings.requires_grad_()
    )


def test_only_positives_or_only_negatives_match_reference():
    embeddings, labels = batch(n=6)
    positives = Contrastive()(embeddings, labels * 0)
    assert positives.item() == pytest.approx(slow(embeddings, labels * 0).item())
    negatives = Contrastive(2.0)(embeddings, torch.arange(6))
    assert negatives.item() == pytest.approx(slow(embeddings, torch.arange(6), 2.0).item())


@pytest.mark.parametrize("rows", [0, 1])
def test_without_pairs_is_differentiable_zero(rows):
    embeddings, labels = batch()
    value, gradient = value_and_gradient(Contrastive(), embeddings[:rows], labels[:rows])
    assert value == 0
    assert not gradient.any()


def test_identical_and_opposite_vectors_equal_closed_form():
    embeddings = torch.tensor([[1.0, 0.0], [1.0, 0.0], [-1.0, 0.0], [1.0, 0.0]])
    value, gradient = value_and_gradient(Contrastive(), embeddings, torch.tensor([0, 0, 1, 1]))
    # Positives: 0, 0, 4, 4. Negatives at 4 cost nothing, those at 0 the whole margin.
    assert value.item() == pytest.approx(2 + 1)
    assert gradient.isfinite().all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_duplicate_photos_count_as_positives_despite_rounding(dtype):
    """Each photo twice, as when a sampler has too few photos of an identity."""
    once, _ = batch(n=20, d=128)
    embeddings, labels = once.repeat_interleave(2, 0).to(dtype), torch.arange(40) // 4
    expected = slow(embeddings.double(), labels, reduction="active")
    assert Contrastive()(embeddings, labels).item() == pytest.approx(expected.item(), rel=1e-6)


def test_anchors_argument_limits_anchors_to_first_rows():
    embeddings, labels = batch(n=9)
    for anchors in (0, 4, 9):
        torch.testing.assert_close(
            value_and_gradient(Contrastive(1.5), embeddings, labels, anchors=anchors),
            value_and_gradient(slow, embeddings, labels, margin=1.5, anchors=anchors),
        )


def test_is_invariant_to_row_order_and_label_values():
    embeddings, labels = batch(n=24)
    order = torch.randperm(24, generator=torch.Generator().manual_seed(3))
    value, gradient = value_and_gradient(Contrastive(), embeddings, labels)
    again, permuted = value_and_gradient(Contrastive(), embeddings[order], 7 - 3 * labels[order])
    assert again.item() == pytest.approx(value.item(), rel=1e-12)
    torch.testing.assert_close(permuted, gradient[order])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_low_precision_and_autocast_match_float64(dtype):
    embeddings, labels = batch(n=60, k=4, d=32, dtype=dtype)
    value, gradient = value_and_gradient(Contrastive(margin=2.0), embeddings, labels)
    wide, _ = value_and_gradient(Contrastive(margin=2.0), embeddings.double(), labels)
    assert (value.dtype, gradient.dtype) == (torch.float32, dtype)
    assert value.item() == pytest.approx(wide.item(), rel=1e-5)
    with torch.autocast("cpu", torch.bfloat16):
        assert Contrastive(margin=2.0)(embeddings, labels).item() == value.item()


@pytest.mark.parametrize("margin", [0.5, 1.0, 2.0])
@pytest.mark.parametrize("reduction", ["active", "all"])
def test_matches_pytorch_metric_learning(margin, reduction):
    peers = pytest.importorskip("pytorch_metric_learning.losses")
    distances = pytest.importorskip("pytorch_metric_learning.distances")
    reducers = pytest.importorskip("pytorch_metric_learning.reducers")
    embeddings, labels = batch(n=40, k=4, d=16)
    reducer = reducers.AvgNonZeroReducer() if reduction == "active" else reducers.MeanReducer()
    squared = distances.LpDistance(power=2)
    peer = peers.ContrastiveLoss(pos_margin=0, neg_margin=margin, distance=squared, reducer=reducer)
    value, gradient = value_and_gradient(Contrastive(margin=margin, reduction=reduction), embeddings, labels)
    peer_result, expected = value_and_gradient(peer, embeddings, labels)
    assert value.item() == pytest.approx(peer_result.item(), rel=1e-9)
    flat = gradient - (gradient * embeddings).sum(1, keepdim=True) * embeddings  # they normalize the rows
    torch.testing.assert_close(flat, expected)


@pytest.mark.parametrize("wrong", [{"margin": -1.0}, {"margin": math.nan}])
def test_rejects_settings_out_of_range(wrong):
    with pytest.raises(ValueError, match=r"^margin must be in \[0, 4\], not "):
        Contrastive(**wrong)
