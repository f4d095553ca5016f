"""Data sources named on the command line (DATA...): folders of identities, tables, shards, and drawn pets.

Data sets with one folder per identity are read as folders: CASIA-WebFace (`0000045/001.jpg`), LFW
(`NAME/NAME_0001.jpg`; `pairs` and `read_identity_list` read its protocol files), and PetFace's `images/SPECIES`.
"""

import logging
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path, PurePosixPath

import numpy as np

from familiar.core.errors import BadDataset
from familiar.core.terminal_text import one_line, printable
from familiar.datasets.identity_table import IdentityTable, build_table
from familiar.datasets.idx import mnist_photos
from familiar.datasets.photo_references import LazyPhotos
from familiar.datasets.shards.parquet import parquet_rows
from familiar.datasets.shards.scanning import name_of, names_shards, scan_shards
from familiar.datasets.shards.storage import is_url
from familiar.datasets.spellings import unify_identity
from familiar.datasets.synthetic import SyntheticSource
from familiar.datasets.table_files import TABLE_SUFFIXES, read_file
from familiar.datasets.table_rows import table_from_rows
from familiar.photos.listing import (
    BROKEN_LINKS,
    EXCLUDED,
    HIDDEN_FILES,
    NOT_LISTED,
    OTHER,
    REPEATED_LINKS,
    Exclusion,
    ancestors,
    count_photos,
    describe_counts,
    file_kind,
    folder_identities,
    folder_kind,
)

log = logging.getLogger(__name__)

MAX_NAMES_SHOWN = 10  # of missing names, in a message
PETFACE_PARTS = ("train", "val", "test", "reidentification")


# Reads a source without the files that patterns exclude, and counts skipped files by reason.
Scan = Callable[[Counter[str], Sequence[str]], IdentityTable]


def parse_sources(texts: Iterable[str]) -> dict[str, Scan]:
    """Parse the names of sources, without listing them yet.

    Returns:
        The function that lists each source, by the ROOT that its identities' names begin with.

    Raises:
        BadDataset: a source is written wrongly, a folder is missing, or two sources have the same name.
    """
    sources: dict[str, Scan] = {}
    for text in texts:
        layout, colon, _ = text.partition(":")
        if colon and layout in _LAYOUTS:
            name, scan = _LAYOUTS[layout](text)
        else:
            reader = _table if names_table(text) else _shards if names_shards(text) else _folder
            name, scan = reader(text)
        name = unify_identity(name)
        if name in sources:
            raise BadDataset(f"two of the sources are named {name!r}; rename one, so that their identities differ")
        sources[name] = scan
    return sources


def abbreviate_names(names: Iterable[str]) -> str:
    """Join the first `MAX_NAMES_SHOWN` names, sorted, for a message."""
    names = sorted(names)
    return printable(", ".join(names[:MAX_NAMES_SHOWN]) + (", ..." if len(names) > MAX_NAMES_SHOWN else ""))


def scan_folder(name: str, root: Path, ignored: Counter[str], exclude: Sequence[str] = ()) -> IdentityTable:
    """List a folder laid out as `ROOT/IDENTITY/PHOTO`, sorted by name.

    Folders whose names look the same are one identity, with a warning. An identity's folder that cannot be listed is
    left out with a warning. Links are followed, but no folder is listed twice.

    Args:
        name: of the root, that the names of the identities begin with.
        root: the folder.
        ignored: counts what is left out, by kind.
        exclude: patterns of files and folders to leave out, as of `photos.listing.Exclusion`.

    Raises:
        BadDataset: there is no photo, or the folder cannot be listed.
    """
    before, exclusion = Counter(ignored), Exclusion(exclude)
    identities: list[str] = []
    photos: list[Path] = []
    photos_in_root = 0
    for entry in _visible_entries(root, root, exclusion, ignored):
        if not _is_folder(entry):
            kind = file_kind(entry.name)
            photos_in_root += kind is None
            ignored["files outside an identity's folder" if kind in (None, OTHER) else kind] += 1
            continue
        count = len(photos)
        try:
            entries = _visible_entries(Path(entry.path), root, exclusion, ignored)
        except BadDataset as error:
            ignored["folders that cannot be read"] += 1
            log.warning("skipped %s", one_line(str(error)))
            continue
        for inner in entries:
            if _is_folder(inner):
                ignored["folders within an identity's folder"] += 1
            elif (kind := file_kind(inner.name)) is not None:
                ignored[kind] += 1
            else:
                photos.append(Path(inner.path))
        identities += [entry.name] * (len(photos) - count)
        ignored["identities without a photo"] += len(photos) == count
    if not photos:
        hint = f"; {photos_in_root} photos are directly in it" if photos_in_root else ""
        if reasons := describe_counts(ignored - before, NOT_LISTED):
            hint += f"; left out: {reasons}"
        expected = f"{root.resolve().name}/IDENTITY/PHOTO.jpg"
        raise BadDataset(f"{root}: contains no folder of photos{hint}. Expected: {expected}")
    return build_table(root, name, identities, photos, [photo.name for photo in photos])


