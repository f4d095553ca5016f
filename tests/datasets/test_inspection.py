import json
import os
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from familiar.core.errors import UnreadablePhoto
from familiar.core.types import Photo
from familiar.datasets.folders import DataSpec, scan_folders
from familiar.datasets.inspection import (
    DUPLICATE_KINDS,
    Bin,
    DuplicateKind,
    contact_sheet,
    histogram,
    inspect_table,
    photo_name,
)
from familiar.datasets.synthetic import SyntheticPhoto


def photo(height: int, width: int, value: int) -> Photo:
    return Photo(np.full((height, width, 3), value, np.uint8), "drawn", (width, height))


def test_contact_sheet_fills_row_by_row() -> None:
    sheet = contact_sheet([photo(8, 8, value) for value in (10, 20, 30)], columns=2, tile_px=4)
    assert sheet.shape == (8, 8, 3)
    assert (sheet[:4, :4] == 10).all()
    assert (sheet[:4, 4:] == 20).all()
    assert (sheet[4:, :4] == 30).all()
    assert (sheet[4:, 4:] == 255).all()


@pytest.mark.parametrize("scale", [1, 5])
def test_wide_photo_is_shown_whole_and_centered(scale: int) -> None:
    sheet = contact_sheet([photo(4 * scale, 8 * scale, 0)], columns=1, tile_px=16)
    assert (sheet[4:12] == 0).all()
    assert (sheet[:4] == 255).all()
    assert (sheet[12:] == 255).all()


def test_thin_photo_is_visible() -> None:
    assert (contact_sheet([photo(1, 500, 0)], columns=1, tile_px=8) == 0).any()


def test_contact_sheet_keeps_rgb_order() -> None:
    red = Photo(np.tile(np.array([200, 10, 20], np.uint8), (6, 6, 1)), "drawn", (6, 6))
    assert contact_sheet([red], columns=1, tile_px=6)[3, 3].tolist() == [200, 10, 20]


@pytest.mark.parametrize(("count", "columns", "tile_px"), [(0, 1, 8), (1, 0, 8), (1, 1, 0)])
def test_rejects_empty_contact_sheet(count: int, columns: int, tile_px: int) -> None:
    with pytest.raises(ValueError, match=r"contact sheet|at least 1"):
        contact_sheet([photo(4, 4, 0)] * count, columns, tile_px)


# inspect_table


@pytest.fixture
def cats(tmp_path: Path) -> Path:
    """Three identities with 3, 1 and 2 photos, the widths 10 to 60 px, all 400 px high."""
    sizes = {"Tom": (10, 20, 30), "Mia": (60,), "Zoe": (40, 50)}
    for name, widths in sizes.items():
        (tmp_path / "cats" / name).mkdir(parents=True)
        for width in widths:
            Image.new("RGB", (width, 400)).save(tmp_path / "cats" / name / f"{width}.jpg")
    return tmp_path / "cats"


def test_reports_counts_and_sizes(cats: Path) -> None:
    (cats / "Tom" / "notes.txt").touch()
    inspection = inspect_table(scan_folders(cats))
    assert inspection.single_photo_identities == 1
    assert inspection.photos_per_identity == (1, 2.0, 3)
    assert inspection.width_px == (10, 35.0, 60)
    assert inspection.height_px == (400, 400.0, 400)
    assert inspection.unreadable == ()
    assert inspection.identities_by_size == [("cats/Tom", 3), ("cats/Zoe", 2), ("cats/Mia", 1)]
    assert inspection.common_sizes == {f"{width} x 400": 1 for width in (60, 10, 20, 30, 40, 50)}
    assert inspection.stored_as == {"JPEG RGB": 6}


