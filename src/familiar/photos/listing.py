"""List the photos in folders, each once, and count what is passed over, by kind. Files are told by their names."""

import logging
import os
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase, translate
from itertools import islice
from pathlib import Path

from familiar.core.errors import UnreadablePhoto
from familiar.core.file_names import PHOTO_SUFFIXES
from familiar.core.terminal_text import printable

log = logging.getLogger(__name__)

RAW_SUFFIXES = frozenset(  # of the raw formats that ExifTool knows
    {
        *(".3fr", ".arq", ".arw", ".cr2", ".cr3", ".crw", ".dcr", ".dng", ".erf", ".fff", ".gpr", ".iiq", ".k25"),
        *(".kdc", ".mdc", ".mef", ".mos", ".mrw", ".nef", ".nrw", ".orf", ".ori", ".pef", ".raf", ".raw", ".rw2"),
        *(".rwl", ".sr2", ".srf", ".srw", ".x3f"),
    }
)
UNREAD_SUFFIXES = frozenset(  # of other pictures, which this program cannot read
    {
        *(".ai", ".dds", ".eps", ".exr", ".fits", ".hdr", ".ico", ".j2c", ".j2k", ".jp2", ".jpf", ".jpx", ".jxr"),
        *(".pcx", ".psb", ".psd", ".qoi", ".svg", ".tga", ".wdp", ".xcf"),
    }
)
_VIDEO_SUFFIXES = frozenset(
    {
        *(".3g2", ".3gp", ".asf", ".avi", ".braw", ".divx", ".dv", ".flv", ".insv", ".lrv", ".m2ts", ".m2v", ".m4v"),
        *(".mkv", ".mod", ".mov", ".mp4", ".mpe", ".mpeg", ".mpg", ".mts", ".mxf", ".ogv", ".qt", ".rm", ".tod"),
        *(".vob", ".webm", ".wmv"),
    }
)
_SIDECAR_SUFFIXES = frozenset({".aae", ".cos", ".dop", ".pp3", ".thm", ".xmp"})
_FILE_TYPES = (
    (RAW_SUFFIXES, "raw files"),
    (_VIDEO_SUFFIXES, "videos"),
    (frozenset({".jxl"}), "JPEG XL files"),
    (UNREAD_SUFFIXES, "pictures of other formats"),
    (_SIDECAR_SUFFIXES, "sidecars"),
)

# Trash, small copies and snapshots: what is in them is a copy of a photo elsewhere, or was deleted. In lower case.
_SYSTEM_FOLDERS = re.compile(
    "|".join(
        translate(name)
        for name in (
            *("@eadir", "#recycle", "#snapshot", "#trash", "@tmp", "@sharesnap", "@sharebin"),  # Synology
            *(
                "@recycle",
                "@recently-snapshot",
                "@__thumb",
                "@transcode",
                ".@__thumb",
                ".@*",
                "trashbox",
            ),  # QNAP, Buffalo
            *(
                "$recycle.bin",
                "recycler",
                "recycled",
                "system volume information",
                "$windows.*",
                "found.[0-9][0-9][0-9]",
            ),
            *(
                "lost+found",
                ".trash",
                ".trash-*",
                ".trashes",
                ".thumbnails",
                ".thumb",
                ".thumbs",
                ".xvpics",
            ),  # Linux, Android
            *(
                "__macosx",
                ".appledouble",
                ".appledb",
                ".appledesktop",
                ".spotlight-v100",
                ".fseventsd",
                ".temporaryitems",
            ),
            *(
                ".documentrevisions-v100",
                ".mobilebackups",
                "network trash folder",
                "temporary items",
                "thefindbyfolder",
            ),
            *(
                ".snapshot",
                ".snapshots",
                ".zfs",
                "~snapshot",
                ".recycle",
                ".recycler",
                ".deleted",
                ".versions",
            ),  # servers
            *(
                ".dtrash",
                ".picasaoriginals",
                ".photoprism",
                "*.lrdata",
                ".comments",
                "ipod photo cache",
            ),  # photo programs
            *(
                ".stfolder",
                ".stversions",
                ".sync",
                ".dropbox.cache",
                ".owncloud*",
                "appdata_oc*",
                "_gsdata_",
                ".tmp.drive*",
            ),
        )
    )
)
_LIBRARY_SUFFIXES = (".photoslibrary", ".photolibrary", ".migratedphotolibrary", ".aplibrary")  # of Apple
_LIBRARY_ORIGINALS = ("originals", "masters")
_MAX_COUNTED_FOLDERS = 1_000  # within one that is passed over: snapshots may hold every photo a hundred times
# Kinds of what is passed over, beside those above.
HIDDEN_FILES, SYSTEM, HIDDEN, EXCLUDED = "hidden files", "in system folders", "in hidden folders", "excluded"
BROKEN_LINKS, REPEATED_LINKS, OTHER = "broken links", "links to folders listed already", "files that are not photos"
NOT_LISTED = frozenset(  # that a user may have expected among the photos
    {HIDDEN_FILES, SYSTEM, HIDDEN, EXCLUDED, BROKEN_LINKS, REPEATED_LINKS, *(kind for _, kind in _FILE_TYPES)}
)


