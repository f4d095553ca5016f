"""The executed notebook and its page, and the Python of docs/how-to/pandas-arrow-numpy.md."""

import base64
import re
from pathlib import Path
from typing import Any

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import pytest

from familiar import Gallery
from support.color_album import draw_album
from support.html import Page
from support.notebook_page import IMAGES, NOTEBOOK, PAGE, ROOT, execute, page, read

MAX_BYTES = 300_000


def sources() -> list[str]:
    return ["".join(cell["source"]) for cell in read()["cells"] if cell["cell_type"] == "code"]


def test_page_is_made_of_the_notebook() -> None:
    text, pictures = page(read())
    assert PAGE.name == "explore-in-a-notebook.md"
    assert PAGE.read_text() == text, "run `python -m support.notebook_page` in tests/"
    assert pictures
    for name, png in pictures.items():
        assert (IMAGES / name).read_bytes() == png, "run `python -m support.notebook_page` in tests/"


def test_notebook_is_small_and_was_executed_without_errors() -> None:
    assert NOTEBOOK.stat().st_size < MAX_BYTES
    assert PAGE.stat().st_size < MAX_BYTES
    code = [cell for cell in read()["cells"] if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1))
    outputs = [output for cell in code for output in cell["outputs"]]
    assert {output["output_type"] for output in outputs} <= {"execute_result", "display_data"}  # no error, no warning
    formats = {name for output in outputs for name in output["data"]}
    assert {"text/html", "image/png"} <= formats
    for output in outputs:
        if "text/html" in output["data"]:
            parsed = Page("".join(output["data"]["text/html"]))
            assert "script" not in {tag for tag, _ in parsed.elements}
            assert all(each["src"].startswith("data:") for each in parsed.all("img"))


def test_notebook_does_not_name_the_machine_that_ran_it() -> None:
    content = re.sub(r"base64,[\w+/=]+", "", NOTEBOOK.read_text())
    assert str(ROOT) not in content
    assert "/tmp" not in content


@pytest.mark.slow
@pytest.mark.usefixtures("without_report")
def test_cells_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    matplotlib.use("agg")
    names: dict[str, Any] = {}
    for source in sources():
        exec(source.replace("cats:40x5", "cats:10x2"), names)
    plt.close("all")
    assert names["table"].num_rows == 48
    assert {"names.csv", "faces.parquet", "evaluation", "album"} <= {path.name for path in tmp_path.iterdir()}
    assert len(names["metrics"]) > 20


@pytest.mark.exhaustive
def test_notebook_runs_in_a_kernel() -> None:
    executed = execute(read())
    assert [cell["source"] for cell in executed["cells"]] == [cell["source"] for cell in read()["cells"]]
    outputs = [[output["output_type"] for output in cell.get("outputs", ())] for cell in executed["cells"]]
    assert outputs == [[output["output_type"] for output in cell.get("outputs", ())] for cell in read()["cells"]]
    pictures = page(executed)[1]
    assert all(base64.b64encode(png).startswith(b"iVBOR") for png in pictures.values())


def test_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mean_color_bundle: Path) -> None:
    """Run the block of pandas-arrow-numpy.md."""
    monkeypatch.chdir(tmp_path)
    draw_album(tmp_path / "photos" / "Mia", red=3)
    draw_album(tmp_path / "photos" / "Tom", green=2)
    with Gallery.create("album", mean_color_bundle) as album:
        album.enroll("photos")
        album.cluster()
        album.import_labels("photos")
    (block,) = re.findall(r"```python\n(.*?)```", (PAGE.parent / "pandas-arrow-numpy.md").read_text(), flags=re.DOTALL)
    names: dict[str, Any] = {}
    exec(block, names)
    assert names["largest"].to_dict() == {"Mia": 3, "Tom": 2}
    assert names["photos"]["identity"].tolist() == ["Mia"] * 3 + ["Tom"] * 2
    assert names["stream"]["embedding"].type.value_type == "float"
    assert names["identities"]["name"].tolist() == ["Mia", "Tom"]
    assert isinstance(names["embeddings"], np.ndarray)
