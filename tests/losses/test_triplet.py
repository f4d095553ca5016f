import math
from functools import partial

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from familiar.losses.batch_hard import BatchHard
from familiar.losses.triplet import (
    BatchAll,
    HardNegative,
    SemiHard,
    active_fraction,
    triplet_gaps,
    triplet_loss,
)
from familiar.losses.validation import NotFiniteError
from support.triplet_reference import (
    as_labels,
    assert_same,
    chosen_triplets,
    distance_table,
    grid_batches,
    loss_of_triplets,
    semi_hard_triplets,
    slow_loss,
    sphere_batches,
    unit_rows,
    valid_triplets,
    value_and_gradient,
)

OBJECTS = {
    "batch_all": BatchAll,
    "semi_hard": SemiHard,
    "semi_hard_hardest": partial(SemiHard, select="hardest"),
    "batch_hard": BatchHard,
    "batch_hard_soft": partial(BatchHard, soft_margin=True),
    "hard_negative": HardNegative,
}
WAYS = list(OBJECTS)
REDUCTIONS = ["active", "all"]
every_way = pytest.mark.parametrize("way", WAYS)
every_reduction = pytest.mark.parametrize("reduction", REDUCTIONS)
TEN_OF_FOUR = torch.arange(10).repeat(4)
FUNCTIONS = {
    way: lambda embeddings, labels, margin=0.2, loss=loss, **settings: loss(margin, **settings)(embeddings, labels)
    for way, loss in OBJECTS.items()
}
UNEVEN = as_labels([0] * 9 + [1, 2, 2, 3] + [4] * 5)


def circle(*degrees):
    angles = torch.tensor(degrees, dtype=torch.float64).deg2rad()
    return torch.stack([angles.cos(), angles.sin()], dim=1)


def squared_chord(degrees):
    return 2 - 2 * math.cos(math.radians(degrees))


# Against the slow reference


@pytest.mark.slow
@every_way
@every_reduction
@given(batch=sphere_batches())
def test_matches_slow_reference(way, reduction, batch):
    embeddings, labels, margin = batch
    ours = value_and_gradient(partial(FUNCTIONS[way], reduction=reduction), embeddings, labels, margin)
    slow = value_and_gradient(partial(slow_loss, way), embeddings, labels, margin, reduction)
    assert_same(ours, slow)


@pytest.mark.slow
@pytest.mark.parametrize("way", ["batch_all", "semi_hard"])
@every_reduction
@given(batch=grid_batches())
def test_zero_cost_is_not_active(way, reduction, batch):
    """Many distances are equal or differ by exactly the margin; strict inequalities show in mean and gradient."""
    embeddings, labels, margin = batch
    ours = value_and_gradient(partial(FUNCTIONS[way], reduction=reduction), embeddings, labels, margin)
    slow = value_and_gradient(partial(slow_loss, way), embeddings, labels, margin, reduction)
    assert_same(ours, slow, tolerance=1e-13)


@pytest.mark.slow
@pytest.mark.parametrize("way", ["batch_hard", "batch_hard_soft", "hard_negative"])
@every_reduction
@given(batch=grid_batches())
def test_ties_do_not_change_hard_mining_loss(way, reduction, batch):
    """Either of two equally far rows may be selected, so only the value is compared."""
    embeddings, labels, margin = batch
    value = FUNCTIONS[way](embeddings, labels, margin, reduction=reduction)
    expected = slow_loss(way, embeddings, labels, margin, reduction)
    torch.testing.assert_close(value, expected, rtol=1e-13, atol=1e-13)


@pytest.mark.slow
@every_way
@every_reduction
@given(batch=grid_batches())
def test_loss_equals_loss_for_mined_triplets(way, reduction, batch):
    embeddings, labels, margin = batch
    loss = OBJECTS[way](margin, reduction)

    def loss_of_mined(embeddings):
        return loss.triplet_loss_from(*loss.mine_triplets(embeddings, labels).select_rows(embeddings))

    assert_same(value_and_gradient(loss, embeddings, labels), value_and_gradient(loss_of_mined, embeddings), 1e-13)


