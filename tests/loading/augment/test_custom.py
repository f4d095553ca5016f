"""A function of the user: imported by name, tried before training, applied last to each crop, reproducible."""

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image, ImageEnhance

from familiar.core.errors import BadRecipe
from familiar.datasets.folders import DataSpec
from familiar.loading.augment.custom import CUSTOM_STREAM, apply_function, check_function, import_function
from familiar.loading.augment.pipeline import augment, photo_generator
from familiar.loading.augment.preview import augmentation_sheet
from familiar.loading.augment.settings import NO_AUGMENTATION, Augmentation
from familiar.loading.batches import PhotoBatches
from familiar.loading.crops import read_table
from familiar.loading.dataset import FaceDataset, PhotoKey
from familiar.photos.preprocessing import Preprocessing

FUNCTIONS = """
import numpy as np
from PIL import Image, ImageEnhance

number = 5

def sharpen(rgb, generator):
    return np.asarray(ImageEnhance.Sharpness(Image.fromarray(rgb)).enhance(10))

def speckle(rgb, generator):
    rgb[generator.random(rgb.shape[:2]) < 0.3] = 255  # in place
    return rgb

def halve(rgb, generator):
    return rgb / 2

def shrink(rgb, generator):
    return rgb[::2, ::2]

def forget(rgb, generator):
    rgb // 2

def fail(rgb, generator):
    return np.zeros(3).reshape(2, 2)
"""
SPECKLED = replace(NO_AUGMENTATION, flip_p=0.5, custom="their_photos:speckle")


