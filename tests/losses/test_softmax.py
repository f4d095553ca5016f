import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.functional import cross_entropy, normalize

from familiar.losses.softmax import ArcFace, arcface_logits

SEAMLESS_MARGIN_RAD = 2.33  # from here on the step at the seam goes up


def target_logit(cosine, margin_rad, scale=1.0):
    """The logit of a row's own class at this cosine."""
    cosines = torch.tensor([[cosine, 0.0]], dtype=torch.float64)
    return arcface_logits(cosines, torch.tensor([0]), margin_rad, scale)[0, 0].item()


def reference_loss(embeddings, centres, labels, margin_rad, scale, smoothing=0.0):
    """Row by row and class by class, with angles, in plain Python numbers."""
    losses = []
    for embedding, label in zip(embeddings.tolist(), labels.tolist(), strict=True):
        logits = []
        for place, centre in enumerate(centres.tolist()):
            cosine = math.fsum(a * b for a, b in zip(embedding, centre, strict=True))
            cosine /= math.hypot(*embedding) * math.hypot(*centre)
            theta = math.acos(max(-1.0, min(1.0, cosine)))
            if place != label:
                logits.append(scale * math.cos(theta))
            elif theta < math.pi - margin_rad:
                logits.append(scale * math.cos(theta + margin_rad))
            else:
                logits.append(scale * (math.cos(theta) - margin_rad * math.sin(margin_rad)))
        log_sum = max(logits) + math.log(math.fsum(math.exp(z - max(logits)) for z in logits))
        spread = smoothing / len(logits)
        losses.append(
            math.fsum(
                -(spread + (1 - smoothing) * (place == label)) * (z - log_sum)
                for place, z in enumerate(logits)
            )
        )
    return math.fsum(losses) / len(losses)


def arcface(classes=5, dim=4, dtype=torch.float64, seed=0, **settings_):
    torch.manual_seed(seed)
    objective = ArcFace(dim, classes, **settings_)
    torch.nn.init.normal_(objective.centres)
    return objective.to(dtype)


def rows(n=6, dim=4, dtype=torch.float64, seed=1, classes=5):
    generator = torch.Generator().manual_seed(seed)
    embeddings = normalize(torch.randn(n, dim, generator=generator, dtype=torch.float64)).to(dtype)
    return embeddings, torch.randint(classes, (n,), generator=generator)


def test_the_worked_example():
    assert target_logit(0.59, 0.5) == pytest.approx(0.1307, abs=5e-5)
    assert target_logit(0.59, 0.5) == pytest.approx(math.cos(math.acos(0.59) + 0.5), abs=1e-12)
    # The true cosines of the essay's example, the second of them the row's own class.
    cosines = torch.tensor([[1.0, 0.275, -0.808, 0.326, -0.827]], dtype=torch.float64)
    logits = arcface_logits(cosines, torch.tensor([0]), 0.5, 1.0)
    assert logits[0, 0].item() == pytest.approx(math.cos(0.5), abs=2e-4)  # the guard at |cos| = 1
    assert torch.equal(logits[0, 1:], cosines[0, 1:])


@pytest.mark.parametrize(
    ("theta", "margin_rad"), [(0.3, 0.4), (1.5, 0.4), (2.7, 0.4), (2.8, 0.4), (3.0, 1.5), (0.5, 2.3)]
)
def test_target_logit_is_the_formula_on_both_sides_of_the_seam(theta, margin_rad):
    before = theta < math.pi - margin_rad
    expected = math.cos(theta + margin_rad) if before else math.cos(theta) - margin_rad * math.sin(margin_rad)
    assert target_logit(math.cos(theta), margin_rad, scale=32.0) == pytest.approx(32.0 * expected, abs=1e-9)


@pytest.mark.parametrize("margin_rad", [0.1, 0.4, 0.5, 1.0, 2.0, 2.3])
def test_the_step_down_at_the_seam(margin_rad):
    seam = math.pi - margin_rad
    step = target_logit(math.cos(seam - 1e-9), margin_rad) - target_logit(math.cos(seam + 1e-9), margin_rad)
    assert step == pytest.approx(math.cos(margin_rad) + margin_rad * math.sin(margin_rad) - 1, abs=1e-7)
    assert step > 0
    if margin_rad == 0.4:
        assert step == pytest.approx(0.077, abs=5e-4)
        assert 32 * step == pytest.approx(2.5, abs=0.05)


@pytest.mark.parametrize("margin_rad", [0.0, 0.1, 0.4, 1.0, math.pi / 2, 2.0, 2.32])
def test_the_target_logit_falls_with_the_angle_everywhere(margin_rad):
    theta = torch.linspace(1e-3, math.pi - 1e-3, 4001, dtype=torch.float64)
    cosines = torch.stack([theta.cos(), torch.zeros_like(theta)], dim=1)
    logits = arcface_logits(cosines, torch.zeros(len(theta), dtype=torch.int64), margin_rad, 1.0)[:, 0]
    assert (logits.diff() < 0).all()


