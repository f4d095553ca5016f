import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from familiar.core.errors import UnreadablePhoto
from familiar.core.types import Photo
from familiar.datasets.folders import DataSpec, scan_folders
from familiar.datasets.inspection import contact_sheet, inspect_table
from familiar.datasets.synthetic import SyntheticPhoto


def photo(height: int, width: int, value: int) -> Photo:
    return Photo(np.full((height, width, 3), value, np.uint8), "drawn", (width, height))


def test_tiles_stand_row_by_row() -> None:
    sheet = contact_sheet([photo(8, 8, value) for value in (10, 20, 30)], columns=2, tile_px=4)
    assert sheet.shape == (8, 8, 3)
    assert (sheet[:4, :4] == 10).all()
    assert (sheet[:4, 4:] == 20).all()
    assert (sheet[4:, :4] == 30).all()
    assert (sheet[4:, 4:] == 255).all()


@pytest.mark.parametrize("scale", [1, 5])
def test_a_wide_photo_is_shown_whole_and_centred(scale: int) -> None:
    sheet = contact_sheet([photo(4 * scale, 8 * scale, 0)], columns=1, tile_px=16)
    assert (sheet[4:12] == 0).all()
    assert (sheet[:4] == 255).all()
    assert (sheet[12:] == 255).all()


def test_the_thinnest_photo_still_shows() -> None:
    assert (contact_sheet([photo(1, 500, 0)], columns=1, tile_px=8) == 0).any()


def test_colours_stay_rgb() -> None:
    red = Photo(np.tile(np.array([200, 10, 20], np.uint8), (6, 6, 1)), "drawn", (6, 6))
    assert contact_sheet([red], columns=1, tile_px=6)[3, 3].tolist() == [200, 10, 20]


@pytest.mark.parametrize(("count", "columns", "tile_px"), [(0, 1, 8), (1, 0, 8), (1, 1, 0)])
def test_what_makes_no_sheet_is_refused(count: int, columns: int, tile_px: int) -> None:
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


def test_counts_and_sizes(cats: Path) -> None:
    (cats / "Tom" / "notes.txt").touch()
    found = inspect_table(scan_folders(cats))
    assert (found.photos, found.identities, found.single) == (6, 3, 1)
    assert found.photos_per_identity == (1, 2.0, 3)
    assert found.width_px == (10, 35.0, 60)
    assert found.height_px == (400, 400.0, 400)
    assert found.unreadable == ()
    assert found.ignored == {"files that are no photos": 1}


def test_sizes_are_of_upright_photos_as_the_eye_sees_them(cats: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6  # turned by a quarter
    Image.new("RGB", (500, 70)).save(cats / "Tom" / "turned.jpg", exif=exif)
    found = inspect_table(scan_folders(cats))
    assert (found.width_px[2], found.height_px[2]) == (70, 500)


def test_unreadable_photos_are_listed_and_the_others_measured(cats: Path) -> None:
    whole = (cats / "Zoe" / "40.jpg").read_bytes()
    (cats / "Zoe" / "40.jpg").write_bytes(whole[:-200])
    (cats / "Mia" / "60.jpg").write_text("no photo")
    (cats / "Mia" / "61.jpg").touch()
    found = inspect_table(scan_folders(cats))
    assert [str(error).partition(": ")[0] for error in found.unreadable] == [
        str(cats / name) for name in ("Mia/60.jpg", "Mia/61.jpg", "Zoe/40.jpg")
    ]
    assert (found.photos, found.identities, found.single) == (7, 3, 0)
    assert found.width_px == (10, 25.0, 50)


def test_not_one_readable_photo_is_an_error_that_names_one(cats: Path) -> None:
    for path in cats.glob("*/*.jpg"):
        path.write_text("no photo")
    with pytest.raises(
        UnreadablePhoto, match=r"^not one of the 6 photos can be read; the first: .*60\.jpg: "
    ):
        inspect_table(scan_folders(cats))


def test_drawn_photos_have_the_size_they_are_named_for_and_are_not_drawn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(SyntheticPhoto, "draw", lambda _: pytest.fail("drawn"))
    found = inspect_table(DataSpec(("synthetic:cats:3x2",)).read())
    assert found.width_px == found.height_px == (224, 224.0, 224)
    assert (found.photos, found.identities) == (6, 3)


def test_an_inspection_goes_into_json(cats: Path) -> None:
    (cats / "Mia" / "61.jpg").touch()
    stored = json.loads(json.dumps(inspect_table(scan_folders(cats)).as_dict()))
    assert stored["width_px"] == [10, 35.0, 60]
    assert stored["unreadable"][0].startswith(str(cats / "Mia" / "61.jpg"))
