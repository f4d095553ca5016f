import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

from familiar import Embedder, Gallery
from familiar.detection.detectors import WholePhoto
from familiar.photos.decoding import load_photo
from support.color_album import draw_photo

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.exhaustive
def test_drawn_pets_script_writes_six_full_sheets(tmp_path: Path) -> None:
    subprocess.run([sys.executable, EXAMPLES / "drawn_pets.py", tmp_path / "sheets"], check=True)
    sheets = list((tmp_path / "sheets").iterdir())
    assert len(sheets) == 6
    for path in sheets:
        assert load_photo(path).size_px == (7 * 110, 6 * 110)


def test_oldest_photo_of_each_name(tmp_path: Path, mean_color_bundle: Path, capsys: pytest.CaptureFixture[str]) -> None:
    album = tmp_path / "album"
    with Gallery.create(album, Embedder(mean_color_bundle, threads=1)) as gallery:
        for year, color in ((2024, "red"), (2020, "red"), (2022, "red"), (None, "green")):
            path = draw_photo(tmp_path / f"{year}.png", color, shade=len(gallery.faces()))
            exif = Image.Exif()
            if year is not None:
                exif.get_ifd(0x8769)[0x9003] = f"{year}:05:04 03:02:01"  # DateTimeOriginal
            Image.open(path).save(path.with_suffix(".jpg"), exif=exif, quality=95)
            gallery.enroll(path.with_suffix(".jpg"), WholePhoto())
        gallery.split([1, 2, 3], "Mia", propagate=False)
        gallery.split([4], "Tom")
    program = runpy.run_path(str(EXAMPLES / "oldest_photo.py"))
    program["main"](str(album))
    mia, tom = capsys.readouterr().out.splitlines()
    assert mia.startswith(f"Mia: {tmp_path / '2020.jpg'}, 2020-05-04; similarity ")
    assert mia.endswith(" after 4.0 years")
    assert tom == "Tom: no photo says when it was taken"
    imports = re.findall(r"^(?:from|import) (familiar\S*)", (EXAMPLES / "oldest_photo.py").read_text(), re.MULTILINE)
    assert imports == ["familiar"], "the public API"