def find_photos(
    paths: Path | str | Iterable[Path | str], *, exclude: Sequence[str] = (), passed_over: Counter[str] | None = None
) -> list[Path]:
    """List the given files, and all photos in the given folders and their subfolders.

    Hidden files and folders, and those of systems and photo programs (trash, small copies, snapshots), are passed over.
    Links to folders are followed, but no folder is listed twice.

    Args:
        paths: one or several: files, taken whatever their suffix, and folders, searched by suffix.
        exclude: patterns of files and folders to leave out, as for `Exclusion`.
        passed_over: counts files in the folders that are not listed, by kind; None: they are logged as a warning.

    Returns:
        The files in the order given, those of each folder sorted. A folder that cannot be listed and a path that does
        not exist are among them: an attempt to open it reports the cause, so that nothing is missed silently.

    Raises:
        UnreadablePhoto: none of the paths exists, or there is no photo at all.
    """
    sources = [Path(paths)] if isinstance(paths, (str, Path)) else [Path(path) for path in paths]
    exclusion, skipped = Exclusion(exclude), Counter[str]()
    photos: list[Path] = []
    for path in sources:
        if os.path.isdir(path):  # noqa: PTH112 - `Path.is_dir` raises if a name is too long
            unlisted: list[str] = []
            walk = FolderWalk(exclusion, skipped, lambda error, unlisted=unlisted: unlisted.append(error.filename))
            photos += sorted(map(Path, (*walk.photos(str(path)), *unlisted)))
        elif exclusion.matches(path.name):
            skipped[EXCLUDED] += 1
        else:
            photos.append(path)
    listed = ", ".join(map(str, sources))
    if not photos and not (len(sources) == 1 and _is_missing(sources[0])):
        reason = f" (passed over: {describe_counts(skipped)})" if +skipped else ""
        raise UnreadablePhoto(f"no photo found in {listed}{reason}")
    missing = [path for path in sources if _is_missing(path)]
    if missing and len(missing) == len(photos):
        raise UnreadablePhoto(f"{missing[0]}: no such file or folder")
    if passed_over is not None:
        passed_over.update(skipped)
    elif skipped:
        log.warning("%s: passed over %s", printable(listed), describe_counts(skipped))
    return photos


class Exclusion:
    """Tells files and folders that are left out by their names.

    Args:
        patterns: with `*`, `?` and `[...]`, without regard to case. One without a slash is compared with the name of
            each file and folder, another one with the path below the folder that is listed.

    >>> Exclusion(["*_edited.*", "2019/raw"]).matches("IMG_1_edited.jpg")
    True
    """

    def __init__(self, patterns: Sequence[str] = ()) -> None:
        self._patterns = tuple(_key(pattern.strip("/")) for pattern in patterns)

    def matches(self, path: str, root: str = "") -> bool:
        """Tell whether a file or folder is left out.

        Args:
            path: of the file or folder.
            root: the folder that is listed; without one only the last part of the path is looked at.
        """
        if not self._patterns:
            return False
        name = _key(os.path.basename(path))  # noqa: PTH119
        below = _key(os.path.relpath(path, root).replace(os.sep, "/")) if root else name
        return any(fnmatchcase(below if "/" in pattern else name, pattern) for pattern in self._patterns)


