import errno
import json
import os
import pickle
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

from familiar.core.errors import BadDataset, UnreadablePhoto
from familiar.datasets.folders import DataSpec, IdentityTable, PhotoRef, scan_folders
from familiar.datasets.synthetic import SyntheticPhoto
from familiar.loading import cache as module
from familiar.loading import crops as crops_module
from familiar.loading.cache import CropCache
from familiar.loading.crops import Crops, CropTable, crop_of, read_table
from familiar.photos.preprocessing import Preprocessing, resize_crop
from support.idx_files import idx_bytes, write_mnist

PREPROCESSING = Preprocessing(size_px=32, resize_px=36)
CROP_BYTES = 3 * 32 * 32


def picture(width: int, height: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)


def save(path: Path, width: int, height: int, seed: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(picture(width, height, seed)).save(path)


@pytest.fixture
def cats(tmp_path: Path) -> Path:
    """Three identities with two photos each of other sizes: PNGs, which keep their pixels."""
    for number, name in enumerate(("Mia", "Tom", "Zoe")):
        for photo, (width, height) in enumerate(((32, 32), (50, 70))):
            save(tmp_path / "cats" / name / f"{photo}.png", width, height, 10 * number + photo)
    return tmp_path / "cats"


@pytest.fixture
def cache(tmp_path: Path) -> CropCache:
    return CropCache(tmp_path / "cache")


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[PhotoRef]:
    """Every photo that is decoded, from now on."""
    seen: list[PhotoRef] = []

    def decode_and_tell(photo: PhotoRef, preprocessing: Preprocessing) -> np.ndarray:
        seen.append(photo)
        return crop_of(photo, preprocessing)

    monkeypatch.setattr(crops_module, "crop_of", decode_and_tell)
    return seen


def packs(cache: CropCache) -> list[Path]:
    return sorted(path for path in cache.folder.iterdir() if path.is_dir())


def assert_same_pixels(crops: Crops, preprocessing: Preprocessing = PREPROCESSING) -> None:
    """As decoding each photo anew gives them."""
    for row, photo in enumerate(crops.photos):
        np.testing.assert_array_equal(crops[row], crop_of(photo, preprocessing))


def read(root: Path, cache: CropCache | None, preprocessing: Preprocessing = PREPROCESSING) -> CropTable:
    return read_table(scan_folders(root), preprocessing, cache)


# One crop


@pytest.mark.parametrize("resize", ["stretch", "center_crop"])
def test_crop_is_resized_by_the_preprocessing_rule(cats: Path, resize: Any) -> None:
    preprocessing = Preprocessing(size_px=32, resize=resize, resize_px=36)
    crop = crop_of(cats / "Tom" / "1.png", preprocessing)
    np.testing.assert_array_equal(crop, resize_crop(picture(50, 70, seed=11), preprocessing))


@pytest.mark.parametrize("size_px", [16, 600])
def test_synthetic_photos_fit_any_network_size(size_px: int) -> None:
    preprocessing = Preprocessing(size_px=size_px, resize_px=size_px)
    assert crop_of(SyntheticPhoto("cats", 0, 0), preprocessing).shape == (size_px, size_px, 3)


# The pack


@pytest.mark.parametrize("source", ["files", "drawn", "idx"])
def test_packed_crops_equal_decoded_crops_and_decode_once(
    cats: Path, cache: CropCache, opened: list[PhotoRef], source: str, tmp_path: Path
) -> None:
    digits = write_mnist(tmp_path / "mnist", {"train": 6})
    words = {"files": f"{cats}", "drawn": "synthetic:dogs:3x2", "idx": f"mnist:{digits}"}
    table = DataSpec((words[source],)).read()
    first = read_table(table, PREPROCESSING, cache)
    assert sorted(map(str, opened)) == sorted(map(str, table.photos))
    opened.clear()
    second = read_table(table, PREPROCESSING, cache)
    pixels = [second.crops[row].copy() for row in range(6)]
    assert not opened, "all crops must come from the pack"
    for row, photo in enumerate(table.photos):
        np.testing.assert_array_equal(pixels[row], crop_of(photo, PREPROCESSING))
    assert first.contents == second.contents
    assert first.table is second.table is table
    assert [pack.name[0] for pack in packs(cache)] != ["."]
    assert sorted(path.name for path in packs(cache)[0].iterdir()) == ["crops.u8", "pack.json"]


def test_idx_images_are_identified_by_their_pixels(cache: CropCache, opened: list[PhotoRef], tmp_path: Path) -> None:
    folder = write_mnist(tmp_path / "mnist", {"train": 12}, packed=False)
    table = DataSpec((f"mnist:{folder}",)).read()
    before = read_table(table, PREPROCESSING, cache)
    file = folder / "train-images-idx3-ubyte"
    file.rename(folder / "train-images-idx3-ubyte.gz")  # packed or not, moved or not: the same images
    moved = DataSpec((f"mnist:{folder.rename(tmp_path / 'moved')}",)).read()
    opened.clear()
    assert read_table(moved, PREPROCESSING, cache).contents == before.contents
    assert not opened
    images = np.random.default_rng(12).integers(0, 256, (12, 28, 28), np.uint8)
    images[7, 20, 20] ^= 1
    (tmp_path / "moved" / "train-images-idx3-ubyte").write_bytes(idx_bytes(images))
    changed = read_table(DataSpec((f"mnist:{tmp_path / 'moved'}",)).read(), PREPROCESSING, cache)
    assert len(opened) == 12
    assert changed.contents != before.contents
    assert_same_pixels(changed.crops)
    assert sum((changed.crops[row] != before.crops[row]).any() for row in range(12)) == 1


def test_packed_crops_are_read_only(cats: Path, cache: CropCache) -> None:
    with pytest.raises(ValueError, match="read-only"):
        read(cats, cache).crops[0][0, 0, 0] = 1


def test_without_cache_photos_are_decoded_on_access(cats: Path, opened: list[PhotoRef]) -> None:
    result = read(cats, None)
    opened.clear()
    assert_same_pixels(result.crops)
    assert len(opened) == 6
    assert result.crops.pack is None


def _append_to(reports: list[tuple[int, int]]) -> Callable[[int, int], None]:
    return lambda done, total: reports.append((done, total))


def test_reports_progress_for_each_photo(cats: Path, cache: CropCache) -> None:
    for cache_or_none in (None, cache):
        reports: list[tuple[int, int]] = []
        read_table(
            scan_folders(cats),
            PREPROCESSING,
            cache_or_none,
            _append_to(reports),
        )
        assert reports == [(done, 6) for done in range(1, 7)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changed", "packs_then"),
    [
        (replace(PREPROCESSING, size_px=36), 2),
        (replace(PREPROCESSING, resize="center_crop"), 2),
        (replace(PREPROCESSING, resize="center_crop", resize_px=40), 2),
        (replace(PREPROCESSING, margin=0.1), 2),
        (replace(PREPROCESSING, mean=(0.5,) * 3, std=(0.5,) * 3), 1),
        (replace(PREPROCESSING, color_order="BGR"), 1),
    ],
)
def test_geometry_changes_the_pack_and_colors_do_not(
    cats: Path, cache: CropCache, changed: Preprocessing, packs_then: int
) -> None:
    read(cats, cache)
    assert_same_pixels(read(cats, cache, changed).crops, changed)
    assert len(packs(cache)) == packs_then


def test_photo_order_changes_the_pack(cats: Path, cache: CropCache) -> None:
    table = scan_folders(cats)
    reversed_table = table.select_rows(np.arange(6)[::-1].copy())
    first, second = (read_table(photos, PREPROCESSING, cache) for photos in (table, reversed_table))
    assert_same_pixels(second.crops)
    assert len(packs(cache)) == 2
    assert first.contents == second.contents, "the photos are the same"


@pytest.mark.parametrize("library", [cv2, module.PIL])
def test_library_version_changes_the_pack(
    cats: Path, cache: CropCache, monkeypatch: pytest.MonkeyPatch, library: Any
) -> None:
    read(cats, cache)
    monkeypatch.setattr(library, "__version__", "99.0")
    read(cats, cache)
    assert len(packs(cache)) == 2


def test_next_format_changes_the_pack(cats: Path, cache: CropCache, monkeypatch: pytest.MonkeyPatch) -> None:
    read(cats, cache)
    monkeypatch.setattr(module, "FORMAT", "familiar-crops/99")
    read(cats, cache)
    assert len(packs(cache)) == 2


def test_crops_are_those_of_this_format(tmp_path: Path) -> None:
    """If these means of quarters change, packs of before are wrong: give `cache.FORMAT` the next number."""
    y, x = np.mgrid[:40, :60]
    Image.fromarray(np.stack([4 * x, 6 * y, 2 * (x + y)], 2).astype(np.uint8)).save(tmp_path / "slope.png")
    photos = (SyntheticPhoto("cats", 0, 0), SyntheticPhoto("dogs", 1, 1), tmp_path / "slope.png")
    crops = [crop_of(photo, replace(PREPROCESSING, resize="center_crop")) for photo in photos]
    assert [crop.reshape(2, 16, 2, 16, 3).mean((1, 3)).ravel() for crop in crops] == [
        pytest.approx([195, 142, 103, 165, 141, 115, 213, 178, 148, 162, 140, 116], abs=1),
        pytest.approx([130, 123, 122, 156, 148, 144, 150, 140, 131, 108, 104, 99], abs=1),
        pytest.approx([82, 64, 62, 154, 64, 98, 82, 170, 98, 154, 170, 134], abs=1),
    ]
    assert module.FORMAT == "familiar-crops/1"


def test_moved_folder_uses_the_same_pack(cats: Path, cache: CropCache, opened: list[PhotoRef], tmp_path: Path) -> None:
    here = read(cats, cache)
    cats.rename(tmp_path / "pets")
    opened.clear()
    there = read(tmp_path / "pets", cache)
    assert not opened
    assert_same_pixels(there.crops)
    assert len(packs(cache)) == 1
    assert here.contents != there.contents, "the names of identities are a part of the contents"


def test_pack_stores_contents_so_that_no_file_is_read_again(
    cats: Path, cache: CropCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = read(cats, cache)
    monkeypatch.setattr(crops_module, "content_sha256", lambda _: pytest.fail("read"))
    assert read(cats, cache).contents == first.contents


@pytest.mark.slow
@pytest.mark.parametrize("keep_time", [False, True])
def test_detects_changed_file_with_same_size(cats: Path, cache: CropCache, keep_time: bool) -> None:
    before = read(cats, cache)
    changed = cats / "Tom" / "1.png"
    content, stat = changed.read_bytes(), changed.stat()
    time.sleep(0.02)  # a tick of the file system's clock
    save(changed, 50, 70, seed=99)
    changed.write_bytes(changed.read_bytes().ljust(len(content), b"\0"))
    assert changed.stat().st_size == stat.st_size
    if keep_time:
        os.utime(changed, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    after = read(cats, cache)
    assert_same_pixels(after.crops)
    assert before.contents != after.contents


def test_contents_do_not_depend_on_the_cache(cats: Path, cache: CropCache) -> None:
    assert read(cats, None).contents == read(cats, cache).contents == read(cats, cache).contents


# Photos that cannot be read


def damage(cats: Path) -> list[Path]:
    """A text file, a truncated photo and an empty file, sorted."""
    (cats / "Mia" / "2.jpg").write_text("no photo")
    truncated = cats / "Tom" / "1.png"
    truncated.write_bytes(truncated.read_bytes()[:-400])
    (cats / "Zoe" / "2.jpg").touch()
    return [cats / "Mia" / "2.jpg", truncated, cats / "Zoe" / "2.jpg"]


def test_unreadable_photos_are_skipped_with_a_warning(
    cats: Path, cache: CropCache, caplog: pytest.LogCaptureFixture, opened: list[PhotoRef]
) -> None:
    bad = damage(cats)
    table = scan_folders(cats)
    for cache_or_none in (None, cache, cache):
        caplog.clear()
        opened.clear()
        result = read_table(table, PREPROCESSING, cache_or_none)
        assert [record.levelname for record in caplog.records] == ["WARNING"] * 3
        for message, path in zip(caplog.messages, bad, strict=True):
            assert message.startswith(f"skipped {path}: ")
        assert result.table.photos == tuple(photo for photo in table.photos if photo not in bad)
        assert [result.table.names[label] for label in result.table.labels] == [
            f"cats/{photo.parent.name}" for photo in result.table.photos if isinstance(photo, Path)
        ]
        assert_same_pixels(result.crops)
    assert opened == bad, "with a pack, only they are opened"
    assert len(packs(cache)) == 1


def test_warm_start_reports_current_photo_paths(cats: Path, cache: CropCache, caplog: pytest.LogCaptureFixture) -> None:
    bad = damage(cats)
    read(cats, cache)
    moved = cats.rename(cats.with_name("moved"))
    caplog.clear()
    read(moved, cache)
    for message, path in zip(caplog.messages, bad, strict=True):
        assert message.startswith(f"skipped {moved / path.relative_to(cats)}: ")
    assert len(packs(cache)) == 1


def test_photo_that_becomes_readable_is_repacked(cats: Path, cache: CropCache, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same bytes, when the decoder failed for another reason such as lack of memory."""

    def fail(photo: PhotoRef, preprocessing: Preprocessing) -> np.ndarray:
        if photo == cats / "Tom" / "0.png":
            raise UnreadablePhoto(f"{photo}: no memory")
        return crop_of(photo, preprocessing)

    monkeypatch.setattr(crops_module, "crop_of", fail)
    assert len(read(cats, cache).table) == 5
    monkeypatch.undo()
    again = read(cats, cache)
    assert len(again.table) == 6
    assert_same_pixels(again.crops)
    assert len(packs(cache)) == 1


def test_identity_without_readable_photo_is_dropped(cats: Path, cache: CropCache) -> None:
    for photo in ("0.png", "1.png"):
        (cats / "Mia" / photo).write_text("no photo")
    table = read(cats, cache).table
    assert table.names == ("cats/Tom", "cats/Zoe")
    assert table.labels.tolist() == [0, 0, 1, 1]


@pytest.mark.parametrize("cached", [True, False])
def test_rejects_dataset_without_readable_photos(tmp_path: Path, cache: CropCache, cached: bool) -> None:
    (tmp_path / "cats" / "Tom").mkdir(parents=True)
    (tmp_path / "cats" / "Tom" / "1.jpg").touch()
    for _ in range(2):
        with pytest.raises(BadDataset, match=r"none of the \d+ photos can be read"):
            read(tmp_path / "cats", cache if cached else None)


@pytest.mark.parametrize("cached", [True, False])
def test_rejects_table_without_photos(cache: CropCache, cached: bool) -> None:
    with pytest.raises(BadDataset, match="none of the 0 photos"):
        read_table(IdentityTable((), np.empty(0, np.int64), ()), PREPROCESSING, cache if cached else None)


def test_synthetic_photos_are_not_drawn_to_check_readability(cats: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SyntheticPhoto, "draw", lambda _: pytest.fail("drawn"))
    (cats / "Tom" / "1.png").write_text("no photo")
    table = DataSpec((str(cats), "synthetic:cats:2x3")).read()
    assert len(read_table(table, PREPROCESSING).table) == 5 + 6


# Packs that are not what they were


def truncate(pack: Path) -> None:
    os.truncate(pack / "crops.u8", 2 * CROP_BYTES)


def lengthen(pack: Path) -> None:
    os.truncate(pack / "crops.u8", 7 * CROP_BYTES)


def without_pixels(pack: Path) -> None:
    (pack / "crops.u8").unlink()


def without_description(pack: Path) -> None:
    """As a cleaner of old files leaves it, and what is left is not all of it."""
    (pack / "pack.json").unlink()
    truncate(pack)


def empty(pack: Path) -> None:
    shutil.rmtree(pack)
    pack.mkdir()


def described_as(text: str) -> Callable[[Path], None]:
    def describe(pack: Path) -> None:
        (pack / "pack.json").write_text(text)

    describe.__name__ = text or "nothing"
    return describe


def described_with(changed: dict[str, Any]) -> Callable[[Path], None]:
    return described_as(json.dumps({"crops": 6, "unreadable": [], "contents": ["a"] * 6} | changed))


@pytest.mark.slow
@pytest.mark.parametrize(
    "spoil",
    [
        truncate,
        lengthen,
        without_pixels,
        without_description,
        empty,
        *map(described_as, ("", "{", "[]", "{}", '{"crops": 6}')),
        *map(described_with, ({"crops": "six"}, {"unreadable": [6]}, {"unreadable": [-7]}, {"unreadable": None})),
        *map(described_with, ({"unreadable": [{}]}, {"contents": ["a"] * 5}, {"contents": [6] * 6})),
    ],
)
def test_damaged_pack_is_rebuilt(cats: Path, cache: CropCache, spoil: Callable[[Path], None]) -> None:
    contents = read(cats, cache).contents
    (pack,) = packs(cache)
    spoil(pack)
    again = read(cats, cache)
    assert_same_pixels(again.crops)
    assert again.contents == contents
    assert packs(cache) == [pack]
    assert json.loads((pack / "pack.json").read_text()).keys() == {"crops", "unreadable", "contents"}
    assert (pack / "crops.u8").stat().st_size == 6 * CROP_BYTES


def test_deleted_pack_still_serves_mapped_crops(cats: Path, cache: CropCache, opened: list[PhotoRef]) -> None:
    crops = read(cats, cache).crops
    pixels = crops[0].copy()
    traveled = pickle.dumps(crops)
    shutil.rmtree(packs(cache)[0])
    opened.clear()
    np.testing.assert_array_equal(crops[0], pixels)
    assert not opened
    assert_same_pixels(pickle.loads(traveled))
    assert len(opened) == 6


def test_pack_deleted_after_lookup_still_gives_same_pixels(
    cats: Path, cache: CropCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if another run had evicted it."""
    open_or_write = crops_module._open_or_write_pack

    def open_and_delete(cache: CropCache, *rest: Any) -> Any:
        result = open_or_write(cache, *rest)
        shutil.rmtree(packs(cache)[0])
        return result

    monkeypatch.setattr(crops_module, "_open_or_write_pack", open_and_delete)
    for _ in range(2):
        assert_same_pixels(read(cats, cache).crops)


def test_smaller_rebuilt_pack_still_gives_same_pixels(cats: Path, cache: CropCache) -> None:
    """Evicted by another run, then written again by one with a lower limit."""
    traveled = pickle.dumps(read(cats, cache).crops)
    shutil.rmtree(packs(cache)[0])
    read(cats, replace(cache, max_bytes=2 * CROP_BYTES))
    assert_same_pixels(pickle.loads(traveled))


def test_pickled_crops_exclude_pixels(cats: Path, cache: CropCache) -> None:
    crops = read(cats, cache).crops
    assert crops[0].shape == (32, 32, 3)
    assert len(pickle.dumps(crops)) < CROP_BYTES
    assert_same_pixels(pickle.loads(pickle.dumps(crops)))


# Size limit


def test_crops_beyond_size_limit_are_decoded(
    cats: Path, cache: CropCache, caplog: pytest.LogCaptureFixture, opened: list[PhotoRef]
) -> None:
    small = replace(cache, max_bytes=4 * CROP_BYTES + 1)
    for _ in range(2):
        result = read(cats, small)
        opened.clear()
        for row in range(6):
            assert result.crops[row].shape == (32, 32, 3)
        assert opened == list(result.table.photos[4:])
        assert_same_pixels(result.crops)
    assert "room for 4 of 6 crops" in caplog.text
    assert (packs(cache)[0] / "crops.u8").stat().st_size == 4 * CROP_BYTES


def test_size_limited_pack_skips_unreadable_photos(cats: Path, cache: CropCache) -> None:
    damage(cats)
    small = replace(cache, max_bytes=4 * CROP_BYTES)
    for _ in range(2):
        result = read(cats, small)
        assert len(result.table) == 5
        assert result.crops.pack_rows.tolist() == [0, 1, 3, 5, 6]
        assert_same_pixels(result.crops)


def test_smaller_limit_removes_older_packs_without_new_pack(cats: Path, cache: CropCache) -> None:
    read_table(DataSpec(("synthetic:cats:2x2",)).read(), PREPROCESSING, cache)
    (older,) = packs(cache)
    os.utime(older, (1, 1))
    for path in older.iterdir():
        os.utime(path, (1, 1))
    read(cats, cache)
    assert len(packs(cache)) == 2
    read(cats, replace(cache, max_bytes=6 * CROP_BYTES))
    assert len(packs(cache)) == 1
    assert not older.exists()


def test_larger_limit_packs_remaining_crops(cats: Path, cache: CropCache, opened: list[PhotoRef]) -> None:
    read(cats, replace(cache, max_bytes=4 * CROP_BYTES))
    result = read(cats, cache)
    opened.clear()
    assert result.crops[5].shape == (32, 32, 3)
    assert not opened
    assert_same_pixels(result.crops)


@pytest.mark.parametrize("max_bytes", [0, CROP_BYTES - 1])
def test_limit_below_one_crop_creates_no_pack(cats: Path, cache: CropCache, max_bytes: int) -> None:
    result = read(cats, replace(cache, max_bytes=max_bytes))
    assert_same_pixels(result.crops)
    assert not cache.folder.exists()


def test_evicts_least_recently_used_pack(tmp_path: Path) -> None:
    cache = CropCache(tmp_path / "cache", max_bytes=9 * CROP_BYTES)
    tables = [DataSpec((f"synthetic:cats:2x2:seed={seed}",)).read() for seed in range(3)]
    made: list[Path] = []
    for age, table in zip((30, 20), tables[:2], strict=True):
        read_table(table, PREPROCESSING, cache)
        (new,) = set(packs(cache)) - set(made)
        made.append(new)
        for path in (*new.iterdir(), new):
            os.utime(path, (time.time() - age,) * 2)
    read_table(tables[0], PREPROCESSING, cache)  # so that the other one is the least recently used
    read_table(tables[2], PREPROCESSING, cache)
    remaining = packs(cache)
    assert made[0] in remaining
    assert made[1] not in remaining
    assert len(remaining) == 2
    assert sum(path.stat().st_size for pack in remaining for path in pack.iterdir()) <= cache.max_bytes


def test_evicts_nothing_below_size_limit(tmp_path: Path) -> None:
    cache = CropCache(tmp_path / "cache")
    for seed in range(3):
        read_table(DataSpec((f"synthetic:cats:2x2:seed={seed}",)).read(), PREPROCESSING, cache)
    assert len(packs(cache)) == 3


def test_keeps_foreign_files_in_cache_folder(cats: Path, tmp_path: Path) -> None:
    """A user may name a folder that has other contents."""
    other_files = [tmp_path / ".ssh" / "id", tmp_path / "photos" / "1.jpg", tmp_path / "notes.txt"]
    for path in other_files:
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(bytes(5 * CROP_BYTES))
        for touched in (path, path.parent) if path.parent != tmp_path else (path,):
            os.utime(touched, (1e9, 1e9))
    cache = CropCache(tmp_path, max_bytes=7 * CROP_BYTES)
    read(cats, cache)
    read_table(DataSpec(("synthetic:cats:3x2",)).read(), PREPROCESSING, cache)
    assert all(path.stat().st_size == 5 * CROP_BYTES for path in other_files)
    assert cats.is_dir()


# Full disks and unwritable folders


def only_warned_of(caplog: pytest.LogCaptureFixture, cache: CropCache) -> bool:
    return [message for message in caplog.messages if str(cache.folder) in message] == caplog.messages[:1]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no disk that is always full")
def test_full_disk_warns_and_reads_without_cache(
    cats: Path, cache: CropCache, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = module.PackWriter.write

    def write_to_full_disk(writer: Any, row: int, crop: np.ndarray) -> None:
        if writer.crops == 2 and writer.file is not None:
            writer.file.close()
            writer.file = open("/dev/full", "wb", buffering=0)  # noqa: PTH123, SIM115 - the writer closes it
        write(writer, row, crop)

    monkeypatch.setattr(module.PackWriter, "write", write_to_full_disk)
    result = read(cats, cache)
    assert only_warned_of(caplog, cache)
    assert os.strerror(errno.ENOSPC) in caplog.text
    assert_same_pixels(result.crops)
    assert packs(cache) == []


@pytest.mark.parametrize("step", ["fsync", "write_text", "rename", "mkdir"])
def test_failed_cache_step_warns_and_reads_without_cache(
    cats: Path,
    cache: CropCache,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    step: str,
) -> None:
    cache.folder.mkdir()

    def fail(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os if step == "fsync" else Path, step, fail)
    result = read(cats, cache)
    monkeypatch.undo()
    assert only_warned_of(caplog, cache)
    assert len(caplog.messages) == 1
    assert_same_pixels(result.crops)
    assert packs(cache) == []


LIMITED = """
import logging, resource, sys
from pathlib import Path
import familiar.loading.cache as cache
import familiar.loading.crops as crops
from familiar.datasets.folders import DataSpec
from familiar.photos.preprocessing import Preprocessing

logging.basicConfig(format="%(message)s", stream=sys.stdout)
resource.setrlimit(resource.RLIMIT_FSIZE, (20000, 20000))
table, preprocessing = DataSpec((sys.argv[1],)).read(), Preprocessing(size_px=64, resize_px=64)
result = crops.read_table(table, preprocessing, cache.CropCache(Path(sys.argv[2])))
same = [(result.crops[row] == crops.crop_of(photo, preprocessing)).all() for row, photo in enumerate(table.photos)]
print(len(result.table), all(same), result.crops.pack)
"""


@pytest.mark.slow
def test_file_size_limit_warns_and_reads_without_cache(cats: Path, cache: CropCache) -> None:
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, cats, cache.folder], capture_output=True, text=True, check=True
    )
    warned, result = done.stdout.splitlines()
    assert warned == f"crops cannot be cached in {cache.folder}: {os.strerror(errno.EFBIG)}"
    assert result == "6 True None"
    assert packs(cache) == []


@pytest.mark.parametrize("name", ["a file", "a file/below"])
def test_uncreatable_folder_warns_and_reads_without_cache(
    cats: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    (tmp_path / "a file").touch()
    cache = CropCache(tmp_path / name)
    assert_same_pixels(read(cats, cache).crops)
    assert len(caplog.messages) == 1
    assert only_warned_of(caplog, cache)


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become nobody")
@pytest.mark.parametrize("packed", [True, False])
def test_read_only_folder_is_used_without_changes(shared_folder: Path, packed: bool) -> None:
    """Another user's cache: its packs are used and not changed."""
    cache = CropCache(shared_folder)
    table = DataSpec(("synthetic:cats:3x2",)).read()
    if packed:
        read_table(table, PREPROCESSING, cache)
    before = {path: path.stat().st_mtime_ns for path in cache.folder.rglob("*")}
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setuid(65534)
            crops = read_table(table, PREPROCESSING, cache).crops
            same = all((crops[row] == crop_of(photo, PREPROCESSING)).all() for row, photo in enumerate(crops.photos))
            os.write(write_end, f"{same} {crops.pack is not None}".encode())
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    os.close(write_end)
    assert os.read(read_end, 100).decode() == f"True {packed}"
    os.close(read_end)
    assert {path: path.stat().st_mtime_ns for path in cache.folder.rglob("*")} == before


# Processes


READ = """
import sys, time
from pathlib import Path
import familiar.loading.cache as cache
import familiar.loading.crops as crops
from familiar.datasets.folders import DataSpec
from familiar.photos.preprocessing import Preprocessing

source, folder, slowly, ready = sys.argv[1:]
write = cache.PackWriter.write

def slow_write(writer, row, crop):
    write(writer, row, crop)
    if writer.crops == 3:
        writer.file.flush()
        print("half", flush=True)
    time.sleep(float(slowly))

cache.PackWriter.write = slow_write
while not Path(ready).exists():
    time.sleep(0.01)
table, preprocessing = DataSpec((source,)).read(), Preprocessing(size_px=32, resize_px=36)
result = crops.read_table(table, preprocessing, cache.CropCache(Path(folder)))
print(len(result.table), all(crop.any() for crop in map(result.crops.__getitem__, range(len(result.table)))))
"""


def reading(cache: CropCache, slowly: float, ready: Path) -> "subprocess.Popen[str]":
    arguments = ["synthetic:cats:5x2", cache.folder, str(slowly), ready]
    return subprocess.Popen([sys.executable, "-c", READ, *arguments], stdout=subprocess.PIPE, text=True)


@pytest.mark.slow
def test_concurrent_processes_create_one_pack(cache: CropCache, tmp_path: Path) -> None:
    processes = [reading(cache, 0.03, tmp_path / "ready") for _ in range(2)]
    (tmp_path / "ready").touch()
    for process in processes:
        assert process.communicate(timeout=60)[0].splitlines() == ["half", "10 True"]
        assert process.returncode == 0
    assert len(packs(cache)) == 1
    assert {path.name for path in cache.folder.iterdir()} == {packs(cache)[0].name}


@pytest.mark.slow
def test_killed_process_leaves_only_a_removable_draft(cache: CropCache, tmp_path: Path) -> None:
    (tmp_path / "ready").touch()
    process = reading(cache, 0.05, tmp_path / "ready")
    assert process.stdout is not None
    assert process.stdout.readline() == "half\n"
    process.kill()
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    (draft,) = packs(cache)
    assert draft.name.startswith(".")

    result = read_table(DataSpec(("synthetic:cats:5x2",)).read(), PREPROCESSING, cache)
    assert_same_pixels(result.crops)
    assert draft in packs(cache), "a run that is still alive may be writing it"
    for path in (*draft.iterdir(), draft):
        os.utime(path, (time.time() - 4000,) * 2)
    read_table(DataSpec(("synthetic:cats:4x2",)).read(), PREPROCESSING, cache)
    assert not any(pack.name.startswith(".") for pack in packs(cache))


def test_interrupted_pack_is_removed(cats: Path, cache: CropCache) -> None:
    def interrupt(done: int, _total: int) -> None:
        if done == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        read_table(scan_folders(cats), PREPROCESSING, cache, interrupt)
    assert packs(cache) == []


@pytest.mark.slow
def test_worker_processes_decode_photos_in_order(cache: CropCache, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crops_module, "_MIN_PHOTOS_FOR_POOL", 2)
    monkeypatch.setattr(crops_module, "_WINDOW_BYTES", 4 * CROP_BYTES)
    table = DataSpec(("synthetic:cats:5x2",)).read()
    monkeypatch.setattr(crops_module, "crop_of", lambda *_: pytest.fail("decoded here"))
    result = read_table(table, PREPROCESSING, cache)
    monkeypatch.undo()
    assert_same_pixels(result.crops)


# Subsets


@pytest.mark.exhaustive
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=st.lists(st.integers(0, 8), min_size=1, unique=True), room=st.integers(1, 9))
def test_subset_crops_match_subset_photos(tmp_path: Path, rows: list[int], room: int) -> None:
    table = DataSpec(("synthetic:cats:3x3",)).read()
    everything = read_table(table, PREPROCESSING, CropCache(tmp_path / str(room), room * CROP_BYTES))
    subset = table.select_rows(np.array(rows))
    crops = everything.crops.select(subset)
    assert crops.photos == subset.photos
    assert len(crops) == len(rows)
    assert_same_pixels(crops)
