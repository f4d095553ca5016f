"""The folder of Parquet files: what is written is read back, and nothing foreign is mixed in."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from familiar.core.errors import BadDataset, CannotWrite, SpaceMismatch
from familiar.integrations.ray.parts import (
    COLUMNS,
    PhotoFile,
    count_rows,
    part_path,
    read_part,
    read_states,
    remove_photos,
    write_part,
)

MODEL = {"space_id": "color", "embedding_dim": 3, "file_ids": ["abc"], "detector": "none", "flip": False}


def photo_file(name: str, size_bytes: int = 1) -> PhotoFile:
    return PhotoFile(name, Path(name), (size_bytes, 7))


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
    assert count_rows(part) == {"photos": 2, "faces": 2, "without_embedding": 1}
    assert read_states(part, MODEL) == {"a": (1, 7), "b": (1, 7)}
    assert list(part.parent.iterdir()) == [part]


@given(st.lists(st.text(), min_size=1, unique=True))
def test_path_of_a_part_is_that_of_its_photos(names: list[str]):
    folder, files = Path("out"), [photo_file(name) for name in names]
    assert part_path(folder, files) == part_path(folder, [photo_file(name) for name in names])
    assert part_path(folder, files) != part_path(folder, [*files[:-1], photo_file(names[-1], size_bytes=2)])
    assert part_path(folder, files) != part_path(folder, files[:-1])


def test_photos_are_removed(part: Path):
    remove_photos(part, ["a", "c"])
    assert read_states(part, MODEL) == {"b": (1, 7)}
    remove_photos(part, ["b"])
    assert not part.exists()


@pytest.mark.parametrize(
    ("other", "difference"),
    [
        ({"file_ids": ["def"]}, r"file_ids \['abc'\], now \['def'\]"),
        ({"flip": True}, "flip False, now True"),
        ({"detector": "pets"}, "detector none, now pets"),
    ],
)
def test_other_models_are_refused(part: Path, other: dict[str, Any], difference: str):
    with pytest.raises(SpaceMismatch, match=rf"{part}: embedded differently \({difference}\); choose another folder"):
        read_states(part, MODEL | other)


def test_foreign_files_are_refused(tmp_path: Path):
    path = tmp_path / "theirs.parquet"
    pq.write_table(pa.table({"photo": ["a"]}), path)
    with pytest.raises(BadDataset, match=r"theirs\.parquet: not written by `familiar embed`; choose another folder"):
        read_states(path, MODEL)


def test_damaged_parts_are_named(part: Path):
    part.write_bytes(part.read_bytes()[:-20])
    with pytest.raises(BadDataset, match=rf"{part}: damaged .*; remove it and repeat the command"):
        read_states(part, MODEL)


def test_a_part_is_written_whole_or_not_at_all(part: Path):
    written = part.read_bytes()
    with pytest.raises(pa.ArrowInvalid):
        write_part(part, [row("a", score="high")], MODEL)
    assert list(part.parent.iterdir()) == [part]
    assert part.read_bytes() == written
    with pytest.raises(CannotWrite, match=rf"{part}/part: cannot be written \(Not a directory\)"):
        write_part(part / "part", [row("a")], MODEL)


@pytest.mark.parametrize(
    ("column", "values"), [("photo", [b"\xff"]), ("score", ["high"]), ("embedding", [[[0.5]]]), ("flip", [1])]
)
def test_columns_of_another_kind_are_damage(part: Path, column: str, values: list[Any]):
    table = pq.read_table(part).slice(0, 1)
    table = table.drop_columns(column if column in COLUMNS else "face").append_column(column, pa.array(values))
    pq.write_table(table, part)
    with pytest.raises(BadDataset, match=rf"{part}: damaged"):
        read_part(part)


def test_errors_of_arrow_that_are_no_value_errors_name_the_part(part: Path, monkeypatch: pytest.MonkeyPatch):
    def fail(*_: object) -> None:
        raise pa.ArrowNotImplementedError("Integers with more than 64 bits not implemented")

    monkeypatch.setattr(pq, "ParquetFile", fail)
    with pytest.raises(BadDataset, match=rf"{part}: damaged \(Integers with more than 64 bits"):
        read_part(part)
