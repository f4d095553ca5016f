import weakref
from functools import partial

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from familiar.losses import blockwise
from familiar.losses.batch_hard import BatchHard
from familiar.losses.blockwise import BlockLoss, PairLoss, distance_blocks
from familiar.losses.harmonic import HarmonicLoss
from familiar.losses.mining import mine_batch_hard, mine_hard_negative, mine_semi_hard
from familiar.losses.triplet import BatchAll, HardNegative, SemiHard, active_fraction
from support.triplet_reference import (
    as_labels,
    assert_same,
    distance_table,
    grid_batches,
    sphere_batches,
    unit_rows,
    valid_triplets,
    value_and_gradient,
)

pytestmark = pytest.mark.slow

UNEVEN = as_labels([0] * 9 + [1, 2, 2, 3] + [4] * 5)


class Cubes(PairLoss):
    """A smooth loss of pairs: mean of v^3 over positive pairs and -v^2 over negative ones, anchor by anchor."""

    def block_loss(self, block):
        positives, negatives = block.positive_values(pad=0.0), block.negative_values(fill=0.0).clone()
        slopes = (-2 * negatives).scatter_(1, block.positive_cols, 3 * positives.square())
        total = positives.pow(3).sum(dtype=torch.float64) - negatives.square().sum(dtype=torch.float64)
        terms = len(block.values) * (block.values.shape[1] - 1)
        return BlockLoss(total, torch.tensor(terms), slopes)


class DistanceCubes(Cubes):
    uses = "distance"


class SimilarityCubes(Cubes):
    uses = "similarity"


def slow_cubes(uses, embeddings, labels, anchors=None):
    costs = []
    for a in range(len(labels) if anchors is None else anchors):
        for b in range(len(labels)):
            if b != a:
                difference = embeddings[a] - embeddings[b]
                v = difference @ difference if uses == "distance" else embeddings[a] @ embeddings[b]
                costs.append(v**3 if labels[a] == labels[b] else -(v**2))
    return torch.stack(costs).mean() if costs else 0.0 * embeddings.sum()


CUBES = {"distance": DistanceCubes(), "similarity": SimilarityCubes()}
PAIR_LOSSES = {
    **CUBES,
    "batch_all": BatchAll(0.7),
    "batch_all of all": BatchAll(0.7, "all"),
    "semi_hard": SemiHard(0.7),
    "hard_negative": HardNegative(0.7),
    "hard_negative of all": HardNegative(0.7, "all"),
}
# Not a PairLoss, but computed in the same blocks.
LOSSES = {**PAIR_LOSSES, "batch_hard": BatchHard(0.7), "semi_hard_hardest": SemiHard(0.7, select="hardest")}


# Parts of a pair loss


@pytest.mark.parametrize("uses", CUBES)
@given(batch=sphere_batches(), data=st.data())
def test_value_and_gradient_match_slow_reference(uses, batch, data):
    embeddings, labels, _ = batch
    anchors = data.draw(st.none() | st.integers(0, len(labels)))
    ours = value_and_gradient(CUBES[uses], embeddings, labels, anchors)
    assert_same(ours, value_and_gradient(partial(slow_cubes, uses), embeddings, labels, anchors), 1e-9)


@given(batch=grid_batches())
def test_distance_blocks_contain_distances_and_positive_indices(batch):
    embeddings, labels, _ = batch
    d = distance_table(embeddings)
    seen = []
    for rows, block in distance_blocks(embeddings, labels):
        assert block.values.tolist() == d[rows]
        for a, columns, real in zip(
            range(rows.start, rows.stop), block.positive_cols.tolist(), block.positive_mask.tolist(), strict=True
        ):
            seen.append(a)
            expected = [b for b in range(len(labels)) if b != a and labels[a] == labels[b]]
            assert [column for column, is_real in zip(columns, real, strict=True) if is_real] == expected
            assert {column for column, is_real in zip(columns, real, strict=True) if not is_real} == {a}
    assert seen == list(range(len(labels)))


def test_block_returns_padded_positives_and_filled_negatives():
    embeddings = torch.tensor([[0.0], [1.0], [3.0]])
    ((_, block),) = distance_blocks(embeddings, as_labels([0, 0, 1]))
    assert block.values.tolist() == [[0, 1, 9], [1, 0, 4], [9, 4, 0]]
    assert sorted(block.positive_values(pad=-5.0)[0].tolist()) == [-5, 1]
    assert block.positive_values(pad=-5.0)[2].tolist() == [-5, -5]
    assert block.negative_values(fill=7.0).tolist() == [[7, 7, 9], [7, 7, 4], [9, 4, 7]]


@pytest.mark.parametrize("reduction", ["active", "all"])
@given(batch=grid_batches())
def test_number_of_terms_matches_reference(reduction, batch):
    embeddings, labels, margin = batch
    d = distance_table(embeddings)
    counted = [t for t in valid_triplets(labels) if reduction == "all" or d[t[0]][t[1]] + margin > d[t[0]][t[2]]]
    loss = BatchAll(margin, reduction)
    terms = [loss.block_loss(block).terms for _, block in distance_blocks(embeddings, labels)]
    assert sum(map(int, terms)) == len(counted)


@pytest.mark.parametrize("uses", CUBES)
def test_passes_gradcheck(uses):
    embeddings = unit_rows(18, 3).requires_grad_()
    assert torch.autograd.gradcheck(partial(CUBES[uses], labels=UNEVEN), embeddings)
    assert torch.autograd.gradcheck(partial(CUBES[uses], labels=UNEVEN, anchors=7), embeddings)


