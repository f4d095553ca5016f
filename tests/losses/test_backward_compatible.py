import itertools

import pytest
import torch
from torch.nn.functional import normalize

from familiar.losses import (
    ArcFace,
    BatchAll,
    BatchHard,
    CompatibleLoss,
    HardNegative,
    HarmonicLoss,
    SemiHard,
    unit_prefix,
)


def nothing(embeddings, _labels):
    return 0.0 * embeddings.sum()


def batch(n=12, k=3, new=8, old=8, seed=0):
    generator = torch.Generator().manual_seed(seed)
    rows = [normalize(torch.randn(n, d, generator=generator, dtype=torch.float64)) for d in (new, old)]
    return rows[0], torch.arange(n) // k, rows[1]


def slow(embeddings, labels, old, old_labels, margin=0.2):
    """Compute the loss with new anchors, and positives and negatives that are new or old."""
    rows = [*embeddings, *old]
    names = [*labels.tolist(), *old_labels.tolist()]
    costs = []
    for a, p, n in itertools.product(range(len(embeddings)), range(len(rows)), range(len(rows))):
        if p != a and names[p] == names[a] != names[n]:
            gap = (rows[a] - rows[p]).square().sum() - (rows[a] - rows[n]).square().sum() + margin
            if gap > 0:
                costs.append(gap)
    return torch.stack(costs).mean()


def gradient_of(loss, embeddings, *others):
    leaf = embeddings.clone().requires_grad_()
    value = loss(leaf, *others)
    value.backward()
    return value.detach(), leaf.grad


def test_loss_equals_hand_computation():
    """A new vector is 90 degrees from its old one, with a negative's old vector between them at 45 degrees."""
    new = torch.tensor([[1.0, 0.0], [0.0, -1.0]], dtype=torch.float64)
    old = torch.tensor([[0.0, 1.0], [0.5**0.5, 0.5**0.5]], dtype=torch.float64)
    loss = CompatibleLoss(nothing, weight=2.0)
    # Anchor 0: positive at 2; negatives: new at 2, old at 2 - sqrt 2. Anchor 1: positive at 2 + sqrt 2; at 2 and 4.
    root = 2**0.5
    costs = [2 - 2 + 0.2, 2 - (2 - root) + 0.2, 2 + root - 2 + 0.2]
    actual = loss(new, torch.tensor([0, 1]), old)
    assert actual.item() == pytest.approx(2.0 * sum(costs) / 3, abs=1e-12)


@pytest.mark.parametrize("old_rows", [12, 5])
def test_matches_slow_reference(old_rows):
    embeddings, labels, old = batch()
    old, old_labels = old[:old_rows], labels[:old_rows]
    actual = gradient_of(CompatibleLoss(nothing), embeddings, labels, old, old_labels)
    expected = gradient_of(slow, embeddings, labels, old, old_labels)
    # The norm of a unit row does not matter: rows are normalized.
    flat = expected[1] - (expected[1] * embeddings).sum(1, keepdim=True) * embeddings
    torch.testing.assert_close(actual, (expected[0], flat))


def test_adds_loss_on_new_embeddings():
    embeddings, labels, old = batch()
    classifier = ArcFace(8, 4).double()
    across = CompatibleLoss(nothing, weight=0.5)(embeddings, labels, old)
    both = CompatibleLoss(classifier, weight=0.5)
    assert both(embeddings, labels, old).item() == pytest.approx(
        (classifier(embeddings, labels) + across).item(), abs=1e-12
    )
    assert list(dict(both.named_parameters())) == ["loss.centers"]


def test_compares_prefix_with_shorter_old_embeddings():
    embeddings, labels, old = batch(new=8, old=3)
    actual = CompatibleLoss(nothing)(embeddings, labels, old)
    assert actual.item() == pytest.approx(slow(unit_prefix(embeddings, 3), labels, old, labels).item())


def test_rejects_old_embeddings_longer_than_new():
    embeddings, labels, old = batch(new=4, old=8)
    with pytest.raises(ValueError, match="old vectors of 8 components cannot be compared with new ones of 4"):
        CompatibleLoss(nothing)(embeddings, labels, old)


def test_old_embeddings_receive_no_gradient():
    embeddings, labels, old = batch()
    old.requires_grad_()
    CompatibleLoss(nothing)(embeddings.requires_grad_(), labels, old).backward()
    assert old.grad is None


@pytest.mark.parametrize("across", [BatchAll(), SemiHard(), BatchHard(), HardNegative()])
def test_any_loss_with_anchors_equals_loss_on_joined_batch(across):
    embeddings, labels, old = batch()
    value, gradient = gradient_of(CompatibleLoss(nothing, across), embeddings, labels, old)
    joined = across(torch.cat([embeddings, old]), torch.cat([labels, labels]), anchors=len(labels))
    assert value.item() == pytest.approx(joined.item())
    assert gradient.isfinite().all()


@pytest.mark.slow
def test_passes_gradcheck():
    embeddings, labels, old = batch(n=6, k=2)
    loss = CompatibleLoss(HarmonicLoss(BatchAll(), (4, 8), (0.5, 0.5)))
    assert torch.autograd.gradcheck(lambda rows: loss(rows, labels, old), embeddings.requires_grad_())


def test_empty_batch_has_zero_loss():
    embeddings, labels, old = (tensor[:0] for tensor in batch())
    value, gradient = gradient_of(CompatibleLoss(nothing), embeddings, labels, old)
    assert value == 0
    assert gradient.shape == (0, 8)


@pytest.mark.slow
def test_training_aligns_new_space_with_old_space():
    """Two linear networks on the same photos, whose spaces are unrelated without the second loss."""
    torch.manual_seed(0)
    centers = torch.randn(10, 16)
    labels = torch.arange(10).repeat_interleave(6)
    photos = centers[labels] + 0.3 * torch.randn(60, 16)
    old = normalize(photos @ torch.randn(16, 6))
    new = torch.nn.Linear(16, 8, bias=False)
    optimizer = torch.optim.Adam(new.parameters(), lr=3e-2)

    def found_by_new_queries():
        similarities = unit_prefix(normalize(new(photos)), 6) @ old.T
        return (labels[similarities.argmax(1)] == labels).float().mean().item()

    before = found_by_new_queries()
    loss = CompatibleLoss(BatchAll(), weight=1.0)
    for _ in range(60):
        optimizer.zero_grad()
        loss(normalize(new(photos)), labels, old).backward()
        optimizer.step()
    assert before < 0.4 < 0.95 < found_by_new_queries()
