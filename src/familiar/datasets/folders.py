"""Tables of labeled photos (photo, identity), read from folders and other sources."""

import hashlib
import logging
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import numpy as np
from jaxtyping import Int64

from familiar.core import run_files
from familiar.core.data_table import DataTable, TableSource, texts
from familiar.core.errors import BadDataset, BadRun
from familiar.core.json_codec import DOCUMENTS
from familiar.core.json_text import parse_json
from familiar.core.names import unify_spelling
from familiar.core.plural import pluralize
from familiar.core.terminal_text import printable
from familiar.core.types import Photo
from familiar.datasets.shards.scanning import ShardPhoto
from familiar.datasets.sources import PhotoRef, Source, abbreviate_names, parse_sources
from familiar.datasets.spellings import unify_identity
from familiar.datasets.synthetic import SyntheticPhoto
from familiar.photos.decoding import decode_photo, load_photo
from familiar.photos.listing import NOT_LISTED, describe_counts

log = logging.getLogger(__name__)

SYNTHETIC_SIZES_PX = (32, 512)  # the sizes that SyntheticPhoto supports


@dataclass(frozen=True, eq=False)
class IdentityTable(TableSource):
    """Photos and their identities, in an order that does not depend on the file system.

    Attributes:
        photos: the photos.
        labels: `labels[i]` is the index in `names` of the identity of `photos[i]`.
        names: the distinct identities, sorted, each as `ROOT/IDENTITY`.
        ignored: number of files and folders that the scan skipped, by reason.
    """

    photos: tuple[PhotoRef, ...]
    labels: Int64[np.ndarray, " n"]
    names: tuple[str, ...]
    ignored: dict[str, int] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.photos)

    def __repr__(self) -> str:
        return f"IdentityTable({pluralize(len(self), 'photo')} of {pluralize(len(self.names), 'identity')})"

    def _repr_html_(self) -> str:
        from familiar.datasets.html_view import table_html  # which opens photos, and so needs this module

        return table_html(self)

    def table(self) -> DataTable:
        """Return a table with a row for each photo: its path or name, its identity, and the identity's label."""
        in_files = (Path, ShardPhoto)
        columns = {
            "photo": texts(str(photo) if isinstance(photo, in_files) else photo.name for photo in self.photos),
            "identity": texts(self.names)[self.labels],
            "label": self.labels,
        }
        return DataTable(columns)

    @cached_property
    def photos_per_identity(self) -> Int64[np.ndarray, " identities"]:
        """Number of photos of each identity, by label."""
        return np.bincount(self.labels, minlength=len(self.names)).astype(np.int64)

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 over the names and sizes in bytes of all photos, independent of their order.

        Changes when a photo is added, removed or renamed, or when its file's size changes.
        """
        lines: list[bytes] = []
        for photo, label in zip(self.photos, self.labels, strict=True):
            size = _size_bytes(photo) if isinstance(photo, Path) else 0
            lines.append(_encode_name(f"{self.names[label]}\0{photo.name}\0{size}\n"))
        return hashlib.sha256(b"".join(sorted(lines))).hexdigest()

    def select_identities(self, names: Iterable[str]) -> "IdentityTable":
        """Select the photos of some identities.

        Args:
            names: each as `ROOT/IDENTITY`; those that are not in the table are ignored.

        Returns:
            Their photos, in the order of this table.
        """
        selected = set(map(unify_identity, names))
        keep = np.array([name in selected for name in self.names], bool)
        return self.select_rows(np.flatnonzero(keep[self.labels]))

    def with_min_photos(self, photos: int) -> "IdentityTable":
        """Select the identities that have enough photos.

        Args:
            photos: smallest number of photos per identity.

        Returns:
            All photos of these identities, in the order of this table.
        """
        return self.select_rows(np.flatnonzero(self.photos_per_identity[self.labels] >= photos))

    def with_max_photos(self, photos: int) -> "IdentityTable":
        """Limit the photos of each identity; the same ones are selected on every machine.

        Args:
            photos: largest number of photos per identity.

        Returns:
            The selected photos, one identity after the other.
        """
        selected_rows: list[int] = []
        for label, name in enumerate(self.names):
            rows = np.flatnonzero(self.labels == label).tolist()
            chosen = set(_cap_photos(name, [self.photos[row] for row in rows], photos))
            selected_rows += [row for row in rows if self.photos[row] in chosen]
        return self.select_rows(np.array(selected_rows, np.int64))

    def select_rows(self, rows: Int64[np.ndarray, " k"]) -> "IdentityTable":
        """Select photos by their index.

        Args:
            rows: indices of the photos, in the order of the new table.

        Returns:
            A table without the identities that have no photo in it; the labels of the others are renumbered.
        """
        present, labels = np.unique(self.labels[rows], return_inverse=True)
        return IdentityTable(
            photos=tuple(self.photos[row] for row in rows),
            labels=labels.astype(np.int64),
            names=tuple(self.names[label] for label in present),
            ignored=self.ignored,
        )


def open_photo(photo: PhotoRef, /, *, min_side_px: int | None = None) -> Photo:
    """Decode a photo's file, or draw a photo that is not a file.

    Args:
        photo: one of a table's photos.
        min_side_px: lower limit of the short side, which allows decoding or drawing at a reduced size.
    """
    if isinstance(photo, Path):
        return load_photo(photo, min_side_px=min_side_px)
    if isinstance(photo, ShardPhoto):
        return decode_photo(photo.read_bytes(), str(photo), min_side_px=min_side_px)
    if min_side_px is not None and isinstance(photo, SyntheticPhoto):
        smallest, largest = SYNTHETIC_SIZES_PX
        photo = replace(photo, size_px=min(max(min_side_px, smallest), largest))
    return photo.draw()


@dataclass(frozen=True)
class DataSpec:
    """Which photos to read.

    Attributes:
        sources: folders of identities and other sources, as `parse_sources` takes them.
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
            return DOCUMENTS.from_json(DataSpec, record["spec"], "spec")
        except (OSError, KeyError, TypeError, ValueError) as error:
            raise BadRun(f"{path}: cannot read which photos the run was made from ({error})") from error

    def read(self) -> IdentityTable:
        """Read all sources into one table.

        Raises:
            BadDataset: no source is given, a source has no photos, or no photos remain.
        """
        if not self.sources:
            raise BadDataset("no data given: name a folder that holds one folder of photos per identity")
        ignored: Counter[str] = Counter()
        scans = parse_sources(self.sources)
        left_out = set(map(unify_identity, self.leave_out))
        if missing := left_out - scans.keys():
            raise BadDataset(f"cannot leave out {', '.join(sorted(missing))}: the data are {', '.join(scans)}")
        sources = {name: scan(ignored, self.exclude) for name, scan in scans.items() if name not in left_out}
        if reasons := describe_counts(ignored, NOT_LISTED):
            log.warning("%s: left out %s", printable(", ".join(self.sources)), reasons)
        if not sources:
            raise BadDataset(f"nothing remains of the data without {', '.join(scans)}")
        if self.identities is not None:
            sources = _keep_listed_identities(sources, set(map(unify_identity, self.identities)), ignored)
        names = [f"{root}/{identity}" for root, source in sources.items() for identity in source.identities]
        if self.max_identities is not None:
            names = sort_by_hash(names)[: self.max_identities]
        names.sort()
        rows: list[tuple[PhotoRef, int]] = []
        for label, name in enumerate(names):
            root, identity = name.split("/", 1)
            photos = sources[root].photos_of(identity)
            rows += [(photo, label) for photo in _cap_photos(name, photos, self.max_photos)]
        return IdentityTable(
            photos=tuple(photo for photo, _ in rows),
            labels=np.array([label for _, label in rows], np.int64),
            names=tuple(names),
            ignored=dict(+ignored),  # the plus drops zero counts
        )


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


