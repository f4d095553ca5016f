from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from familiar.loading.dataset import PhotoKey
from familiar.loading.sampler import IdentityBatches, ShardBatches, ShuffledBatches

seeds = st.integers(0, 2**40)
HALVES = (slice(4), slice(4, None))  # of a batch of eight


def rows(batches: list[list[PhotoKey]]) -> list[int]:
    return [key.row for batch in batches for key in batch]


def in_epoch(sampler: ShuffledBatches | IdentityBatches | ShardBatches, epoch: int) -> list[list[PhotoKey]]:
    sampler.epoch = epoch
    return list(sampler)


# ShuffledBatches


@given(st.integers(1, 60), st.integers(1, 70), seeds, st.integers(0, 1000))
def test_full_batches_contain_each_photo_at_most_once(photos: int, batch: int, seed: int, epoch: int) -> None:
    sampler = ShuffledBatches(photos, batch, seed)
    batches = in_epoch(sampler, epoch)
    size = min(photos, batch)
    assert {len(keys) for keys in batches} == {size}
    assert len(batches) == len(sampler) == photos // size
    assert set(Counter(rows(batches)).values()) == {1}
    assert set(rows(batches)) <= set(range(photos))
    assert len(rows(batches)) > photos - size  # less than a batch is left out
    assert {key.epoch for keys in batches for key in keys} == {epoch}
    assert all(type(key.row) is int for keys in batches for key in keys)


def test_every_photo_appears_when_batch_size_divides_count() -> None:
    assert sorted(rows(list(ShuffledBatches(12, 4)))) == list(range(12))


def test_fewer_photos_than_batch_size_give_one_batch() -> None:
    assert [sorted(rows([batch])) for batch in ShuffledBatches(3, 32)] == [[0, 1, 2]]


def test_omitted_photos_appear_in_other_epochs() -> None:
    sampler = ShuffledBatches(10, 8, seed=1)
    assert {row for epoch in range(12) for row in rows(in_epoch(sampler, epoch))} == set(range(10))


# IdentityBatches

counts = st.lists(st.integers(1, 9), min_size=1, max_size=12)


def labels_of(counts: list[int], seed: int = 0) -> np.ndarray:
    """So many photos of each identity, mixed; the labels have gaps."""
    labels = np.repeat(3 * np.arange(len(counts)) + 1, counts)
    return np.random.default_rng(seed).permutation(labels)


@given(counts, st.data(), seeds)
def test_batch_has_p_identities_with_k_photos_each(counts: list[int], data: st.DataObject, seed: int) -> None:
    identities = data.draw(st.integers(1, len(counts)))
    photos = data.draw(st.integers(1, 6))
    labels = labels_of(counts, seed % 1000)
    sampler = IdentityBatches(labels, identities, photos, seed)
    batches = in_epoch(sampler, 3)
    assert len(batches) == len(sampler) == len(counts) // identities
    seen: list[int] = []
    for batch in batches:
        assert len(batch) == identities * photos
        assert {key.epoch for key in batch} == {3}
        for start in range(0, len(batch), photos):
            drawn = rows([batch[start : start + photos]])
            (label,) = set(labels[drawn].tolist())
            seen.append(label)
            # No photo twice where there are enough; where not, each at least once.
            assert len(set(drawn)) == min(photos, int((labels == label).sum()))
    assert len(set(seen)) == len(seen)


def test_epoch_repeats_no_identity_and_epochs_cover_all() -> None:
    labels = labels_of([4] * 7)
    sampler = IdentityBatches(labels, 3, 2)
    epochs = [{int(labels[row]) for row in rows(in_epoch(sampler, epoch))} for epoch in range(10)]
    assert all(len(seen) == 6 for seen in epochs)
    assert set.union(*epochs) == set(labels.tolist())


def test_photos_are_drawn_evenly() -> None:
    sampler = IdentityBatches(np.repeat(np.arange(2), 8), 2, 4)
    drawn = Counter(row for epoch in range(400) for row in rows(in_epoch(sampler, epoch)))
    # 400 draws of 4 from 8: 200 +- 10 each.
    assert len(drawn) == 16
    assert 150 < min(drawn.values()) <= max(drawn.values()) < 250


def test_repeated_photos_are_drawn_evenly() -> None:
    sampler = IdentityBatches(np.zeros(3, np.int64), 1, 4)
    drawn = Counter(row for epoch in range(600) for row in rows(in_epoch(sampler, epoch)))
    # Each once in every batch, and 600 / 3 +- 11.5 times more.
    assert 800 - 58 < min(drawn.values()) <= max(drawn.values()) < 800 + 58


@given(counts, st.integers(1, 6), seeds)
def test_repeated_photos_have_keys_of_their_own(counts: list[int], photos: int, seed: int) -> None:
    (batch,) = in_epoch(IdentityBatches(labels_of(counts), len(counts), photos, seed), 3)
    assert len(set(batch)) == len(batch)
    for row, times in Counter(rows([batch])).items():
        assert sorted(key.repeat for key in batch if key.row == row) == list(range(times))


@given(counts, st.integers(1, 6), seeds)
def test_no_photo_is_repeated_where_nothing_would_change_it(counts: list[int], photos: int, seed: int) -> None:
    (batch,) = in_epoch(IdentityBatches(labels_of(counts), len(counts), photos, seed, repeats=False), 3)
    assert len(set(rows([batch]))) == len(batch) == sum(min(count, photos) for count in counts)


