import json
import re
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from PIL import Image

from familiar.cli.commands.augment import augment as command
from familiar.core.errors import BadRecipe, UnreadablePhoto
from familiar.loading.augment.pipeline import apply_change
from familiar.loading.augment.preview import (
    CAPTION_PX,
    GAP_PX,
    NAMES_PX,
    OPERATIONS,
    PHOTO_GAP_PX,
    STRENGTHS,
    TILE_PX,
    VARIANT_ROWS,
    augmentation_sheet,
    shown_operations,
)
from familiar.loading.augment.settings import CIRCLE_AUGMENTATION, NO_AUGMENTATION, Augmentation


def photo(side: int = 64, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (side, side, 3), dtype=np.uint8)


def tile(sheet: np.ndarray, row: int, column: int, below: bool = False) -> np.ndarray:
    """Return a picture of the sheet, or the strip with the caption below it."""
    y = GAP_PX + row * (TILE_PX + CAPTION_PX) + (TILE_PX if below else 0)
    x = NAMES_PX + column * (TILE_PX + GAP_PX) + column // STRENGTHS * PHOTO_GAP_PX
    return sheet[y : y + (CAPTION_PX if below else TILE_PX), x : x + TILE_PX]


def names(settings: Augmentation) -> list[str]:
    return [operation.name for operation in shown_operations(settings)]


def test_rows_list_enabled_operations() -> None:
    assert names(NO_AUGMENTATION) == []
    assert names(replace(NO_AUGMENTATION, blur_p=0.1, flip_p=0.2)) == ["flip", "blur"]
    pets = ["rotate", "flip", "shift", "scale", "brightness", "contrast", "saturation", "hue", "gray", "blur"]
    pets += ["noise", "jpeg", "downscale", "shadow", "dropout"]
    assert names(Augmentation()) == pets
    assert names(replace(NO_AUGMENTATION, sharpness_p=0.1)) == ["sharpness"]
    faces = ["crop", "flip", "brightness", "contrast", "saturation", "hue", "gray", "blur", "erase"]
    assert names(CIRCLE_AUGMENTATION) == faces


def test_operations_are_shown_at_the_ends_of_their_ranges_with_captions() -> None:
    settings = replace(Augmentation(), crop_p=1.0, erase_p=1.0, sharpness_p=1.0)
    changes = {operation.name: operation.changes(settings) for operation in OPERATIONS}
    captions = {operation.name: [*map(operation.caption, changes[operation.name])] for operation in OPERATIONS}
    assert captions["rotate"] == ["-25°", "+12°", "+25°"]
    assert captions["brightness"] == ["x 0.70", "x 1.15", "x 1.30"]
    assert captions["blur"] == ["3 px, std 0.8", "5 px, std 1.1", "9 px, std 1.7"]
    assert captions["sharpness"] == ["x 0.00", "x 1.00", "x 2.00"]
    assert captions["jpeg"] == ["quality 100", "quality 85", "quality 70"]
    assert captions["dropout"] == ["1 of 7%", "2 of 14%", "4 of 21%"]
    assert captions["erase"] == ["2%, 0.30 : 1", "6%, 0.99 : 1", "10%, 3.30 : 1"]
    assert [change.angle_deg for change in changes["rotate"]] == [-25.0, 12.5, 25.0]
    assert [change.jitter.hue for change in changes["hue"]] == pytest.approx([-0.1, 0.05, 0.1])
    assert [change.move.scale for change in changes["shift"]] == [1.0] * 3
    assert [len(change.holes) for change in changes["dropout"]] == [1, 2, 4]


def test_each_row_shows_its_operation_by_itself() -> None:
    for operation in OPERATIONS:
        for change in operation.changes(Augmentation()):
            drawn = [field.name for field in fields(change) if getattr(change, field.name) is not None]
            assert len(drawn) == 1, operation.name


def test_row_strength_increases_from_left_to_right() -> None:
    smooth = np.kron(photo(8), np.ones((16, 16, 1))).astype(np.uint8)
    for operation in shown_operations(Augmentation()):
        if operation.name in ("blur", "noise", "jpeg", "downscale", "shadow", "dropout"):
            changed = [apply_change(smooth, change).astype(int) for change in operation.changes(Augmentation())]
            losses = [np.abs(image - smooth).mean() for image in changed]
            assert losses == sorted(losses), operation.name
            assert losses[-1] > 2, operation.name


