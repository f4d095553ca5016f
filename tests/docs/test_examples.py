import subprocess
import sys
from pathlib import Path

import pytest

from familiar.photos.decoding import load_photo

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.exhaustive
def test_drawn_pets_script_writes_six_full_sheets(tmp_path: Path) -> None:
    subprocess.run([sys.executable, EXAMPLES / "drawn_pets.py", tmp_path / "sheets"], check=True)
    sheets = list((tmp_path / "sheets").iterdir())
    assert len(sheets) == 6
    for path in sheets:
        assert load_photo(path).size_px == (7 * 110, 6 * 110)
