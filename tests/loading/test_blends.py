"""Blended faces: determinism, that they are made of the crops, and the dataset and batches with them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from familiar.datasets.folders import DataSpec
from familiar.loading.blends import NO_LABEL, BlendedDataset, bend, blend, match_colors
from familiar.loading.crops import Crops, CropTable, read_table
from familiar.loading.dataset import PhotoKey
from familiar.loading.sampler import ShuffledBatches
from familiar.photos.preprocessing import Preprocessing

SIDE = 32


@pytest.fixture(scope="module")
def photos() -> CropTable:
    preprocessing = Preprocessing(size_px=SIDE, resize_px=SIDE)
    return read_table(DataSpec(("synthetic:cats:4x3",)).read(), preprocessing)


def gradient(side: int = SIDE) -> np.ndarray:
    ramp = np.linspace(0, 255, side).astype(np.uint8)
    return np.stack([np.tile(ramp, (side, 1)), np.tile(ramp[:, None], (1, side)), np.full((side, side), 90)], 2).astype(
        np.uint8
    )


@given(st.integers(0, 10**6), st.integers(0, 2**32))
def test_blend_depends_on_index_and_seed_alone(photos: CropTable, index: int, seed: int) -> None:
    first, again = (blend(photos.crops, index, seed) for _ in range(2))
    np.testing.assert_array_equal(first, again)
    assert first.shape == (SIDE, SIDE, 3)
    assert first.dtype == np.uint8
    assert not np.array_equal(first, blend(photos.crops, index + 1, seed))


def test_blends_differ_from_all_photos_and_from_each_other(photos: CropTable) -> None:
    blends = [blend(photos.crops, index, 0) for index in range(40)]
    known = {photos.crops[row].tobytes() for row in range(len(photos.crops))}
    made = {pixels.tobytes() for pixels in blends}
    assert len(made) == 40
    assert not made & known


@given(st.integers(0, 2**32))
def test_blend_of_equal_photos_of_one_color_is_that_color(seed: int) -> None:
    class OneColor(Crops):
        def __init__(self) -> None:
            """Without photos."""

        def __len__(self) -> int:
            return 3

        def __getitem__(self, row: int) -> np.ndarray:
            return np.full((SIDE, SIDE, 3), (10, 120, 250), np.uint8)

    assert np.ptp(blend(OneColor(), 0, seed).astype(int) - [10, 120, 250]) <= 1


@given(st.integers(0, 2**32))
def test_bent_face_keeps_its_order(seed: int) -> None:
    """A ramp stays nearly a ramp: features move, but by less than a sixth of the face in all but rare cases."""
    bent = bend(gradient(), np.random.default_rng(seed))
    moved = np.abs(bent.astype(int) - gradient())[..., :2] / 255
    assert np.median(moved) < 1 / 6
    assert moved.max() > 0


def test_colors_are_those_of_the_other_crop() -> None:
    generator = np.random.default_rng(0)
    pixels, model = generator.integers(0, 256, (2, SIDE, SIDE, 3)).astype(np.uint8)
    model = (model // 4 + 100).astype(np.uint8)
    matched = match_colors(pixels, model)
    np.testing.assert_allclose(matched.mean((0, 1)), model.mean((0, 1)), rtol=1e-4)
    np.testing.assert_allclose(matched.std((0, 1)), model.std((0, 1)), rtol=1e-3)


def test_colors_of_a_crop_of_one_color_are_finite() -> None:
    plain = np.full((SIDE, SIDE, 3), 7, np.uint8)
    np.testing.assert_allclose(match_colors(plain, gradient()).mean((0, 1)), gradient().mean((0, 1)), rtol=1e-4)


def test_dataset_has_photos_with_labels_then_blends_without(photos: CropTable) -> None:
    dataset = BlendedDataset(photos.table, photos.crops, seed=5, blends=24)
    assert len(dataset) == 12 + 24
    batch = dataset.__getitems__([PhotoKey(0, 3), PhotoKey(0, 12), PhotoKey(0, 35)])
    assert batch.labels.tolist() == [int(photos.table.labels[3]), NO_LABEL, NO_LABEL]
    np.testing.assert_array_equal(batch.rgb_u8[0], photos.crops[3])
    np.testing.assert_array_equal(batch.rgb_u8[1], blend(photos.crops, 0, 5))
    np.testing.assert_array_equal(batch.rgb_u8[2], blend(photos.crops, 23, 5))


@given(photos=st.integers(1, 40), batch_size=st.integers(1, 50), rounds=st.integers(1, 4), epoch=st.integers(0, 9))
def test_epoch_has_all_photos_and_one_round_of_blends(photos: int, batch_size: int, rounds: int, epoch: int) -> None:
    sampler = ShuffledBatches(photos, batch_size, blend_rounds=rounds)
    sampler.epoch = epoch
    rows = [key.row for batch in sampler for key in batch]
    first = photos * (1 + epoch % rounds)
    allowed = {*range(photos), *range(first, first + photos)}
    assert len(set(rows)) == len(rows) == len(sampler) * sampler.batch_size
    assert set(rows) <= allowed
    assert len(rows) > 2 * photos - sampler.batch_size
