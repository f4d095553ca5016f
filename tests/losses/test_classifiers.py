import math
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.functional import cross_entropy, normalize

from familiar.losses.center import CenterLoss
from familiar.losses.classifiers import (
    ArcFace,
    CombinedMargin,
    CosFace,
    CosineClassifier,
    NormFace,
    Softmax,
    SubCenterArcFace,
)
from familiar.losses.margin import arcface_logits
from familiar.losses.partial_fc import PartialFC
from support.classifier_reference import arcface_angle, combined_angle, reference_loss, rows

LARGEST_PENALTY_MARGIN_RAD = 2.33  # from here on the step at the switch angle goes up


def target_logit(cosine, margin_rad, scale=1.0):
    """Compute the logit of a row's own class at this cosine."""
    cosines = torch.tensor([[cosine, 0.0]], dtype=torch.float64)
    return arcface_logits(cosines, torch.tensor([0]), margin_rad, scale)[0, 0].item()


def arcface(classes=5, dim=4, dtype=torch.float64, seed=0, **settings_):
    torch.manual_seed(seed)
    objective = ArcFace(dim, classes, **settings_)
    torch.nn.init.normal_(objective.centers)
    return objective.to(dtype)


def test_target_logit_equals_worked_example():
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
def test_target_logit_matches_formula_on_both_sides_of_switch_angle(theta, margin_rad):
    before = theta < math.pi - margin_rad
    expected = math.cos(theta + margin_rad) if before else math.cos(theta) - margin_rad * math.sin(margin_rad)
    assert target_logit(math.cos(theta), margin_rad, scale=32.0) == pytest.approx(32.0 * expected, abs=1e-9)


@pytest.mark.parametrize("margin_rad", [0.1, 0.4, 0.5, 1.0, 2.0, 2.3])
def test_logit_drop_at_switch_angle_equals_closed_form(margin_rad):
    switch = math.pi - margin_rad
    step = target_logit(math.cos(switch - 1e-9), margin_rad) - target_logit(math.cos(switch + 1e-9), margin_rad)
    assert step == pytest.approx(math.cos(margin_rad) + margin_rad * math.sin(margin_rad) - 1, abs=1e-7)
    assert step > 0
    if margin_rad == 0.4:
        assert step == pytest.approx(0.077, abs=5e-4)
        assert 32 * step == pytest.approx(2.5, abs=0.05)


@pytest.mark.parametrize("margin_rad", [0.0, 0.1, 0.4, 1.0, math.pi / 2, 2.0, 2.32])
def test_target_logit_decreases_with_angle(margin_rad):
    theta = torch.linspace(1e-3, math.pi - 1e-3, 4001, dtype=torch.float64)
    cosines = torch.stack([theta.cos(), torch.zeros_like(theta)], dim=1)
    logits = arcface_logits(cosines, torch.zeros(len(theta), dtype=torch.int64), margin_rad, 1.0)[:, 0]
    assert (logits.diff() < 0).all()


def test_logit_rises_at_switch_angle_above_largest_margin():
    def step(margin_rad):
        switch = math.pi - margin_rad
        return target_logit(math.cos(switch - 1e-9), margin_rad) - target_logit(math.cos(switch + 1e-9), margin_rad)

    assert step(LARGEST_PENALTY_MARGIN_RAD) > 0 > step(LARGEST_PENALTY_MARGIN_RAD + 0.01)


def test_without_margin_equals_normalized_softmax():
    objective = arcface(margin_rad=0.0, scale=16.0)
    embeddings, labels = rows()
    expected = cross_entropy(16.0 * embeddings @ normalize(objective.centers).T, labels)
    assert objective(embeddings, labels).item() == pytest.approx(expected.item(), abs=1e-12)


