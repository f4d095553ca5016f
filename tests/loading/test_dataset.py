import logging
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader

from familiar.core.errors import BadDataset, UnreadablePhoto
from familiar.datasets.folders import DataSpec, IdentityTable, open_photo, scan_folders
from familiar.datasets.synthetic import SyntheticPhoto
from familiar.faces.tensor import Preprocessing, resize_crop, standardise
from familiar.loading.augment import Augmentation, augment, photo_generator
from familiar.loading.dataset import FaceDataset, PhotoKey, crop_of, start_worker, without_unreadable
from familiar.loading.sampler import ShuffledBatches

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


# Items


def test_an_item_is_the_photo_standardised_and_its_label(cats: Path) -> None:
    dataset = FaceDataset(scan_folders(cats), PREPROCESSING)
    assert len(dataset) == 6
    image, label = dataset[2]
    mean, std = (torch.tensor(values)[:, None, None] for values in (PREPROCESSING.mean, PREPROCESSING.std))
    wanted = (torch.from_numpy(picture(32, 32, seed=10)).permute(2, 0, 1) / 255 - mean) / std
    assert image.dtype == torch.float32
    torch.testing.assert_close(image, wanted, atol=1e-5, rtol=0)
    assert label == 1
    assert [dataset[row][1] for row in range(6)] == [0, 0, 1, 1, 2, 2]


@pytest.mark.parametrize("resize", ["stretch", "centre_crop"])
def test_a_photo_of_another_size_is_brought_to_size_by_the_rule_of_the_network(
    cats: Path, resize: str
) -> None:
    preprocessing = Preprocessing(size_px=32, resize=resize, resize_px=36, colour_order="BGR")
    image, _ = FaceDataset(scan_folders(cats), preprocessing)[3]
    wanted = standardise(resize_crop(picture(50, 70, seed=11), preprocessing)[None], preprocessing)[0]
    assert torch.equal(image, torch.from_numpy(wanted))


def test_a_drawn_photo_is_drawn_for_the_network() -> None:
    table = DataSpec(("synthetic:dogs:2x2",)).read()
    image, label = FaceDataset(table, Preprocessing(size_px=48, resize_px=48))[3]
    drawn = open_photo(SyntheticPhoto("dogs", 1, 1), min_side_px=48).rgb_u8
    assert torch.equal(image, torch.from_numpy(standardise(drawn[None], PREPROCESSING)[0]))
    assert label == 1


@pytest.mark.parametrize("size_px", [16, 600])
def test_drawn_photos_serve_networks_of_every_size(size_px: int) -> None:
    preprocessing = Preprocessing(size_px=size_px, resize_px=size_px)
    assert crop_of(SyntheticPhoto("cats", 0, 0), preprocessing).shape == (size_px, size_px, 3)


def test_an_augmented_item_is_the_crop_augmented_by_its_key(cats: Path) -> None:
    table = scan_folders(cats)
    dataset = FaceDataset(table, PREPROCESSING, CERTAIN, seed=4)
    image, label = dataset[PhotoKey(epoch=7, row=3)]
    crop = augment(crop_of(table.photos[3], PREPROCESSING), CERTAIN, photo_generator(4, 7, 3))
    assert torch.equal(image, torch.from_numpy(standardise(crop[None], PREPROCESSING)[0]))
    assert label == 1


def test_a_row_alone_is_that_of_epoch_0_and_without_augmentation_epochs_are_alike(cats: Path) -> None:
    augmented = FaceDataset(scan_folders(cats), PREPROCESSING, CERTAIN)
    plain = FaceDataset(scan_folders(cats), PREPROCESSING)
    assert torch.equal(augmented[2][0], augmented[PhotoKey(0, 2)][0])
    assert not torch.equal(augmented[2][0], augmented[PhotoKey(1, 2)][0])
    assert torch.equal(plain[2][0], plain[PhotoKey(1, 2)][0])


def test_a_photo_that_is_gone_is_named(cats: Path) -> None:
    dataset = FaceDataset(scan_folders(cats), PREPROCESSING)
    (cats / "Tom" / "0.png").unlink()
    with pytest.raises(UnreadablePhoto, match=r"Tom.0\.png"):
        dataset[2]