def test_sizes_follow_exif_orientation(cats: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6  # turned by a quarter
    Image.new("RGB", (500, 70)).save(cats / "Tom" / "turned.jpg", exif=exif)
    inspection = inspect_table(scan_folders(cats))
    assert (inspection.width_px[2], inspection.height_px[2]) == (70, 500)


def test_reports_pixel_values_and_blank_photos(cats: Path) -> None:
    for path in cats.glob("*/*.jpg"):
        path.unlink()
    for name, low, high in (("Tom/a.png", 20, 220), ("Tom/b.png", 40, 240), ("Zoe/c.png", 7, 7)):
        pixels = np.full((40, 40, 3), low, np.uint8)
        pixels[:, 20:] = high
        Image.fromarray(pixels).save(cats / name)
    inspection = inspect_table(scan_folders(cats))
    assert inspection.lowest_value == (7, 20.0, 40)
    assert inspection.mean_value == (7, 120.0, 140)
    assert inspection.highest_value == (7, 220.0, 240)
    assert [photo_name(inspection.table, row) for row in inspection.blank] == ["cats/Zoe/c.png"]
    assert inspection.grayscale == 3


def test_lists_unreadable_photos_and_measures_others(cats: Path) -> None:
    whole = (cats / "Zoe" / "40.jpg").read_bytes()
    (cats / "Zoe" / "40.jpg").write_bytes(whole[:-200])
    (cats / "Mia" / "60.jpg").write_text("no photo")
    (cats / "Mia" / "61.jpg").touch()
    inspection = inspect_table(scan_folders(cats))
    assert [str(error).partition(": ")[0] for error in inspection.unreadable] == [
        str(cats / name) for name in ("Mia/60.jpg", "Mia/61.jpg", "Zoe/40.jpg")
    ]
    assert (len(inspection.table), len(inspection.table.names), inspection.single_photo_identities) == (7, 3, 0)
    assert inspection.width_px == (10, 25.0, 50)


def test_rejects_data_without_readable_photo(cats: Path) -> None:
    for path in cats.glob("*/*.jpg"):
        path.write_text("no photo")
    with pytest.raises(UnreadablePhoto, match=r"^none of the 6 photos can be read; the first: .*60\.jpg: "):
        inspect_table(scan_folders(cats))


def test_synthetic_photos_have_default_size() -> None:
    inspection = inspect_table(DataSpec(("synthetic:cats:3x4",)).read())
    assert inspection.width_px == inspection.height_px == (224, 224.0, 224)
    assert inspection.stored_as == {"drawn": 12}
    assert inspection.duplicates == ()
    assert inspection.as_dict()["sample"][0].startswith("synthetic:cats/00000")


def test_progress_reports_each_photo() -> None:
    reports: list[tuple[str, int]] = []
    inspect_table(
        DataSpec(("synthetic:cats:2x2",)).read(), on_progress=lambda doing, done: reports.append((doing, done))
    )
    assert reports == [("read", 1), ("read", 2), ("read", 3), ("read", 4), ("compared", 4)]


# Duplicates


@pytest.fixture
def twice(tmp_path: Path) -> Path:
    """Six pictures: Mia 1 equals Tom 1, Mia 2 nearly equals Tom 2, Zoe has an exact and a near duplicate."""
    root = tmp_path / "twice"
    pictures = {index: SyntheticPhoto("cats", index, 0).draw().rgb_u8 for index in range(6)}
    files = {"Tom": (0, 1), "Mia": (0, 1), "Zoe": (2, 2, 3, 3), "Ada": (4, 5)}
    for name, shown in files.items():
        (root / name).mkdir(parents=True)
        for number, index in enumerate(shown, 1):
            image = Image.fromarray(pictures[index])
            nearly = (name, number) in (("Mia", 2), ("Zoe", 4))
            image.save(root / name / (f"{number}.jpg" if nearly else f"{number}.png"))
    (root / "Ada" / "0.png").write_text("no photo")  # so that the index among readable photos differs from the row
    return root


@pytest.mark.slow
def test_groups_returns_duplicates_by_kind(twice: Path) -> None:
    inspection = inspect_table(scan_folders(twice))
    named = {
        kind: [
            [photo_name(inspection.table, row) for row in group.rows] for group in inspection.duplicates_of_kind(kind)
        ]
        for kind in DUPLICATE_KINDS
    }
    assert named == {
        DuplicateKind(exact=True, across=True): [["twice/Mia/1.png", "twice/Tom/1.png"]],
        DuplicateKind(exact=False, across=True): [["twice/Mia/2.jpg", "twice/Tom/2.png"]],
        DuplicateKind(exact=True, across=False): [["twice/Zoe/1.png", "twice/Zoe/2.png"]],
        DuplicateKind(exact=False, across=False): [["twice/Zoe/3.png", "twice/Zoe/4.jpg"]],
    }


@pytest.mark.slow
def test_duplicates_are_sorted_by_similarity(twice: Path) -> None:
    again = Image.open(twice / "Ada" / "1.png")
    again.save(twice / "Tom" / "worst.jpg", quality=8)
    inspection = inspect_table(scan_folders(twice))
    first, second = inspection.duplicates_of_kind(DuplicateKind(exact=False, across=True))
    assert first.similarity > second.similarity > 0.9
    assert inspection.identity_names(second.rows) == ["twice/Ada", "twice/Tom"]


# The sample


@pytest.mark.slow
def test_sample_covers_as_many_identities_as_possible() -> None:
    table = DataSpec(("synthetic:cats:8x6",)).read()
    first_of_each = [int(np.flatnonzero(table.labels == label)[0]) for label in range(1, 8)]
    table = table.select_rows(np.concatenate([np.flatnonzero(table.labels == 0), first_of_each]))
    labels = table.labels[list(inspect_table(table).sample)]
    assert np.bincount(labels).tolist() == [2, 1, 1, 1, 1, 1, 1, 1]


@pytest.mark.slow
def test_sample_skips_unreadable_photos(twice: Path) -> None:
    inspection = inspect_table(scan_folders(twice))
    unreadable = [row for row in range(len(inspection.table)) if inspection.table.photos[row].name == "0.png"]
    assert len(inspection.sample) == 9
    assert not set(unreadable) & set(inspection.sample)


# Histogram


def test_small_range_has_bins_with_width_one() -> None:
    assert histogram([3, 3, 5]) == (Bin(3, 3, 2), Bin(4, 4, 0), Bin(5, 5, 1))


def test_wider_bins_begin_at_round_numbers() -> None:
    bins = histogram([5, 9, 10, 29])
    assert bins == (Bin(5, 9, 2), Bin(10, 14, 1), Bin(15, 19, 0), Bin(20, 24, 0), Bin(25, 29, 1))
    assert histogram([1, 24])[0] == Bin(1, 4, 1)  # no identity has 0 photos


def test_bin_width_doubles_for_skewed_counts() -> None:
    assert histogram([1, 1, 1, 2, 3, 70]) == (
        Bin(1, 1, 3),
        Bin(2, 3, 2),
        Bin(4, 7, 0),
        Bin(8, 15, 0),
        Bin(16, 31, 0),
        Bin(32, 63, 0),
        Bin(64, 127, 1),
    )


@given(st.lists(st.integers(1, 10**6), min_size=1, max_size=50))
def test_bins_partition_identity_counts(counts: list[int]) -> None:
    bins = list(histogram(counts))
    assert [bin_.identities for bin_ in bins] == [
        sum(bin_.low <= count <= bin_.high for count in counts) for bin_ in bins
    ]
    assert sum(bin_.identities for bin_ in bins) == len(counts)
    assert all(before.high + 1 == after.low for before, after in pairwise(bins))
    assert len(bins) <= 21
    assert bins[0].low <= min(counts)
    assert bins[-1].low <= max(counts) <= bins[-1].high


# Names from outside


def test_inspection_serializes_to_json(cats: Path) -> None:
    (cats / "Mia" / "61.jpg").touch()
    (cats / "Tom" / "notes.txt").touch()
    stored = json.loads(json.dumps(inspect_table(scan_folders(cats)).as_dict()))
    assert (stored["photos"], stored["identities"], stored["single_photo_identities"]) == (7, 3, 0)
    assert stored["width_px"] == [10, 35.0, 60]
    assert stored["unreadable"][0].startswith(str(cats / "Mia" / "61.jpg"))
    assert stored["photo_counts"] == {"cats/Tom": 3, "cats/Mia": 2, "cats/Zoe": 2}
    assert stored["histogram"] == [
        {"low": 2, "high": 2, "identities": 2},
        {"low": 3, "high": 3, "identities": 1},
    ]
    assert stored["ignored"] == {"files that are not photos": 1}
    assert len(stored["blank"]) == 6


@pytest.mark.slow
def test_duplicates_serialize_to_json(twice: Path) -> None:
    stored = json.loads(json.dumps(inspect_table(scan_folders(twice)).as_dict()))["duplicates"]
    assert {name: len(groups) for name, groups in stored.items()} == {
        "exact_across_identities": 1,
        "near_across_identities": 1,
        "exact_within_identity": 1,
        "near_within_identity": 1,
    }
    assert stored["exact_across_identities"][0] == {
        "photos": [str(twice / "Mia" / "1.png"), str(twice / "Tom" / "1.png")],
        "identities": ["twice/Mia", "twice/Tom"],
        "similarity": 1.0,
    }


def test_non_utf8_name_survives_json_round_trip(tmp_path: Path) -> None:
    folder = tmp_path / "cats" / os.fsdecode(b"M\xffia")
    folder.mkdir(parents=True)
    Image.new("RGB", (9, 9)).save(folder / "new\nline \U0001f408.png")
    (folder / os.fsdecode(b"\xfe.png")).touch()
    document = inspect_table(scan_folders(tmp_path / "cats")).as_dict()
    written = json.dumps(document, ensure_ascii=False).encode("utf-8", "backslashreplace")  # as the command prints it
    read = json.loads(written)
    assert read["photo_counts"] == {os.fsdecode(b"cats/M\xffia"): 2}
    assert [Path(path).exists() for path in read["blank"]] == [True]