@given(
    n=st.integers(1, 6),
    classes=st.integers(1, 6),
    dim=st.integers(3, 5),  # in a plane, vectors coincide often enough to reach the guard
    margin_rad=st.floats(0, 2.33),
    scale=st.floats(0.1, 64),
    smoothing=st.floats(0, 0.9),
    seed=st.integers(0, 999),
)
def test_arcface_matches_slow_reference(n, classes, dim, margin_rad, scale, smoothing, seed):
    objective = arcface(classes, dim, seed=seed, margin_rad=margin_rad, scale=scale, label_smoothing=smoothing)
    embeddings, labels = rows(n, dim, seed=seed, classes=classes)
    expected = reference_loss(
        embeddings, objective.centers, labels, partial(arcface_angle, margin_rad=margin_rad), scale, smoothing
    )
    assert objective(embeddings, labels).item() == pytest.approx(expected, rel=1e-4, abs=1e-6)


@given(low=st.floats(0, 2), more=st.floats(0, 1), seed=st.integers(0, 999))
def test_larger_margin_never_lowers_the_loss(low, more, seed):
    objective = arcface(seed=seed, margin_rad=low, scale=32.0)
    embeddings, labels = rows(seed=seed)
    before = objective(embeddings, labels).item()
    objective.margin_rad = min(low + more, 2.0)  # from 2.03 on the penalty past the switch angle shrinks again
    assert objective(embeddings, labels).item() >= before - 1e-3


def test_is_invariant_to_embedding_and_center_length():
    objective = arcface()
    embeddings, labels = rows()
    before = objective(embeddings, labels)
    objective.centers.data *= torch.tensor([0.01, 3.0, 50.0, 1.0, 7.0], dtype=torch.float64)[:, None]
    assert objective(embeddings * 3.7, labels).item() == pytest.approx(before.item(), abs=1e-9)


def test_label_smoothing_matches_definition():
    embeddings, labels = rows()
    smoothed, plain = (arcface(label_smoothing=share) for share in (0.1, 0.0))
    logits = arcface_logits(embeddings @ normalize(plain.centers).T, labels, 0.4, 32.0)
    uniform = -logits.log_softmax(dim=1).mean()
    expected = 0.9 * plain(embeddings, labels) + 0.1 * uniform
    assert smoothed(embeddings, labels).item() == pytest.approx(expected.item(), abs=1e-9)


@pytest.mark.parametrize("margin_rad", [0.0, 0.4, 2.33])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_arcface_is_finite_for_identical_and_opposite_vectors(dtype, margin_rad):
    objective = ArcFace(3, 2, margin_rad=margin_rad).to(dtype)
    objective.centers.data = torch.tensor([[1.0, 0.0, 0.0], [0.0, 0.6, 0.8]], dtype=dtype)
    for sign in (1.0, -1.0):
        embeddings = (sign * objective.centers.detach()).requires_grad_()
        loss = objective(embeddings, torch.tensor([0, 1]))
        gradients = torch.autograd.grad(loss, [embeddings, objective.centers])
        assert loss.isfinite()
        assert all(gradient.isfinite().all() for gradient in gradients)


@pytest.mark.parametrize("margin_rad", [0.0, 0.4, 2.33])
@pytest.mark.parametrize("cosine", [1.0, -1.0])
def test_logit_gradient_is_finite_at_poles(cosine, margin_rad):
    """At the poles the gradient of the sine is infinite, and times zero it is NaN."""
    cosines = torch.tensor([[cosine, 0.5]], requires_grad=True)
    (gradient,) = torch.autograd.grad(arcface_logits(cosines, torch.tensor([0]), margin_rad, 32.0).sum(), cosines)
    assert gradient.isfinite().all()
    assert gradient[0, 0] > 0 or margin_rad > math.pi / 2


def test_cosines_rounded_past_one_keep_gradient_finite():
    torch.manual_seed(0)
    embeddings = normalize(torch.randn(200, 128)).requires_grad_()
    objective = ArcFace(128, 200)
    objective.centers.data = 7.3 * embeddings.detach()
    loss = objective(embeddings, torch.arange(200))
    loss.backward()
    assert loss.isfinite()
    assert embeddings.grad is not None
    assert embeddings.grad.isfinite().all()


