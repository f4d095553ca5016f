import shutil
from pathlib import Path

import cv2
import numpy as np
import pytest
from PIL import Image

from familiar.datasets.folders import DataSpec, scan_folders
from familiar.evaluation.leaks import find_leaks
from familiar.evaluation.results.document import ComparedPhotos


def pictures(root: Path, identities: int, photos: int = 2, seed: int = 0) -> Path:
    """Write photos of blurred noise, each a different picture."""
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
def evaluated(tmp_path: Path) -> Path:
    return pictures(tmp_path / "evaluated", 4)


@pytest.fixture
def seen(tmp_path: Path) -> Path:
    return pictures(tmp_path / "seen", 5, seed=1)


def test_different_photos_have_no_leaks(evaluated: Path, seen: Path):
    leaks, rows = find_leaks(scan_folders(evaluated), scan_folders(seen))
    assert (leaks.across_splits, leaks.across_identities) == ((), ())
    assert (leaks.compared, rows.tolist()) == (ComparedPhotos(8, 10), [])


def test_finds_exact_and_reencoded_copies_across_splits(evaluated: Path, seen: Path):
    shutil.copy(seen / "03" / "1.png", evaluated / "01" / "copy.png")
    Image.open(seen / "04" / "0.png").convert("RGB").save(evaluated / "02" / "again.jpg", quality=60)
    table = scan_folders(evaluated)
    leaks, rows = find_leaks(table, scan_folders(seen))
    assert sorted(leak.exact for leak in leaks.across_splits) == [False, True]
    assert {table.photos[row].name for row in rows} == {"copy.png", "again.jpg"}
    exact = next(leak for leak in leaks.across_splits if leak.exact)
    assert set(exact.identities) == {"evaluated/01", "seen/03"}
    assert {Path(photo).name for photo in exact.photos} == {"copy.png", "1.png"}
    assert leaks.across_identities == ()
    assert find_leaks(table)[0].compared.seen_in_training is None


def test_finds_photo_with_two_identities(evaluated: Path):
    shutil.copy(evaluated / "00" / "0.png", evaluated / "03" / "other.png")
    shutil.copy(evaluated / "01" / "0.png", evaluated / "01" / "twin.png")  # of one identity: no leak
    leaks, _ = find_leaks(scan_folders(evaluated))
    assert [leak.identities for leak in leaks.across_identities] == [("evaluated/00", "evaluated/03")]
    assert leaks.across_splits == ()
    assert leaks.across_identities[0].exact is True


def test_photos_in_both_tables_are_not_counted_as_seen(evaluated: Path):
    table = scan_folders(evaluated)
    assert find_leaks(table, table)[0].compared.seen_in_training == 0


def test_same_file_under_relative_path_is_no_leak(evaluated: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(evaluated.parent)
    leaks, _ = find_leaks(scan_folders(Path("evaluated")), scan_folders(evaluated))
    assert (leaks.compared.seen_in_training, leaks.across_splits) == (0, ())


def test_skips_synthetic_and_unreadable_photos(evaluated: Path):
    drawn = DataSpec(("synthetic:cats:3x2",)).read()
    assert find_leaks(drawn, drawn)[0].compared.evaluated == 0
    (evaluated / "00" / "0.png").write_text("no photo")
    assert find_leaks(scan_folders(evaluated))[0].across_identities == ()
    for path in evaluated.rglob("*.png"):
        path.write_text("no photo")
    assert find_leaks(scan_folders(evaluated))[0].compared.evaluated == 8