@pytest.mark.parametrize("uses", CUBES)
def test_rejects_second_derivative(uses):
    embeddings = unit_rows(18, 3).requires_grad_()
    (gradient,) = torch.autograd.grad(CUBES[uses](embeddings, UNEVEN).square(), embeddings, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        gradient.square().sum().backward()


@pytest.mark.parametrize("name", PAIR_LOSSES)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_and_autocast_match_float32(name, dtype):
    embeddings = unit_rows(18, 7, dtype=dtype)
    loss = partial(PAIR_LOSSES[name], labels=UNEVEN)
    value, gradient = value_and_gradient(loss, embeddings)
    expected, expected_gradient = value_and_gradient(loss, embeddings.float())
    assert value.dtype == torch.float32
    assert torch.equal(value, expected)
    assert gradient.dtype == dtype
    eps = torch.finfo(dtype).eps
    torch.testing.assert_close(gradient.float(), expected_gradient, rtol=2 * eps, atol=eps)
    with torch.autocast("cpu", torch.bfloat16):
        assert_same(value_and_gradient(loss, embeddings.float()), (expected, expected_gradient), 0.0)


# Blocks


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("rows_at_once", [1, 2, 3])
def test_block_size_does_not_change_loss(name, rows_at_once, monkeypatch):
    embeddings = unit_rows(18, 7)
    expected = value_and_gradient(LOSSES[name], embeddings, UNEVEN)
    blocked = value_and_gradient(LOSSES[name], embeddings, UNEVEN, 7)
    monkeypatch.setitem(blockwise.VALUES_PER_BLOCK, "cpu", rows_at_once * 18)
    assert blockwise.anchors_per_block(embeddings) == rows_at_once
    assert_same(value_and_gradient(LOSSES[name], embeddings, UNEVEN), expected, 1e-12)
    assert_same(value_and_gradient(LOSSES[name], embeddings, UNEVEN, 7), blocked, 1e-12)


@pytest.mark.parametrize("rows_at_once", [1, 2, 3])
def test_block_size_does_not_change_active_fraction(rows_at_once, monkeypatch):
    embeddings = unit_rows(18)
    expected = active_fraction(embeddings, UNEVEN)
    monkeypatch.setitem(blockwise.VALUES_PER_BLOCK, "cpu", rows_at_once * 18)
    assert active_fraction(embeddings, UNEVEN) == expected


def test_block_smaller_than_one_row_has_one_anchor(monkeypatch):
    monkeypatch.setitem(blockwise.VALUES_PER_BLOCK, "cpu", 5)
    assert [rows for rows, _ in distance_blocks(unit_rows(18), UNEVEN)] == [slice(a, a + 1) for a in range(18)]


class Allocations(TorchDispatchMode):
    """Records the largest number of values in one tensor's storage, and in all storages at the same time."""

    def __init__(self):
        super().__init__()
        self.made = []
        self.largest = self.peak = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(result):
            if isinstance(tensor, torch.Tensor):
                storage = tensor.untyped_storage()
                values = storage.nbytes() // tensor.element_size()
                self.made.append((weakref.ref(tensor), storage.data_ptr(), values))
                self.largest = max(self.largest, values)
        self.made = [(tensor, address, values) for tensor, address, values in self.made if tensor() is not None]
        self.peak = max(self.peak, sum({address: values for _, address, values in self.made}.values()))
        return result


N, DIM, BLOCK = 1500, 8, 2**14
LARGE = unit_rows(N, DIM, dtype=torch.float32)
LARGE_LABELS = torch.cat([torch.zeros(300, dtype=torch.int64), 1 + torch.arange(N - 300) // 5])
COMPUTED = {
    **{name: lambda rows, loss=loss: loss(rows, LARGE_LABELS).backward() for name, loss in LOSSES.items()},
    "prefixes": lambda rows: HarmonicLoss(BatchAll(0.7), (4, 8), (0.5, 0.5))(rows, LARGE_LABELS).backward(),
    "active_fraction": lambda rows: active_fraction(rows, LARGE_LABELS),
    "mine_batch_hard": lambda rows: mine_batch_hard(rows, LARGE_LABELS),
}


@pytest.mark.one_case
@pytest.mark.parametrize("name", [name for name in COMPUTED if name != "semi_hard_hardest"])
def test_peak_memory_is_bounded_by_block_size(name, monkeypatch):
    monkeypatch.setitem(blockwise.VALUES_PER_BLOCK, "cpu", BLOCK)
    with Allocations() as seen:
        COMPUTED[name](LARGE.clone().requires_grad_())
    assert seen.largest <= 3 * BLOCK
    assert seen.peak <= 16 * BLOCK < N**2 / 8
    assert seen.peak >= N * DIM, "nothing was seen"


@pytest.mark.parametrize("miner", [mine_hard_negative, partial(mine_semi_hard, select="hardest")])
def test_mining_memory_is_linear_in_triplet_count(miner, monkeypatch):
    monkeypatch.setitem(blockwise.VALUES_PER_BLOCK, "cpu", BLOCK)
    with Allocations() as seen:
        triplets = miner(LARGE, LARGE_LABELS)
    assert seen.peak <= 16 * (BLOCK + len(triplets))


@pytest.mark.parametrize("name", [*PAIR_LOSSES, "batch_hard"])
def test_forward_saves_only_one_gradient_for_backward(name):
    embeddings = LARGE.clone().requires_grad_()
    saved = []

    def keep(tensor):
        saved.append(tensor.numel())
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        LOSSES[name](embeddings, LARGE_LABELS)
    assert saved == [N * DIM]