def test_passes_gradcheck_away_from_switch_angle():
    objective = arcface(margin_rad=1.5, scale=8.0, label_smoothing=0.1)
    embeddings, labels = rows()
    cosines = (embeddings @ normalize(objective.centers).T).gather(1, labels[:, None])
    assert 0 < (cosines < -math.cos(1.5)).sum() < len(labels), "rows on one side only: choose another seed"
    assert ((cosines + math.cos(1.5)).abs() > 1e-2).all()
    assert (cosines.abs() < 0.999).all()
    embeddings.requires_grad_()

    def loss(embeddings, centers):
        return torch.func.functional_call(objective, {"centers": centers}, (embeddings, labels))

    assert torch.autograd.gradcheck(loss, (embeddings, objective.centers.detach().requires_grad_()))


@given(theta=st.floats(0.05, 3.09), margin_rad=st.floats(0.05, 2.3))
def test_logit_gradient_equals_closed_form(theta, margin_rad):
    """d cos(theta + m) / d cos(theta) = sin(theta + m) / sin(theta), and 1 past the switch angle."""
    cosines = torch.tensor([[math.cos(theta), 0.1]], dtype=torch.float64, requires_grad=True)
    logits = arcface_logits(cosines, torch.tensor([0]), margin_rad, 32.0)
    (gradient,) = torch.autograd.grad(logits[0, 0], cosines)
    before = math.cos(theta) > -math.cos(margin_rad)
    expected = 32.0 * (math.sin(theta + margin_rad) / math.sin(theta) if before else 1.0)
    assert gradient[0, 0].item() == pytest.approx(expected, rel=1e-6, abs=1e-9)
    assert gradient[0, 1].item() == 0.0


def test_empty_batch_is_differentiable_zero():
    objective = ArcFace(4, 5)
    embeddings = torch.empty(0, 4, requires_grad=True)
    loss = objective(embeddings, torch.empty(0, dtype=torch.int64))
    loss.backward()
    assert loss.item() == 0.0
    assert objective.centers.grad is not None
    assert not objective.centers.grad.any()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_embeddings_match_float64_reference(dtype):
    embeddings, labels = rows(64, 16, dtype, classes=10)
    objective = arcface(10, 16, torch.float32)
    loss = objective(embeddings, labels)
    expected = reference_loss(
        embeddings.double(), objective.centers.double(), labels, partial(arcface_angle, margin_rad=0.4), 32.0
    )
    assert loss.dtype == torch.float32
    assert loss.item() == pytest.approx(expected, rel=1e-5)


def test_autocast_does_not_change_loss():
    embeddings, labels = rows(64, 16, torch.float32, classes=10)
    objective = arcface(10, 16, torch.float32)
    without_autocast = objective(embeddings, labels)
    with torch.autocast("cpu", torch.bfloat16):
        assert (embeddings @ embeddings.T).dtype == torch.bfloat16
        within = objective(embeddings, labels)
    assert within.dtype == torch.float32
    assert within.item() == without_autocast.item()


@pytest.mark.parametrize(
    "wrong", [{"scale": 0.0}, {"margin_rad": -0.1}, {"margin_rad": 2.34}, {"label_smoothing": 1.0}]
)
def test_rejects_arcface_settings_out_of_range(wrong):
    with pytest.raises(ValueError, match=rf"^{next(iter(wrong))} must be in \["):
        ArcFace(4, 5, **wrong)