# Both


def samplers(seed: int) -> list[ShuffledBatches | IdentityBatches]:
    return [ShuffledBatches(40, 7, seed), IdentityBatches(labels_of([5] * 8), 3, 4, seed)]


@pytest.mark.parametrize("kind", [0, 1])
def test_order_depends_only_on_seed_and_epoch(kind: int) -> None:
    sampler, other = samplers(seed=5)[kind], samplers(seed=6)[kind]
    epochs = [in_epoch(sampler, epoch) for epoch in range(5)]
    assert in_epoch(samplers(seed=5)[kind], 3) == epochs[3]
    assert list(sampler) == in_epoch(sampler, 4)  # a second walk is the same
    assert len({tuple(rows(batches)) for batches in [*epochs, in_epoch(other, 0)]}) == 6


@pytest.mark.parametrize(("photos", "batch"), [(0, 4), (4, 0), (-1, 4)])
def test_rejects_nonpositive_photo_count_or_batch_size(photos: int, batch: int) -> None:
    with pytest.raises(ValueError, match=f"cannot make batches of {batch} from {photos} photos"):
        ShuffledBatches(photos, batch)


@pytest.mark.parametrize(
    ("counts", "identities", "photos", "message"),
    [
        ([3, 3], 0, 2, "at least 1 identity and 1 photo, got 0 x 2"),
        ([3, 3], 2, 0, "at least 1 identity and 1 photo, got 2 x 0"),
        ([3, 3], 3, 2, "batches of 3 identities, but there are only 2"),
        ([], 1, 1, "batches of 1 identities, but there are only 0"),
    ],
)
def test_rejects_impossible_identity_batches(counts: list[int], identities: int, photos: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        IdentityBatches(labels_of(counts).astype(np.int64), identities, photos)


# ShardBatches


def shards_of(sizes: list[int]) -> list[np.ndarray]:
    bounds = np.cumsum([0, *sizes])
    return [np.arange(start, end) for start, end in pairwise(bounds)]


def in_shard_order(sampler: ShardBatches) -> list[list[int]]:
    """Each part's rows in the order in which its shards are read."""
    return [rows_.tolist() for rows_ in sampler._rows_by_part()]


@given(st.lists(st.integers(1, 9), min_size=1, max_size=12), st.data(), seeds, st.integers(0, 100))
def test_photos_pass_through_a_buffer(sizes: list[int], data: st.DataObject, seed: int, epoch: int) -> None:
    parts = data.draw(st.integers(1, len(sizes)))
    batch_size, buffer = data.draw(st.integers(parts, 20)), data.draw(st.integers(1, 15))
    sampler = ShardBatches(shards_of(sizes), batch_size, buffer, seed, parts)
    batches = in_epoch(sampler, epoch)
    assert len(batches) == len(sampler)
    assert {len(batch) for batch in batches} <= {batch_size}
    drawn = rows(batches)
    assert len(set(drawn)) == len(drawn)
    bounds = [batch_size * part // parts for part in range(parts + 1)]
    for (start, end), order in zip(pairwise(bounds), in_shard_order(sampler), strict=True):
        position = {row: index for index, row in enumerate(order)}
        for index, row in enumerate(key.row for batch in batches for key in batch[start:end]):
            assert position[row] < index + buffer, "a photo is drawn from those read so far"


def test_every_photo_of_the_shards_is_drawn_once_where_batches_are_full() -> None:
    sampler = ShardBatches(shards_of([3, 5, 4]), batch_size=4, buffer=3)
    assert sorted(rows(in_epoch(sampler, 2))) == list(range(12))


def test_shards_keep_their_order_within_a_buffer_of_one() -> None:
    sampler = ShardBatches(shards_of([3, 3]), batch_size=6, buffer=1)
    assert sorted([tuple(rows(in_epoch(sampler, 0)))[:3], tuple(rows(in_epoch(sampler, 0)))[3:]]) == [
        (0, 1, 2),
        (3, 4, 5),
    ]


def test_order_of_shards_depends_on_seed_and_epoch_alone() -> None:
    def order(seed: int, epoch: int) -> list[int]:
        return rows(in_epoch(ShardBatches(shards_of([10] * 8), 8, 5, seed), epoch))

    assert order(1, 2) == order(1, 2)
    assert order(1, 2) != order(1, 3)
    assert order(1, 2) != order(2, 2)


def test_parts_have_shards_of_their_own() -> None:
    sampler = ShardBatches(shards_of([10] * 8), batch_size=8, buffer=5, parts=2)
    first, second = ({row // 10 for batch in in_epoch(sampler, 0) for row in rows([batch])[part]} for part in HALVES)
    assert len(first) == len(second) == 4
    assert not first & second


@pytest.mark.parametrize(
    ("shards", "batch_size", "buffer", "parts", "message"),
    [
        ([5], 4, 2, 2, "1 shards cannot be divided among 2 processes"),
        ([5, 5], 1, 2, 2, "batches of 1 in 2 parts"),
        ([5], 4, 0, 1, "buffer of 0"),
    ],
)
def test_rejects_impossible_shard_batches(
    shards: list[int], batch_size: int, buffer: int, parts: int, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        ShardBatches(shards_of(shards), batch_size, buffer, parts=parts)
