import os
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from familiar.core.errors import TrainingFailed, UnreadablePhoto
from familiar.datasets.folders import DataSpec
from familiar.loading.augment.settings import Augmentation
from familiar.loading.batches import PhotoBatches, standardize_batch
from familiar.loading.cache import CropCache
from familiar.loading.crops import read_table
from familiar.loading.dataset import FaceDataset, PhotoKey, sequential_batches
from familiar.loading.sampler import ShuffledBatches
from familiar.photos.decoding import save_photo
from familiar.photos.preprocessing import Preprocessing, standardize
from support.tiers import small_and_exhaustive

CPU = torch.device("cpu")
PREPROCESSING = Preprocessing(size_px=32, resize_px=32)
CERTAIN = Augmentation(rotate_p=1.0, affine_p=1.0, jitter_p=1.0)


@pytest.fixture
def cats(tmp_path: Path) -> DataSpec:
    """Three identities of three photos each, as files."""
    for photo in DataSpec(("synthetic:cats:3x3",)).read().photos:
        folder = tmp_path / "cats" / str(photo.identity)
        folder.mkdir(parents=True, exist_ok=True)
        save_photo(photo.draw(), folder / f"{photo.index}.png")
    return DataSpec((str(tmp_path / "cats"),))


@pytest.fixture(autouse=True)
def threads_as_before() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def photos_of(data: DataSpec, cache: CropCache | None = None) -> FaceDataset:
    crop_table = read_table(data.read(), PREPROCESSING, cache)
    return FaceDataset(crop_table.table, crop_table.crops, CERTAIN, seed=2)


Images = list[tuple[torch.Tensor, torch.Tensor]]


def epochs_of(dataset: FaceDataset, workers: int, epochs: Sequence[int]) -> list[Images]:
    """Load epochs as training does, with the same workers for all."""
    sampler = ShuffledBatches(len(dataset), batch_size=4, seed=1)
    batches = PhotoBatches(dataset, sampler, CPU, workers)
    loaded: list[Images] = []
    for epoch in epochs:
        sampler.epoch = epoch
        loaded.append([(images.clone(), labels) for images, labels, _ in batches])
    return loaded


def assert_same(first: Images, second: Images) -> None:
    assert len(first) == len(second)
    for (images, labels), (same_images, same_labels) in zip(first, second, strict=True):
        assert torch.equal(images, same_images)
        assert torch.equal(labels, same_labels)


# Numbers


@pytest.mark.parametrize("color_order", ["RGB", "BGR"])
@given(
    mean=st.tuples(*[st.floats(0, 1)] * 3),
    std=st.tuples(*[st.floats(0.01, 1)] * 3),
    photos=st.integers(0, 3),
    seed=st.integers(0, 99),
)
def test_standardized_batch_equals_inference_standardization(
    color_order: str, mean: tuple[float, ...], std: tuple[float, ...], photos: int, seed: int
) -> None:
    preprocessing = Preprocessing(size_px=16, resize_px=16, color_order=color_order, mean=mean, std=std)
    rgb_u8 = np.random.default_rng(seed).integers(0, 256, (photos, 16, 16, 3), dtype=np.uint8)
    images = standardize_batch(torch.from_numpy(rgb_u8), preprocessing)
    assert images.dtype == torch.float32
    assert np.array_equal(images.numpy(), standardize(rgb_u8, preprocessing))


@pytest.mark.parametrize("color_order", ["RGB", "BGR"])
def test_every_color_value_matches_inference_standardization(color_order: str) -> None:
    preprocessing = Preprocessing(size_px=16, resize_px=16, color_order=color_order)
    rgb_u8 = np.arange(256, dtype=np.uint8).reshape(1, 16, 16, 1).repeat(3, axis=3)
    images = standardize_batch(torch.from_numpy(rgb_u8), preprocessing)
    assert np.array_equal(images.numpy(), standardize(rgb_u8, preprocessing))
    black, white = images[0, :, 0, 0], images[0, :, -1, -1]
    mean, std = (torch.tensor(values) for values in (preprocessing.mean, preprocessing.std))
    torch.testing.assert_close(black, -mean / std)
    torch.testing.assert_close(white, (1 - mean) / std)


@pytest.mark.slow
def test_standardizing_keeps_input_and_returns_channels_last(cats: DataSpec) -> None:
    rgb_u8 = torch.full((2, 16, 16, 3), 7, dtype=torch.uint8)
    images = standardize_batch(rgb_u8, Preprocessing(size_px=16, resize_px=16))
    assert (rgb_u8 == 7).all()
    assert images.is_contiguous(memory_format=torch.channels_last)
    assert images.stride() == (3 * 16 * 16, 1, 16 * 3, 3)
    for loaded, *_ in PhotoBatches(photos_of(cats), sequential_batches(range(9), 4), CPU):
        assert loaded.is_contiguous(memory_format=torch.channels_last)