@pytest.mark.parametrize("margin_rad", [0.0, 0.4, 1.2])
def test_arcface_matches_pytorch_metric_learning(margin_rad):
    peers = pytest.importorskip("pytorch_metric_learning.losses")
    objective = arcface(7, 16, torch.float32, margin_rad=margin_rad, scale=24.0)
    embeddings, labels = rows(80, 16, torch.float32, classes=7)
    assert (embeddings @ normalize(objective.centers).T).gather(1, labels[:, None]).min() < -0.4
    # PML takes degrees, and its centers are columns.
    peer = peers.ArcFaceLoss(7, 16, margin=float(np.degrees(margin_rad)), scale=24.0)
    peer.W.data = objective.centers.detach().T.clone()
    ours, peer_rows = embeddings.clone().requires_grad_(), embeddings.clone().requires_grad_()
    our_loss, their_loss = objective(ours, labels), peer(peer_rows, labels)
    assert our_loss.item() == pytest.approx(their_loss.item(), rel=1e-4)
    our_loss.backward()
    their_loss.backward()
    torch.testing.assert_close(ours.grad, peer_rows.grad, rtol=1e-3, atol=1e-5)


# All classifiers, each with the cosine of the own class as a function of the angle.
CLASSIFIERS = {
    "NormFace": (NormFace, math.cos),
    "ArcFace": (ArcFace, partial(arcface_angle, margin_rad=0.4)),
    "ArcFace, continuous": (
        partial(ArcFace, margin_rad=2.6, branch="continuous"),
        partial(arcface_angle, margin_rad=2.6, branch="continuous"),
    ),
    "CosFace": (CosFace, lambda theta: math.cos(theta) - 0.35),
    "CombinedMargin": (
        CombinedMargin,
        partial(combined_angle, margin_factor=1.0, margin_rad=0.3, margin=0.2),
    ),
    "CombinedMargin, penalty": (
        partial(CombinedMargin, margin_factor=1.4, margin_rad=0.9, margin=0.1),
        partial(combined_angle, margin_factor=1.4, margin_rad=0.9, margin=0.1),
    ),
    "CombinedMargin, continuous": (
        partial(CombinedMargin, margin_factor=3.0, margin_rad=0.5, margin=0.1, branch="continuous"),
        partial(combined_angle, margin_factor=3.0, margin_rad=0.5, margin=0.1, branch="continuous"),
    ),
    "SubCenterArcFace": (SubCenterArcFace, partial(arcface_angle, margin_rad=0.4)),
    "PartialFC": (partial(PartialFC, rate=1.0), partial(arcface_angle, margin_rad=0.4)),
}
every_classifier = pytest.mark.parametrize("name", CLASSIFIERS)


def classifier(name, classes=5, dim=4, dtype=torch.float64, seed=0, **settings_):
    torch.manual_seed(seed)
    objective = CLASSIFIERS[name][0](dim, classes, **settings_)
    torch.nn.init.normal_(objective.centers)
    return objective.to(dtype)


def gradients_of(loss, *inputs):
    """Return dense gradients, also for PartialFC's sparse ones."""
    gradients = torch.autograd.grad(loss, inputs)
    return [gradient.to_dense() if gradient.is_sparse else gradient for gradient in gradients]


@pytest.mark.slow
@every_classifier
@pytest.mark.parametrize("smoothing", [0.0, 0.3])
@pytest.mark.parametrize("width", [4, 2])
def test_every_classifier_matches_slow_reference(name, smoothing, width):
    """So does every prefix, with as many leading components of the centers."""
    for seed in range(8):
        objective = classifier(name, seed=seed, scale=9.0, label_smoothing=smoothing)
        embeddings, labels = rows(6, width, seed=seed)
        expected = reference_loss(
            embeddings, objective.centers[..., :width], labels, CLASSIFIERS[name][1], 9.0, smoothing
        )
        assert objective(embeddings, labels).item() == pytest.approx(expected, rel=1e-6)


