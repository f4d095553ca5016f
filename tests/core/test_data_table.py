"""Tables for pandas, Arrow and NumPy: the same values everywhere, and vectors that are never copied."""

import sys
from collections.abc import Sequence

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from familiar.core.data_table import DataTable, optional_integers, optional_times, read_only, texts, vectors_from_arrow
from familiar.core.errors import FamiliarError

TIMES = ("1970-01-01T00:00:00", "2024-06-01T12:00:00", "0001-01-01T00:00:00", "9999-12-31T23:59:59")


def example(dtype: str = "float16", rows: int = 3) -> DataTable:
    vectors = np.arange(rows * 4).reshape(rows, 4).astype(np.dtype(dtype).newbyteorder("<"))
    return DataTable({"face": np.arange(rows), "embedding": read_only(vectors)}, {"space_id": "drawn"})


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_arrow_takes_vectors_without_copying_them_and_numpy_takes_them_back(dtype: str) -> None:
    table = example(dtype)
    column = table.to_arrow()["embedding"]
    assert column.type == pa.list_(pa.from_numpy_dtype(np.dtype(dtype)), 4)
    assert column.num_chunks == 1
    back = column.chunk(0).values.to_numpy(zero_copy_only=True).reshape(len(table), -1)
    assert back.ctypes.data == table["embedding"].ctypes.data
    np.testing.assert_array_equal(back, table["embedding"])
    again = vectors_from_arrow(column)
    assert again.ctypes.data == table["embedding"].ctypes.data
    assert not again.flags.writeable


def test_pandas_takes_rows_of_vectors_without_copying_them() -> None:
    table = example()
    assert list(table.to_pandas().columns) == ["face"]
    frame = table.to_pandas(vectors=True)
    assert all(np.shares_memory(row, table["embedding"]) for row in frame["embedding"])
    assert list(DataTable({"embedding": np.empty((0, 4))}).to_pandas(vectors=True).columns) == ["embedding"]


def test_other_libraries_read_the_stream() -> None:
    class Wrapped:  # nothing but the interface
        def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
            return example().__arrow_c_stream__(requested_schema)

    table = pa.table(Wrapped())
    assert table["face"].to_pylist() == [0, 1, 2]
    assert table.schema.metadata == {b"familiar": b'{"space_id": "drawn"}'}
    np.testing.assert_array_equal(vectors_from_arrow(table["embedding"])[1], [4, 5, 6, 7])


rows_of_table = st.lists(
    st.tuples(
        st.none() | st.integers(-(2**63), 2**63 - 1),
        st.none() | st.text(),
        st.none() | st.sampled_from(TIMES),
        st.floats(allow_nan=False),
    )
)


@given(rows_of_table)
def test_values_survive_pandas_and_arrow(rows: Sequence[tuple[int | None, str | None, str | None, float]]) -> None:
    numbers, names, times, scores = zip(*rows, strict=True) if rows else ((), (), (), ())
    table = DataTable(
        {
            "number": optional_integers(numbers),
            "name": texts(names),
            "time": optional_times(times),
            "score": np.array(scores, np.float64),
        }
    )
    frame, arrow = table.to_pandas(), table.to_arrow()
    assert [str(dtype) for dtype in frame.dtypes] == ["Int64", "str", "datetime64[s]", "float64"]
    utf8 = [name if name is None else name.encode("utf-8", "backslashreplace").decode() for name in names]
    for name, expected in {"number": list(numbers), "name": utf8, "score": list(scores)}.items():
        assert [None if pd.isna(value) else value for value in frame[name]] == expected
        assert arrow[name].to_pylist() == expected
    assert [None if pd.isna(value) else value.isoformat() for value in frame["time"]] == list(times)
    assert [None if value is None else value.isoformat() for value in arrow["time"].to_pylist()] == list(times)


def test_path_that_is_not_utf8_is_escaped() -> None:
    table = DataTable({"path": texts(["a\udcff.jpg", None])})
    assert table["path"][0] == "a\udcff.jpg"  # by which it can be opened
    assert table.to_pandas()["path"][0] == table.to_arrow()["path"][0].as_py() == "a\\udcff.jpg"


def test_columns_of_different_lengths_are_refused() -> None:
    with pytest.raises(ValueError, match="face: 1, name: 2"):
        DataTable({"face": np.zeros(1), "name": np.zeros(2)})


@pytest.mark.parametrize("package", ["pandas", "pyarrow"])
def test_missing_package_is_named_with_its_extra(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    convert = {"pandas": example().to_pandas, "pyarrow": example().to_arrow}[package]
    with pytest.raises(FamiliarError, match=rf"needs {package}: pip install 'familiar-faces\[data\]'"):
        convert()


def test_table_shows_its_first_rows() -> None:
    table = DataTable({"name": texts(["<script>"] * 12), "number": optional_integers([None] * 12)})
    shown = table._repr_html_()
    assert shown.count("&lt;script&gt;") == 10
    assert "<script" not in shown
    assert "and 2 more rows" in shown
    assert repr(example()) == "DataTable(3 rows: face, embedding)"
    assert "4 × float16" in example()._repr_html_()


@pytest.mark.parametrize("lengths", [(), (2,), (1, 0, 2)])
def test_arrow_vectors_in_pieces_are_joined(lengths: tuple[int, ...]) -> None:
    kind = pa.list_(pa.float32(), 2)
    pieces = [pa.array([[1.0, 2.0]] * length, kind) for length in lengths]
    vectors = vectors_from_arrow(pa.chunked_array(pieces, kind))
    np.testing.assert_array_equal(vectors, np.tile([1.0, 2.0], (sum(lengths), 1)))
    assert vectors.dtype == np.float32
    sliced = vectors_from_arrow(pa.array([[0.0, 0.0], [1.0, 2.0]], kind).slice(1))
    np.testing.assert_array_equal(sliced, [[1.0, 2.0]])


def test_arrow_columns_that_are_no_vectors_are_refused() -> None:
    with pytest.raises(ValueError, match="fixed-size lists of numbers, got int64"):
        vectors_from_arrow(pa.array([1, 2]))
    for missing in ([[1.0, None]], [[1.0, 2.0], None]):
        with pytest.raises(ValueError, match="missing"):
            vectors_from_arrow(pa.array(missing, pa.list_(pa.float32(), 2)))
    with pytest.raises(ValueError, match="fixed-size lists of numbers"):
        vectors_from_arrow(pa.array([["a", "b"]], pa.list_(pa.string(), 2)))
