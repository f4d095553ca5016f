import itertools
from collections import Counter

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from familiar.losses import blockwise
from familiar.losses.mining import (
    Triplets,
    mine_batch_all,
    mine_batch_hard,
    mine_hard_negative,
    mine_semi_hard,
)
from support.triplet_reference import (
    as_labels,
    chosen_triplets,
    distance_table,
    grid_batches,
    semi_hard_triplets,
    sphere_batches,
    unit_rows,
    valid_triplets,
)

TEN_OF_FOUR = torch.arange(10).repeat(4)


def mined(way, embeddings, labels, margin):
    match way:
        case "batch_all":
            return mine_batch_all(embeddings, labels)
        case "semi_hard":
            return mine_semi_hard(embeddings, labels, margin)
        case "semi_hard_hardest":
            return mine_semi_hard(embeddings, labels, margin, select="hardest")
        case "batch_hard":
            return mine_batch_hard(embeddings, labels)
        case "hard_negative":
            return mine_hard_negative(embeddings, labels)


WAYS = ["batch_all", "semi_hard", "semi_hard_hardest", "batch_hard", "hard_negative"]


def pairs_with_a_negative(labels):
    return sorted({triplet[:2] for triplet in valid_triplets(labels)})


def pair(triplet):
    return triplet[:2]


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
@given(batch=st.booleans().flatmap(lambda unit: sphere_batches(unit=unit)))
def test_mines_exactly_the_defined_triplets_in_order(way, batch):
    """Exactly the defined triplets, in lexicographic order."""
    assert list(mined(way, *batch)) == chosen_triplets(way, *batch)


@pytest.mark.slow
@given(batch=grid_batches())
def test_batch_all_and_semi_hard_match_reference_on_ties(batch):
    embeddings, labels, margin = batch
    assert list(mine_batch_all(embeddings, labels)) == valid_triplets(labels)
    assert list(mine_semi_hard(embeddings, labels, margin)) == semi_hard_triplets(*batch)


@pytest.mark.slow
@pytest.mark.parametrize("select", ["hardest", "random"])
@given(batch=grid_batches(), seed=st.integers(0, 99))
def test_select_takes_one_semi_hard_negative_per_pair(select, batch, seed):
    generator = torch.Generator().manual_seed(seed)
    band = semi_hard_triplets(*batch)
    triplets = list(mine_semi_hard(*batch, select=select, generator=generator))
    assert set(triplets) <= set(band)
    assert [pair(triplet) for triplet in triplets] == sorted({pair(triplet) for triplet in band})
    if select == "hardest":
        d = distance_table(batch[0])
        for a, p, n in triplets:
            assert d[a][n] == min(d[a][other] for b, q, other in band if (b, q) == (a, p))


@given(batch=grid_batches())
def test_hard_miners_choose_a_hardest_row_among_ties(batch):
    embeddings, labels, _ = batch
    d = distance_table(embeddings)
    valid = valid_triplets(labels)
    hardest = list(mine_batch_hard(embeddings, labels))
    hard_negatives = list(mine_hard_negative(embeddings, labels))
    assert set(hardest) | set(hard_negatives) <= set(valid)
    assert [a for a, _, _ in hardest] == sorted({a for a, _, _ in valid})
    assert [pair(triplet) for triplet in hard_negatives] == pairs_with_a_negative(labels)
    for a, _, n in hardest + hard_negatives:
        assert d[a][n] == min(d[b][m] for b, _, m in valid if b == a)
    for a, p, _ in hardest:
        assert d[a][p] == max(d[b][q] for b, q, _ in valid if b == a)