@given(batch=sphere_batches(), seed=st.integers(0, 99))
def test_random_semi_hard_averages_one_triplet_per_pair(batch, seed):
    embeddings, labels, margin = batch
    loss = SemiHard(margin, select="random", generator=torch.Generator().manual_seed(seed))
    band = semi_hard_triplets(*batch)
    drawn = list(loss.mine_triplets(embeddings, labels))
    assert set(drawn) <= set(band)
    assert len(drawn) == len({triplet[:2] for triplet in band})

    def again(embeddings):
        generator = torch.Generator().manual_seed(seed)
        return SemiHard(margin, select="random", generator=generator)(embeddings, labels)

    expected = value_and_gradient(lambda rows: loss_of_triplets(rows, drawn, margin, "all"), embeddings)
    assert_same(value_and_gradient(again, embeddings), expected)


def test_random_semi_hard_differs_on_each_call():
    generator = torch.Generator().manual_seed(0)
    loss = SemiHard(1.0, select="random", generator=generator)
    embeddings = unit_rows(40)
    assert len({loss(embeddings, TEN_OF_FOUR).item() for _ in range(5)}) == 5


@pytest.mark.slow
@every_way
@pytest.mark.parametrize("anchors", [0, 1, 4, 12, 18])
def test_anchors_argument_limits_anchors_to_first_rows(way, anchors):
    embeddings, margin = unit_rows(18, 3), 0.5
    order = torch.randperm(18, generator=torch.Generator().manual_seed(1))
    labels = UNEVEN[order]
    selected = [t for t in chosen_triplets(way, embeddings, labels, margin) if t[0] < anchors]
    assert selected or not anchors
    for reduction in REDUCTIONS:
        loss = OBJECTS[way](margin, reduction)
        ours = value_and_gradient(partial(loss, anchors=anchors), embeddings, labels)
        slow = value_and_gradient(
            lambda rows, over: loss_of_triplets(rows, selected, margin, over, way == "batch_hard_soft"),
            embeddings,
            reduction,
        )
        assert_same(ours, slow)


# Closed forms


def test_three_points_on_circle_equal_closed_form():
    """Anchors at 0 and 30 degrees, a negative at 40: two triplets, d = 2 - 2 cos(angle between)."""
    embeddings, labels = circle(0, 30, 40), as_labels([0, 0, 1])
    far = squared_chord(30) - squared_chord(40) + 0.2  # semi-hard: the negative is farther than the positive
    near = squared_chord(30) - squared_chord(10) + 0.2
    assert far > 0
    for way in ("batch_all", "batch_hard", "hard_negative"):
        assert FUNCTIONS[way](embeddings, labels).item() == pytest.approx((far + near) / 2, abs=1e-12)
    for way in ("semi_hard", "semi_hard_hardest"):
        assert FUNCTIONS[way](embeddings, labels).item() == pytest.approx(far, abs=1e-12)
    soft = (math.log1p(math.exp(far - 0.2)) + math.log1p(math.exp(near - 0.2))) / 2
    assert FUNCTIONS["batch_hard_soft"](embeddings, labels).item() == pytest.approx(soft, abs=1e-12)


@every_reduction
def test_reduction_divides_by_active_or_all_triplets(reduction):
    """One of two triplets costs something."""
    embeddings, labels = circle(0, 30, 90), as_labels([0, 0, 1])
    cost = squared_chord(30) - squared_chord(60) + 0.8
    assert cost > 0 > squared_chord(30) - squared_chord(90) + 0.8
    expected = cost if reduction == "active" else cost / 2
    for way in ("batch_all", "batch_hard", "hard_negative"):
        value = FUNCTIONS[way](embeddings, labels, 0.8, reduction=reduction).item()
        assert value == pytest.approx(expected, abs=1e-12)


def test_single_triplet_gradient_equals_closed_form():
    """2 (n - p) at the anchor, 2 (p - a) at the positive, 2 (a - n) at the negative."""
    embeddings = circle(0, 30, 40)
    a, p, n = embeddings
    expected = torch.stack([2 * (n - p), 2 * (p - a), 2 * (a - n)])
    for way in ("batch_all", "semi_hard", "semi_hard_hardest", "batch_hard", "hard_negative"):
        loss = partial(OBJECTS[way](0.2), anchors=1)
        _, gradient = value_and_gradient(loss, embeddings, as_labels([0, 0, 1]))
        torch.testing.assert_close(gradient, expected)
    leaves = [row[None].clone().requires_grad_() for row in embeddings]
    gradients = torch.autograd.grad(triplet_loss(*leaves), leaves)
    torch.testing.assert_close(torch.cat(gradients), expected)