def batches_of(
    dataset: FaceDataset, workers: int, epochs: Sequence[int]
) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """As training loads them, the workers living on through the epochs."""
    sampler = ShuffledBatches(len(dataset), batch_size=3, seed=1)
    loader = DataLoader(
        dataset,
        batch_sampler=sampler,
        num_workers=workers,
        worker_init_fn=start_worker,
        persistent_workers=workers > 0,
    )
    batches: list[tuple[torch.Tensor, torch.Tensor]] = []
    for epoch in epochs:
        sampler.epoch = epoch
        batches += [tuple(batch) for batch in loader]
    return batches


# Forking a process that has threads is what torch's loader does on Linux, and Python 3.12 warns of it.
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_batches_do_not_depend_on_how_many_workers_load_them(cats: Path) -> None:
    table = DataSpec((str(cats), "synthetic:cats:3x1")).read()
    dataset = FaceDataset(table, PREPROCESSING, CERTAIN, seed=2)
    alone, shared = (batches_of(dataset, workers, epochs=(0, 1)) for workers in (0, 2))
    assert len(alone) == len(shared) == 2 * 3
    for (images, labels), (same_images, same_labels) in zip(alone, shared, strict=True):
        assert torch.equal(images, same_images)
        assert torch.equal(labels, same_labels)
    assert not torch.equal(
        torch.cat([images for images, _ in alone[:3]]), torch.cat([i for i, _ in alone[3:]])
    )
    resumed = batches_of(dataset, workers=0, epochs=(1,))
    assert all(torch.equal(images, again) for (images, _), (again, _) in zip(alone[3:], resumed, strict=True))


# Photos that cannot be read


def damage(cats: Path) -> list[Path]:
    """A text file, a truncated photo and an empty file, sorted."""
    (cats / "Mia" / "2.jpg").write_text("no photo")
    truncated = cats / "Tom" / "1.png"
    truncated.write_bytes(truncated.read_bytes()[:-400])
    (cats / "Zoe" / "2.jpg").touch()
    return [cats / "Mia" / "2.jpg", truncated, cats / "Zoe" / "2.jpg"]


def test_unreadable_photos_are_dropped_and_named(cats: Path, caplog: pytest.LogCaptureFixture) -> None:
    bad = damage(cats)
    table = scan_folders(cats)
    with caplog.at_level(logging.WARNING):
        readable = without_unreadable(table, PREPROCESSING)
    assert [record.levelname for record in caplog.records] == ["WARNING"] * 3
    for message, path in zip(caplog.messages, bad, strict=True):
        assert message.startswith(f"skipped {path}: ")
    assert readable.photos == tuple(photo for photo in table.photos if photo not in bad)
    assert [readable.names[label] for label in readable.labels] == [
        f"cats/{photo.parent.name}" for photo in readable.photos if isinstance(photo, Path)
    ]
    dataset = FaceDataset(readable, PREPROCESSING)
    assert all(dataset[row][0].isfinite().all() for row in range(len(dataset)))


def test_an_identity_without_a_readable_photo_goes_too(cats: Path) -> None:
    for photo in ("0.png", "1.png"):
        (cats / "Mia" / photo).write_text("no photo")
    readable = without_unreadable(scan_folders(cats), PREPROCESSING)
    assert readable.names == ("cats/Tom", "cats/Zoe")
    assert readable.labels.tolist() == [0, 0, 1, 1]


def test_a_table_of_readable_photos_is_handed_back(cats: Path, caplog: pytest.LogCaptureFixture) -> None:
    table = scan_folders(cats)
    assert without_unreadable(table, PREPROCESSING) is table
    assert not caplog.records


def test_not_one_readable_photo_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "cats" / "Tom").mkdir(parents=True)
    (tmp_path / "cats" / "Tom" / "1.jpg").touch()
    with pytest.raises(BadDataset, match="not one of the photos can be read"):
        without_unreadable(scan_folders(tmp_path / "cats"), PREPROCESSING)


def test_a_table_of_no_photos_is_an_error() -> None:
    with pytest.raises(BadDataset, match="not one of the photos"):
        without_unreadable(IdentityTable((), np.empty(0, np.int64), ()), PREPROCESSING)


def test_drawn_photos_are_not_drawn_to_see_whether_they_can_be(
    cats: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SyntheticPhoto, "draw", lambda _: pytest.fail("drawn"))
    (cats / "Tom" / "1.png").write_text("no photo")
    table = DataSpec((str(cats), "synthetic:cats:2x3")).read()
    assert len(without_unreadable(table, PREPROCESSING)) == 5 + 6
