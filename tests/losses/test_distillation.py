import math

import pytest
import torch
from torch.nn.functional import normalize

from familiar.losses import distillation_loss, relation_loss


def rows(n: int, d: int, seed: int) -> torch.Tensor:
    return torch.randn(n, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_loss_equals_hand_computation():
    """The same direction costs nothing, a quarter turn 1, the opposite 2; length does not matter."""
    student = torch.tensor([[3.0, 0.0], [0.0, 0.5], [-1.0, 0.0], [1.0, 1.0]])
    teacher = torch.tensor([[1.0, 0.0]] * 4)
    assert distillation_loss(student, teacher).item() == pytest.approx((0 + 1 + 2 + 1 - 0.5**0.5) / 4)


def test_matches_slow_reference():
    student, teacher = rows(7, 5, 0), normalize(rows(7, 3, 1))
    total = 0.0
    for row, other in zip(student.tolist(), teacher.tolist(), strict=True):
        short = row[:3]
        total += 1 - sum(a * b for a, b in zip(short, other, strict=True)) / math.hypot(*short)
    assert distillation_loss(student, teacher).item() == pytest.approx(total / 7, abs=1e-12)


def test_passes_gradcheck():
    teacher = normalize(rows(4, 3, 1))
    assert torch.autograd.gradcheck(lambda x: distillation_loss(x, teacher), rows(4, 5, 2).requires_grad_())


def test_teacher_receives_no_gradient():
    student, teacher = rows(4, 3, 0).requires_grad_(), rows(4, 3, 1).requires_grad_()
    distillation_loss(student, teacher).backward()
    assert teacher.grad is None
    assert student.grad.abs().sum() > 0


@pytest.mark.parametrize("size", [1e-20, 1e20])
def test_extreme_lengths_keep_loss_exact_and_gradient_finite(size):
    student = torch.tensor([[size, 0.0], [0.0, -size]], requires_grad=True)
    loss = distillation_loss(student, torch.tensor([[1.0, 0.0], [0.0, 1.0]]))
    loss.backward()
    assert loss.item() == pytest.approx(1.0)
    assert torch.isfinite(student.grad).all()


def test_half_precision_matches_float64():
    student, teacher = rows(64, 128, 0), normalize(rows(64, 128, 1))
    half = distillation_loss(student.bfloat16(), teacher.float()).item()
    assert half == pytest.approx(distillation_loss(student, teacher).item(), abs=2e-3)


def test_rejects_teacher_with_more_components():
    with pytest.raises(ValueError, match="4 components cannot be learned by embeddings of 3"):
        distillation_loss(rows(2, 3, 0), rows(2, 4, 1))


def test_relations_equal_hand_computation():
    """Two rows at a right angle, which the teacher sees as one: each of the two ordered pairs is off by 1."""
    student = torch.tensor([[2.0, 0.0], [0.0, 0.1]])
    assert relation_loss(student, torch.tensor([[1.0, 0.0], [5.0, 0.0]])).item() == pytest.approx(1.0)
    assert relation_loss(student, torch.tensor([[0.0, 1.0], [-1.0, 0.0]])).item() == pytest.approx(0.0, abs=1e-12)


def test_relations_match_slow_reference():
    student, teacher = rows(6, 5, 0), rows(6, 3, 1)
    total = 0.0
    for i in range(6):
        for j in range(6):
            if i != j:
                a, b, c, d = student[i, :3], student[j, :3], teacher[i], teacher[j]
                total += float(a @ b / a.norm() / b.norm() - c @ d / c.norm() / d.norm()) ** 2
    assert relation_loss(student, teacher).item() == pytest.approx(total / 30, abs=1e-12)


def test_relations_pass_gradcheck():
    teacher = rows(4, 3, 1)
    assert torch.autograd.gradcheck(lambda x: relation_loss(x, teacher), rows(4, 5, 2).requires_grad_())


@pytest.mark.parametrize("size", [1e-11, 1e18])
def test_relations_of_extreme_lengths_are_finite(size):
    student = torch.tensor([[size, 0.0], [size, size]], requires_grad=True)
    loss = relation_loss(student, torch.tensor([[1.0, 0.0], [0.0, 1.0]]))
    loss.backward()
    assert loss.item() == pytest.approx(0.5)
    assert torch.isfinite(student.grad).all()


def test_one_row_has_no_relations():
    assert relation_loss(rows(1, 3, 0), rows(1, 3, 1)).item() == pytest.approx(0.0, abs=1e-12)