@pytest.mark.slow
@every_classifier
@pytest.mark.parametrize("width", [4, 3])
def test_every_classifier_passes_gradcheck(name, width):
    objective = classifier(name, scale=5.0, label_smoothing=0.1)
    embeddings, labels = rows(6, width)

    def loss(embeddings, centers):
        parameters = {"centers": centers}
        return torch.func.functional_call(objective, parameters, (embeddings, labels))

    if name == "PartialFC":  # its gradient is sparse, which gradcheck does not support: see test_partial_fc.py
        centers = objective.centers.detach()
        assert torch.autograd.gradcheck(lambda rows_: loss(rows_, centers), (embeddings.requires_grad_(),))
    else:
        inputs = (embeddings.requires_grad_(), objective.centers.detach().requires_grad_())
        assert torch.autograd.gradcheck(loss, inputs)


@every_classifier
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_every_classifier_is_finite_at_poles(name, dtype):
    objective = classifier(name, classes=3, dim=3, dtype=dtype)
    axes = torch.eye(3, dtype=dtype)
    objective.centers.data = axes.expand(objective.centers.shape).clone() * 7.3
    for sign in (1.0, -1.0):
        embeddings = (sign * axes).requires_grad_()
        loss = objective(embeddings, torch.arange(3))
        assert loss.isfinite()
        assert all(gradient.isfinite().all() for gradient in gradients_of(loss, embeddings, objective.centers))


@every_classifier
def test_every_classifier_accepts_one_class_and_empty_batch(name):
    embeddings, _ = rows(1)
    assert classifier(name, classes=1)(embeddings, torch.tensor([0])).item() == pytest.approx(0.0, abs=1e-12)
    objective = classifier(name)
    nothing = torch.empty(0, 4, dtype=torch.float64, requires_grad=True)
    loss = objective(nothing, torch.empty(0, dtype=torch.int64))
    assert loss.item() == 0.0
    assert not any(gradient.any() for gradient in gradients_of(loss, nothing, objective.centers))


@every_classifier
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_every_classifier_matches_float64_in_half_precision(name, dtype):
    embeddings, labels = rows(64, 16, dtype, classes=10)
    narrow, wide = (classifier(name, 10, 16, kind) for kind in (torch.float32, torch.float64))
    narrow.centers.data = wide.centers.detach().float()
    embeddings.requires_grad_()
    with torch.autocast("cpu", torch.bfloat16):  # around the backward pass as well
        loss = narrow(embeddings, labels)
        row_gradient, center_gradient = gradients_of(loss, embeddings, narrow.centers)
    rows_ = embeddings.detach().double().requires_grad_()
    expected = wide(rows_, labels)
    expected_of_rows, expected_of_centers = gradients_of(expected, rows_, wide.centers)
    assert loss.dtype == torch.float32
    assert loss.item() == pytest.approx(expected.item(), rel=1e-5)
    assert row_gradient.dtype == dtype
    torch.testing.assert_close(row_gradient.double(), expected_of_rows, rtol=0.02, atol=1e-4)
    torch.testing.assert_close(center_gradient.double(), expected_of_centers, rtol=1e-3, atol=1e-5)


@every_classifier
def test_is_invariant_to_row_order_and_label_values(name):
    objective = classifier(name, scale=16.0)
    embeddings, labels = rows()
    before = objective(embeddings, labels).item()
    order, classes = torch.randperm(len(labels)), torch.randperm(5)
    objective.centers.data = objective.centers.data[..., classes.argsort(), :]
    assert objective(embeddings[order], classes[labels[order]]).item() == pytest.approx(before, abs=1e-12)


@every_classifier
@pytest.mark.parametrize("label", [-1, 5, -100])
def test_rejects_labels_outside_classes(name, label):
    with pytest.raises(ValueError, match=r"label -?\d+ is none of the \d+ classes"):
        classifier(name)(rows(1)[0], torch.tensor([label]))


@every_classifier
def test_rejects_embeddings_wider_than_centers(name):
    with pytest.raises(ValueError, match="6 components, but the centers have only 4"):
        classifier(name)(rows(2, 6)[0], torch.tensor([0, 1]))


