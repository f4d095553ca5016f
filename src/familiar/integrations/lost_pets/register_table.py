"""The register of lost and found pets as a CSV table."""

import csv
import io
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from familiar.core.csv_rows import read_rows
from familiar.core.errors import BadDataset, FamiliarError
from familiar.core.files import write_atomically
from familiar.core.terminal_text import printable
from familiar.gallery import Gallery
from familiar.integrations.lost_pets.register import set_reports
from familiar.integrations.lost_pets.reports import Report, list_pets

FIELD_OF_COLUMN = {
    "status": "status",
    "species": "species",
    "place": "location",
    "date": "reported_on",
    "contact": "contact",
    "note": "note",
}
"""The field of `Report` that each column of the table is."""
COLUMNS = ("name", *FIELD_OF_COLUMN)


@dataclass(frozen=True)
class RegisterImportResult:
    """The outcome of an import of reports.

    Attributes:
        reports: the number of reports that were stored.
        skipped: each row that was left out, and why.
    """

    reports: int
    skipped: tuple[str, ...]


def import_register(gallery: Gallery, path: Path) -> RegisterImportResult:
    """Store the reports of a CSV table, as one decision. Rows that cannot be used are skipped.

    Args:
        gallery: to write to.
        path: of a table with the column `name`, which has a name or a number such as #12, and some of `COLUMNS`. A
            column that is missing leaves the field as it is; an empty cell empties it, and an empty status is "lost".
            Of two rows about one pet the first counts.

    Raises:
        BadDataset: the file cannot be read, lacks the column, or has another; nothing is stored.
    """
    reports: dict[int, Report] = {}
    lines: dict[int, int] = {}
    skipped: list[str] = []
    with gallery.write():  # a field that is left as it is must not be changed in between
        for line, cells in _read_rows(path):
            try:
                if isinstance(cells, ValueError):
                    raise cells
                identity = gallery.resolve_identity(cells["name"])
                if identity in lines:
                    raise ValueError(f"{cells['name']} is in line {lines[identity]} too, which counts")
                fields = {
                    field: cells[column].strip() or getattr(Report, field)  # the default
                    for column, field in FIELD_OF_COLUMN.items()
                    if column in cells
                }
                reports[identity] = replace(Report.from_records(gallery.attributes(identity)), **fields)
                lines[identity] = line
            except (FamiliarError, ValueError) as error:
                skipped.append(f"{path}, line {line}: {str(error).removeprefix(f'{gallery.folder}: ')}")
        set_reports(gallery, reports)
    return RegisterImportResult(len(reports), tuple(skipped))


def export_register(gallery: Gallery, path: Path) -> int:
    """Write the register as a CSV table with `COLUMNS`, which `import_register` reads; return the number of pets.

    Raises:
        CannotWrite: the file cannot be written.
    """
    pets = list_pets(gallery)
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow(COLUMNS)
    writer.writerows([pet.label, *report_fields(pet.report).values()] for pet in pets)
    write_atomically(path, os.fsencode(text.getvalue()))
    return len(pets)


def report_fields(report: Report) -> dict[str, str]:
    """Return the fields of a report by the table's column."""
    return {column: getattr(report, field) for column, field in FIELD_OF_COLUMN.items()}


def _read_rows(path: Path) -> Iterator[tuple[int, dict[str, str] | ValueError]]:
    """Read the line and the cells of each row, or its error. BadDataset if it is no such table."""
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise BadDataset(f"{path}: cannot be read ({error.strerror})") from error
    except UnicodeDecodeError as error:
        raise BadDataset(f"{path}: is not a text in UTF-8; save the table as CSV in UTF-8") from error
    reader = csv.DictReader(io.StringIO(text, newline=""), strict=True)
    try:
        header = [name.strip() for name in reader.fieldnames or ()]
    except csv.Error as error:
        raise BadDataset(f"{path}, line 1: {error}; nothing was stored") from error
    unknown = [name for name in header if name not in COLUMNS]
    if "name" not in header or unknown or len(set(header)) < len(header):
        wrong = f'"{printable(unknown[0])}" is none of them' if unknown else '"name" must be there, each only once'
        raise BadDataset(f"{path}, line 1: the columns are {', '.join(COLUMNS)}; {wrong}; nothing was stored")
    reader.fieldnames = header
    yield from read_rows(reader)
