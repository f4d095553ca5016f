"""Which photos to read, from folders and other sources, and lists of identities."""

import logging
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from familiar.core import run_files
from familiar.core.errors import BadDataset, BadRun
from familiar.core.json_codec import DOCUMENTS
from familiar.core.json_text import parse_json
from familiar.core.names import unify_spelling
from familiar.core.terminal_text import printable
from familiar.datasets.identity_table import IdentityTable, join_tables, sort_by_hash
from familiar.datasets.photo_references import PhotoRef, open_photo
from familiar.datasets.sources import abbreviate_names, parse_sources
from familiar.datasets.spellings import unify_identity
from familiar.datasets.table_files import rows_of
from familiar.datasets.table_rows import table_from_rows
from familiar.photos.listing import NOT_LISTED, describe_counts

__all__ = [
    "DataSpec",
    "IdentityTable",
    "PhotoRef",
    "open_data",
    "open_photo",
    "read_identity_list",
    "read_table",
    "scan_folders",
    "sort_by_hash",
]

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class DataSpec:
    """Which photos to read.

    Attributes:
        sources: folders of identities, CSV and Parquet files, COCO's JSON, shards and `synthetic:cats:800x8`.
        identities: names of folders to read. Filters only the sources that contain one of them; names that no
            source contains are warned about.
        max_identities: limit of the number of identities; the selection is the same on every machine.
        max_photos: limit of the photos per identity; likewise.
        leave_out: names of sources not to read.
        exclude: patterns of files and folders in the sources that are not read, such as `*_edited.*`.

    >>> table = DataSpec(("synthetic:cats:5x4",), max_photos=3).read()
    >>> len(table), table.names[0]
    (15, 'synthetic:cats/000000')
    """

    sources: tuple[str, ...]
    identities: tuple[str, ...] | None = None
    max_identities: int | None = None
    max_photos: int | None = None
    leave_out: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in ("max_identities", "max_photos"):
            if (value := getattr(self, name)) is not None and value < 1:
                raise ValueError(f"{name} must be at least 1, got {value}")

    @staticmethod
    def from_source(data: "DataSpec | Path | str") -> "DataSpec":
        """Return a specification of the data.

        Args:
            data: a folder or another source, as in `sources`; a specification is returned as it is.
        """
        return data if isinstance(data, DataSpec) else DataSpec((str(data),))

    @staticmethod
    def from_run(run: Path) -> "DataSpec":
        """Read which photos a training run was made from.

        Args:
            run: the run's folder.

        Returns:
            The specification as it was given to the training; relative folders stay relative.

        Raises:
            BadRun: the run's record is missing or damaged.
        """
        path = run / run_files.DATA
        try:
            record = parse_json(path.read_text(encoding="utf-8"))
            return replace(DOCUMENTS, defaults=True).from_json(DataSpec, record["spec"], "spec")
        except (OSError, KeyError, TypeError, ValueError) as error:
            raise BadRun(f"{path}: cannot read which photos the run was made from ({error})") from error

    def read(self) -> IdentityTable:
        """Read all sources into one table.

        Raises:
            BadDataset: no source is given, a source has no photos, or no photos remain.
        """
        if not self.sources:
            raise BadDataset(
                "no data given: name a folder that holds one folder of photos per identity; a run whose photos were "
                "given as a table in memory needs them again"
            )
        ignored: Counter[str] = Counter()
        scans = parse_sources(self.sources)
        left_out = set(map(unify_identity, self.leave_out))
        if missing := left_out - scans.keys():
            raise BadDataset(f"cannot leave out {', '.join(sorted(missing))}: the data are {', '.join(scans)}")
        tables = {name: scan(ignored, self.exclude) for name, scan in scans.items() if name not in left_out}
        if reasons := describe_counts(ignored, NOT_LISTED):
            log.warning("%s: left out %s", printable(", ".join(self.sources)), reasons)
        if not tables:
            raise BadDataset(f"nothing remains of the data without {', '.join(scans)}")
        if self.identities is not None:
            tables = _keep_listed_identities(tables, set(map(unify_identity, self.identities)), ignored)
        table = join_tables(list(tables.values()))
        if self.max_identities is not None:
            table = table.select_identities(sort_by_hash(table.names)[: self.max_identities])
        if self.max_photos is not None:
            table = table.with_max_photos(self.max_photos)
        return replace(table, ignored=dict(+ignored))  # the plus drops zero counts