@pytest.mark.one_case
@pytest.mark.slow
@pytest.mark.parametrize("name", [*CLASSIFIERS, "Softmax", "Softmax without bias", "Softmax and CenterLoss"])
def test_every_classifier_learns_to_separate_classes(name):
    """Eight classes of three tight blobs each, which no linear map of the points would separate."""
    torch.manual_seed(3)
    labels = torch.arange(8).repeat(24)
    blobs = torch.arange(3).repeat_interleave(64)
    points = torch.randn(8, 3, 6)[labels, blobs] + 0.05 * torch.randn(192, 6)
    network = torch.nn.Sequential(torch.nn.Linear(6, 64), torch.nn.ReLU(), torch.nn.Linear(64, 8))
    center = CenterLoss(8, 8) if "CenterLoss" in name else None
    if name.startswith("Softmax"):
        objective = Softmax(8, 8, bias="without" not in name)
    else:
        objective = CLASSIFIERS[name][0](8, 8, scale=16.0)
    dense = [*network.parameters()]
    sparse = [p for key, p in objective.named_parameters() if key in getattr(objective, "sparse_parameters", ())]
    dense += [p for key, p in objective.named_parameters() if key not in getattr(objective, "sparse_parameters", ())]
    optimizers = [torch.optim.Adam(dense, lr=0.01)]
    optimizers += [torch.optim.SparseAdam(sparse, lr=0.01)] if sparse else []
    for _ in range(150):
        embeddings = torch.nn.functional.normalize(network(points))
        loss = objective(embeddings, labels)
        loss = loss + 0.1 * center(embeddings, labels) if center else loss
        for optimizer in optimizers:
            optimizer.zero_grad()
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
    embeddings = torch.nn.functional.normalize(network(points)).detach()
    similarities = (embeddings @ embeddings.T).fill_diagonal_(-2.0)
    assert (labels[similarities.argmax(dim=1)] == labels).float().mean() > 0.97
    same = labels[:, None] == labels
    same.fill_diagonal_(False)
    other = labels[:, None] != labels
    assert similarities[same].mean() > similarities[other].mean() + 0.3


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("smoothing", [0.0, 0.2])
def test_softmax_equals_linear_layer_with_cross_entropy(bias, smoothing):
    objective = Softmax(4, 5, bias=bias, label_smoothing=smoothing).double()
    assert (objective.biases is not None) == bias
    if objective.biases is not None:
        torch.nn.init.normal_(objective.biases)
    embeddings, labels = rows()
    for width in (4, 2):
        logits = 3.0 * embeddings[:, :width] @ objective.centers[:, :width].T
        logits = logits + objective.biases if objective.biases is not None else logits
        expected = cross_entropy(logits, labels, label_smoothing=smoothing)
        assert objective(3.0 * embeddings[:, :width], labels).item() == pytest.approx(expected.item(), abs=1e-12)
    names = [key for key, _ in objective.named_parameters()]

    def loss(embeddings, *parameters):
        named_parameters = dict(zip(names, parameters, strict=True))
        return torch.func.functional_call(objective, named_parameters, (embeddings, labels))

    inputs = [embeddings, *(parameter.detach() for parameter in objective.parameters())]
    assert torch.autograd.gradcheck(loss, [tensor.requires_grad_() for tensor in inputs])
    assert objective(torch.empty(0, 4).double(), torch.empty(0, dtype=torch.int64)).item() == 0.0
    with torch.autocast("cpu", torch.bfloat16):
        assert objective.float()(embeddings.detach().bfloat16(), labels).dtype == torch.float32
    for label in (5, -1, -100):
        with pytest.raises(ValueError, match="is none of the"):
            objective(embeddings.float(), torch.full((6,), label))


