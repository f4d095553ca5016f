"""Rows of CSV tables, each read by itself: a malformed one does not hide the others."""

import csv
from collections.abc import Iterator


def read_rows(reader: "csv.DictReader[str]") -> Iterator[tuple[int, dict[str, str] | ValueError]]:
    """Iterate over the lines and cells of a table's rows; of a malformed row, over its error instead.

    Args:
        reader: strict, with its header read.
    """
    while True:
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            # `line_num` is of the last row that could be read.
            closed = str(error) != "unexpected end of data"
            hint = "" if closed else ": a quotation mark is not closed, so all lines from here on are left out"
            yield reader.line_num + 1, ValueError(f"{error}{hint}")
            continue
        if None in cells or None in cells.values():
            yield reader.line_num, ValueError("has more or fewer cells than the first line")
        else:
            yield reader.line_num, cells