def test_triplet_counts_for_ten_identities_with_four_photos():
    embeddings = unit_rows(40, 8)
    assert len(mine_batch_all(embeddings, TEN_OF_FOUR)) == 40 * 3 * 36 == 4320
    assert len(mine_batch_hard(embeddings, TEN_OF_FOUR)) == 40
    assert len(mine_hard_negative(embeddings, TEN_OF_FOUR)) == 40 * 3 == 120


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("names", [[], [5], [5, 5, 5], [1, 2, 3], [-(2**62)]])
def test_mines_nothing_from_batch_without_triplets(way, names):
    triplets = mined(way, unit_rows(len(names)), as_labels(names), 4.0)
    assert len(triplets) == 0
    assert list(triplets) == []
    assert triplets.anchors.dtype == triplets.positives.dtype == triplets.negatives.dtype == torch.int64
    assert all(rows.shape == (0, 4) for rows in triplets.select_rows(unit_rows(len(names))))


def test_identical_vectors_have_no_semi_hard_triplets():
    # Numbers with exact products: on some processors a matrix product rounds identical rows differently.
    embeddings = torch.full((40, 4), 0.5, dtype=torch.float64)
    assert len(mine_semi_hard(embeddings, TEN_OF_FOUR, 0.2)) == 0
    assert len(mine_batch_hard(embeddings, TEN_OF_FOUR)) == 40
    assert len(mine_hard_negative(embeddings, TEN_OF_FOUR)) == 120


def test_semi_hard_band_excludes_both_ends():
    """On a line: negatives at the positive's distance, within the band, at its end and beyond."""
    embeddings = torch.tensor([[0.0], [1.0], [-1.0], [1.25], [1.5], [-2.0]], dtype=torch.float64)
    labels = as_labels([0, 0, 1, 2, 3, 4])
    first_pair = [t for t in mine_semi_hard(embeddings, labels, 1.25) if pair(t) == (0, 1)]
    assert first_pair == [(0, 1, 3)]  # 1 < 1.5625 < 2.25
    assert (0, 1, 4) in list(mine_semi_hard(embeddings, labels, 1.5))


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
@given(batch=sphere_batches(), data=st.data())
def test_is_invariant_to_row_order_and_label_values(way, batch, data):
    embeddings, labels, margin = batch
    order = data.draw(st.permutations(range(len(labels))))
    shuffled = mined(way, embeddings[order], labels[order] * -(2**40) + 7, margin)
    triplets = sorted(tuple(order[row] for row in triplet) for triplet in shuffled)
    assert triplets == list(mined(way, embeddings, labels, margin))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("rows_at_once", [1, 2, 3])
def test_block_size_does_not_change_triplets(way, rows_at_once, monkeypatch):
    embeddings, labels = unit_rows(23), as_labels([0] * 9 + [1, 2, 2, 3] + [4] * 10)
    expected = list(mined(way, embeddings, labels, 0.7))
    monkeypatch.setitem(blockwise.VALUES_PER_BLOCK, "cpu", rows_at_once * len(labels))
    assert expected == list(mined(way, embeddings, labels, 0.7))
    assert expected


def test_random_selection_is_deterministic_for_a_seed():
    embeddings = unit_rows(40)
    first, again, other = (
        list(
            mine_semi_hard(embeddings, TEN_OF_FOUR, 1.0, select="random", generator=torch.Generator().manual_seed(seed))
        )
        for seed in (3, 3, 4)
    )
    assert first == again
    assert first != other
    torch.manual_seed(5)
    default = list(mine_semi_hard(embeddings, TEN_OF_FOUR, 1.0, select="random"))
    torch.manual_seed(5)
    assert default == list(mine_semi_hard(embeddings, TEN_OF_FOUR, 1.0, select="random"))