@every_way
@every_reduction
def test_identical_vectors_equal_closed_form(way, reduction):
    # Numbers with exact products: on some processors a matrix product rounds identical rows differently.
    embeddings = torch.full((40, 4), 0.5, dtype=torch.float64)
    value, gradient = value_and_gradient(partial(FUNCTIONS[way], reduction=reduction), embeddings, TEN_OF_FOUR)
    expected = {"semi_hard": 0.0, "semi_hard_hardest": 0.0, "batch_hard_soft": math.log(2)}.get(way, 0.2)
    assert value.item() == pytest.approx(expected, abs=1e-12)
    assert gradient.abs().max() < 1e-12


@every_way
@every_reduction
def test_opposite_vectors_equal_closed_form(way, reduction):
    """Identities at the poles have no cost; split between the poles, the largest."""
    apart, labels = circle(0, 0, 180, 180), as_labels([0, 0, 1, 1])
    expected = math.log1p(math.exp(-4)) if way == "batch_hard_soft" else 0.0
    assert FUNCTIONS[way](apart, labels, reduction=reduction).item() == pytest.approx(expected, abs=1e-12)
    split = as_labels([0, 1, 0, 1])  # of the two negatives one is at distance 0, one at 4
    expected = {
        "batch_all": (4.2 + 0.2) / 2,
        "semi_hard": 0.0,
        "semi_hard_hardest": 0.0,
        "batch_hard_soft": math.log1p(math.exp(4)),
    }.get(way, 4.2)
    assert FUNCTIONS[way](apart, split, reduction=reduction).item() == pytest.approx(expected, abs=1e-12)


@pytest.mark.slow
@every_way
@every_reduction
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
@pytest.mark.parametrize("names", [[], [5], [5, 5, 5], [1, 2, 3], [-(2**62)]])
def test_batch_without_triplets_is_differentiable_zero(way, reduction, dtype, names):
    embeddings = unit_rows(len(names), dtype=dtype)
    value, gradient = value_and_gradient(partial(FUNCTIONS[way], reduction=reduction), embeddings, as_labels(names))
    assert value.shape == ()
    assert value.item() == 0.0
    assert gradient.shape == embeddings.shape
    assert not gradient.any()


@pytest.mark.parametrize("way", [way for way in WAYS if way != "semi_hard_hardest"])
def test_nan_row_is_named(way):
    embeddings = unit_rows(40)
    embeddings[3] = math.nan
    with pytest.raises(NotFiniteError, match="NaN or infinite; the first is in row 3"):
        FUNCTIONS[way](embeddings, TEN_OF_FOUR)


def test_zero_margin_counts_only_violations():
    embeddings, labels = circle(0, 30, 40), as_labels([0, 0, 1])
    violation = squared_chord(30) - squared_chord(10)
    assert BatchAll(0.0)(embeddings, labels).item() == pytest.approx(violation, abs=1e-12)
    assert SemiHard(0.0)(embeddings, labels).item() == 0.0


@every_way
@pytest.mark.parametrize("margin", [-0.1, math.nan])
def test_rejects_margin_out_of_range(way, margin):
    with pytest.raises(ValueError, match=r"^margin must be in \[0, 4\], not "):
        OBJECTS[way](margin)


def test_rejects_unknown_reduction():
    loss = BatchAll()
    loss.reduction = "mean"  # the constructor's types are checked before, while tests run
    with pytest.raises(ValueError, match="reduction must be one of active, all, not 'mean'"):
        loss.__post_init__()


# Invariance


@pytest.mark.slow
@every_way
@every_reduction
@given(batch=sphere_batches(), data=st.data())
def test_is_invariant_to_row_order_and_label_values(way, reduction, batch, data):
    embeddings, labels, margin = batch
    order = torch.tensor(data.draw(st.permutations(range(len(labels)))), dtype=torch.int64)
    loss = partial(FUNCTIONS[way], margin=margin, reduction=reduction)
    value, gradient = value_and_gradient(loss, embeddings, labels)
    renamed = labels[order] * -(2**40) + 7
    assert_same(value_and_gradient(loss, embeddings[order], renamed), (value, gradient[order]))


@pytest.mark.slow
@every_way
@given(batch=sphere_batches(), seed=st.integers(0, 99))
def test_is_invariant_to_rotation(way, batch, seed):
    embeddings, labels, margin = batch
    dim = embeddings.shape[1]
    turn = torch.linalg.qr(unit_rows(dim, dim, seed)).Q
    value, gradient = value_and_gradient(FUNCTIONS[way], embeddings, labels, margin)
    assert_same(value_and_gradient(FUNCTIONS[way], embeddings @ turn, labels, margin), (value, gradient @ turn), 1e-8)