@pytest.mark.parametrize("photos", [1, 2])
def test_sheet_contains_every_tile_caption_and_variant(photos: int) -> None:
    settings = replace(NO_AUGMENTATION, flip_p=0.5, rotate_p=0.5)
    pictures = [photo(TILE_PX, seed) for seed in range(photos)]
    sheet = augmentation_sheet(pictures, settings)
    rows = 3 + VARIANT_ROWS
    assert sheet.dtype == np.uint8
    assert sheet.shape[0] == rows * (TILE_PX + CAPTION_PX) + GAP_PX
    for index, picture in enumerate(pictures):
        assert np.array_equal(tile(sheet, 0, STRENGTHS * index), picture)
        assert np.array_equal(tile(sheet, 2, STRENGTHS * index), picture[:, ::-1])
        assert (tile(sheet, 2, STRENGTHS * index + 1) == 255).all()  # a flip has one strength
        assert (tile(sheet, 1, STRENGTHS * index, below=True) < 150).any()
        variants = {
            tile(sheet, row, STRENGTHS * index + column).tobytes() for row in range(3, rows) for column in range(3)
        }
        assert len(variants) > 6
    assert (sheet[:, :GAP_PX] == 255).all()
    for row in range(1, rows):  # each name and note ends before the pictures begin
        top = GAP_PX + row * (TILE_PX + CAPTION_PX)
        assert (sheet[top : top + TILE_PX, :NAMES_PX] < 150).any()
        assert (sheet[top : top + TILE_PX, NAMES_PX - 4 : NAMES_PX] == 255).all()


def test_names_and_captions_stay_within_margins() -> None:
    everything = replace(Augmentation(), crop_p=0.25, erase_p=0.25)
    sheet = augmentation_sheet([photo(224)], everything)
    assert (sheet[:, NAMES_PX - 2 : NAMES_PX] == 255).all()
    for row in range(sheet.shape[0] // (TILE_PX + CAPTION_PX)):
        for column in range(STRENGTHS):
            below = tile(sheet, row, column, below=True)
            assert (below[-2:] == 255).all()
            assert (below[:, [0, -1]] == 255).all()


@pytest.mark.slow
def test_sheet_is_deterministic_for_a_seed() -> None:
    sheets = [augmentation_sheet([photo(224)], Augmentation(), seed) for seed in (1, 1, 2)]
    assert np.array_equal(sheets[0], sheets[1])
    assert not np.array_equal(sheets[0], sheets[2])
    with pytest.raises(ValueError, match="needs at least one photo"):
        augmentation_sheet([], Augmentation())


# The command


def run(*arguments: object) -> str:
    return CliRunner().invoke(command, [*map(str, arguments)], catch_exceptions=False).stdout


@pytest.mark.slow
def test_command_writes_sheet_for_changed_recipe(tmp_path: Path) -> None:
    output = tmp_path / "a.png"
    few = ["--set", "input.size_px=32", "--set", "input.resize_px=32", "--set", "augmentation.blur_p=0.5"]
    options = ["synthetic:cats:4x2", "--recipe", "quickstart", *few, "--output", output]
    report = json.loads(run(*options, "--photos", 3, "--json"))
    assert report["photos"] == [f"synthetic:cats/00000{identity}/0000" for identity in range(3)]
    assert (report["output"], report["augmentation"]["blur_p"]) == (str(output), 0.5)
    with Image.open(output) as picture:
        assert picture.width == NAMES_PX + 9 * (TILE_PX + GAP_PX) + 2 * PHOTO_GAP_PX
    assert re.fullmatch(r".*a\.png: augmentation of quickstart on 2 photos of 32 px\n", run(*options))


@pytest.mark.slow
def test_command_skips_unreadable_photos(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / "pets" / name).mkdir(parents=True)
        (tmp_path / "pets" / name / "1.png").write_text("no photo")
    with pytest.raises(UnreadablePhoto, match=r"first photo can be read; the first: .*1\.png"):
        run(tmp_path / "pets", "--output", tmp_path / "a.png")
    Image.fromarray(photo()).save(tmp_path / "pets" / "b" / "1.png")
    assert "1 photos of 224 px" in run(tmp_path / "pets", "--output", tmp_path / "a.png")
    with pytest.raises(BadRecipe, match="no recipe"):
        run(tmp_path / "pets", "--recipe", "none")