def sort_by_hash(names: Iterable[str], seed: int = 0) -> list[str]:
    """Shuffle names by their hash with `seed`; adding a name does not change the order of the others."""
    return sorted(names, key=lambda name: hashlib.sha256(_encode_name(f"{seed}\0{name}")).digest())


def _keep_listed_identities(sources: dict[str, Source], listed: set[str], ignored: Counter[str]) -> dict[str, Source]:
    """Reduce each source that contains listed identities to them; leave the other sources as they are."""
    missing = set(listed)
    filtered: dict[str, Source] = {}
    for name, source in sources.items():
        matching = tuple(identity for identity in source.identities if identity in listed)
        filtered[name] = replace(source, identities=matching or source.identities)
        missing -= set(matching)
        ignored["identities not listed"] += len(source.identities) - len(filtered[name].identities)
    if missing == listed:
        raise BadDataset(f"none of the {len(listed)} listed identities is a folder in {', '.join(sources)}")
    if missing:
        ignored["listed identities not found"] += len(missing)
        log.warning("%d listed identities not found: %s", len(missing), abbreviate_names(missing))
    return filtered


def _cap_photos(identity: str, photos: Sequence[PhotoRef], count: int | None) -> Sequence[PhotoRef]:
    """Select `count` photos by hash; all if `count` is None."""
    if count is None or len(photos) <= count:
        return photos
    # The identity's name is hashed too: otherwise all identities would keep the same of their numbered photos.
    indices: dict[str, list[int]] = {}  # two folders of one identity may have photos of the same name
    for index, photo in enumerate(photos):
        indices.setdefault(f"{identity}/{photo.name}", []).append(index)
    selected = [index for name in sort_by_hash(indices) for index in indices[name]][:count]
    return [photos[index] for index in sorted(selected)]


def _size_bytes(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:  # deleted since, or in a folder without permission to enter
        return 0


def _encode_name(name: str) -> bytes:
    """Encode a file name, which need not be valid UTF-8."""
    return name.encode("utf-8", "surrogateescape")
