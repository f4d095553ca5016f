"""Labeled photos as one table of (photo, identity), read from whatever sources are named."""

import hashlib
import json
import logging
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import numpy as np
from jaxtyping import Int64

from familiar.core import run_files
from familiar.core.errors import BadDataset, BadRun
from familiar.core.types import Photo
from familiar.datasets.sources import PhotoRef, Root, named_sources, some_of
from familiar.datasets.synthetic import SyntheticPhoto
from familiar.photos.decoding import load_photo

log = logging.getLogger(__name__)

DRAWN_SIDES_PX = (32, 512)  # what SyntheticPhoto can be drawn at


@dataclass(frozen=True, eq=False)
class IdentityTable:
    """Photos and whose they are, in a fixed order that does not depend on the file system's.

    `names` are the distinct identities, sorted, each `ROOT/IDENTITY`; `labels[i]` is the place in
    `names` of `photos[i]`'s identity. `ignored` counts what the scan left out, by reason.
    """

    photos: tuple[PhotoRef, ...]
    labels: Int64[np.ndarray, " n"]
    names: tuple[str, ...]
    ignored: dict[str, int] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.photos)

    @cached_property
    def photos_per_identity(self) -> Int64[np.ndarray, " identities"]:
        return np.bincount(self.labels, minlength=len(self.names)).astype(np.int64)

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 over every photo's name and size, in whatever order they stand.

        Changes when a photo is added, removed or renamed, or becomes larger or smaller.
        """
        lines: list[bytes] = []
        for photo, label in zip(self.photos, self.labels, strict=True):
            size = _size_bytes(photo) if isinstance(photo, Path) else 0
            lines.append(_bytes(f"{self.names[label]}\0{photo.name}\0{size}\n"))
        return hashlib.sha256(b"".join(sorted(lines))).hexdigest()

    def of_identities(self, names: Iterable[str]) -> "IdentityTable":
        """Only the photos of these identities; names not in the table are passed over."""
        wanted = set(names)
        keep = np.array([name in wanted for name in self.names], bool)
        return self.rows(np.flatnonzero(keep[self.labels]))

    def with_at_least(self, photos: int) -> "IdentityTable":
        """Only the identities that have this many photos or more."""
        return self.rows(np.flatnonzero(self.photos_per_identity[self.labels] >= photos))

    def at_most(self, photos: int) -> "IdentityTable":
        """This many photos of each identity: the same ones on every machine."""
        kept: list[int] = []
        for label, name in enumerate(self.names):
            rows = np.flatnonzero(self.labels == label).tolist()
            chosen = set(_capped(name, [self.photos[row] for row in rows], photos))
            kept += [row for row in rows if self.photos[row] in chosen]
        return self.rows(np.array(kept, np.int64))

    def rows(self, rows: Int64[np.ndarray, " k"]) -> "IdentityTable":
        """These rows, in the order given, with the identities they leave."""
        present, labels = np.unique(self.labels[rows], return_inverse=True)
        return IdentityTable(
            photos=tuple(self.photos[row] for row in rows),
            labels=labels.astype(np.int64),
            names=tuple(self.names[label] for label in present),
            ignored=self.ignored,
        )


def open_photo(photo: PhotoRef, /, *, min_side_px: int | None = None) -> Photo:
    """The pixels of one row: a file decoded, or a photo that is no file drawn, no larger than `min_side_px` asks."""
    if isinstance(photo, Path):
        return load_photo(photo, min_side_px=min_side_px)
    if min_side_px is not None and isinstance(photo, SyntheticPhoto):
        smallest, largest = DRAWN_SIDES_PX
        photo = replace(photo, size_px=min(max(min_side_px, smallest), largest))
    return photo.draw()


@dataclass(frozen=True)
class DataSpec:
    """What to read: folders of identities and other sources (`named_sources`), and which share of them.

    `identities` (folder names) filters only the roots that contain one of them; names that none contains are
    warned of. `max_identities` and `max_photos` (per identity) keep a share that is the same on every machine.
    """

    sources: tuple[str, ...]
    identities: tuple[str, ...] | None = None
    max_identities: int | None = None
    max_photos: int | None = None

    def __post_init__(self) -> None:
        for name in ("max_identities", "max_photos"):
            if (value := getattr(self, name)) is not None and value < 1:
                raise ValueError(f"{name} is at least 1, not {value}")

    @staticmethod
    def recorded(run: Path) -> "DataSpec":
        """What a run read its photos from. BadRun where it does not say."""
        path = run / run_files.DATA
        try:
            spec = json.loads(path.read_text(encoding="utf-8"))["spec"]
            listed = spec["identities"]
            return DataSpec(
                **{
                    **spec,
                    "sources": tuple(spec["sources"]),
                    "identities": None if listed is None else tuple(listed),
                }
            )
        except (OSError, KeyError, TypeError, ValueError) as error:
            raise BadRun(f"{path}: does not say which photos the run was made from ({error})") from error

    def read(self) -> IdentityTable:
        """One table of all sources. BadDataset where there is nothing in one of them, or nothing is left."""
        if not self.sources:
            raise BadDataset("no data given: name a folder that holds one folder of photos per identity")
        ignored: Counter[str] = Counter()
        roots = {name: scan(ignored) for name, scan in named_sources(self.sources).items()}
        if self.identities is not None:
            roots = _only_listed(roots, set(self.identities), ignored)
        names = [f"{root}/{identity}" for root, found in roots.items() for identity in found.identities]
        if self.max_identities is not None:
            names = by_hash(names)[: self.max_identities]
        names.sort()
        rows: list[tuple[PhotoRef, int]] = []
        for label, name in enumerate(names):
            root, identity = name.split("/", 1)
            photos = roots[root].photos_of(identity)
            rows += [(photo, label) for photo in _capped(name, photos, self.max_photos)]
        return IdentityTable(
            photos=tuple(photo for photo, _ in rows),
            labels=np.array([label for _, label in rows], np.int64),
            names=tuple(names),
            ignored=dict(+ignored),  # the plus drops what is counted zero
        )


def scan_folders(*roots: Path) -> IdentityTable:
    """Every identity of these folders: `ROOT/IDENTITY/PHOTO`."""
    return DataSpec(tuple(map(str, roots))).read()


def read_identity_list(path: Path) -> frozenset[str]:
    """Names from a text file, one a line; LFW's `people*.txt`, with its counts, is read too."""
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise BadDataset(f"{path}: no list of identities can be read from it ({error})") from error
    if any("\t" in line for line in lines):
        # LFW writes NAME, tab, COUNT; its header lines are numbers alone. Elsewhere a number may be a name.
        lines = [line.split("\t")[0] for line in lines if not line.strip().isdecimal()]
    wanted = frozenset(name for line in lines if (name := line.strip()))
    if not wanted:
        raise BadDataset(f"{path}: lists no identity; write one folder name a line")
    return wanted


