import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from familiar.losses.center import CenterLoss
from support.classifier_reference import rows


def center_loss(classes=5, dim=4, rate=0.5, dtype=torch.float64):
    torch.manual_seed(0)
    objective = CenterLoss(dim, classes, rate)
    objective.centers.normal_()
    return objective.to(dtype)


@given(n=st.integers(1, 12), rate=st.floats(0, 1), seed=st.integers(0, 99))
def test_loss_and_centers_match_loop_reference(n, rate, seed):
    objective = center_loss(rate=rate)
    embeddings, labels = rows(n, seed=seed)
    centers = objective.centers.tolist()
    expected = 0.0
    moved = [list(center) for center in centers]
    for number, center in enumerate(centers):
        class_rows = [row for row, label in zip(embeddings.tolist(), labels.tolist(), strict=True) if label == number]
        for row in class_rows:
            expected += sum((x - c) ** 2 for x, c in zip(row, center, strict=True)) / 2 / n
        for axis, component in enumerate(center):
            moved[number][axis] -= rate * sum(component - row[axis] for row in class_rows) / (1 + len(class_rows))
    assert objective(embeddings, labels).item() == pytest.approx(expected, abs=1e-12)
    torch.testing.assert_close(objective.centers, torch.tensor(moved, dtype=torch.float64))


def test_one_step_equals_hand_computation():
    objective = CenterLoss(1, 2)
    loss = objective(torch.tensor([[1.0], [0.5], [-1.0]]), torch.tensor([0, 0, 1]))
    assert loss.item() == pytest.approx((1 + 0.25 + 1) / 2 / 3)
    assert objective.centers.tolist() == [[pytest.approx(0.5 * 1.5 / 3)], [pytest.approx(-0.5 / 2)]]


def test_evaluation_keeps_centers_and_passes_gradcheck():
    objective = center_loss().eval()
    embeddings, labels = rows()
    before = objective.centers.clone()
    assert torch.autograd.gradcheck(lambda rows_: objective(rows_, labels), embeddings.requires_grad_())
    assert torch.equal(objective.centers, before)


def test_gradient_uses_centers_before_their_update():
    objective = center_loss()
    embeddings, labels = rows()
    before = objective.centers.clone()
    objective(embeddings.requires_grad_(), labels).backward()
    torch.testing.assert_close(embeddings.grad, (embeddings.detach() - before[labels]) / len(labels))
    assert not torch.equal(objective.centers, before)
    assert not list(objective.parameters())


def test_handles_empty_batch_and_rejects_unknown_labels():
    objective = center_loss()
    nothing = torch.empty(0, 4, dtype=torch.float64, requires_grad=True)
    before = objective.centers.clone()
    loss = objective(nothing, torch.empty(0, dtype=torch.int64))
    loss.backward()
    assert loss.item() == 0.0
    assert torch.equal(objective.centers, before)
    assert objective(before, torch.arange(5)).item() == 0.0  # rows on their centers
    for label in (-1, 5):
        with pytest.raises(ValueError, match="is none of the"):
            objective(rows(1)[0], torch.tensor([label]))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_matches_float64(dtype):
    embeddings, labels = rows(64, 4, dtype)
    narrow, wide = center_loss(dtype=torch.float32), center_loss()
    wide.centers.copy_(narrow.centers)
    with torch.autocast("cpu", torch.bfloat16):
        loss = narrow(embeddings, labels)
    assert loss.dtype == torch.float32
    assert loss.item() == pytest.approx(wide(embeddings.double(), labels).item(), rel=1e-5)
    torch.testing.assert_close(narrow.centers.double(), wide.centers, rtol=1e-5, atol=1e-5)


def test_centers_converge_to_class_means():
    objective = center_loss(rate=1.0)
    embeddings, labels = rows(30)
    for _ in range(60):
        objective(embeddings, labels)
    means = torch.stack([embeddings[labels == number].mean(dim=0) for number in range(5)])
    torch.testing.assert_close(objective.centers, means)
