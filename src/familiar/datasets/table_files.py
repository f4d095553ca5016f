"""Readers of tables of labeled photos: CSV, COCO's JSON, data frames and Hugging Face's data sets."""

import csv
import io
from collections.abc import Iterator, Mapping
from functools import partial
from itertools import islice
from typing import Any

import numpy as np

from familiar.core.errors import BadDataset, FamiliarError
from familiar.core.json_text import parse_json
from familiar.datasets.photo_references import LazyPhotos
from familiar.datasets.shards.storage import open_file
from familiar.datasets.stored_photo import DatasetPhoto
from familiar.datasets.table_rows import KNOWN_COLUMNS, Rows

TABLE_SUFFIXES = (".csv", ".tsv", ".json")
COCO_IDENTITIES = ("identity", "name", "individual_id", "individual_ids")  # of an annotation; else its category's name
COCO_DATES = ("date", "date_captured", "datetime")  # of an image
_ROWS_AT_A_TIME = 4096


def read_file(location: str) -> Rows:
    """Read the rows of a CSV, or of COCO's JSON.

    Args:
        location: path or URL; its suffix is one of `TABLE_SUFFIXES`.

    Raises:
        BadDataset: it cannot be read.
        FamiliarError: what a URL needs is not installed.
    """
    try:
        with open_file(location) as file:
            if location.lower().endswith(".json"):
                return _coco_rows(parse_json(file.read()))
            with io.TextIOWrapper(file, encoding="utf-8-sig", newline="") as text:
                return _csv_rows(text)
    except OSError as error:
        raise BadDataset(f"{location}: cannot be read ({error.strerror or error})") from error
    except (csv.Error, ValueError) as error:
        raise BadDataset(f"{location}: cannot be read as a table of photos ({error})") from error


def rows_of(data: Any) -> Rows:
    """Read the rows of a table that another library holds in memory.

    Args:
        data: a `pandas.DataFrame`, a `datasets.Dataset` with a column of images, a dict of columns, or any table with
            Arrow's PyCapsule interface (polars, pyarrow, DuckDB).

    Raises:
        BadDataset: it is something else.
        FamiliarError: pyarrow is not installed.
    """
    if hasattr(data, "with_format") and hasattr(data, "features"):
        return _dataset_rows(data)
    if hasattr(data, "iloc") and hasattr(data, "columns"):
        frame = data[[name for name in data.columns if name in KNOWN_COLUMNS]].astype(object)
        return Rows({name: frame[name].where(frame[name].notna(), None).tolist() for name in frame.columns})
    if isinstance(data, Mapping) and all(isinstance(cells, list | tuple | np.ndarray) for cells in data.values()):
        return Rows({name: list(cells) for name, cells in data.items()})
    if hasattr(data, "__arrow_c_stream__"):
        try:
            import pyarrow
        except ModuleNotFoundError as error:
            raise FamiliarError("this table needs pyarrow: pip install 'familiar-faces[data]'") from error
        table = pyarrow.table(data)
        return Rows(table.select([name for name in table.column_names if name in KNOWN_COLUMNS]).to_pydict())
    raise BadDataset(f"a {type(data).__name__} is no table of photos; give a file, a DataFrame or a datasets.Dataset")


def _csv_rows(text: io.TextIOWrapper) -> Rows:
    first = text.readline()
    separator = max(",;\t", key=first.count)
    header = [name.strip() for name in next(csv.reader([first], delimiter=separator), [])]
    columns: dict[str, list[Any]] = {name: [] for name in header if name in KNOWN_COLUMNS}
    if len(set(header)) < len(header):
        raise ValueError(f"two of its columns have one name: {', '.join(header)}")
    numbers: list[int] = []
    problems: list[str] = []
    repeated: dict[str, str] = {}  # one string for all cells that are equal
    rows = _complete_rows(csv.reader(text, delimiter=separator, strict=True), len(header), numbers, problems)
    while part := list(islice(rows, _ROWS_AT_A_TIME)):
        for name, cells in zip(header, zip(*part, strict=True), strict=True):
            if name in columns:
                columns[name] += cells if name == "path" else map(repeated.setdefault, cells, cells)
    return Rows(columns, numbers, "line", problems=problems)


def _complete_rows(reader: Any, width: int, numbers: list[int], problems: list[str]) -> Iterator[list[str]]:
    """Yield the rows that have as many cells as the first line, and note the lines of these and of the others."""
    while True:
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            problems.append(f"line {reader.line_num + 1}: {error}")
            continue
        if len(cells) == width:
            numbers.append(reader.line_num + 1)  # the first line was read before
            yield cells
        elif cells:
            problems.append(f"line {reader.line_num + 1}: has {len(cells)} cells, the first line {width}")


def _coco_rows(document: Any) -> Rows:
    """Read the boxes of COCO's annotations; their identity is named in them, or else it is their category."""
    columns: dict[str, list[Any]] = {"path": [], "identity": [], "bbox": [], "date": [], "species": []}
    try:
        images = {image["id"]: image for image in document["images"]}
        categories = {category["id"]: category["name"] for category in document.get("categories", ())}
        for annotation in document["annotations"]:
            image = images.get(annotation["image_id"], {})
            category = categories.get(annotation.get("category_id"))
            stated = next((annotation[name] for name in COCO_IDENTITIES if annotation.get(name)), None)
            identity = stated[0] if isinstance(stated, list) else stated
            columns["path"].append(image.get("file_name"))
            columns["identity"].append(identity or category)
            columns["bbox"].append(annotation.get("bbox"))
            columns["date"].append(next((image[name] for name in COCO_DATES if image.get(name)), None))
            columns["species"].append(category if identity else None)
    except (AttributeError, KeyError, TypeError) as error:
        raise ValueError(f"not COCO's images and annotations: {error!r}") from error
    return Rows(columns, unit="annotation")


def _dataset_rows(dataset: Any) -> Rows:
    """Read a `datasets.Dataset` without decoding its images."""
    features = dataset.features
    images = [name for name, feature in features.items() if type(feature).__name__ == "Image"]
    if not images:
        raise BadDataset(f"the data set has no column of images; it has {', '.join(features)}")
    arrow = dataset.with_format("arrow")
    others = [name for name in features if name in KNOWN_COLUMNS and name != images[0]]
    columns: dict[str, list[Any]] = arrow.select_columns(others)[:].to_pydict()
    for name, cells in columns.items():
        if classes := getattr(features[name], "names", None):
            columns[name] = [None if cell is None or cell < 0 else classes[cell] for cell in cells]
    make = partial(_dataset_photo, arrow, images[0], str(getattr(dataset, "_fingerprint", id(dataset))))
    return Rows(columns, photos=LazyPhotos(np.arange(len(dataset)), make))


def _dataset_photo(dataset: Any, column: str, fingerprint: str, row: int) -> DatasetPhoto:
    return DatasetPhoto(dataset, column, int(row), fingerprint, f"{row:08d}")