# Order and keys


@pytest.mark.slow
def test_batches_contain_standardized_items_in_key_order(cats: DataSpec) -> None:
    dataset = photos_of(cats)
    keys = [[PhotoKey(1, 8), PhotoKey(0, 0)], [PhotoKey(2, 4)]]
    for (images, labels, rows), chosen in zip(PhotoBatches(dataset, keys, CPU), keys, strict=True):
        rgb_u8 = np.stack([dataset[key][0] for key in chosen])
        assert np.array_equal(images.numpy(), standardize(rgb_u8, PREPROCESSING))
        assert labels.tolist() == [dataset[key][1] for key in chosen]
        assert rows.tolist() == [key.row for key in chosen]


@pytest.mark.exhaustive
@pytest.mark.parametrize(("workers", "cached"), small_and_exhaustive((1, True), (2, False)))
def test_batches_depend_on_epoch_but_not_workers_or_threads(
    cats: DataSpec, tmp_path: Path, workers: int, cached: bool
) -> None:
    dataset = photos_of(cats, CropCache(tmp_path / "cache") if cached else None)
    torch.set_num_threads(1)
    first, second = epochs_of(dataset, 0, (0, 1))
    assert len(first) == 2
    assert not torch.equal(first[0][0], second[0][0])
    torch.set_num_threads(3)
    for single_threaded, multi_threaded in zip((first, second), epochs_of(photos_of(cats), 0, (0, 1)), strict=True):
        assert_same(single_threaded, multi_threaded)
    (resumed,) = epochs_of(dataset, 0, (1,))
    assert_same(resumed, second)
    if cached:  # so that a worker must read them from the cache
        for photo in dataset.table.photos:
            assert isinstance(photo, Path)
            photo.unlink()
    random_state = torch.get_rng_state()
    # The workers of the first epoch load the others too; they get the epoch from the keys.
    epoch_0, epoch_1, repeated = epochs_of(dataset, workers, (0, 1, 0))
    assert_same(epoch_0, first)
    assert_same(epoch_1, second)
    assert_same(repeated, first)
    assert torch.equal(torch.get_rng_state(), random_state), "dropout draws from it"


# Errors


@pytest.mark.slow
@pytest.mark.parametrize(("workers", "threads"), small_and_exhaustive((0, 2), (0, 1), (1, 1)))
def test_missing_photo_error_names_file_in_one_line(cats: DataSpec, workers: int, threads: int) -> None:
    torch.set_num_threads(threads)
    dataset = photos_of(cats)
    missing = dataset.table.photos[5]
    assert isinstance(missing, Path)
    missing.unlink()
    batches = PhotoBatches(dataset, sequential_batches(range(9), 4), CPU, workers)
    with pytest.raises(UnreadablePhoto) as caught:
        list(batches)
    assert str(caught.value).startswith(f"{missing}: ")
    assert "\n" not in str(caught.value)


@pytest.mark.slow
@pytest.mark.parametrize("count", small_and_exhaustive(1, 4))
def test_killed_worker_raises_training_failed(cats: DataSpec, monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    """As the system kills a process that uses too much memory: while it loads, and while it sends."""
    monkeypatch.setattr("torch.utils.data._utils.MP_STATUS_CHECK_INTERVAL", 0.1)
    batches = PhotoBatches(photos_of(cats), sequential_batches(range(9), count), CPU, workers=1)

    def load() -> None:
        for _ in batches:
            os.kill(batches._loader._iterator._workers[0].pid, signal.SIGKILL)

    with pytest.raises(TrainingFailed, match=r"^a process that loads photos stopped.*fewer workers.*__main__"):
        load()


class OtherError(FaceDataset):
    def __getitem__(self, key: PhotoKey) -> tuple[np.ndarray, int]:
        raise RuntimeError("an internal error")


@pytest.mark.slow
def test_dataset_error_is_raised_unchanged(cats: DataSpec) -> None:
    crop_table = read_table(cats.read(), PREPROCESSING)
    with pytest.raises(RuntimeError, match="an internal error"):
        list(PhotoBatches(OtherError(crop_table.table, crop_table.crops), sequential_batches(range(9), 4), CPU))


@pytest.mark.slow
def test_training_error_is_not_reported_as_worker_failure(cats: DataSpec) -> None:
    def train() -> None:
        for _ in PhotoBatches(photos_of(cats), sequential_batches(range(9), 4), CPU):
            raise RuntimeError("DataLoader worker in the message")

    with pytest.raises(RuntimeError, match="DataLoader worker in the message"):
        train()
