"""What a word of DATA... stands for: a folder of identities, a well-known set in its own layout, or drawn pets.

Sets that need no layout of their own, since each identity has a folder: CASIA-WebFace (`0000045/001.jpg`), LFW
(`NAME/NAME_0001.jpg`; `pairs` and `read_identity_list` read its protocol files), and PetFace's `images/SPECIES`.
"""

import logging
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from familiar.core.errors import BadDataset
from familiar.core.terminal_text import printable
from familiar.datasets.idx import IdxPhoto, mnist_photos
from familiar.datasets.synthetic import SyntheticPhoto, SyntheticSource
from familiar.photos.decoding import PHOTO_SUFFIXES

log = logging.getLogger(__name__)

PhotoRef = Path | SyntheticPhoto | IdxPhoto
NAMED_AT_MOST = 10  # of names that are missing
PETFACE_PARTS = ("train", "val", "test", "reidentification")


@dataclass(frozen=True)
class Root:
    """The identities of one source. Their photos are listed when asked for: drawn ones can be millions."""

    identities: tuple[str, ...]
    photos_of: Callable[[str], Sequence[PhotoRef]]


Scan = Callable[[Counter[str]], Root]  # lists a source, and counts what it leaves out, by reason


def named_sources(texts: Iterable[str]) -> dict[str, Scan]:
    """How to list each source, by the name its identities' names begin with; nothing is listed yet.

    BadDataset where a word is misspelt, a folder is missing, or two sources have one name.
    """
    named: dict[str, Scan] = {}
    for text in texts:
        layout, colon, _ = text.partition(":")
        name, scan = _LAYOUTS[layout](text) if colon and layout in _LAYOUTS else _folder(text)
        if name in named:
            raise BadDataset(f"two of the sources are called {name!r}; rename one, so that identities stay apart")
        named[name] = scan
    return named


def some_of(names: Iterable[str]) -> str:
    """The first of them, as they are shown in a message."""
    names = sorted(names)
    return printable(", ".join(names[:NAMED_AT_MOST]) + (", ..." if len(names) > NAMED_AT_MOST else ""))


def scan_folder(root: Path, ignored: Counter[str]) -> Root:
    """`ROOT/IDENTITY/PHOTO`, all sorted by name. BadDataset where there is no photo, or a folder cannot be listed."""
    real_root = root.resolve()
    found: dict[str, Sequence[PhotoRef]] = {}
    loose = 0
    for entry in _sorted_entries(root):
        if _left_out(entry, real_root, ignored):
            continue
        if not entry.is_dir():
            loose += Path(entry.name).suffix.lower() in PHOTO_SUFFIXES
            ignored["files outside an identity's folder"] += 1
            continue
        photos: list[PhotoRef] = []
        for inner in _sorted_entries(Path(entry.path)):
            if _left_out(inner, real_root, ignored):
                continue
            if inner.is_dir():
                ignored["folders within an identity's folder"] += 1
            elif Path(inner.name).suffix.lower() not in PHOTO_SUFFIXES:
                ignored["files that are no photos"] += 1
            else:
                photos.append(Path(inner.path))
        if photos:
            found[entry.name] = photos
        else:
            ignored["identities without a photo"] += 1
    if not found:
        hint = f"; {loose} photos lie directly in it" if loose else ""
        raise BadDataset(f"{root}: holds no folder of photos{hint}. Wanted: {real_root.name}/IDENTITY/PHOTO.jpg")
    return Root(tuple(found), found.__getitem__)


def _folder(text: str) -> tuple[str, Scan]:
    folder = Path(text)
    if not text or not folder.is_dir():
        found = "is no folder" if text and folder.exists() else "no such folder"
        raise BadDataset(f"{text or 'an empty name'}: {found}; wanted is one that holds a folder per identity")
    return folder.resolve().name, lambda ignored: scan_folder(folder, ignored)