@pytest.mark.slow
def test_random_selection_covers_the_band_evenly():
    # Nearer than the positive, four in the band, farther than the margin.
    embeddings = torch.tensor([0.0, 1.0, 0.9, 1.05, 1.1, 1.15, 1.2, 3.0], dtype=torch.float64)[:, None]
    labels = as_labels([0, 0, 1, 2, 3, 4, 5, 6])
    generator = torch.Generator().manual_seed(0)
    drawn = Counter(
        next(n for a, p, n in mine_semi_hard(embeddings, labels, 1.0, select="random", generator=generator) if a == 0)
        for _ in range(400)
    )
    assert set(drawn) == {3, 4, 5, 6}
    assert min(drawn.values()) > 60  # five standard deviations below 100 is 57


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_and_autocast_match_float32(way, dtype):
    embeddings = unit_rows(40, 16, dtype=dtype)
    expected = list(mined(way, embeddings.float(), TEN_OF_FOUR, 0.2))
    assert list(mined(way, embeddings, TEN_OF_FOUR, 0.2)) == expected
    with torch.autocast("cpu", torch.bfloat16):
        assert (embeddings.float() @ embeddings.float().T).dtype == torch.bfloat16
        assert list(mined(way, embeddings, TEN_OF_FOUR, 0.2)) == expected
        assert torch.is_autocast_enabled("cpu")


@pytest.mark.parametrize("way", WAYS)
def test_mining_does_not_change_embeddings_or_gradients(way):
    embeddings = unit_rows(40).requires_grad_()
    before = embeddings.detach().clone()
    mined(way, embeddings, TEN_OF_FOUR, 0.2)
    assert torch.equal(embeddings, before)
    assert embeddings.grad is None
    assert torch.is_grad_enabled()


def test_triplets_iterate_as_tuples_of_ints():
    triplets = mine_batch_all(torch.zeros(4, 2), as_labels([0, 0, 1, 1]))
    expected = [(0, 1, 2), (0, 1, 3), (1, 0, 2), (1, 0, 3), (2, 3, 0), (2, 3, 1), (3, 2, 0), (3, 2, 1)]
    assert list(triplets) == expected
    assert len(triplets) == len(expected)
    assert all(type(row) is int for row in itertools.chain.from_iterable(triplets))


def test_triplets_return_anchor_positive_negative_rows():
    rows = torch.arange(4.0)[:, None]
    anchors, positives, negatives = Triplets(as_labels([0, 2]), as_labels([1, 3]), as_labels([2, 0])).select_rows(rows)
    assert anchors.flatten().tolist() == [0, 2]
    assert positives.flatten().tolist() == [1, 3]
    assert negatives.flatten().tolist() == [2, 0]


@pytest.mark.parametrize("anchors", [None, 0, 1, 3, 4, 9])
def test_first_anchors_keeps_triplets_with_first_anchors(anchors):
    triplets = mine_batch_all(torch.zeros(4, 2), as_labels([0, 0, 1, 1]))
    expected = [t for t in triplets if anchors is None or t[0] < anchors]
    assert list(triplets.first_anchors(anchors)) == expected


@pytest.mark.parametrize(
    ("way", "miner"),
    [
        ("semi_hard", {"type": "TripletMarginMiner", "margin": 0.2, "type_of_triplets": "semihard"}),
        ("batch_hard", {"type": "BatchHardMiner"}),
        ("hard_negative", {"type": "BatchEasyHardMiner", "pos_strategy": "all", "neg_strategy": "hard"}),
    ],
)
def test_matches_pytorch_metric_learning(way, miner):
    miners = pytest.importorskip("pytorch_metric_learning.miners")
    distances = pytest.importorskip("pytorch_metric_learning.distances")
    lmu = pytest.importorskip("pytorch_metric_learning.utils.loss_and_miner_utils")
    options = {name: value for name, value in miner.items() if name != "type"}
    peer = getattr(miners, miner["type"])(distance=distances.LpDistance(power=2), **options)
    embeddings = unit_rows(60, 6)
    labels = torch.arange(12).repeat(5)
    peer_triplets = lmu.convert_to_triplets(peer(embeddings, labels), labels, labels)
    triplets = sorted(zip(*(column.tolist() for column in peer_triplets), strict=True))
    assert list(mined(way, embeddings, labels, 0.2)) == triplets
    assert triplets
