import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from familiar.core.errors import UnreadablePhoto
from familiar.datasets.folders import DataSpec, IdentityTable, open_photo, scan_folders
from familiar.datasets.synthetic import SyntheticPhoto
from familiar.loading.augment.pipeline import augment, photo_generator
from familiar.loading.augment.settings import Augmentation
from familiar.loading.crops import crop_of, read_table
from familiar.loading.dataset import Batch, FaceDataset, PhotoKey, sequential_batches
from familiar.photos.preprocessing import Preprocessing

PREPROCESSING = Preprocessing(size_px=32, resize_px=36)
CERTAIN = Augmentation(rotate_p=1.0, affine_p=1.0, jitter_p=1.0)


def picture(width: int, height: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)


@pytest.fixture
def cats(tmp_path: Path) -> Path:
    """Three identities with two photos each of other sizes: PNGs, which keep their pixels."""
    for number, name in enumerate(("Mia", "Tom", "Zoe")):
        (tmp_path / "cats" / name).mkdir(parents=True)
        for photo, size in enumerate(((32, 32), (50, 70))):
            pixels = picture(*size, seed=10 * number + photo)
            Image.fromarray(pixels).save(tmp_path / "cats" / name / f"{photo}.png")
    return tmp_path / "cats"


def photos_of(
    table: IdentityTable, augmentation: Augmentation | None = None, seed: int = 0, size_px: int = 32
) -> FaceDataset:
    read = read_table(table, Preprocessing(size_px=size_px, resize_px=36))
    return FaceDataset(read.table, read.crops, augmentation, seed)


@pytest.fixture(params=[1, 3])
def threads(request: pytest.FixtureRequest) -> object:
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield
    torch.set_num_threads(before)


def test_item_returns_crop_and_label(cats: Path) -> None:
    dataset = photos_of(scan_folders(cats))
    assert len(dataset) == 6
    rgb_u8, label = dataset[PhotoKey(0, 2)]
    assert np.array_equal(rgb_u8, picture(32, 32, seed=10))
    assert label == 1
    assert [dataset[PhotoKey(0, row)][1] for row in range(6)] == [0, 0, 1, 1, 2, 2]


def test_synthetic_photo_is_drawn_at_network_size() -> None:
    rgb_u8, label = photos_of(DataSpec(("synthetic:dogs:2x2",)).read(), size_px=48)[PhotoKey(0, 3)]
    assert np.array_equal(rgb_u8, open_photo(SyntheticPhoto("dogs", 1, 1), min_side_px=48).rgb_u8)
    assert label == 1


def test_augmented_item_matches_augment_for_its_key(cats: Path) -> None:
    table = scan_folders(cats)
    rgb_u8, label = photos_of(table, CERTAIN, seed=4)[PhotoKey(epoch=7, row=3)]
    crop = crop_of(table.photos[3], PREPROCESSING)
    assert np.array_equal(rgb_u8, augment(crop, CERTAIN, photo_generator(4, 7, 3)))
    assert not np.array_equal(rgb_u8, crop)
    assert label == 1


def test_epochs_differ_only_with_augmentation(cats: Path) -> None:
    augmented, plain = photos_of(scan_folders(cats), CERTAIN), photos_of(scan_folders(cats))
    first, second = PhotoKey(0, 2), PhotoKey(1, 2)
    assert not np.array_equal(augmented[first][0], augmented[second][0])
    assert np.array_equal(plain[first][0], plain[second][0])


def test_repeats_of_a_photo_are_augmented_anew(cats: Path) -> None:
    dataset = photos_of(scan_folders(cats), CERTAIN)
    keys = [PhotoKey(3, 2, repeat) for repeat in range(4)]
    assert len({dataset[key][0].tobytes() for key in keys}) == 4
    assert np.array_equal(dataset[PhotoKey(3, 2)][0], dataset[keys[0]][0])


@pytest.mark.slow
@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("rows", [[4], [5, 0, 0, 3], [*range(6)] * 3])
def test_batch_equals_its_items(cats: Path, rows: list[int]) -> None:
    dataset = photos_of(scan_folders(cats), CERTAIN)
    keys = [PhotoKey(index % 2, row, index % 3) for index, row in enumerate(rows)]
    batch = dataset.__getitems__(keys)
    assert isinstance(batch, Batch)
    assert (batch.rgb_u8.dtype, batch.rgb_u8.is_contiguous()) == (torch.uint8, True)
    for pixels, key in zip(batch.rgb_u8, keys, strict=True):
        assert np.array_equal(pixels.numpy(), dataset[key][0])
    assert batch.labels.tolist() == [row // 2 for row in rows]
    assert batch.rows.tolist() == rows


def test_missing_photo_error_names_file(cats: Path) -> None:
    dataset = photos_of(scan_folders(cats))
    (cats / "Tom" / "0.png").unlink()
    with pytest.raises(UnreadablePhoto, match=r"Tom.0\.png"):
        dataset[PhotoKey(0, 2)]


@pytest.mark.usefixtures("threads")
def test_batch_with_missing_photo_returns_the_error(cats: Path) -> None:
    dataset = photos_of(scan_folders(cats))
    (cats / "Tom" / "0.png").unlink()
    error = dataset.__getitems__([PhotoKey(0, row) for row in (1, 2, 3)])
    assert isinstance(error, UnreadablePhoto)
    assert str(cats / "Tom" / "0.png") in str(error)
    assert isinstance(dataset.__getitems__([PhotoKey(0, 1)]), Batch), "other photos can still be read"


@pytest.mark.usefixtures("threads")
def test_pickled_dataset_returns_same_batch(cats: Path) -> None:
    dataset = photos_of(scan_folders(cats), CERTAIN, seed=3)
    keys = [PhotoKey(1, row) for row in range(6)]
    here = dataset.__getitems__(keys)
    there = pickle.loads(pickle.dumps(dataset)).__getitems__(keys)
    assert torch.equal(here.rgb_u8, there.rgb_u8)


def test_rejects_crops_for_other_photos(cats: Path) -> None:
    read = read_table(scan_folders(cats), PREPROCESSING)
    with pytest.raises(ValueError, match="6 crops for 2 photos"):
        FaceDataset(read.table.select_rows(np.array([0, 1])), read.crops)


@pytest.mark.parametrize(("photos", "sizes"), [(0, []), (1, [1]), (6, [3, 3]), (7, [3, 3, 1])])
def test_in_order_lists_every_row_once(photos: int, sizes: list[int]) -> None:
    batches = sequential_batches(range(photos), 3)
    assert [len(batch) for batch in batches] == sizes
    assert [key for batch in batches for key in batch] == [PhotoKey(0, row) for row in range(photos)]