def names_table(location: str) -> bool:
    """Whether a source of data is a table of photos by its suffix: a CSV, or COCO's JSON.

    Args:
        location: a path or URL.
    """
    return location.lower().endswith(TABLE_SUFFIXES) and (is_url(location) or not Path(location).is_dir())


def _folder(text: str) -> tuple[str, Scan]:
    folder = Path(text)
    if not text or not folder.is_dir():
        problem = "is not a folder" if text and folder.exists() else "no such folder"
        raise BadDataset(f"{text or 'an empty name'}: {problem}; name a folder that contains one folder per identity")
    name = unify_identity(folder.resolve().name)
    return name, partial(scan_folder, name, folder)


def _shards(text: str) -> tuple[str, Scan]:
    name = unify_identity(name_of(text))
    return name, lambda ignored, _: scan_shards(text, ignored, root=name)


def _table(text: str) -> tuple[str, Scan]:
    """Read a table whose paths begin from its folder, or from that of `table:FILE:FOLDER`."""
    location, _, photos = text.removeprefix("table:").rpartition(":")
    if not text.startswith("table:") or not Path(photos).is_dir():
        location = text.removeprefix("table:")
        photos = location.rpartition("/")[0] if is_url(location) else str(Path(location).parent)
    name = unify_identity(PurePosixPath(location).stem)

    def scan(ignored: Counter[str], _: Sequence[str]) -> IdentityTable:
        rows = parquet_rows(location) if location.endswith(".parquet") else read_file(location)
        return table_from_rows(location, name, rows, photos, ignored)

    return name, scan


