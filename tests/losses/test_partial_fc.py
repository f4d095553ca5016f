import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.functional import cross_entropy, normalize

from familiar.losses.classifiers import ArcFace
from familiar.losses.margin import arcface_logits
from familiar.losses.partial_fc import PartialFC, sample_classes
from support.classifier_reference import rows


@pytest.mark.parametrize("evaluating", [False, True])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_with_all_classes_equals_arcface(evaluating, smoothing):
    torch.manual_seed(0)
    full = ArcFace(16, 50, label_smoothing=smoothing)
    part = PartialFC(16, 50, rate=0.2 if evaluating else 1.0, label_smoothing=smoothing).train(not evaluating)
    part.centers.data = full.centers.data.clone()
    embeddings, labels = rows(20, 16, torch.float32, classes=50)
    ours, arcface_rows = embeddings.clone().requires_grad_(), embeddings.clone().requires_grad_()
    our_loss, their_loss = part(ours, labels), full(arcface_rows, labels)
    our_loss.backward()
    their_loss.backward()
    assert torch.equal(our_loss, their_loss)
    assert torch.equal(ours.grad, arcface_rows.grad)
    assert part.centers.grad.is_sparse
    assert torch.equal(part.centers.grad.to_dense(), full.centers.grad)


def test_equals_arcface_on_sampled_classes():
    objective = PartialFC(8, 100, rate=0.1).double()
    embeddings, labels = rows(6, 8, classes=100)
    embeddings.requires_grad_()
    torch.manual_seed(5)
    sampled = sample_classes(labels, 100, 10)
    torch.manual_seed(5)
    loss = objective(embeddings, labels)
    centers = objective.centers.detach()[sampled].requires_grad_()
    new_labels = torch.tensor([sampled.tolist().index(label) for label in labels.tolist()])
    expected = cross_entropy(arcface_logits(embeddings @ normalize(centers).T, new_labels, 0.4, 32.0), new_labels)
    assert loss.item() == pytest.approx(expected.item(), abs=1e-9)
    loss.backward()
    gradient = objective.centers.grad.coalesce()
    assert torch.equal(gradient.indices()[0], sampled)
    torch.testing.assert_close(gradient.values(), torch.autograd.grad(expected, centers)[0])


@given(classes=st.integers(1, 60), n=st.integers(0, 40), share=st.floats(0.01, 1), seed=st.integers(0, 999))
def test_sample_classes_includes_batch_classes_and_is_sorted(classes, n, share, seed):
    torch.manual_seed(seed)
    labels = torch.randint(classes, (n,))
    count = math.ceil(share * classes)
    sampled = sample_classes(labels, classes, count)
    present = set(labels.tolist())
    assert len(sampled) == max(count, len(present))
    assert present <= set(sampled.tolist()) <= set(range(classes))
    assert (sampled.diff() > 0).all()


def test_class_draws_are_uniform_and_deterministic():
    labels = torch.tensor([3, 3, 7])
    torch.manual_seed(0)
    drawn = [sample_classes(labels, 20, 8) for _ in range(2000)]
    shares = torch.bincount(torch.cat(drawn), minlength=20) / 2000
    assert shares[3] == shares[7] == 1
    others = shares[[number for number in range(20) if number not in (3, 7)]]
    torch.testing.assert_close(others, torch.full((18,), 6 / 18), rtol=0, atol=0.06)
    torch.manual_seed(0)
    assert all(torch.equal(sample_classes(labels, 20, 8), before) for before in drawn[:5])


def test_step_updates_only_sampled_centers():
    objective = PartialFC(8, 200, rate=0.05)
    assert objective.sparse_parameters == ("centers",)
    assert dict(objective.named_parameters()).keys() == {"centers"}
    optimizer = torch.optim.SparseAdam(objective.parameters(), lr=0.01)
    embeddings, labels = rows(4, 8, torch.float32, classes=200)
    before = objective.centers.detach().clone()
    objective(embeddings, labels).backward()
    optimizer.step()
    moved = (objective.centers != before).any(dim=1)
    assert moved.sum() == 10
    assert moved[labels].all()


def test_prefixes_accumulate_in_one_sparse_gradient():
    objective = PartialFC(8, 40, rate=0.2).double()
    embeddings, labels = rows(4, 8, classes=40)
    loss = objective(embeddings, labels) + objective(normalize(embeddings[:, :3]), labels)
    loss.backward()
    assert objective.centers.grad.is_sparse
    assert objective.centers.grad.to_dense()[labels].any(dim=1).all()
    with pytest.raises(ValueError, match="is none of the"):
        objective(embeddings, labels - 40)
