"""Training on whole photos (`input.train_on_whole`): random boxes of all of them, validation on their centers."""

from dataclasses import replace
from pathlib import Path

import cv2
import numpy as np
import pytest
import torch
from PIL import Image

from familiar.core.errors import BadDataset, BadRecipe
from familiar.datasets.folders import DataSpec
from familiar.loading.augment.pipeline import Change, apply_change, augment, photo_generator
from familiar.loading.augment.settings import CIRCLE_AUGMENTATION, NO_AUGMENTATION
from familiar.loading.batches import PhotoBatches, standardize_batch
from familiar.loading.cache import CropCache
from familiar.loading.crops import crop_of, crops_by, read_table
from familiar.loading.dataset import FaceDataset, PhotoKey
from familiar.training.data import TrainingData, prepare_data
from familiar.training.fitting import fit
from familiar.training.recipe import Recipe
from familiar.training.run import RunFolder
from support.tiny_run import TINY, history, save_photos

WHOLE = TINY.with_settings(
    [
        "input.size_px=32",
        "input.resize=center_crop",
        "input.resize_px=40",
        "input.train_on_whole=true",
        "input.normalization=imagenet",
        "split.validation=0.25",
        "split.test=0.25",
        "augmentation=none",
    ]
)
BORDER, INSIDE = (250, 10, 10), (10, 10, 250)


@pytest.fixture
def framed(tmp_path: Path) -> DataSpec:
    """Photos of 80 px that are blue in the middle 64 px, which validation sees, and red around them."""
    pixels = np.full((80, 80, 3), BORDER, np.uint8)
    pixels[8:-8, 8:-8] = INSIDE
    for identity in range(8):
        (tmp_path / "framed" / str(identity)).mkdir(parents=True)
        for photo in range(2):
            pixels[40, 40] = 8 * identity + photo  # so that no two files are equal
            Image.fromarray(pixels).save(tmp_path / "framed" / str(identity) / f"{photo}.png")
    return DataSpec((str(tmp_path / "framed"),))


def data_of(recipe: Recipe, photos: DataSpec, cache: CropCache | None = None) -> TrainingData:
    return prepare_data(recipe, read_table(photos.read(), recipe.input.preprocessing(), cache), cache=cache)


def red_share(rgb_u8: np.ndarray) -> float:
    return float((rgb_u8[..., 0] > rgb_u8[..., 2]).mean())


def test_training_sees_the_border_and_validation_does_not(framed: DataSpec) -> None:
    data = data_of(WHOLE, framed)
    rgb_u8, _ = data.train[PhotoKey(0, 0)]
    assert rgb_u8.shape == (32, 32, 3)
    assert red_share(rgb_u8) == pytest.approx(1 - 0.8**2, abs=0.05)
    assert red_share(data.validation[PhotoKey(0, 0)][0]) == 0
    assert red_share(data.train.crop(0)) == 0, "unaugmented training photos are as in use"
    center_only = data_of(WHOLE.with_settings(["input.train_on_whole=false"]), framed)
    assert center_only.train.whole is None
    assert red_share(center_only.train[PhotoKey(0, 0)][0]) == 0


def test_whole_photo_is_resized_without_a_random_box(framed: DataSpec) -> None:
    data = data_of(WHOLE, framed)
    photo = data.train.table.photos[1]
    assert isinstance(photo, Path)
    at_40_px = cv2.resize(np.asarray(Image.open(photo)), (40, 40), interpolation=cv2.INTER_AREA)
    rgb_u8, _ = data.train[PhotoKey(3, 1)]
    assert np.array_equal(rgb_u8, apply_change(at_40_px, Change(), 32))
    assert np.abs(rgb_u8.astype(int) - cv2.resize(at_40_px, (32, 32))).mean() < 2


def test_random_box_of_the_whole_photo_becomes_the_crop(framed: DataSpec) -> None:
    data = data_of(replace(WHOLE, augmentation=CIRCLE_AUGMENTATION), framed)
    keys = [PhotoKey(2, row) for row in range(len(data.train))]
    whole = [crop_of(photo, WHOLE.input.training_preprocessing()) for photo in data.train.table.photos]
    assert whole[0].shape == (40, 40, 3)
    (images, *_), *_ = PhotoBatches(data.train, [keys], torch.device("cpu"))
    generators = [photo_generator(WHOLE.seed, *key) for key in keys]
    pixels = np.stack(
        [augment(*both, 32) for both in zip(whole, [CIRCLE_AUGMENTATION] * len(keys), generators, strict=True)]
    )
    assert torch.equal(images, standardize_batch(torch.from_numpy(pixels), WHOLE.input.preprocessing()))


def test_stretched_and_equally_large_photos_are_whole_already() -> None:
    for setting in ("input.resize=stretch", "input.size_px=40"):
        assert not WHOLE.with_settings([setting]).input.crops_whole_in_training
    assert WHOLE.input.training_preprocessing() == replace(WHOLE.input.preprocessing(), size_px=40)
    stretched = WHOLE.with_settings(["input.resize=stretch"]).input
    assert stretched.training_preprocessing() == stretched.preprocessing()


def test_cache_distinguishes_whole_photos_from_centers(framed: DataSpec, tmp_path: Path) -> None:
    cache = CropCache(tmp_path / "cache", 10**8)
    data, uncached = data_of(WHOLE, framed, cache), data_of(WHOLE, framed)
    assert data.train.whole is not None
    assert None not in (data.train.crops.pack, data.train.whole.pack)
    assert data.train.crops.pack != data.train.whole.pack
    for row in range(len(data.train)):
        for whole_or_not in ("crops", "whole"):
            cached, decoded = (getattr(side.train, whole_or_not)[row] for side in (data, uncached))
            assert np.array_equal(cached, decoded)


def test_photo_deleted_between_readings_is_an_error(framed: DataSpec, tmp_path: Path) -> None:
    table = framed.read()
    Path(str(table.photos[3])).write_text("no photo")
    with pytest.raises(BadDataset, match="1 photos became unreadable"):
        crops_by(table, WHOLE.input.training_preprocessing(), CropCache(tmp_path / "cache", 10**8))


def test_rejects_blends_size_out_of_range_and_other_number_of_crops(framed: DataSpec) -> None:
    with pytest.raises(BadRecipe, match=r"distill\.blends are made of crops"):
        WHOLE.with_settings(["distill.teacher=a.onnx", "distill.blends=1"])
    with pytest.raises(BadRecipe, match="resize_px"):
        WHOLE.with_settings(["input.resize_px=1025"])
    train = data_of(WHOLE, framed).train
    one_crop = crops_by(train.table.select_rows(np.array([0])), WHOLE.input.training_preprocessing())
    with pytest.raises(ValueError, match=f"1 crops for {len(train)} photos"):
        FaceDataset(train.table, train.crops, NO_AUGMENTATION, whole=one_crop)


@pytest.mark.usefixtures("without_curves")
@pytest.mark.slow
def test_training_is_the_same_with_a_cache_and_other_than_on_centers(tmp_path: Path) -> None:
    photos = save_photos(tmp_path / "photos")
    recipe = WHOLE.with_settings(["augmentation=circle", "budget.epochs=1", "validation.every_epochs=1"])
    fit(recipe, photos, tmp_path / "cached", cache=CropCache(tmp_path / "cache", 10**8))
    fit(recipe, photos, tmp_path / "decoded")
    fit(recipe.with_settings(["input.train_on_whole=false"]), photos, tmp_path / "centers")
    cached, decoded, centers = (history(RunFolder(tmp_path / name)) for name in ("cached", "decoded", "centers"))
    assert cached == decoded
    assert cached != centers
