"""Data sources named on the command line (DATA...): a folder of identities, a data set's own layout, or drawn pets.

Data sets with one folder per identity are read as folders: CASIA-WebFace (`0000045/001.jpg`), LFW
(`NAME/NAME_0001.jpg`; `pairs` and `read_identity_list` read its protocol files), and PetFace's `images/SPECIES`. A
folder of shards, on disk or behind a URL, is a source too (`datasets.shards`).
"""

import logging
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from familiar.core.errors import BadDataset
from familiar.core.terminal_text import one_line, printable
from familiar.datasets.idx import IdxPhoto, mnist_photos
from familiar.datasets.shards.scanning import ShardPhoto, name_of, names_shards, scan_shards
from familiar.datasets.spellings import Spellings, unify_identity
from familiar.datasets.synthetic import SyntheticPhoto, SyntheticSource
from familiar.photos.listing import PHOTO_SUFFIXES

log = logging.getLogger(__name__)

PhotoRef = Path | SyntheticPhoto | IdxPhoto | ShardPhoto
MAX_NAMES_SHOWN = 10  # of missing names, in a message
PETFACE_PARTS = ("train", "val", "test", "reidentification")


@dataclass(frozen=True)
class Source:
    """The identities of one source. Their photos are listed on demand, as drawn ones can be millions."""

    identities: tuple[str, ...]
    photos_of: Callable[[str], Sequence[PhotoRef]]


Scan = Callable[[Counter[str]], Source]  # lists a source, and counts skipped files by reason


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
            name, scan = _shards(text) if names_shards(text) else _folder(text)
        name = unify_identity(name)
        if name in sources:
            raise BadDataset(f"two of the sources are named {name!r}; rename one, so that their identities differ")
        sources[name] = scan
    return sources


def abbreviate_names(names: Iterable[str]) -> str:
    """Join the first `MAX_NAMES_SHOWN` names, sorted, for a message."""
    names = sorted(names)
    return printable(", ".join(names[:MAX_NAMES_SHOWN]) + (", ..." if len(names) > MAX_NAMES_SHOWN else ""))


def scan_folder(root: Path, ignored: Counter[str]) -> Source:
    """List a folder laid out as `ROOT/IDENTITY/PHOTO`, sorted by name.

    Folders whose names look the same are one identity, with a warning. An identity's folder that cannot be listed is
    left out with a warning.

    Raises:
        BadDataset: there is no photo, or the folder cannot be listed.
    """
    real_root = root.resolve()
    photos_by_identity: dict[str, list[Path]] = {}
    spellings = Spellings()
    photos_in_root = 0
    for entry in _sorted_entries(root):
        if _is_skipped(entry, real_root, ignored):
            continue
        if not entry.is_dir():
            photos_in_root += Path(entry.name).suffix.lower() in PHOTO_SUFFIXES
            ignored["files outside an identity's folder"] += 1
            continue
        photos: list[Path] = []
        try:
            entries = _sorted_entries(Path(entry.path))
        except BadDataset as error:
            ignored["folders that cannot be read"] += 1
            log.warning("skipped %s", one_line(str(error)))
            continue
        for inner in entries:
            if _is_skipped(inner, real_root, ignored):
                continue
            if inner.is_dir():
                ignored["folders within an identity's folder"] += 1
            elif Path(inner.name).suffix.lower() not in PHOTO_SUFFIXES:
                ignored["files that are not photos"] += 1
            else:
                photos.append(Path(inner.path))
        if photos:
            identity = spellings.unify(entry.name)
            others = photos_by_identity.get(identity)
            photos_by_identity[identity] = (
                sorted([*others, *photos], key=lambda photo: photo.name) if others else photos
            )
        else:
            ignored["identities without a photo"] += 1
    if not photos_by_identity:
        hint = f"; {photos_in_root} photos are directly in it" if photos_in_root else ""
        raise BadDataset(f"{root}: contains no folder of photos{hint}. Expected: {real_root.name}/IDENTITY/PHOTO.jpg")
    spellings.warn(root)
    return Source(tuple(photos_by_identity), photos_by_identity.__getitem__)


def _folder(text: str) -> tuple[str, Scan]:
    folder = Path(text)
    if not text or not folder.is_dir():
        problem = "is not a folder" if text and folder.exists() else "no such folder"
        raise BadDataset(f"{text or 'an empty name'}: {problem}; name a folder that contains one folder per identity")
    return folder.resolve().name, lambda ignored: scan_folder(folder, ignored)


def _shards(text: str) -> tuple[str, Scan]:
    def scan(ignored: Counter[str]) -> Source:
        photos = scan_shards(text, ignored)
        return Source(tuple(photos), photos.__getitem__)

    return name_of(text), scan


def _synthetic(text: str) -> tuple[str, Scan]:
    source = SyntheticSource.parse(text)
    names = tuple(f"{identity:06d}" for identity in range(source.identities))
    # The source without its counts, as a larger set contains a smaller one.
    name = source.photos(0)[0].name.split("/", 1)[0]
    return name, lambda _: Source(names, lambda identity: source.photos(int(identity)))


def _mnist(text: str) -> tuple[str, Scan]:
    location = text.removeprefix("mnist:")
    folder = location.removesuffix(":test")
    part, name = ("train", "mnist") if folder == location else ("test", "mnist-test")
    if not folder or not Path(folder).is_dir():
        raise BadDataset(f"{text}: no such folder; write MNIST as mnist:FOLDER or mnist:FOLDER:test")

    def scan(_: Counter[str]) -> Source:
        photos = mnist_photos(Path(folder), part)
        return Source(tuple(photos), photos.__getitem__)

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

    def scan(ignored: Counter[str]) -> Source:
        root = scan_folder(images, ignored)
        if part is None:
            return root
        return _petface_part(root, _petface_list(Path(folder, "split", species), part), ignored)

    return f"petface-{species}", scan


def _petface_part(source: Source, listing: Path, ignored: Counter[str]) -> Source:
    listed = frozenset(_petface_names(listing))
    photos_by_identity: dict[str, list[PhotoRef]] = {}
    missing = set(listed)
    for identity in source.identities:
        photos = [photo for photo in source.photos_of(identity) if f"{identity}/{photo.name}" in listed]
        missing -= {f"{identity}/{photo.name}" for photo in photos}
        if photos:
            photos_by_identity[identity] = photos
    if not photos_by_identity:
        raise BadDataset(f"{listing}: none of its {len(listed):,} photos exists, for example {min(listed)}")
    if missing:
        ignored["listed photos not found"] += len(missing)
        log.warning("%s: %d photos not found: %s", listing, len(missing), abbreviate_names(missing))
    return Source(tuple(photos_by_identity), photos_by_identity.__getitem__)


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
    "mnist": _mnist,
    "petface": _petface,
}


def _sorted_entries(folder: Path) -> list[os.DirEntry[str]]:
    try:
        return sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError as error:
        raise BadDataset(f"{folder}: cannot be read ({error.strerror})") from error


def _is_skipped(entry: os.DirEntry[str], real_root: Path, ignored: Counter[str]) -> bool:
    """Tell whether an entry is hidden, a broken link or a link out of the folder, and count it in `ignored`."""
    if entry.name.startswith("."):
        ignored["hidden files"] += 1
        return True
    if not entry.is_symlink():
        return False
    try:
        outside = not Path(entry.path).resolve(strict=True).is_relative_to(real_root)
    except (OSError, RuntimeError):  # RuntimeError: links in a circle, before Python 3.13
        ignored["broken links"] += 1
        return True
    ignored["links out of the folder"] += outside
    return outside