class FolderWalk:
    """Lists the photos in a folder and its subfolders.

    Args:
        exclusion: files and folders to leave out.
        passed_over: counts what is not listed, by kind.
        on_error: called with the error of each folder that cannot be listed.

    Attributes:
        follows_links: whether there was a link to a folder.
    """

    def __init__(
        self,
        exclusion: Exclusion,
        passed_over: Counter[str],
        on_error: Callable[[OSError], None] = lambda _: None,
    ) -> None:
        self._exclusion, self._passed_over, self._on_error = exclusion, passed_over, on_error
        self._root, self._seen = "", set[tuple[int, int]]()
        self.follows_links = False

    def photos(self, folder: str, without: Iterable[str] = ()) -> Iterator[str]:
        """Yield the paths of all photos: those in linked folders last, so that a link never stands for a folder.

        Args:
            folder: to list.
            without: folders that are not entered.
        """
        self._root, self._seen = folder, ancestors(folder) | folder_identities(without)
        pending = [folder]
        for start in pending:  # which grows
            for parent, folders, names in os.walk(start, onerror=self._on_error):
                if not self._enter(parent, is_link=start is not folder and parent == start):
                    folders.clear()
                    continue
                folders[:] = [name for name in folders if not self._skips_folder(parent, name, pending)]
                for name in names:
                    path = os.path.join(parent, name)  # noqa: PTH118 - a Path each is slow for a hundred thousand
                    if (kind := self.kind_of_file(path)) is None:
                        yield path
                    else:
                        self._passed_over[kind] += 1

    def kind_of_file(self, path: str) -> str | None:
        """Return as what a file is passed over; None: it is a photo.

        Args:
            path: of the file.
        """
        kind = file_kind(os.path.basename(path))  # noqa: PTH119
        if kind != HIDDEN_FILES and self._exclusion.matches(path, self._root):
            return EXCLUDED
        if kind == OTHER and os.path.islink(path) and not os.path.exists(path):  # noqa: PTH110, PTH114
            return BROKEN_LINKS
        return kind

    def _skips_folder(self, parent: str, name: str, links: list[str]) -> bool:
        """Tell whether a subfolder is not entered now; a link is noted, to be followed in the end."""
        path = os.path.join(parent, name)  # noqa: PTH118
        kind = folder_kind(path)
        if kind is None and self._exclusion.matches(path, self._root):
            kind = EXCLUDED
        if kind is not None:
            if count := count_photos(path):
                self._passed_over[kind] += count
            return True
        if os.path.islink(path):  # noqa: PTH114
            links.append(path)
            self.follows_links = True
            return True
        return False

    def _enter(self, folder: str, *, is_link: bool) -> bool:
        """Tell whether a folder was not listed before."""
        identity = _identity(folder)
        if identity in self._seen and folder != self._root:
            self._passed_over[REPEATED_LINKS] += is_link
            return False
        if identity is not None:
            self._seen.add(identity)
        return True


def folder_kind(path: str) -> str | None:
    """Return as what a folder is passed over, by its name; None: it is listed.

    Args:
        path: of the folder.

    >>> folder_kind("photos/@eaDir"), folder_kind("photos/.git"), folder_kind("photos/2019")
    ('in system folders', 'in hidden folders', None)
    """
    parent, name = os.path.split(path)
    name = name.lower()
    if _SYSTEM_FOLDERS.fullmatch(name):
        return SYSTEM
    if parent.lower().endswith(_LIBRARY_SUFFIXES) and name not in _LIBRARY_ORIGINALS:
        return SYSTEM
    return HIDDEN if name.startswith(".") else None


def file_kind(name: str) -> str | None:
    """Return as what a file is passed over, by its name; None: it is a photo.

    Args:
        name: of the file.

    >>> file_kind("a.JPG"), file_kind("a.dng"), file_kind("a.jpg.part")
    (None, 'raw files', 'files that are not photos')
    """
    if name.startswith("."):
        return HIDDEN_FILES
    suffix = os.path.splitext(name)[1].lower()  # noqa: PTH122 - a Path each is slow
    if suffix in PHOTO_SUFFIXES:
        return None
    return next((kind for suffixes, kind in _FILE_TYPES if suffix in suffixes), OTHER)


def count_photos(folder: str) -> int:
    """Count the photos in a folder that is passed over, and its subfolders."""
    walk = islice(os.walk(folder), _MAX_COUNTED_FOLDERS)
    return sum(file_kind(name) is None for _, _, names in walk for name in names)


def describe_counts(counts: Mapping[str, int], only: Collection[str] | None = None) -> str:
    """Write counts by kind for a message.

    Args:
        counts: of files, by kind.
        only: the kinds that are written; None: all.

    >>> describe_counts(Counter({"in system folders": 12, "raw files": 1, "videos": 2}))
    '12 in system folders, 2 videos, 1 raw file'
    """
    listed = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(
        f"{count:,} {_singular(kind) if count == 1 else kind}"
        for kind, count in listed
        if count and (only is None or kind in only)
    )


def ancestors(folder: str) -> set[tuple[int, int]]:
    """Return by what the folders above one are recognized: a link to one of them is a loop."""
    return folder_identities(map(str, Path(os.path.realpath(folder)).parents))


def folder_identities(folders: Iterable[str]) -> set[tuple[int, int]]:
    """Return by what folders are recognized under any path: device and number."""
    return {identity for identity in map(_identity, folders) if identity is not None}


def _identity(folder: str) -> tuple[int, int] | None:
    """Return device and number of a folder; None: it cannot be said."""
    try:
        status = os.stat(folder)  # noqa: PTH116
    except OSError:
        return None
    return (status.st_dev, status.st_ino) if status.st_ino else None


def _singular(kind: str) -> str:
    noun = re.sub(r"^(\w+ |JPEG XL )?(file|folder|link|photo|picture|sample|sidecar|video)s\b", r"\1\2", kind)
    noun = re.sub(r"^((?:\w+ )?identit)ies\b", r"\1y", noun)
    return noun.replace(" are not photos", " is not a photo")


def _key(text: str) -> str:
    return unicodedata.normalize("NFC", text).casefold()


def _is_missing(path: Path) -> bool:
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError, ValueError):  # ValueError: a zero byte
        return True
    except OSError:  # which opening it reports
        pass
    return False
