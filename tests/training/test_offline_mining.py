import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.functional import normalize

from familiar.core.errors import BadDataset
from familiar.loading.crops import read_table
from familiar.loading.dataset import FaceDataset
from familiar.losses import blockwise
from familiar.training.fitting import fit
from familiar.training.offline_mining import OfflineTriplets, mine_hardest_triplets
from familiar.training.run import RunFolder
from support.tiny_run import TINY, Interrupted, history, stop_after

OFFLINE = TINY.with_settings(
    ["loss.name=batch_hard", "mining.mode=offline", "mining.every_steps=1", "mining.subset=16"]
)
PREPROCESSING = TINY.with_settings(["input.normalization=symmetric"]).input.preprocessing()


def points(n, k, d=4, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return normalize(torch.randn(n, d, generator=generator, dtype=torch.float64)), torch.arange(n) // k


def slow_triplets(embeddings, labels, skip):
    """Return each row's hardest triplet within the limits, row by row."""
    rows, names = embeddings.tolist(), labels.tolist()

    def distance(i, j):
        return sum((a - b) ** 2 for a, b in zip(rows[i], rows[j], strict=True))

    def distances(i, same):
        return {distance(i, j): j for j in range(len(rows)) if j != i and (names[j] == names[i]) == same}

    farthest = sorted(max(distances(i, True)) for i in range(len(rows)) if distances(i, True))
    nearest = sorted(min(distances(i, False)) for i in range(len(rows)) if distances(i, False))
    if not farthest or not nearest:
        return []
    highest = farthest[min(int((1 - skip) * len(farthest)), len(farthest) - 1)]
    lowest = nearest[int(skip * len(nearest))]
    triplets = []
    for i in range(len(rows)):
        positives = {d: j for d, j in distances(i, True).items() if d <= highest + 1e-6}
        negatives = {d: j for d, j in distances(i, False).items() if d >= lowest - 1e-6}
        if positives and negatives:
            triplets.append((i, positives[max(positives)], negatives[min(negatives)]))
    return triplets


@given(
    n=st.integers(0, 14),
    k=st.integers(1, 5),
    skip=st.sampled_from([0.0, 0.1, 0.25, 0.5]),
    seed=st.integers(0, 999),
    block=st.sampled_from([1, 20, 1000]),
)
def test_triplets_match_slow_reference(n, k, skip, seed, block):
    embeddings, labels = points(n, k, seed=seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(blockwise.VALUES_PER_BLOCK, "cpu", block)
        assert list(mine_hardest_triplets(embeddings, labels, skip)) == slow_triplets(embeddings, labels, skip)


def test_skip_ignores_wrong_label():
    """One photo labeled 0 lies among those of 1, and would be the farthest positive of every other 0."""
    angles = torch.tensor([0.0, 0.1, 0.2, 2.0, 2.1, 2.2, 2.05, 2.15, 2.25, 2.3, 2.12], dtype=torch.float64)
    embeddings = torch.stack([angles.cos(), angles.sin()], dim=1)
    labels = torch.tensor([0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 0])
    assert next(iter(mine_hardest_triplets(embeddings, labels, skip=0.0))) == (0, 10, 3)
    careful = mine_hardest_triplets(embeddings, labels, skip=0.4)
    assert next(iter(careful)) == (0, 2, 3)
    assert 10 not in careful.positives.tolist() + careful.anchors.tolist()


class OnePixel(torch.nn.Module):
    """A network that looks at one pixel."""

    def __init__(self):
        super().__init__()
        self.turn = torch.nn.Parameter(torch.zeros(1))

    def forward(self, images):
        angle = images[:, 0, 0, 0] + self.turn
        return torch.stack([angle.cos(), angle.sin()], dim=1)


@pytest.fixture
def sampler(cats):
    read = read_table(cats.read(), PREPROCESSING)
    return OfflineTriplets(FaceDataset(read.table, read.crops), 12, every_steps=3, subset=20, skip=0.0, seed=5)


def test_batches_are_anchors_then_positives_then_negatives(sampler):
    labels = sampler.unaugmented.table.labels
    assert (len(sampler), list(sampler.round_starts())) == (4, [0, 3])
    all_batches = []
    for first in sampler.round_starts():
        sampler.mine_triplets(OnePixel(), first)
        batches = list(sampler)
        all_batches += batches
        for batch in batches:
            rows = np.array([key.row for key in batch]).reshape(3, 4)
            anchors, positives, negatives = labels[rows]
            assert (anchors == positives).all()
            assert (anchors != negatives).all()
            assert (rows[0] != rows[1]).all()
            assert {key.epoch for key in batch} == {0}
        # Whole identities of four, until there are twenty photos.
        assert len(np.unique(labels[[key.row for batch in batches for key in batch]])) <= 5
    assert len(all_batches) == len(sampler), "as many as shuffled batches"


@pytest.mark.slow
def test_rounds_and_epochs_give_different_triplets(sampler):
    def chosen(epoch, first):
        sampler.epoch = epoch
        sampler.mine_triplets(OnePixel(), first)
        return list(sampler)

    assert chosen(0, 0) == chosen(0, 0)
    assert len({str(chosen(epoch, first)) for epoch in (0, 1) for first in (0, 3)}) == 4


def test_mining_uses_current_weights(sampler):
    network = OnePixel()
    sampler.mine_triplets(network, 0)
    before = list(sampler)
    torch.nn.init.constant_(network.turn, 1.0)  # a turn of the whole circle changes no distance
    sampler.mine_triplets(network, 0)
    assert list(sampler) == before
    network.forward = lambda images: normalize(images[:, :2, 1, 1] + network.turn)
    sampler.mine_triplets(network, 0)
    assert list(sampler) != before


def test_rejects_identities_with_one_photo(cats):
    table = cats.read()
    table = table.select_rows(np.flatnonzero(np.r_[True, table.labels[1:] != table.labels[:-1]]))
    read = read_table(table, PREPROCESSING)
    sampler = OfflineTriplets(FaceDataset(read.table, read.crops), 12, 3, 0, 0.0)
    with pytest.raises(BadDataset, match="no identity has two photos"):
        sampler.mine_triplets(OnePixel(), 0)


@pytest.mark.slow
@pytest.mark.usefixtures("without_curves")
def test_resumed_run_equals_uninterrupted_run(tmp_path, cats):
    whole, broken = RunFolder(tmp_path / "whole"), RunFolder(tmp_path / "broken")
    fit(OFFLINE, cats, whole.path)
    with pytest.raises(Interrupted):
        fit(OFFLINE, cats, broken.path, on_epoch=stop_after(1))
    fit(OFFLINE, cats, broken.path, resume=True)
    assert whole.last.read_bytes() == broken.last.read_bytes()
    assert history(whole) == history(broken)
    assert history(whole)[0]["margin"] == "0.2"