def test_custom_gradient_matches_autograd():
    """Autograd of the same loss in torch's own functions; 9,000 centers take more than one block."""
    objective = arcface(9_000, 128, torch.float32, label_smoothing=0.1, margin_rad=0.5)
    embeddings, labels = rows(40, 128, torch.float32, classes=9_000)
    embeddings.requires_grad_()
    logits = arcface_logits(normalize(embeddings) @ normalize(objective.centers).T, labels, 0.5, 32.0)
    expected = cross_entropy(logits, labels, label_smoothing=0.1)
    value = objective(embeddings, labels)
    assert value.item() == pytest.approx(expected.item(), rel=1e-5)
    for ours, plain_gradient in zip(
        gradients_of(2.5 * value, embeddings, objective.centers),
        gradients_of(2.5 * expected, embeddings, objective.centers),
        strict=True,
    ):
        torch.testing.assert_close(ours, plain_gradient, rtol=1e-3, atol=2e-6)


def test_second_backward_pass_gives_same_gradient():
    objective = arcface()
    embeddings, labels = rows()
    loss = objective(embeddings, labels)
    first = torch.autograd.grad(loss, objective.centers, retain_graph=True)[0]
    assert torch.equal(first, torch.autograd.grad(loss, objective.centers)[0])


def test_one_center_per_class_equals_arcface():
    many, single = SubCenterArcFace(4, 5, centers_per_class=1).double(), arcface()
    many.centers.data = single.centers.data[None].clone()
    assert torch.equal(many(*rows()), single(*rows()))
    assert SubCenterArcFace(4, 5).centers.shape == (3, 5, 4)


def test_only_nearest_center_in_class_receives_gradient():
    objective = SubCenterArcFace(2, 2, centers_per_class=2).double()
    objective.centers.data = torch.tensor([[[1.0, 0.1], [-1.0, 0.0]], [[-0.3, 1.0], [-0.1, -1.0]]]).double()
    objective(torch.tensor([[1.0, 0.0]]).double(), torch.tensor([0])).backward()
    assert objective.centers.grad is not None
    assert objective.centers.grad.any(dim=2).tolist() == [[True, False], [False, True]]


def test_settings_can_change_after_construction():
    objective = classifier("CombinedMargin", scale=8.0)
    embeddings, labels = rows()
    objective.margin_factor, objective.margin_rad, objective.margin, objective.scale = 1.0, 0.0, 0.0, 16.0
    plain = NormFace(4, 5).double()
    plain.centers.data = objective.centers.data
    assert objective(embeddings, labels).item() == pytest.approx(plain(embeddings, labels).item(), abs=1e-9)


def test_softmax_scales_rows_to_unit_length_unless_they_are_raw():
    raw, scaled = Softmax(4, 5).double(), Softmax(4, 5, raw_embeddings=False).double()
    scaled.load_state_dict(raw.state_dict())
    embeddings, labels = rows()
    expected = raw(embeddings, labels).item()
    assert scaled(3.0 * embeddings, labels).item() == pytest.approx(expected, abs=1e-12)
    assert raw(3.0 * embeddings, labels).item() != pytest.approx(expected, abs=1e-3)


