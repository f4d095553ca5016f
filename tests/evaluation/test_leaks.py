import shutil
from pathlib import Path

import cv2
import numpy as np
import pytest
from PIL import Image

from familiar.datasets.folders import DataSpec, scan_folders
from familiar.evaluation.leaks import find_leaks


def pictures(root: Path, identities: int, photos: int = 2, seed: int = 0) -> Path:
    """Blurred noise: every photo another picture."""
    generator = np.random.default_rng(seed)
    for identity in range(identities):
        for photo in range(photos):
            path = root / f"{identity:02d}" / f"{photo}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            noise = cv2.GaussianBlur(generator.uniform(0, 255, (96, 96, 3)), (0, 0), 2)
            spread = (noise - noise.mean()) * 6 + 128
            Image.fromarray(np.clip(spread, 0, 255).astype(np.uint8)).save(path)
    return root


@pytest.fixture
def judged(tmp_path: Path) -> Path:
    return pictures(tmp_path / "judged", 4)


@pytest.fixture
def seen(tmp_path: Path) -> Path:
    return pictures(tmp_path / "seen", 5, seed=1)


def test_different_photos_have_no_leaks(judged: Path, seen: Path):
    leaks = find_leaks(scan_folders(judged), scan_folders(seen))
    assert (leaks.across_splits, leaks.across_identities) == ((), ())
    assert (leaks.evaluated_photos, leaks.seen_photos, leaks.rows.tolist()) == (8, 10, [])


def test_finds_exact_and_reencoded_copies_across_splits(judged: Path, seen: Path):
    shutil.copy(seen / "03" / "1.png", judged / "01" / "copy.png")
    Image.open(seen / "04" / "0.png").convert("RGB").save(judged / "02" / "again.jpg", quality=60)
    table = scan_folders(judged)
    found = find_leaks(table, scan_folders(seen))
    assert sorted(leak.exact for leak in found.across_splits) == [False, True]
    assert {table.photos[row].name for row in found.rows} == {"copy.png", "again.jpg"}
    exact = next(leak for leak in found.across_splits if leak.exact)
    assert set(exact.identities) == {"judged/01", "seen/03"}
    assert {Path(photo).name for photo in exact.photos} == {"copy.png", "1.png"}
    assert found.across_identities == ()
    assert find_leaks(table).seen_photos is None


def test_finds_photo_with_two_identities(judged: Path):
    shutil.copy(judged / "00" / "0.png", judged / "03" / "other.png")
    shutil.copy(judged / "01" / "0.png", judged / "01" / "twin.png")  # of one identity: no leak
    found = find_leaks(scan_folders(judged))
    assert [leak.identities for leak in found.across_identities] == [("judged/00", "judged/03")]
    assert found.across_splits == ()
    assert found.as_dict()["across_identities"][0]["exact"] is True


def test_photos_in_both_tables_are_not_counted_as_seen(judged: Path):
    table = scan_folders(judged)
    assert find_leaks(table, table).seen_photos == 0


def test_same_file_under_relative_path_is_no_leak(judged: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(judged.parent)
    found = find_leaks(scan_folders(Path("judged")), scan_folders(judged))
    assert (found.seen_photos, found.across_splits) == (0, ())


def test_skips_synthetic_and_unreadable_photos(judged: Path):
    drawn = DataSpec(("synthetic:cats:3x2",)).read()
    assert find_leaks(drawn, drawn).evaluated_photos == 0
    (judged / "00" / "0.png").write_text("no photo")
    assert find_leaks(scan_folders(judged)).across_identities == ()
    for path in judged.rglob("*.png"):
        path.write_text("no photo")
    assert find_leaks(scan_folders(judged)).evaluated_photos == 8
