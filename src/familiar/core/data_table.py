"""Tables of columns as NumPy arrays, which pandas, pyarrow and other programs that read Arrow take over."""

import importlib
import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from jaxtyping import Shaped

from familiar.core.errors import FamiliarError
from familiar.core.notebook import notebook_html

METADATA_KEY = b"familiar"
_ROWS_SHOWN = 10
_TEMPLATES = Path(__file__).parent / "templates"

Column: TypeAlias = Shaped[np.ndarray, "n ..."]


class TableSource(ABC):
    """A value that can be converted to a table for pandas, Arrow and NumPy.

    It has Arrow's PyCapsule interface: `polars.DataFrame(value)`, `pyarrow.table(value)` and DuckDB read it as it is.
    """

    @abstractmethod
    def table(self) -> "DataTable":
        """Return the table."""

    def to_pandas(self, *, vectors: bool = False) -> Any:
        """Return a `pandas.DataFrame`.

        Whole numbers that may be missing have the dtype "Int64", texts "str", and times "datetime64[s]".

        Args:
            vectors: with the columns of vectors, such as embeddings: one NumPy array for each row, not copied.

        Raises:
            FamiliarError: pandas is not installed.
        """
        pandas = _import("pandas", "a DataFrame")
        columns = self.table().columns.items()
        return pandas.DataFrame(
            {name: _to_pandas(pandas, values) for name, values in columns if vectors or values.ndim == 1}
        )

    def to_arrow(self) -> Any:
        """Return a `pyarrow.Table`. Vectors are fixed-size lists of the dtype that they have, and are not copied.

        Raises:
            FamiliarError: pyarrow is not installed.
        """
        arrow = _import("pyarrow", "an Arrow table")
        table = self.table()
        columns = {name: _to_arrow(arrow, values) for name, values in table.columns.items()}
        metadata = {METADATA_KEY: json.dumps(dict(table.metadata))} if table.metadata else None
        return arrow.table(columns).replace_schema_metadata(metadata)

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Return the table as a PyCapsule of an Arrow stream, which other libraries call for.

        Args:
            requested_schema: as the Arrow PyCapsule interface describes it.
        """
        return self.to_arrow().__arrow_c_stream__(requested_schema)


@dataclass(frozen=True, eq=False, repr=False)
class DataTable(TableSource):
    """Columns of the same length. `table["name"]` is a column, `len(table)` the number of rows.

    Attributes:
        columns: by name: arrays of numbers, of times (datetime64), of texts (dtype object, None where one is missing),
            or of vectors (2-D, one in each row). Whole numbers of which some are missing are a masked array.
        metadata: what else is known, as JSON can express it; the schema of the Arrow table has it, too.

    >>> table = DataTable({"face": np.array([1, 2]), "name": np.array(["Mia", None], object)})
    >>> table, table["face"].tolist()
    (DataTable(2 rows: face, name), [1, 2])
    """

    columns: Mapping[str, Column]
    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def __post_init__(self) -> None:
        if len({len(values) for values in self.columns.values()}) > 1:
            lengths = ", ".join(f"{name}: {len(values)}" for name, values in self.columns.items())
            raise ValueError(f"columns must have the same length, got {lengths}")

    def table(self) -> "DataTable":
        """Return this table itself."""
        return self

    def __len__(self) -> int:
        return len(next(iter(self.columns.values()), ()))

    def __getitem__(self, name: str) -> Column:
        return self.columns[name]

    def __repr__(self) -> str:
        return f"DataTable({len(self)} rows: {', '.join(self.columns)})"

    def _repr_html_(self) -> str:
        indices = range(min(len(self), _ROWS_SHOWN))
        rows = [[_shown(values, row) for values in self.columns.values()] for row in indices]
        headings, hidden = tuple(self.columns), len(self) - _ROWS_SHOWN
        return notebook_html(_TEMPLATES, "data_table.html", headings=headings, rows=rows, hidden=hidden)


def texts(values: Iterable[str | None]) -> Column:
    """Return a column of texts, of which some may be missing."""
    listed = list(values)
    column = np.empty(len(listed), object)
    column[:] = listed
    return column


def optional_integers(values: Iterable[int | None]) -> Column:
    """Return a column of whole numbers, masked where one is missing."""
    listed = list(values)
    numbers = np.array([0 if value is None else value for value in listed], np.int64)
    return np.ma.MaskedArray(numbers, [value is None for value in listed])


def optional_times(values: Iterable[str | None]) -> Column:
    """Return a column of local times, given in ISO 8601 to the second; NaT where one is missing."""
    return np.array(["NaT" if value is None else value for value in values], "datetime64[s]")


def read_only(values: Column) -> Column:
    """Return a view of an array through which it cannot be changed."""
    view = values.view()
    view.flags.writeable = False
    return view


def vectors_from_arrow(values: Any) -> Column:
    """Return the vectors of an Arrow column as a 2-D array, without copying them if they are in one piece.

    Args:
        values: an array or a column of fixed-size lists of numbers, of any library with Arrow's PyCapsule interface.

    Raises:
        FamiliarError: pyarrow is not installed.
        ValueError: it has another type, or missing values.
    """
    arrow = _import("pyarrow", "an Arrow column")
    column = arrow.chunked_array(values) if hasattr(values, "__arrow_c_stream__") else arrow.array(values)
    if not arrow.types.is_fixed_size_list(column.type) or not arrow.types.is_floating(column.type.value_type):
        raise ValueError(f"embeddings must be fixed-size lists of numbers, got {column.type}")
    width = column.type.list_size
    chunks = getattr(column, "chunks", [column])
    if any(chunk.null_count or chunk.flatten().null_count for chunk in chunks):
        raise ValueError("some embeddings are missing")
    blocks = [chunk.flatten().to_numpy(zero_copy_only=True).reshape(len(chunk), width) for chunk in chunks]
    return blocks[0] if len(blocks) == 1 else np.concatenate([np.empty((0, width), np.float32), *blocks])


def _to_pandas(pandas: Any, values: Column) -> Any:
    if values.ndim == 2:
        return pandas.Series(list(values), dtype=object)
    if isinstance(values, np.ma.MaskedArray):
        return pandas.array(values.tolist(), dtype="Int64")
    if values.dtype == object:
        return pandas.array(_utf8(values), dtype=pandas.StringDtype(na_value=np.nan))
    return values


def _to_arrow(arrow: Any, values: Column) -> Any:
    if values.ndim == 2:
        flat = np.ascontiguousarray(values).astype(values.dtype.newbyteorder("="), copy=False).reshape(-1)
        return arrow.FixedSizeListArray.from_arrays(arrow.array(flat), values.shape[1])
    if values.dtype == object:
        return arrow.array(_utf8(values), arrow.string())
    return arrow.array(values)


def _utf8(values: Column) -> list[str | None]:
    """Escape the bytes of paths that are not UTF-8, which neither Arrow nor pandas can hold."""
    return [
        value if value is None or value.isascii() else value.encode("utf-8", "backslashreplace").decode()
        for value in values
    ]


def _shown(values: Column, row: int) -> str:
    value = values[row]
    if values.ndim == 2:
        return f"{values.shape[1]} × {values.dtype.name}"
    if value is None or value is np.ma.masked or (values.dtype.kind in "fM" and np.isnan(value)):
        return "–"
    return f"{value:.4g}" if values.dtype.kind == "f" else str(value)


def _import(package: str, purpose: str) -> Any:
    try:
        return importlib.import_module(package)
    except ModuleNotFoundError as error:
        raise FamiliarError(f"{purpose} needs {package}: pip install 'familiar-faces[data]'") from error