def test_past_the_largest_margin_the_seam_steps_up():
    def step(margin_rad):
        seam = math.pi - margin_rad
        return target_logit(math.cos(seam - 1e-9), margin_rad) - target_logit(
            math.cos(seam + 1e-9), margin_rad
        )

    assert step(SEAMLESS_MARGIN_RAD) > 0 > step(SEAMLESS_MARGIN_RAD + 0.01)


def test_without_a_margin_it_is_the_normalised_softmax():
    objective = arcface(margin_rad=0.0, scale=16.0)
    embeddings, labels = rows()
    expected = cross_entropy(16.0 * embeddings @ normalize(objective.centres).T, labels)
    assert objective(embeddings, labels).item() == pytest.approx(expected.item(), abs=1e-12)


@settings(deadline=None, max_examples=60)
@given(
    n=st.integers(1, 6),
    classes=st.integers(1, 6),
    dim=st.integers(3, 5),  # in a plane, vectors fall together often enough to meet the guard
    margin_rad=st.floats(0, 2.33),
    scale=st.floats(0.1, 64),
    smoothing=st.floats(0, 0.9),
    seed=st.integers(0, 999),
)
def test_agrees_with_the_slow_reference(n, classes, dim, margin_rad, scale, smoothing, seed):
    objective = arcface(
        classes, dim, seed=seed, margin_rad=margin_rad, scale=scale, label_smoothing=smoothing
    )
    embeddings, labels = rows(n, dim, seed=seed, classes=classes)
    expected = reference_loss(embeddings, objective.centres, labels, margin_rad, scale, smoothing)
    assert objective(embeddings, labels).item() == pytest.approx(expected, rel=1e-4, abs=1e-6)


@settings(deadline=None, max_examples=60)
@given(low=st.floats(0, 2), more=st.floats(0, 1), seed=st.integers(0, 999))
def test_a_larger_margin_never_makes_the_loss_smaller(low, more, seed):
    objective = arcface(seed=seed, margin_rad=low, scale=32.0)
    embeddings, labels = rows(seed=seed)
    before = objective(embeddings, labels).item()
    objective.margin_rad = min(low + more, 2.0)  # from 2.03 on the penalty past the seam shrinks again
    assert objective(embeddings, labels).item() >= before - 1e-3


def test_only_directions_count():
    objective = arcface()
    embeddings, labels = rows()
    before = objective(embeddings, labels)
    objective.centres.data *= torch.tensor([0.01, 3.0, 50.0, 1.0, 7.0], dtype=torch.float64)[:, None]
    assert objective(embeddings * 3.7, labels).item() == pytest.approx(before.item(), abs=1e-9)


def test_label_smoothing_is_its_definition():
    embeddings, labels = rows()
    smoothed, plain = (arcface(label_smoothing=share) for share in (0.1, 0.0))
    logits = arcface_logits(embeddings @ normalize(plain.centres).T, labels, 0.4, 32.0)
    uniform = -logits.log_softmax(dim=1).mean()
    expected = 0.9 * plain(embeddings, labels) + 0.1 * uniform
    assert smoothed(embeddings, labels).item() == pytest.approx(expected.item(), abs=1e-9)


@pytest.mark.parametrize("margin_rad", [0.0, 0.4, 2.33])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_identical_and_opposite_vectors_give_finite_loss_and_gradient(dtype, margin_rad):
    objective = ArcFace(3, 2, margin_rad=margin_rad).to(dtype)
    objective.centres.data = torch.tensor([[1.0, 0.0, 0.0], [0.0, 0.6, 0.8]], dtype=dtype)
    for sign in (1.0, -1.0):
        embeddings = (sign * objective.centres.detach()).requires_grad_()
        loss = objective(embeddings, torch.tensor([0, 1]))
        gradients = torch.autograd.grad(loss, [embeddings, objective.centres])
        assert loss.isfinite()
        assert all(gradient.isfinite().all() for gradient in gradients)


@pytest.mark.parametrize("margin_rad", [0.0, 0.4, 2.33])
@pytest.mark.parametrize("cosine", [1.0, -1.0])
def test_the_logit_has_a_gradient_at_the_poles(cosine, margin_rad):
    """Where the sine's own is infinite, and times zero no number."""
    cosines = torch.tensor([[cosine, 0.5]], requires_grad=True)
    (gradient,) = torch.autograd.grad(
        arcface_logits(cosines, torch.tensor([0]), margin_rad, 32.0).sum(), cosines
    )
    assert gradient.isfinite().all()
    assert gradient[0, 0] > 0 or margin_rad > math.pi / 2