@pytest.fixture(autouse=True)
def their_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with the module `their_photos`."""
    (tmp_path / "their_photos.py").write_text(FUNCTIONS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "their_photos", raising=False)
    import_function.cache_clear()
    return tmp_path


def noise(side: int = 24, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (side, side, 3), dtype=np.uint8)


def cats(augmentation: Augmentation, seed: int = 3) -> FaceDataset:
    read = read_table(DataSpec(("synthetic:cats:3x2",)).read(), Preprocessing(size_px=32, resize_px=32))
    return FaceDataset(read.table, read.crops, augmentation, seed)


def speckled(rgb_u8: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """The reference: `speckle` pixel by pixel."""
    changed = rgb_u8.copy()
    chosen = generator.random(rgb_u8.shape[:2])
    for row, column in np.ndindex(rgb_u8.shape[:2]):
        if chosen[row, column] < 0.3:
            changed[row, column] = 255
    return changed


# The function


def test_function_of_the_current_folder_changes_a_crop() -> None:
    changed = apply_function(noise(), "their_photos:sharpen", np.random.default_rng(0))
    assert np.array_equal(changed, np.asarray(ImageEnhance.Sharpness(Image.fromarray(noise())).enhance(10)))
    assert not np.array_equal(changed, noise())


def test_function_gets_a_copy_and_the_generator() -> None:
    picture = noise()
    picture.flags.writeable = False  # as crops of the cache are
    changed = apply_function(picture, "their_photos:speckle", np.random.default_rng(4))
    assert np.array_equal(changed, speckled(noise(), np.random.default_rng(4)))
    assert np.array_equal(picture, noise())


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("no_such_photos:f", r"no_such_photos:f: there is no module no_such_photos; .* current folder, .*, or install"),
        ("no_such.photos:f", r"no_such\.photos:f: there is no module no_such; "),
        ("their_photos:blur", r"their_photos\.py has no function blur; write def blur\(rgb, generator\): there"),
        ("their_photos:number", r"their_photos\.py has a int, not a function, number; "),
        (
            "their_photos:halve",
            r"must return an array of uint8 .* \(24, 24, 3\), but .* float64 of \(24, 24, 3\)",
        ),
        ("their_photos:shrink", r"returned uint8 of \(12, 12, 3\); end it with .*astype\(np\.uint8\)"),
        ("their_photos:forget", r"returned NoneType; end it with"),
        ("their_photos:fail", r"the function failed: ValueError: .*their_photos\.py, line 24\); correct it"),
        ("needs:f", r"importing needs failed: ModuleNotFoundError: .*no_package.*needs\.py, line 1\); correct it"),
        ("misspelled:f", r"importing misspelled failed: SyntaxError: .*\(misspelled\.py, line 1\); correct it"),
    ],
)
def test_errors_name_function_and_remedy(their_folder: Path, name: str, message: str) -> None:
    (their_folder / "needs.py").write_text("import no_package")
    (their_folder / "misspelled.py").write_text("def f(")
    with pytest.raises(BadRecipe, match=rf"^augmentation\.custom={name}: ") as error:
        check_function(name, 24)
    assert error.match(message)


def test_check_accepts_working_function_and_none() -> None:
    check_function("their_photos:sharpen", 24)
    check_function("", 24)


# Settings


@pytest.mark.parametrize("wrong", ["sharpen", "module:", ":f", "a b:f", "module.py", "a:b:c", "a..b:f", "1:f"])
def test_rejects_other_forms_of_name(wrong: str) -> None:
    with pytest.raises(ValueError, match="custom must be MODULE:FUNCTION"):
        Augmentation(custom=wrong)


def test_function_counts_as_change_of_photos() -> None:
    assert not NO_AUGMENTATION.changes_photos
    assert replace(NO_AUGMENTATION, custom="package.module:function").changes_photos


# Loading


@pytest.mark.parametrize("key", [PhotoKey(0, 1), PhotoKey(4, 1), PhotoKey(4, 1, 2)])
def test_item_is_augmented_first_and_then_by_function(key: PhotoKey) -> None:
    dataset = cats(SPECKLED)
    flipped = augment(dataset.crop(1), SPECKLED, photo_generator(3, *key))
    expected = speckled(flipped, photo_generator(3, *key, stream=CUSTOM_STREAM))
    assert np.array_equal(dataset[key][0], expected)


def test_keys_and_seeds_give_other_draws() -> None:
    settings = replace(SPECKLED, flip_p=0.0)
    keys = [PhotoKey(0, 1), PhotoKey(1, 1), PhotoKey(0, 1, 1)]
    items = [cats(settings, seed)[key][0].tobytes() for seed in (3, 4) for key in keys]
    assert len(set(items)) == 6
    assert cats(settings)[keys[0]][0].tobytes() == items[0]


def test_dataset_rejects_function_that_cannot_be_imported() -> None:
    with pytest.raises(BadRecipe, match="there is no module no_such_photos"):
        cats(replace(NO_AUGMENTATION, custom="no_such_photos:f"))


@pytest.mark.slow
def test_loading_processes_import_the_function_and_draw_the_same() -> None:
    keys = [[PhotoKey(1, row) for row in range(3)], [PhotoKey(1, row) for row in range(3, 6)]]
    here, there = (
        [images.clone() for images, *_ in PhotoBatches(cats(SPECKLED), keys, torch.device("cpu"), workers)]
        for workers in (0, 2)
    )
    assert all(map(torch.equal, here, there))


@pytest.mark.slow
def test_error_in_loading_process_has_its_message() -> None:
    batches = PhotoBatches(
        cats(replace(NO_AUGMENTATION, custom="their_photos:halve")), [[PhotoKey(0, 0)]], torch.device("cpu"), 1
    )
    with pytest.raises(BadRecipe, match=r"their_photos:halve: the function must return"):
        next(iter(batches))


# Preview


def test_sheet_shows_function_alone_and_in_variants() -> None:
    plain, with_function = (augmentation_sheet([noise(128)], s) for s in (NO_AUGMENTATION, replace(SPECKLED, flip_p=0)))
    height = with_function.shape[0] - plain.shape[0]
    assert height > 128  # a row more
    assert not np.array_equal(with_function[-height:], plain[-height:])
