"""The numeric examples of an essay on ArcFace (docs/reproductions/digits.md), computed with our classes."""

import math

import pytest
import torch
from torch import Tensor, nn

from familiar.losses import ArcFace, NormFace, Softmax
from familiar.losses.margin import arcface_cosine, arcface_logits

CLASSES = 5
SOFTMAX_EMBEDDING = [18.14, 2.41]  # of a 0
SOFTMAX_CENTERS = [[0.96, 0.37], [-0.67, -0.33], [0.31, 1.03], [0.45, -0.77], [-0.66, 0.59]]
PRINTED_LOGITS = [18.30, -13.03, 8.16, 6.22, -10.52]
# Its embedding and centers are rounded to .005: that much of a product's error is rounding.
ROUNDING = 0.005 * (18.14 + 2.41 + 0.96 + 0.37)
COSINE_EMBEDDING = [0.62, 0.78]  # of the same image, by the normalized network
COSINE_CENTERS = [[0.37, 0.46], [-0.35, 0.49], [-0.05, -1.19], [0.34, -0.12], [-0.45, -0.14]]
PRINTED_COSINES = [0.59, 0.16, -0.96, 0.11, -0.39]
TRUE_COSINES = [1.000, 0.275, -0.808, 0.326, -0.827]
MARGIN_RAD = 0.5


def with_centers(loss: nn.Module, centers: list[list[float]]) -> nn.Module:
    loss = loss.double()
    loss.load_state_dict({"centers": torch.tensor(centers, dtype=torch.float64)})
    return loss


def log_probabilities(loss: nn.Module, embedding: list[float], classes: int = CLASSES) -> Tensor:
    """Return the log-probability of each class: minus the loss of the embedding with that label."""
    row = torch.tensor([embedding], dtype=torch.float64)
    with torch.no_grad():
        return -torch.stack([loss(row, torch.tensor([label])) for label in range(classes)])


def cosines() -> Tensor:
    embedding, centers = (torch.tensor(rows, dtype=torch.float64) for rows in (COSINE_EMBEDDING, COSINE_CENTERS))
    return nn.functional.cosine_similarity(embedding, centers)


def test_softmax_logits_equal_printed_within_rounding():
    log_p = log_probabilities(with_centers(Softmax(2, CLASSES, bias=False), SOFTMAX_CENTERS), SOFTMAX_EMBEDDING)
    expected = [18.14 * x + 2.41 * y for x, y in SOFTMAX_CENTERS]
    assert (log_p - log_p[0]).tolist() == pytest.approx([logit - expected[0] for logit in expected])
    assert [round(logit, 2) for logit in expected] == [18.31, -12.95, 8.11, 6.31, -10.55]
    assert expected == pytest.approx(PRINTED_LOGITS, abs=ROUNDING)


def test_softmax_probabilities_equal_printed():
    log_p = log_probabilities(with_centers(Softmax(2, CLASSES, bias=False), SOFTMAX_CENTERS), SOFTMAX_EMBEDDING)
    assert [round(p, 2) for p in log_p.exp().tolist()] == [1, 0, 0, 0, 0]
    assert float(log_p[0].exp()) == pytest.approx(0.99996, abs=5e-6)
    assert math.log(sum(math.exp(logit) for logit in PRINTED_LOGITS)) == pytest.approx(math.log(8.85e7), abs=0.01)


def test_bias_is_added_to_the_logits():
    loss = Softmax(2, CLASSES, bias=True).double()
    bias = torch.tensor([0.1, 0.3, 0.5, 1.0, 0.8], dtype=torch.float64)  # of the essay's later example
    loss.load_state_dict({"centers": torch.tensor(SOFTMAX_CENTERS, dtype=torch.float64), "biases": bias})
    without = log_probabilities(with_centers(Softmax(2, CLASSES, bias=False), SOFTMAX_CENTERS), SOFTMAX_EMBEDDING)
    changed = log_probabilities(loss, SOFTMAX_EMBEDDING) - without
    assert (changed - changed[0]).tolist() == pytest.approx((bias - bias[0]).tolist())


def test_printed_cosines_are_products_with_unnormalized_centers():
    products = torch.tensor(COSINE_EMBEDDING) @ torch.tensor(COSINE_CENTERS).T
    assert products.tolist() == pytest.approx(PRINTED_COSINES, abs=0.01)
    assert cosines().tolist() == pytest.approx(TRUE_COSINES, abs=5e-4)
    log_p = log_probabilities(with_centers(NormFace(2, CLASSES, scale=1.0), COSINE_CENTERS), COSINE_EMBEDDING)
    assert (log_p - log_p[0]).tolist() == pytest.approx((cosines() - cosines()[0]).tolist(), abs=1e-6)


def test_margin_on_printed_cosine_gives_131_not_52():
    second_term = math.sqrt(1 - 0.59**2) * math.sin(MARGIN_RAD)
    assert float(arcface_cosine(torch.tensor([0.59]), MARGIN_RAD)) == pytest.approx(0.1307, abs=5e-5)
    assert 0.59 * math.cos(MARGIN_RAD) == pytest.approx(0.52, abs=0.005)  # what the essay prints: the first term
    assert 0.59 * math.cos(MARGIN_RAD) - second_term == pytest.approx(0.1307, abs=5e-5)


def test_margin_on_true_cosine_gives_875_and_lowers_the_probability():
    logits = arcface_logits(cosines()[None], torch.tensor([0]), MARGIN_RAD, scale=1.0)
    assert logits[0].tolist() == pytest.approx([0.875, *TRUE_COSINES[1:]], abs=1e-3)
    probabilities = [
        float(log_probabilities(with_centers(loss, COSINE_CENTERS), COSINE_EMBEDDING)[0].exp())
        for loss in (NormFace(2, CLASSES, scale=1.0), ArcFace(2, CLASSES, scale=1.0, margin_rad=MARGIN_RAD))
    ]
    assert probabilities[1] == pytest.approx(float(logits.softmax(1)[0, 0]), abs=1e-6)
    assert probabilities == pytest.approx([0.431, 0.401], abs=5e-4)


def test_margin_of_half_radian_on_angle_of_half_radian():
    assert math.cos(0.5) == pytest.approx(0.88, abs=5e-3)
    assert float(arcface_cosine(torch.tensor([math.cos(0.5)]), MARGIN_RAD)) == pytest.approx(0.54, abs=5e-3)


def test_logit_does_not_rise_again_at_opposite_direction():
    assert math.cos(math.pi + MARGIN_RAD) == pytest.approx(-0.88, abs=5e-3)  # above cos(pi): the essay's edge case
    expected = -1 - MARGIN_RAD * math.sin(MARGIN_RAD)  # below -1
    assert float(arcface_cosine(torch.tensor([-1.0]), MARGIN_RAD)) == pytest.approx(expected)