def by_hash(names: Iterable[str], seed: int = 0) -> list[str]:
    """Names in an order that depends on `seed` and on each name alone: adding one moves no other."""
    return sorted(names, key=lambda name: hashlib.sha256(_bytes(f"{seed}\0{name}")).digest())


def _only_listed(roots: dict[str, Root], listed: set[str], ignored: Counter[str]) -> dict[str, Root]:
    """The roots that hold a listed name without their other identities; the other roots whole."""
    missing = set(listed)
    kept: dict[str, Root] = {}
    for name, root in roots.items():
        wanted = tuple(identity for identity in root.identities if identity in listed)
        kept[name] = replace(root, identities=wanted or root.identities)
        missing -= set(wanted)
        ignored["identities not listed"] += len(root.identities) - len(kept[name].identities)
    if missing == listed:
        raise BadDataset(f"none of the {len(listed)} listed identities is a folder of {', '.join(roots)}")
    if missing:
        ignored["listed identities not found"] += len(missing)
        log.warning("%d listed identities not found: %s", len(missing), some_of(missing))
    return kept


def _capped(identity: str, photos: Sequence[PhotoRef], count: int | None) -> Sequence[PhotoRef]:
    if count is None or len(photos) <= count:
        return photos
    # The identity's name is hashed too: of numbered photos everyone would keep the same numbers.
    kept = set(by_hash(f"{identity}/{photo.name}" for photo in photos)[:count])
    return [photo for photo in photos if f"{identity}/{photo.name}" in kept]


def _size_bytes(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:  # gone meanwhile, or in a folder that may not be entered
        return 0


def _bytes(name: str) -> bytes:
    """Of any name a file can have, also where it is not UTF-8."""
    return name.encode("utf-8", "surrogateescape")