def read_table(data: Any, *, images: Path | str = ".", name: str = "table") -> IdentityTable:
    """Read a table of labeled photos: `path`, `identity`, and what else is known of each photo.

    Columns are `path` (or `file_name`), `identity` (or `label`), and where there are any `box` (left, top, right,
    bottom in pixels) or `bbox` (left, top, width, height), `species`, `date` (ISO 8601), `split` (train, validation or
    test), `encounter`, and `collection`, the root of the identity's name. Others are passed over. Rows that cannot be
    read are left out, with a warning that names them.

    Args:
        data: a CSV, a Parquet file or COCO's JSON, on this machine or behind a URL that fsspec knows, or another
            source, as for `DataSpec`; or, in memory, a `pandas.DataFrame`, any other table with Arrow's PyCapsule
            interface, a dict of columns, or a `datasets.Dataset` with a column of images.
        images: folder that the relative paths of a table in memory begin from.
        name: root of the names of the identities of a table in memory.

    Raises:
        BadDataset: the data cannot be read, lack a column, or have no photo with an identity.
        FamiliarError: what is needed to read them is not installed.

    >>> read_table({"path": ["a/1.jpg", "a/2.jpg", "b.jpg"], "identity": ["Mia", "Mia", "Tom"]})
    IdentityTable(3 photos of 2 identities)
    """
    if isinstance(data, IdentityTable):
        return data
    if isinstance(data, str | Path):
        return DataSpec((str(data),)).read()
    ignored: Counter[str] = Counter()
    table = table_from_rows(name, name, rows_of(data), str(images), ignored)
    return replace(table, ignored=dict(+ignored))


def open_data(data: DataSpec | Path | str | Any) -> tuple[DataSpec, IdentityTable]:
    """Read data that a function was given.

    Args:
        data: as for `read_table`, or several sources as a `DataSpec`.

    Returns:
        Where the photos are listed, which is nowhere for a table in memory; and the photos.

    Raises:
        BadDataset: as in `read_table`.
    """
    if isinstance(data, DataSpec | Path | str):
        spec = DataSpec.from_source(data)
        return spec, spec.read()
    return DataSpec(()), read_table(data)


def scan_folders(*roots: Path) -> IdentityTable:
    """Read all identities of folders that are laid out as `ROOT/IDENTITY/PHOTO`.

    Args:
        *roots: one folder or more, each with a subfolder of photos for every identity.

    Raises:
        BadDataset: no folder is given, one is missing or has no photos, or two have the same name.
    """
    return DataSpec(tuple(map(str, roots))).read()


def read_identity_list(path: Path) -> frozenset[str]:
    """Read identity names from a text file, one per line, or from LFW's `people*.txt`, which has counts too.

    Raises:
        BadDataset: the file cannot be read or lists no identity.
    """
    try:
        lines = path.read_text(encoding="utf-8-sig").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise BadDataset(f"{path}: cannot be read as a list of identities ({error})") from error
    if any("\t" in line for line in lines):
        # LFW writes NAME, tab, COUNT, with header lines of one number. In other files a number may be a name.
        lines = [line.split("\t")[0] for line in lines if not line.strip().isdecimal()]
    identities = frozenset(name for line in lines if (name := unify_spelling(line)))
    if not identities:
        raise BadDataset(f"{path}: lists no identity; write one folder name per line")
    return identities


def _keep_listed_identities(
    tables: dict[str, IdentityTable], listed: set[str], ignored: Counter[str]
) -> dict[str, IdentityTable]:
    """Reduce each table that contains listed identities to them; leave the other tables as they are."""
    missing = set(listed)
    filtered: dict[str, IdentityTable] = {}
    for root, table in tables.items():
        identities = {name: name.split("/", 1)[1] for name in table.names}
        matching = [name for name, identity in identities.items() if identity in listed]
        filtered[root] = table.select_identities(matching) if matching else table
        missing -= {identities[name] for name in matching}
        ignored["identities not listed"] += len(table.names) - len(filtered[root].names)
    if missing == listed:
        raise BadDataset(f"none of the {len(listed)} listed identities is a folder in {', '.join(tables)}")
    if missing:
        ignored["listed identities not found"] += len(missing)
        log.warning("%d listed identities not found: %s", len(missing), abbreviate_names(missing))
    return filtered