def test_new_margin_needs_one_method():
    class Halved(CosineClassifier):
        def apply_margin(self, cosines):
            return cosines / 2

    torch.manual_seed(0)
    objective = Halved(4, 5, scale=9.0).double()
    torch.nn.init.normal_(objective.centers)
    embeddings, labels = rows()
    expected = reference_loss(embeddings, objective.centers, labels, lambda theta: math.cos(theta) / 2, 9.0)
    assert objective(embeddings, labels).item() == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(
    ("make", "wrong", "message"),
    [
        (NormFace, {"scale": -1.0}, r"scale must be in \[0\.1, 1000\], not -1\.0"),
        (NormFace, {"classes": 0}, r"classes must be in \[1, inf\], not 0"),
        (NormFace, {"embedding_dim": 0}, r"embedding_dim must be in \[1, inf\], not 0"),
        (Softmax, {"label_smoothing": -0.1}, r"label_smoothing must be in \[0, 0\.99\], not -0\.1"),
        (CosFace, {"margin": -0.1}, r"margin must be in \[0, 2\], not -0\.1"),
        (CosFace, {"margin": math.nan}, r"margin must be in \[0, 2\], not nan"),
        (ArcFace, {"branch": "easy"}, "branch must be one of penalty, continuous, not 'easy'"),
        (ArcFace, {"margin_rad": 3.2, "branch": "continuous"}, r"margin_rad must be in \[0, 3\.14159\], not 3\.2"),
        (
            ArcFace,
            {"margin_rad": 2.34},
            r"margin_rad must be in \[0, 2\.33\], not 2\.34; branch=continuous",
        ),
        (CombinedMargin, {"margin_factor": 0.9}, r"margin_factor must be in \[1, 4\], not 0\.9"),
        (CombinedMargin, {"margin_factor": 4.0}, r"margin_factor must be in \[1, 3\.501\], not 4\.0; branch=cont"),
        (CombinedMargin, {"margin": 2.1}, r"margin must be in \[0, 2\], not 2\.1"),
        (SubCenterArcFace, {"centers_per_class": 0}, r"centers_per_class must be in \[1, 100\], not 0"),
        (PartialFC, {"rate": 0.0}, r"rate must be in \[1e-06, 1\], not 0\.0"),
        (PartialFC, {"rate": 1.1}, r"rate must be in \[1e-06, 1\], not 1\.1"),
        (CenterLoss, {"rate": -0.1}, r"rate must be in \[0, 1\], not -0\.1"),
    ],
)
@pytest.mark.usefixtures("unchecked_signatures")
def test_range_error_names_the_setting(make, wrong, message):
    with pytest.raises(ValueError, match=f"^{message}"):
        make(**{"embedding_dim": 4, "classes": 5} | wrong)


def test_continuous_branch_allows_what_the_penalty_does_not():
    assert ArcFace(4, 5, margin_rad=2.34, branch="continuous").margin_rad == 2.34
    assert CombinedMargin(4, 5, margin_factor=4.0, branch="continuous").margin_factor == 4.0


def test_cosface_matches_pytorch_metric_learning():
    peers = pytest.importorskip("pytorch_metric_learning.losses")
    objective = classifier("CosFace", 7, 16, torch.float32, scale=24.0)
    peer = peers.CosFaceLoss(7, 16, margin=0.35, scale=24.0)
    agree(objective, peer, peer.W)


def test_normface_matches_pytorch_metric_learning():
    peers = pytest.importorskip("pytorch_metric_learning.losses")
    objective = classifier("NormFace", 7, 16, torch.float32, scale=24.0)
    peer = peers.NormalizedSoftmaxLoss(7, 16, temperature=1 / 24.0)
    agree(objective, peer, peer.W)


def test_sub_centers_match_pytorch_metric_learning():
    peers = pytest.importorskip("pytorch_metric_learning.losses")
    objective = classifier("SubCenterArcFace", 7, 16, torch.float32, scale=24.0)
    peer = peers.SubCenterArcFaceLoss(num_classes=7, embedding_size=16, margin=float(np.degrees(0.4)), scale=24.0)
    # PML's centers are columns, the three of a class next to each other.
    agree(objective, peer, peer.W, objective.centers.detach().permute(2, 1, 0).flatten(1))


def agree(objective, peer, weights, columns=None):
    weights.data = (objective.centers.detach().T if columns is None else columns).clone()
    embeddings, labels = rows(80, 16, torch.float32, classes=7)
    ours, peer_rows = embeddings.clone().requires_grad_(), embeddings.clone().requires_grad_()
    our_loss, their_loss = objective(ours, labels), peer(peer_rows, labels)
    assert our_loss.item() == pytest.approx(their_loss.item(), rel=1e-4)
    our_loss.backward()
    their_loss.backward()
    torch.testing.assert_close(ours.grad, peer_rows.grad, rtol=1e-3, atol=1e-5)
