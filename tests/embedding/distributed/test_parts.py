"""The folder of Parquet files: what is written is read back, and nothing foreign is mixed in."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from familiar.core.errors import BadDataset, SpaceMismatch
from familiar.embedding.distributed.parts import (
    COLUMNS,
    EmbeddedWith,
    PhotoFile,
    count_rows,
    list_parts,
    part_path,
    read_embedded_with,
    read_states,
    remove_photos,
    write_part,
)

MODEL = EmbeddedWith("color", 3, ("abc",), "none", False)


def photo_file(name: str, size_bytes: int = 1) -> PhotoFile:
    return PhotoFile(name, Path(name), size_bytes, 7)


def row(name: str, **columns: Any) -> dict[str, Any]:
    return {"photo": name, "size_bytes": 1, "modified_ns": 7, **columns}


FACE = {"face": 1, "box_xyxy_px": [1, 2, 3, 4], "score": 0.5, "quality": 0.25, "embedding": [0, 0.6, 0.8]}


@pytest.fixture
def part(tmp_path: Path) -> Path:
    path = part_path(tmp_path, [photo_file("a"), photo_file("b")])
    write_part(path, [row("a", **FACE), row("a", **FACE | {"face": 2}), row("b", error="b: dark")], MODEL)
    return path


def test_part_is_read_back(part: Path):
    table = pq.read_table(part)
    assert table.column_names == list(COLUMNS)
    assert table.schema.field("embedding").type == pa.list_(pa.float32())
    first = table.to_pylist()[0]
    assert (first["photo"], first["box_xyxy_px"], first["quality"]) == ("a", [1, 2, 3, 4], 0.25)
    assert first["embedding"] == pytest.approx([0, 0.6, 0.8])
    assert first["error"] is None
    assert table.to_pylist()[2]["error"] == "b: dark"
    assert count_rows(part) == (2, 2, 1)
    assert list(read_states(part.parent, MODEL)) == [(part, {"a": (1, 7), "b": (1, 7)})]


@given(st.lists(st.text(), min_size=1, unique=True))
def test_path_of_a_part_is_that_of_its_photos(names: list[str]):
    folder, files = Path("out"), [photo_file(name) for name in names]
    assert part_path(folder, files) == part_path(folder, [replace(file) for file in files])
    assert part_path(folder, files) != part_path(folder, [*files[:-1], photo_file(names[-1], size_bytes=2)])
    assert part_path(folder, files) != part_path(folder, files[:-1])


def test_photos_are_removed(part: Path):
    remove_photos(part, ["a", "c"])
    assert list(read_states(part.parent, MODEL)) == [(part, {"b": (1, 7)})]
    remove_photos(part, ["b"])
    assert list_parts(part.parent) == []


@pytest.mark.parametrize(
    ("other", "difference"),
    [
        (replace(MODEL, file_ids=("def",)), r"file_ids \('abc',\), now \('def',\)"),
        (replace(MODEL, flip=True), "flip False, now True"),
        (replace(MODEL, detector="haar"), "detector none, now haar"),
    ],
)
def test_other_models_are_refused(part: Path, other: EmbeddedWith, difference: str):
    with pytest.raises(SpaceMismatch, match=rf"{part}: embedded differently \({difference}\); choose another folder"):
        list(read_states(part.parent, other))


def test_foreign_files_are_refused(tmp_path: Path):
    pq.write_table(pa.table({"photo": ["a"]}), tmp_path / "theirs.parquet")
    with pytest.raises(BadDataset, match=r"theirs\.parquet: not written by `familiar embed`; choose another folder"):
        list(read_states(tmp_path, MODEL))


def test_damaged_parts_are_named(part: Path):
    part.write_bytes(part.read_bytes()[:-20])
    with pytest.raises(BadDataset, match=rf"{part}: damaged .*; remove it and repeat the command"):
        list(read_states(part.parent, MODEL))


def test_a_missing_folder_has_no_parts(tmp_path: Path):
    assert list(read_states(tmp_path / "none", MODEL)) == []


def test_errors_of_arrow_that_are_no_value_errors_name_the_part(part: Path, monkeypatch: pytest.MonkeyPatch):
    def fail(*_: object) -> None:
        raise pa.ArrowNotImplementedError("Integers with more than 64 bits not implemented")

    monkeypatch.setattr(pq, "read_schema", fail)
    monkeypatch.setattr(pq, "ParquetFile", fail)
    for read in (read_embedded_with, count_rows):
        with pytest.raises(BadDataset, match=rf"{part}: damaged \(Integers with more than 64 bits"):
            read(part)
