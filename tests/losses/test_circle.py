import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.autograd.gradcheck import GradcheckError
from torch.nn.functional import normalize

from familiar.losses import (
    CirclePairs,
    CircleTriplets,
    blockwise,
    circle_from_similarities,
    circle_loss,
    mine_batch_hard,
    mine_semi_hard,
    triplet_loss,
)


def batch(n=15, k=3, d=6, seed=0, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    rows = normalize(torch.randn(n, d, generator=generator, dtype=torch.float64))
    return rows.to(dtype), torch.arange(n) // k


def value_and_gradient(loss, embeddings, labels):
    leaf = embeddings.clone().requires_grad_()
    value = loss(leaf, labels)
    (gradient,) = torch.autograd.grad(value, leaf)
    return value.detach(), gradient


def slow_pairs(embeddings, labels, margin, gamma, detach=True):
    """Compute the paper's formula, anchor by anchor and pair by pair."""
    costs = []
    for a in range(len(embeddings)):
        sums = {True: [], False: []}
        for other in range(len(embeddings)):
            if other == a:
                continue
            positive = bool(labels[a] == labels[other])
            s = embeddings[a] @ embeddings[other]
            alpha = (1 + margin - s if positive else s + margin).clamp_min(0)
            alpha = alpha.detach() if detach else alpha
            sums[positive].append(-gamma * alpha * (s - 1 + margin) if positive else gamma * alpha * (s - margin))
        if sums[True] and sums[False]:
            sizes = [torch.stack(sums[kind]).logsumexp(0) for kind in (True, False)]
            z = sizes[0] + sizes[1]
            costs.append(torch.logaddexp(z, torch.zeros_like(z)))
    return torch.stack(costs).mean() if costs else 0.0 * embeddings.sum()


# On triplets


def test_triplet_loss_equals_hand_computation():
    """s_p = .9, s_n = .75 on the scaled cosine; margin .25, gamma 2."""
    anchor = torch.tensor([[1.0, 0.0]], dtype=torch.float64)

    def at_similarity(scaled):
        cosine = 2 * scaled - 1
        return torch.tensor([[cosine, math.sqrt(1 - cosine**2)]], dtype=torch.float64)

    z = 2 * ((0.75 + 0.25) * (0.75 - 0.25) - (1.25 - 0.9) * (0.9 - 0.75))
    actual = circle_loss(anchor, at_similarity(0.9), at_similarity(0.75), margin=0.25, gamma=2.0)
    assert actual.item() == pytest.approx(math.log1p(math.exp(z)) / 2, abs=1e-12)


@given(s_p=st.floats(0, 1), s_n=st.floats(0, 1), margin=st.floats(0, 1), gamma=st.floats(0.5, 200))
def test_gradient_equals_published_formula(s_p, s_n, margin, gamma):
    """dL/ds_n = sigmoid(gamma z) [s_n + m]_+ and dL/ds_p = -sigmoid(gamma z) [1 + m - s_p]_+: weights are constants."""
    p, n = (torch.tensor(s, dtype=torch.float64, requires_grad=True) for s in (s_p, s_n))
    alpha_p, alpha_n = max(0, 1 + margin - s_p), max(0, s_n + margin)
    z = alpha_n * (s_n - margin) - alpha_p * (s_p - (1 - margin))
    circle_from_similarities(p, n, alpha_p, alpha_n, 1 - margin, margin, gamma).backward()
    weight = 1 / (1 + math.exp(min(700, -gamma * z)))
    assert n.grad.item() == pytest.approx(weight * alpha_n, rel=1e-9, abs=1e-12)
    assert p.grad.item() == pytest.approx(-weight * alpha_p, rel=1e-9, abs=1e-12)


def test_row_gradient_equals_closed_form():
    rows, _ = batch(n=12)
    parts = [part.clone().requires_grad_() for part in rows.chunk(3)]
    circle_loss(*parts, margin=0.3, gamma=8.0).backward()
    a, p, n = (part.detach() for part in parts)
    s_p, s_n = ((a * p).sum(1) + 1) / 2, ((a * n).sum(1) + 1) / 2
    alpha_p, alpha_n = (1.3 - s_p).clamp_min(0), (s_n + 0.3).clamp_min(0)
    weight = torch.sigmoid(8 * (alpha_n * (s_n - 0.3) - alpha_p * (s_p - 0.7)))
    torch.testing.assert_close(parts[1].grad, -(weight * alpha_p / 2)[:, None] * a / len(a))
    torch.testing.assert_close(parts[2].grad, (weight * alpha_n / 2)[:, None] * a / len(a))


def test_triplets_pass_gradcheck_only_without_detached_weights():
    rows, _ = batch(n=9)
    parts = tuple(part.clone().requires_grad_() for part in rows.chunk(3))
    assert torch.autograd.gradcheck(lambda *_: circle_loss(*_, gamma=4.0, detach_weights=False), parts)
    with pytest.raises(GradcheckError):
        torch.autograd.gradcheck(lambda *_: circle_loss(*_, gamma=4.0), parts)


@given(seed=st.integers(0, 999), margin=st.floats(0, 2), gamma=st.floats(1, 1e6))
def test_unit_weights_approach_triplet_loss_as_gamma_grows(seed, margin, gamma):
    """Seed 002's question 2a: s = -d, weights of 1, delta_p - delta_n = margin."""
    rows, _ = batch(n=12, seed=seed)
    a, p, n = rows.chunk(3)
    s_p, s_n = -(a - p).square().sum(1), -(a - n).square().sum(1)
    circle = circle_from_similarities(s_p, s_n, 1.0, 1.0, margin, 0.0, gamma).item()
    assert -1e-12 <= circle - triplet_loss(a, p, n, margin).item() <= math.log(2) / gamma + 1e-12


def test_loss_without_triplets_is_zero():
    none = torch.empty(0, 4, requires_grad=True)
    value = circle_loss(none, none, none)
    value.backward()
    assert value.item() == 0
    assert circle_from_similarities(none[:, 0], none[:, 0], 1.0, 1.0, 0.75, 0.25, 64.0).item() == 0


@pytest.mark.parametrize("gamma", [1e-3, 1e6])
def test_extreme_gamma_keeps_loss_and_gradient_finite(gamma):
    anchors = torch.tensor([[1.0, 0.0]] * 4, requires_grad=True)
    others = torch.tensor([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [1.0, 0.0]], requires_grad=True)
    value = circle_loss(anchors, others, others.flip(0), 0.25, gamma)
    value.backward()
    assert value.isfinite()
    assert anchors.grad.isfinite().all()


@pytest.mark.parametrize("mining", ["batch_all", "semi_hard", "batch_hard", "hard_negative"])
def test_mined_loss_equals_loss_for_its_triplets(mining):
    embeddings, labels = batch()
    loss = CircleTriplets(0.3, 32.0, mining, mining_margin=0.4)
    mined = loss.mine_triplets(embeddings, labels)
    assert len(mined) > 0
    for loss.detach_weights in (True, False):
        torch.testing.assert_close(
            value_and_gradient(loss, embeddings, labels),
            value_and_gradient(lambda rows, _: loss.triplet_loss_from(*mined.select_rows(rows)), embeddings, labels),
        )
    loss.detach_weights = True
    assert loss(embeddings, labels).item() == pytest.approx(
        circle_loss(*mined.select_rows(embeddings), 0.3, 32.0).item(), rel=1e-12
    )
    first_triples = [triple for triple in mined if triple[0] < 6]
    assert list(mined.first_anchors(6)) == first_triples
    few = loss(embeddings, labels, anchors=6)
    assert few.item() == pytest.approx(circle_loss(*mined.first_anchors(6).select_rows(embeddings), 0.3, 32.0).item())


@pytest.mark.parametrize("mining", ["batch_all", "batch_hard"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_mined_loss_computes_half_precision_in_float32(mining, dtype):
    embeddings, labels = batch(n=60, k=4, d=32, dtype=dtype)
    loss = CircleTriplets(mining=mining)
    value, gradient = value_and_gradient(loss, embeddings, labels)
    assert (value.dtype, gradient.dtype) == (torch.float32, dtype)
    assert value.item() == pytest.approx(loss(embeddings.double(), labels).item(), rel=1e-5)
    with torch.autocast("cpu", torch.bfloat16):
        assert loss(embeddings, labels).item() == value.item()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_similarities_compute_in_float32(dtype):
    s_p, s_n = torch.rand(2, 500, generator=torch.Generator().manual_seed(0)).to(dtype)
    value = circle_from_similarities(s_p, s_n, 1.0, 1.0, 0.75, 0.25, 64.0)
    wide = circle_from_similarities(s_p.double(), s_n.double(), 1.0, 1.0, 0.75, 0.25, 64.0)
    assert value.dtype == torch.float32
    assert value.item() == pytest.approx(wide.item(), rel=1e-6)


@pytest.mark.parametrize("kind", [CirclePairs, CircleTriplets])
@pytest.mark.parametrize("wrong", [{"margin": -0.1}, {"margin": math.nan}, {"gamma": 0.0}, {"gamma": -1.0}])
def test_rejects_settings_out_of_range(kind, wrong):
    with pytest.raises(ValueError, match=rf"^{next(iter(wrong))} must be in \["):
        kind(**wrong)


def test_mine_matches_the_mining_functions():
    embeddings, labels = batch()
    assert list(CircleTriplets(mining="batch_hard").mine_triplets(embeddings, labels)) == list(
        mine_batch_hard(embeddings, labels)
    )
    assert list(CircleTriplets(mining="semi_hard", mining_margin=0.5).mine_triplets(embeddings, labels)) == list(
        mine_semi_hard(embeddings, labels, 0.5)
    )


# On a whole batch


def test_batch_loss_equals_hand_computation():
    """Two positives at 60 degrees; a negative at 90 degrees from the first and 30 degrees from the second."""
    angles = torch.tensor([0.0, math.pi / 3, math.pi / 2], dtype=torch.float64)
    embeddings = torch.stack([angles.cos(), angles.sin()], dim=1)

    def cost(s_p, s_n, m=0.25, gamma=2.0):
        z = gamma * max(0, s_n + m) * (s_n - m) - gamma * max(0, 1 + m - s_p) * (s_p - 1 + m)
        return math.log1p(math.exp(z))

    expected = (cost(0.5, 0.0) + cost(0.5, math.sqrt(3) / 2)) / 2  # the third row has no positive, so it is no anchor
    actual = CirclePairs(0.25, 2.0)(embeddings, torch.tensor([0, 0, 1]))
    assert actual.item() == pytest.approx(expected, abs=1e-12)


@given(
    n=st.integers(0, 9),
    names=st.integers(1, 4),
    margin=st.floats(0, 1),
    gamma=st.floats(0.1, 300),
    detach=st.booleans(),
    seed=st.integers(0, 9999),
    block=st.sampled_from([1, 12, 10_000]),
)
def test_matches_slow_reference(n, names, margin, gamma, detach, seed, block):
    embeddings, _ = batch(n=n, seed=seed)
    labels = torch.randint(names, (n,), generator=torch.Generator().manual_seed(seed))
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(blockwise.VALUES_PER_BLOCK, "cpu", block)
        actual = value_and_gradient(CirclePairs(margin, gamma, detach), embeddings, labels)
    expected = value_and_gradient(
        lambda rows, labels: slow_pairs(rows, labels, margin, gamma, detach), embeddings, labels
    )
    torch.testing.assert_close(actual, expected, rtol=1e-8, atol=1e-9)


def test_batch_passes_gradcheck_only_without_detached_weights():
    embeddings, labels = batch(n=8, k=2)
    embeddings.requires_grad_()
    assert torch.autograd.gradcheck(lambda rows: CirclePairs(gamma=4.0, detach_weights=False)(rows, labels), embeddings)
    with pytest.raises(GradcheckError):
        torch.autograd.gradcheck(lambda rows: CirclePairs(gamma=4.0)(rows, labels), embeddings)


@pytest.mark.parametrize(
    ("rows", "labels"),
    [
        (torch.ones(4, 1), [0, 0, 0, 0]),  # one identity
        (torch.ones(4, 1), [0, 1, 2, 3]),  # all distinct
        (torch.ones(1, 1), [0]),
        (torch.ones(0, 1), []),
    ],
)
def test_without_positives_or_negatives_is_differentiable_zero(rows, labels):
    value, gradient = value_and_gradient(CirclePairs(), rows, torch.tensor(labels, dtype=torch.int64))
    assert value == 0
    assert not gradient.any()


@pytest.mark.parametrize("gamma", [0.1, 256.0, 1e5])
@pytest.mark.parametrize("opposite", [False, True])
def test_loss_is_finite_for_identical_and_opposite_vectors(gamma, opposite):
    embeddings = torch.tensor([[1.0, 0.0]] * 4) * (torch.tensor([[1.0], [-1.0], [1.0], [-1.0]]) if opposite else 1)
    value, gradient = value_and_gradient(
        lambda rows, labels: CirclePairs(0.25, gamma)(rows, labels),
        embeddings,
        torch.tensor([0, 0, 1, 1]),
    )
    assert value.isfinite()
    assert gradient.isfinite().all()


def test_is_invariant_to_row_order_and_label_values():
    embeddings, labels = batch(n=24)
    order = torch.randperm(24, generator=torch.Generator().manual_seed(3))
    value, gradient = value_and_gradient(CirclePairs(), embeddings, labels)
    again, permuted = value_and_gradient(CirclePairs(), embeddings[order], 7 - 3 * labels[order])
    assert again.item() == pytest.approx(value.item(), rel=1e-12)
    torch.testing.assert_close(permuted, gradient[order])


def test_anchors_argument_limits_anchors_to_first_rows():
    embeddings, labels = batch(n=9)
    partial_loss = CirclePairs(gamma=8.0)(embeddings, labels, anchors=4)
    each = []
    for a in range(4):
        front = [a, *(row for row in range(9) if row != a)]
        each.append(CirclePairs(gamma=8.0)(embeddings[front], labels[front], anchors=1))
    assert partial_loss.item() == pytest.approx(torch.stack(each).mean().item(), rel=1e-12)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_low_precision_and_autocast_match_float64(dtype):
    embeddings, labels = batch(n=60, k=4, d=32, dtype=dtype)
    value, gradient = value_and_gradient(CirclePairs(), embeddings, labels)
    wide, expected = value_and_gradient(CirclePairs(), embeddings.double(), labels)
    assert (value.dtype, gradient.dtype) == (torch.float32, dtype)
    assert value.item() == pytest.approx(wide.item(), rel=1e-5)
    digits = {torch.float16: 1e-3, torch.bfloat16: 1e-2, torch.float32: 1e-4}[dtype]
    assert (gradient.double() - expected).abs().max() <= digits * expected.abs().max()
    with torch.autocast("cpu", torch.bfloat16):
        assert CirclePairs()(embeddings, labels).item() == value.item()


@pytest.mark.parametrize(("margin", "gamma"), [(0.25, 256.0), (0.4, 80.0)])
def test_matches_pytorch_metric_learning(margin, gamma):
    peers = pytest.importorskip("pytorch_metric_learning.losses")
    embeddings, labels = batch(n=40, k=4, d=16)
    value, gradient = value_and_gradient(
        lambda rows, labels: CirclePairs(margin, gamma)(rows, labels), embeddings, labels
    )
    peer_result, expected = value_and_gradient(peers.CircleLoss(m=margin, gamma=gamma), embeddings, labels)
    assert value.item() == pytest.approx(peer_result.item(), rel=1e-9)
    flat = gradient - (gradient * embeddings).sum(1, keepdim=True) * embeddings  # they normalize the rows
    torch.testing.assert_close(flat, expected)


def test_triplet_form_rejects_impossible_number_of_anchors():
    with pytest.raises(ValueError, match="anchors is -1"):
        CircleTriplets()(*batch(), anchors=-1)