def _synthetic(text: str) -> tuple[str, Scan]:
    source = SyntheticSource.parse(text)
    names = tuple(f"{identity:06d}" for identity in range(source.identities))
    # Everything of the source but its counts: a larger draw holds a smaller one.
    name = source.photos(0)[0].name.split("/", 1)[0]
    return name, lambda _: Root(names, lambda identity: source.photos(int(identity)))


def _mnist(text: str) -> tuple[str, Scan]:
    place = text.removeprefix("mnist:")
    folder = place.removesuffix(":test")
    part, name = ("train", "mnist") if folder == place else ("test", "mnist-test")
    if not folder or not Path(folder).is_dir():
        raise BadDataset(f"{text}: no such folder; MNIST is written mnist:FOLDER, or mnist:FOLDER:test")

    def scan(_: Counter[str]) -> Root:
        photos = mnist_photos(Path(folder), part)
        return Root(tuple(photos), photos.__getitem__)

    return name, scan


def _petface(text: str) -> tuple[str, Scan]:
    """Of one species all photos, or those of one part of the authors' split (github.com/mapooon/PetFace).

    Their layout: `images/cat/000000/00.png`, the folder being the identity. `split/cat/` holds `train.csv` and
    `reidentification.csv` (`filename,label`: other photos of the same identities), `val.txt` and `test.txt`
    (a name a line: other identities); a name is `cat/000000/00.png`. Whichever the part, an identity has one name.
    """
    place, _, part = text.removeprefix("petface:").rpartition(":")
    if part not in PETFACE_PARTS:
        place, part = text.removeprefix("petface:"), None
    folder, _, species = place.rpartition(":")
    images = Path(folder) / "images" / species
    if not folder or not species or not images.is_dir():
        raise BadDataset(
            f"{text}: no such folder: {images}; PetFace is written petface:FOLDER:SPECIES, FOLDER holding "
            f"images/SPECIES, and may end in :{', :'.join(PETFACE_PARTS)}"
        )

    def scan(ignored: Counter[str]) -> Root:
        root = scan_folder(images, ignored)
        if part is None:
            return root
        return _petface_part(root, _petface_list(Path(folder, "split", species), part), ignored)

    return f"petface-{species}", scan


def _petface_part(root: Root, listing: Path, ignored: Counter[str]) -> Root:
    listed = frozenset(_petface_names(listing))
    kept = {
        identity: [photo for photo in root.photos_of(identity) if f"{identity}/{photo.name}" in listed]
        for identity in root.identities
    }
    kept = {identity: photos for identity, photos in kept.items() if photos}
    missing = listed - {f"{identity}/{photo.name}" for identity, photos in kept.items() for photo in photos}
    if not kept:
        raise BadDataset(f"{listing}: none of its {len(listed):,} photos is there, such as {min(listed)}")
    if missing:
        ignored["listed photos not found"] += len(missing)
        log.warning("%s: %d photos not found: %s", listing, len(missing), some_of(missing))
    return Root(tuple(kept), kept.__getitem__)


def _petface_list(folder: Path, part: str) -> Path:
    for name in (f"{part}.csv", f"{part}.txt"):
        if (folder / name).is_file():
            return folder / name
    raise BadDataset(f"{folder}: holds no {part}.csv or {part}.txt; PetFace's split folder belongs beside its images")


def _petface_names(listing: Path) -> Iterator[str]:
    """`IDENTITY/PHOTO` of every line. BadDataset names the line that is none of this species, or an empty file."""
    try:
        lines = listing.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise BadDataset(f"{listing}: cannot be read ({error})") from error
    named = 0
    for number, line in enumerate(lines, start=1):
        photo = line.partition(",")[0]
        if not line.strip() or (number == 1 and photo == "filename"):
            continue
        species, _, name = photo.partition("/")
        if species != listing.parent.name or name.count("/") != 1:
            raise BadDataset(f"{listing}:{number}: not {listing.parent.name}/IDENTITY/PHOTO: {photo!r}")
        named += 1
        yield name
    if not named:
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


def _left_out(entry: os.DirEntry[str], real_root: Path, ignored: Counter[str]) -> bool:
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