def _synthetic(text: str) -> tuple[str, Scan]:
    source = SyntheticSource.parse(text)
    # The source without its counts, as a larger set contains a smaller one.
    root, photos_each = source.photo(0).name.split("/", 1)[0], source.photos_per_identity

    def scan(_: Counter[str], __: Sequence[str]) -> IdentityTable:
        rows = np.arange(source.identities * photos_each)
        names = tuple(f"{root}/{identity:06d}" for identity in range(source.identities))
        return IdentityTable(LazyPhotos(rows, source.photo), rows // photos_each, names)

    return root, scan


def _mnist(text: str) -> tuple[str, Scan]:
    location = text.removeprefix("mnist:")
    folder = location.removesuffix(":test")
    part, name = ("train", "mnist") if folder == location else ("test", "mnist-test")
    if not folder or not Path(folder).is_dir():
        raise BadDataset(f"{text}: no such folder; write MNIST as mnist:FOLDER or mnist:FOLDER:test")

    def scan(_: Counter[str], __: Sequence[str]) -> IdentityTable:
        digits, photos = mnist_photos(Path(folder), part)
        return build_table(folder, name, digits, photos, [photo.name for photo in photos])

    return name, scan


def _petface(text: str) -> tuple[str, Scan]:
    """Read all PetFace photos of a species, or those of one part of the authors' split (github.com/mapooon/PetFace).

    Their layout: `images/cat/000000/00.png`, the folder being the identity. `split/cat/` contains `train.csv` and
    `reidentification.csv` (`filename,label`: other photos of the same identities), `val.txt` and `test.txt`
    (one name per line: other identities); a name is `cat/000000/00.png`. An identity has the same name in all parts.
    """
    location, _, part = text.removeprefix("petface:").rpartition(":")
    if part not in PETFACE_PARTS:
        location, part = text.removeprefix("petface:"), None
    folder, _, species = location.rpartition(":")
    images = Path(folder) / "images" / species
    if not folder or not species or not images.is_dir():
        raise BadDataset(
            f"{text}: no such folder: {images}; write PetFace as petface:FOLDER:SPECIES, where FOLDER "
            f"contains images/SPECIES; it may end in :{', :'.join(PETFACE_PARTS)}"
        )

    name = unify_identity(f"petface-{species}")

    def scan(ignored: Counter[str], exclude: Sequence[str]) -> IdentityTable:
        table = scan_folder(name, images, ignored, exclude)
        return (
            table
            if part is None
            else _petface_part(table, _petface_list(Path(folder, "split", species), part), ignored)
        )

    return name, scan


def _petface_part(table: IdentityTable, listing: Path, ignored: Counter[str]) -> IdentityTable:
    listed = frozenset(_petface_names(listing))
    identities = [name.partition("/")[2] for name in table.names]
    names = [f"{identities[label]}/{photo.name}" for photo, label in zip(table.photos, table.labels, strict=True)]
    if not (missing := listed - set(names)) < listed:
        raise BadDataset(f"{listing}: none of its {len(listed):,} photos exists, for example {min(listed)}")
    if missing:
        ignored["listed photos not found"] += len(missing)
        log.warning("%s: %d photos not found: %s", listing, len(missing), abbreviate_names(missing))
    return table.select_rows(np.flatnonzero([name in listed for name in names]))


def _petface_list(folder: Path, part: str) -> Path:
    for name in (f"{part}.csv", f"{part}.txt"):
        if (folder / name).is_file():
            return folder / name
    raise BadDataset(
        f"{folder}: contains no {part}.csv or {part}.txt; PetFace's split folder belongs next to its images folder"
    )


def _petface_names(listing: Path) -> Iterator[str]:
    """Yield `IDENTITY/PHOTO` of each line; BadDataset for a line of another species or form, and an empty file."""
    try:
        lines = listing.read_text(encoding="utf-8-sig").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise BadDataset(f"{listing}: cannot be read ({error})") from error
    count = 0
    for number, line in enumerate(lines, start=1):
        photo = line.partition(",")[0]
        if not line.strip() or (number == 1 and photo == "filename"):
            continue
        species, _, name = photo.partition("/")
        if species != listing.parent.name or name.count("/") != 1:
            raise BadDataset(f"{listing}:{number}: expected {listing.parent.name}/IDENTITY/PHOTO, got {photo!r}")
        count += 1
        identity, _, file_name = name.partition("/")
        yield f"{unify_identity(identity)}/{file_name}"
    if not count:
        raise BadDataset(f"{listing}: lists no photo")


_LAYOUTS: dict[str, Callable[[str], tuple[str, Scan]]] = {
    "synthetic": _synthetic,
    "table": _table,
    "mnist": _mnist,
    "petface": _petface,
}


def _visible_entries(folder: Path, root: Path, exclusion: Exclusion, ignored: Counter[str]) -> list[os.DirEntry[str]]:
    """List what is in a folder, sorted by name, without what is hidden, excluded or of a system, which is counted.

    Raises:
        BadDataset: the folder cannot be listed.
    """
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError as error:
        raise BadDataset(f"{folder}: cannot be read ({error.strerror})") from error
    # Folders before links, so that a link never stands for a folder; the one to `folder` or above is a loop.
    seen = folder_identities((str(folder), str(root))) | ancestors(str(folder)) | ancestors(str(root))
    seen |= folder_identities(entry.path for entry in entries if entry.is_dir(follow_symlinks=False))
    return [entry for entry in entries if not _is_left_out(entry, root, exclusion, ignored, seen)]


def _is_folder(entry: os.DirEntry[str]) -> bool:
    """Tell whether an entry is a folder, or a link to one; `DirEntry.is_dir` raises for links in a circle."""
    return entry.is_dir(follow_symlinks=False) or (entry.is_symlink() and os.path.isdir(entry.path))  # noqa: PTH112


def _is_left_out(
    entry: os.DirEntry[str], root: Path, exclusion: Exclusion, ignored: Counter[str], seen: set[tuple[int, int]]
) -> bool:
    """Tell whether an entry is not listed, and count it in `ignored`."""
    is_folder = _is_folder(entry)
    kind = folder_kind(entry.path) if is_folder else HIDDEN_FILES if entry.name.startswith(".") else None
    if kind is None and exclusion.matches(entry.path, str(root)):
        kind = EXCLUDED
    if kind is not None:
        ignored[kind] += count_photos(entry.path) if is_folder else 1
        return True
    if not entry.is_symlink():
        return False
    if not is_folder:
        is_broken = not os.path.exists(entry.path)  # noqa: PTH110 - `Path.exists` raises for links in a circle
        ignored[BROKEN_LINKS] += is_broken
        return is_broken
    identity = folder_identities([entry.path])
    is_repeated = bool(identity & seen)
    ignored[REPEATED_LINKS] += is_repeated
    seen |= identity
    return is_repeated
