import numpy as np
import pytest

from familiar.core.types import Photo
from familiar.datasets.inspection import contact_sheet


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
