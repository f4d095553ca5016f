import math

import pytest
import torch
from torch.nn.functional import normalize

from familiar.losses import (
    ArcFace,
    BatchAll,
    BatchHard,
    CirclePairs,
    Contrastive,
    HardNegative,
    HarmonicLoss,
    SemiHard,
    unit_prefix,
)

PREFIXES, WEIGHTS = (2, 4, 8), (0.2, 0.3, 0.5)


def batch(n=18, k=3, d=8, seed=0, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    rows = normalize(torch.randn(n, d, generator=generator, dtype=torch.float64))
    return rows.to(dtype), torch.arange(n) // k


def slow(loss, embeddings, labels, prefixes=PREFIXES, weights=WEIGHTS):
    """Shorten, normalize, sum."""
    parts = []
    for length, weight in zip(prefixes, weights, strict=True):
        cut = embeddings[:, :length]
        parts.append(weight * loss(cut / cut.square().sum(1, keepdim=True).sqrt(), labels))
    return sum(parts)


def value_and_gradient(loss, embeddings, *others):
    leaf = embeddings.clone().requires_grad_()
    value = loss(leaf, *others)
    (gradient,) = torch.autograd.grad(value, leaf)
    return value.detach(), gradient


def test_loss_equals_hand_computation():
    """A prefix of one component is only the sign of a vector."""
    embeddings = torch.tensor([[0.6, 0.8], [-0.6, 0.8], [0.6, -0.8]], dtype=torch.float64)
    labels = torch.tensor([0, 0, 1])
    # 2-d: d(a,p) = 1.44, d(a,n) = 2.56 and 4. 1-d: 4, and 0 and 4.
    whole = (max(0, 1.44 - 2.56 + 1.2) + max(0, 1.44 - 4 + 1.2)) / 1  # only the first costs something
    short = ((4 - 0 + 1.2) + (4 - 4 + 1.2)) / 2
    loss = HarmonicLoss(BatchAll(margin=1.2), (1, 2), (0.25, 0.75))
    assert loss(embeddings, labels).item() == pytest.approx(0.25 * short + 0.75 * whole, abs=1e-12)


@pytest.mark.parametrize("loss", [BatchAll(), SemiHard(), BatchHard(), HardNegative(reduction="all"), CirclePairs()])
@pytest.mark.parametrize("stretched", [False, True])
def test_equals_weighted_sum_over_unit_prefixes(loss, stretched):
    embeddings, labels = batch()
    if stretched:  # as in a network whose last layer does not scale
        embeddings = embeddings * torch.linspace(0.5, 3, len(embeddings), dtype=torch.float64)[:, None]
    actual = value_and_gradient(HarmonicLoss(loss, PREFIXES, WEIGHTS), embeddings, labels)
    expected = value_and_gradient(lambda rows, labels: slow(loss, rows, labels), embeddings, labels)
    torch.testing.assert_close(actual, expected)


@pytest.mark.slow
@pytest.mark.parametrize("loss", [BatchAll(margin=0.5), HardNegative(margin=0.5)])
def test_passes_gradcheck(loss):
    embeddings, labels = batch(n=8, k=2)
    harmonic = HarmonicLoss(loss, PREFIXES, WEIGHTS)
    assert torch.autograd.gradcheck(lambda rows: harmonic(rows, labels), embeddings.requires_grad_())


def test_full_mining_shares_triplets_across_prefixes():
    embeddings, labels = batch()
    triplets = SemiHard(0.5).mine_triplets(embeddings, labels)
    assert len(triplets)

    def reference(rows, _labels):
        values = []
        for length, weight in zip(PREFIXES, WEIGHTS, strict=True):
            cut = normalize(rows[:, :length])
            costs = []
            for a, p, n in triplets:
                gap = (cut[a] - cut[p]).square().sum() - (cut[a] - cut[n]).square().sum() + 0.5
                costs.append(gap.clamp_min(0))
            costs = torch.stack(costs)
            values.append(weight * costs.sum() / (costs > 0).sum())
        return sum(values)

    full = HarmonicLoss(SemiHard(0.5), PREFIXES, WEIGHTS, mined_on="full")
    torch.testing.assert_close(
        value_and_gradient(full, embeddings, labels), value_and_gradient(reference, embeddings, labels)
    )
    own_mining = HarmonicLoss(SemiHard(0.5), PREFIXES, WEIGHTS)
    assert own_mining(embeddings, labels) != full(embeddings, labels)


def test_classifier_centers_are_cut_to_each_prefix():
    embeddings, labels = batch()
    classifier = ArcFace(8, 6).double()
    torch.nn.init.normal_(classifier.centers)

    def separate(rows, labels):
        cut = ArcFace(rows.shape[1], 6).double()
        cut.centers.data = classifier.centers.detach()[:, : rows.shape[1]].clone()
        return cut(rows, labels)

    harmonic = HarmonicLoss(classifier, PREFIXES, WEIGHTS)
    assert list(dict(harmonic.named_parameters())) == ["loss.centers"]
    torch.testing.assert_close(
        value_and_gradient(harmonic, embeddings, labels),
        value_and_gradient(lambda rows, labels: slow(separate, rows, labels), embeddings, labels),
    )
    harmonic(embeddings, labels).backward()
    assert classifier.centers.grad.abs().sum(0).min() > 0


@pytest.mark.parametrize("mined_on", ["own", "full"])
@pytest.mark.parametrize("rows", [0, 1, 3])
def test_without_triplets_is_differentiable_zero(mined_on, rows):
    embeddings, _ = batch()
    harmonic = HarmonicLoss(SemiHard(), PREFIXES, WEIGHTS, mined_on)
    value, gradient = value_and_gradient(harmonic, embeddings[:rows], torch.zeros(rows, dtype=torch.int64))
    assert value == 0
    assert not gradient.any()


def test_zero_prefix_keeps_loss_and_gradient_finite():
    """A zero vector has no direction."""
    embeddings, labels = batch()
    embeddings[0, :2] = 0
    value, gradient = value_and_gradient(HarmonicLoss(BatchAll(), PREFIXES, WEIGHTS), embeddings, labels)
    assert value.isfinite()
    assert gradient.isfinite().all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_computes_in_float32(dtype):
    embeddings, labels = batch(dtype=dtype)
    harmonic = HarmonicLoss(BatchAll(), PREFIXES, WEIGHTS)
    value, gradient = value_and_gradient(harmonic, embeddings, labels)
    wide, _ = value_and_gradient(harmonic, embeddings.double(), labels)
    assert value.dtype == torch.float32
    assert gradient.dtype == dtype
    assert value.item() == pytest.approx(wide.item(), rel=1e-5)


def test_unit_prefix_cuts_and_normalizes():
    cut = unit_prefix(torch.tensor([[3.0, 4.0, 12.0]]), 2)
    assert cut.tolist() == [[pytest.approx(0.6), pytest.approx(0.8)]]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (((8, 4), (0.5, 0.5)), "strictly increasing"),
        (((4, 4), (0.5, 0.5)), "strictly increasing"),
        (((0, 4), (0.5, 0.5)), "strictly increasing"),
        (((), ()), "strictly increasing"),
        (((4, 8), (1.0,)), "need a weight each"),
        (((4, 8), (1.0, -1.0)), "need a weight each"),
        (((4, 8), (1.0, math.inf)), "need a weight each"),
    ],
)
def test_rejects_invalid_prefixes_or_weights(arguments, message):
    with pytest.raises(ValueError, match=message):
        HarmonicLoss(BatchAll(), *arguments)


def test_full_mining_rejects_loss_that_lists_no_triplets():
    with pytest.raises(ValueError, match="mined_on=full needs a loss that mines triplets"):
        HarmonicLoss(Contrastive(), PREFIXES, WEIGHTS, mined_on="full")


def test_rejects_embeddings_shorter_than_longest_prefix():
    embeddings, labels = batch(d=6)
    with pytest.raises(ValueError, match="embeddings of 6 components have no prefix of 8"):
        HarmonicLoss(BatchAll(), PREFIXES, WEIGHTS)(embeddings, labels)
    assert math.isfinite(HarmonicLoss(BatchAll(), (2, 4), (1, 1))(embeddings, labels))