# Derivatives


@pytest.mark.slow
@every_way
@every_reduction
def test_passes_gradcheck(way, reduction):
    embeddings = unit_rows(18, 3, seed=2)
    d = distance_table(embeddings)
    costs = [d[a][p] - d[a][n] + 0.5 for a, p, n in valid_triplets(UNEVEN)]
    # A step of 1e-6 reaches no kink and changes no choice.
    assert min(map(abs, costs)) > 1e-4
    assert min(abs(cost - 0.5) for cost in costs) > 1e-4
    loss = partial(FUNCTIONS[way], labels=UNEVEN, margin=0.5, reduction=reduction)
    assert loss(embeddings) > 0
    assert torch.autograd.gradcheck(loss, embeddings.requires_grad_(), nondet_tol=0.0)


@pytest.mark.parametrize("way", ["batch_all", "semi_hard", "batch_hard", "batch_hard_soft", "hard_negative"])
def test_rejects_second_derivative(way):
    embeddings = unit_rows(40).requires_grad_()
    loss = FUNCTIONS[way](embeddings, TEN_OF_FOUR)
    (gradient,) = torch.autograd.grad(loss.square(), embeddings, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        gradient.square().sum().backward()


@every_way
def test_gradient_scales_with_upstream_gradient(way):
    embeddings = unit_rows(40)
    _, plain = value_and_gradient(FUNCTIONS[way], embeddings, TEN_OF_FOUR)
    _, scaled = value_and_gradient(lambda *batch: -3.0 * FUNCTIONS[way](*batch), embeddings, TEN_OF_FOUR)
    torch.testing.assert_close(scaled, -3.0 * plain)


@every_way
def test_loss_without_gradient_has_the_same_value(way):
    embeddings = unit_rows(40)
    value = FUNCTIONS[way](embeddings, TEN_OF_FOUR)
    assert not value.requires_grad
    assert value.item() == value_and_gradient(FUNCTIONS[way], embeddings, TEN_OF_FOUR)[0].item()


# Listed triplets


def test_listed_triplets_equal_closed_form():
    a, p, n = circle(0, 0, 0), circle(30, 30, 30), circle(40, 60, 10)
    costs = [max(squared_chord(30) - squared_chord(other) + 0.2, 0) for other in (40, 60, 10)]
    assert costs[1] == 0
    assert triplet_loss(a, p, n).item() == pytest.approx(math.fsum(costs) / 3, abs=1e-12)


def test_empty_triplet_list_has_zero_loss():
    none = torch.empty(0, 4, requires_grad=True)
    value, gradient = value_and_gradient(triplet_loss, none, none, none)
    assert value.item() == 0.0
    assert gradient.shape == (0, 4)


def test_listed_triplets_pass_gradcheck():
    rows = [unit_rows(5, 3, seed).requires_grad_() for seed in range(3)]
    costs = triplet_gaps(*rows) + 0.2
    assert costs.min() < -1e-3 < 1e-3 < costs.max()
    assert costs.abs().min() > 1e-3
    assert torch.autograd.gradcheck(triplet_loss, rows)
    assert torch.autograd.gradgradcheck(triplet_loss, rows)


def test_float32_gap_is_accurate_for_close_rows():
    """float32 resolves 1e-7 of a distance of 2; the gap is 1e-5 of it and accurate to 1e-5."""
    anchors, positives = unit_rows(50, 64, 0, torch.float32), unit_rows(50, 64, 1, torch.float32)
    negatives = positives + 1e-5 * unit_rows(50, 64, 2, torch.float32)
    exact = triplet_gaps(anchors.double(), positives.double(), negatives.double())
    gaps = triplet_gaps(anchors, positives, negatives)
    assert (gaps.double() - exact).norm() < 1e-5 * exact.norm()


# Precision


@pytest.mark.slow
@every_way
@every_reduction
def test_float32_matches_float64(way, reduction):
    embeddings, labels = unit_rows(600, 128), torch.arange(30).repeat(20)
    loss = partial(FUNCTIONS[way], reduction=reduction)
    value, gradient = value_and_gradient(loss, embeddings.float(), labels)
    exact, exact_gradient = value_and_gradient(loss, embeddings, labels)
    assert value.dtype == gradient.dtype == torch.float32
    assert value.item() == pytest.approx(exact.item(), rel=2e-6)
    assert (gradient - exact_gradient).abs().max() < 1e-3 * exact_gradient.abs().max()


@every_way
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_matches_float32(way, dtype):
    embeddings, labels = unit_rows(120, 32, dtype=dtype), torch.arange(30).repeat(4)
    value, gradient = value_and_gradient(FUNCTIONS[way], embeddings, labels)
    expected, expected_gradient = value_and_gradient(FUNCTIONS[way], embeddings.float(), labels)
    assert value.dtype == torch.float32
    assert torch.equal(value, expected)
    assert gradient.dtype == dtype
    # Half a unit in the last place, or of the smallest subnormal numbers.
    torch.testing.assert_close(
        gradient.float(), expected_gradient, rtol=torch.finfo(dtype).eps / 2 * 1.01, atol=2**-25 * 1.01
    )


@every_way
def test_scaled_loss_keeps_small_float16_gradients(way):
    """As with a GradScaler: the gradient is cast to float16 after scaling, not before."""
    embeddings, labels = unit_rows(600, 128, dtype=torch.float16), torch.arange(30).repeat(20)

    def scaled(embeddings):
        return 2.0**12 * FUNCTIONS[way](embeddings, labels)

    _, gradient = value_and_gradient(scaled, embeddings)
    _, expected = value_and_gradient(scaled, embeddings.float())
    assert (expected.abs() < 2.0**12 * torch.finfo(torch.float16).smallest_normal).any()
    torch.testing.assert_close(gradient.float(), expected, rtol=1e-3, atol=2.0**-24)


@every_way
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_autocast_does_not_change_value_or_gradient(way, dtype):
    embeddings, labels = unit_rows(120, 32, dtype=dtype), torch.arange(30).repeat(4)
    without_autocast = value_and_gradient(FUNCTIONS[way], embeddings, labels)
    with torch.autocast("cpu", torch.bfloat16):
        assert (embeddings.float() @ embeddings.float().T).dtype == torch.bfloat16
        within = value_and_gradient(FUNCTIONS[way], embeddings, labels)
    assert torch.equal(within[0], without_autocast[0])
    assert torch.equal(within[1], without_autocast[1])


# The share of active triplets


@given(batch=grid_batches())
def test_active_fraction_matches_reference(batch):
    embeddings, labels, margin = batch
    d = distance_table(embeddings)
    active = [d[a][p] + margin > d[a][n] for a, p, n in valid_triplets(labels)]
    expected = sum(active) / len(active) if active else math.nan
    assert active_fraction(embeddings, labels, margin) == pytest.approx(expected, rel=1e-12, nan_ok=True)


def test_active_fraction_is_one_for_identical_vectors():
    embeddings = unit_rows(1).expand(40, 4)
    assert active_fraction(embeddings, TEN_OF_FOUR) == 1.0
    assert math.isnan(active_fraction(embeddings, torch.arange(40)))


# Peers


@pytest.mark.parametrize("way", [way for way in WAYS if way != "semi_hard_hardest"])  # PML has no such miner
@pytest.mark.parametrize("dim", [4, 64])
def test_matches_pytorch_metric_learning(way, dim):
    """PML normalizes rows, so its gradient is tangential to the sphere; and it averages over nonzero costs."""
    losses = pytest.importorskip("pytorch_metric_learning.losses")
    miners = pytest.importorskip("pytorch_metric_learning.miners")
    distance = pytest.importorskip("pytorch_metric_learning.distances").LpDistance(power=2)
    soft = way == "batch_hard_soft"
    peer = losses.TripletMarginLoss(0.0 if soft else 0.2, smooth_loss=soft, distance=distance)
    hardest = miners.BatchHardMiner(distance=distance)
    miner = {
        "semi_hard": miners.TripletMarginMiner(0.2, type_of_triplets="semihard", distance=distance),
        "batch_hard": hardest,
        "batch_hard_soft": hardest,
        "hard_negative": miners.BatchEasyHardMiner("all", "hard", distance=distance),
    }.get(way)
    embeddings, labels = unit_rows(80, dim), torch.arange(16).repeat(5)

    def peer_loss(embeddings):
        return peer(embeddings, labels, miner(embeddings, labels) if miner else None)

    value, gradient = value_and_gradient(FUNCTIONS[way], embeddings, labels)
    along = gradient - (gradient * embeddings).sum(dim=1, keepdim=True) * embeddings
    assert_same((value, along), value_and_gradient(peer_loss, embeddings))