def test_identical_vectors_rounded_past_one():
    torch.manual_seed(0)
    embeddings = normalize(torch.randn(200, 128)).requires_grad_()
    objective = ArcFace(128, 200)
    objective.centres.data = 7.3 * embeddings.detach()
    loss = objective(embeddings, torch.arange(200))
    loss.backward()
    assert loss.isfinite()
    assert embeddings.grad is not None
    assert embeddings.grad.isfinite().all()


def test_gradcheck_away_from_the_seam():
    objective = arcface(margin_rad=1.5, scale=8.0, label_smoothing=0.1)
    embeddings, labels = rows()
    cosines = (embeddings @ normalize(objective.centres).T).gather(1, labels[:, None])
    assert 0 < (cosines < -math.cos(1.5)).sum() < len(labels), "rows on one side only: choose another seed"
    assert ((cosines + math.cos(1.5)).abs() > 1e-2).all()
    assert (cosines.abs() < 0.999).all()
    embeddings.requires_grad_()

    def loss(embeddings, centres):
        return torch.func.functional_call(objective, {"centres": centres}, (embeddings, labels))

    assert torch.autograd.gradcheck(loss, (embeddings, objective.centres.detach().requires_grad_()))


@settings(deadline=None, max_examples=50)
@given(theta=st.floats(0.05, 3.09), margin_rad=st.floats(0.05, 2.3))
def test_the_gradient_flows_through_the_margin(theta, margin_rad):
    """d cos(theta + m) / d cos(theta) = sin(theta + m) / sin(theta), and 1 past the seam."""
    cosines = torch.tensor([[math.cos(theta), 0.1]], dtype=torch.float64, requires_grad=True)
    logits = arcface_logits(cosines, torch.tensor([0]), margin_rad, 32.0)
    (gradient,) = torch.autograd.grad(logits[0, 0], cosines)
    before = math.cos(theta) > -math.cos(margin_rad)
    expected = 32.0 * (math.sin(theta + margin_rad) / math.sin(theta) if before else 1.0)
    assert gradient[0, 0].item() == pytest.approx(expected, rel=1e-6, abs=1e-9)
    assert gradient[0, 1].item() == 0.0


def test_an_empty_batch_is_a_differentiable_zero():
    objective = ArcFace(4, 5)
    embeddings = torch.empty(0, 4, requires_grad=True)
    loss = objective(embeddings, torch.empty(0, dtype=torch.int64))
    loss.backward()
    assert loss.item() == 0.0
    assert objective.centres.grad is not None
    assert not objective.centres.grad.any()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_narrow_embeddings_are_widened_before_the_angle(dtype):
    embeddings, labels = rows(64, 16, dtype, classes=10)
    objective = arcface(10, 16, torch.float32)
    loss = objective(embeddings, labels)
    expected = reference_loss(embeddings.double(), objective.centres.double(), labels, 0.4, 32.0)
    assert loss.dtype == torch.float32
    assert loss.item() == pytest.approx(expected, rel=1e-5)


def test_autocast_stays_out_of_the_logits():
    embeddings, labels = rows(64, 16, torch.float32, classes=10)
    objective = arcface(10, 16, torch.float32)
    alone = objective(embeddings, labels)
    with torch.autocast("cpu", torch.bfloat16):
        assert (embeddings @ embeddings.T).dtype == torch.bfloat16
        within = objective(embeddings, labels)
    assert within.dtype == torch.float32
    assert within.item() == alone.item()


@pytest.mark.parametrize(
    "wrong", [{"scale": 0.0}, {"margin_rad": -0.1}, {"margin_rad": 2.34}, {"label_smoothing": 1.0}]
)
def test_settings_out_of_range(wrong):
    with pytest.raises(ValueError, match="out of range"):
        ArcFace(4, 5, **wrong)


@pytest.mark.parametrize("margin_rad", [0.0, 0.4, 1.2])
def test_agrees_with_pytorch_metric_learning(margin_rad):
    peers = pytest.importorskip("pytorch_metric_learning.losses")
    objective = arcface(7, 16, torch.float32, margin_rad=margin_rad, scale=24.0)
    embeddings, labels = rows(80, 16, torch.float32, classes=7)
    assert (embeddings @ normalize(objective.centres).T).gather(1, labels[:, None]).min() < -0.4
    # Theirs takes degrees, and keeps its centres as columns.
    peer = peers.ArcFaceLoss(7, 16, margin=float(np.degrees(margin_rad)), scale=24.0)
    peer.W.data = objective.centres.detach().T.clone()
    ours, theirs = embeddings.clone().requires_grad_(), embeddings.clone().requires_grad_()
    our_loss, their_loss = objective(ours, labels), peer(theirs, labels)
    assert our_loss.item() == pytest.approx(their_loss.item(), rel=1e-4)
    our_loss.backward()
    their_loss.backward()
    torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-3, atol=1e-5)
