"""Who is who, in and out of a gallery: as a table (CSV), or as folders of photos, one per identity."""

import csv
import io
import math
import os
import shutil
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from familiar.core.errors import BadDataset, CannotWrite
from familiar.core.files import absolute_path, content_sha256, write_atomically
from familiar.core.terminal_text import printable
from familiar.detection.quality import box_intersection_px
from familiar.gallery.database.connection import Gallery
from familiar.gallery.editing.corrections import IdentityFaces, assign
from familiar.photos.decoding import find_photos

BOX = ("left_px", "top_px", "right_px", "bottom_px")
COLUMNS = ("path", *BOX, "face", "identity", "name", "by_user")
SAME_BOX = 0.3  # intersection over union, from which a box of the table means a face of the gallery
_NAME_BYTES = 200  # of a folder: file systems take 255, and a number may follow

_Box = tuple[float, float, float, float]


@dataclass(frozen=True)
class ImportResult:
    """How many `faces` were said to show how many `identities`, and how many others that `carried` along.

    `skipped`: each row or photo that says nothing of a face in the gallery, and why.
    """

    faces: int
    identities: int
    propagated_faces: int
    skipped: tuple[str, ...]


@dataclass(frozen=True)
class ExportResult:
    """Photos put into the folders of so many `identities`; `missing` ones are not where they were."""

    photos: int
    identities: int
    missing: tuple[str, ...]


@dataclass(frozen=True)
class _Row:
    """One line of a table. `label`: a name, or #12 for somebody without one; empty: nobody."""

    line: int
    path: str
    box: _Box | None
    face: int | None
    label: str


def export_csv(gallery: Gallery, path: Path) -> int:
    """Writes one row for each face, `COLUMNS` in the first line; the number of faces. CannotWrite by the system.

    Without an identity its number, name and `by_user` are empty.
    """
    with gallery.reading() as connection:
        rows = connection.execute(
            "SELECT path, left_px, top_px, right_px, bottom_px, faces.id, identity_id, name, by_user FROM faces "
            "JOIN photos ON photos.id = photo_id LEFT JOIN assignments ON face_id = faces.id "
            "LEFT JOIN identities ON identities.id = identity_id ORDER BY path, faces.id"
        ).fetchall()
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow(COLUMNS)
    writer.writerows(rows)
    write_atomically(path, os.fsencode(text.getvalue()))
    return len(rows)


def import_csv(gallery: Gallery, path: Path) -> ImportResult:
    """Takes a table for the user's word, all of it in one decision.

    It has the columns `path` and `name` at least, as `export_csv` writes them. A photo that shows several faces needs
    a box in the photo's pixels, or the number of a face. Rows without a name but with the number of an `identity` are
    one individual who has none; with neither they say nothing.

    BadDataset, and nothing is imported, where a line is malformed, or says what cannot be: two faces of one photo
    under one name, one face under two. Contradiction where it cannot be beside what the gallery holds.
    """
    known = _Known.of(gallery)
    faces: dict[int, _Row] = {}
    people: defaultdict[str, dict[int, _Row]] = defaultdict(dict)  # of each label, by photo
    skipped: list[str] = []
    for row in _read(path):
        photo = known.at(row.path)
        face = None if photo is None else known.face(photo, row)
        if photo is None or face is None:
            why = "no photo of the gallery" if photo is None else "shows no such face, or more than one"
            skipped.append(f"{path}, line {row.line}: {row.path}: {why}")
            continue
        if not row.label:
            continue
        before = faces.setdefault(face, row)
        if before.label != row.label:
            raise BadDataset(
                f"{path}, line {row.line}: {row.path}: is {row.label} here, and {before.label} in line {before.line}"
            )
        if before is row and (other := people[row.label].setdefault(photo, row)) is not row:
            raise BadDataset(
                f"{path}, line {row.line}: {row.path}: shows {row.label} in line {other.line} too, and two faces in "
                "one photo are never one individual"
            )
    return _assign(gallery, {face: row.label for face, row in faces.items()}, skipped)


def import_folders(gallery: Gallery, root: Path) -> ImportResult:
    """Takes ROOT/IDENTITY/PHOTO for the user's word, all of it in one decision.

    Photos are known by their content, or else by their path; each shows one face, or is skipped. A folder called #12
    or the like is somebody without a name. BadDataset where there are no such folders, or one photo is in two.
    """
    known = _Known.of(gallery)
    folders = sorted(_listed(root))
    if not folders:
        raise BadDataset(f"{root}: holds no folders; they are expected as {root}/IDENTITY/PHOTO.jpg")
    said: dict[int, tuple[str, Path]] = {}
    skipped: list[str] = []
    for folder in folders:
        label = folder.name.strip()
        if printable(label) != label or not label:
            raise BadDataset(f"{printable(str(folder))}: is no name that can be shown on one line; rename the folder")
        for path in find_photos([folder]) if any(folder.iterdir()) else []:
            try:
                photo = known.shown_in(path)
            except OSError as error:
                skipped.append(f"{path}: {error.strerror}")
                continue
            shown = known.faces.get(photo, []) if photo is not None else []
            if len(shown) != 1:
                why = "no photo of the gallery" if photo is None else f"shows {len(shown)} faces"
                skipped.append(f"{path}: {why}")
                continue
            before, other = said.setdefault(shown[0][0], (label, path))
            if before != label:
                raise BadDataset(f"{path}: is the photo {other} too, and its one face has one name")
    return _assign(gallery, {face: label for face, (label, _) in said.items()}, skipped)


def export_folders(gallery: Gallery, folder: Path, how: Literal["link", "copy"] = "link") -> ExportResult:
    """Makes FOLDER/NAME/PHOTO of every face that is somebody's: links to the photos where they lie, or copies.

    Who has no name is #12. CannotWrite where the folder is there already and not empty, or by the system.
    """
    with gallery.reading() as connection:
        rows = connection.execute(
            "SELECT DISTINCT identity_id, coalesce(name, '#' || identity_id), path FROM assignments "
            "JOIN identities ON identities.id = identity_id JOIN faces ON faces.id = face_id "
            "JOIN photos ON photos.id = photo_id ORDER BY identity_id, path"
        ).fetchall()
    missing: list[str] = []
    taken: set[str] = set()
    within: dict[int, tuple[Path, set[str]]] = {}
    try:
        if folder.exists() and any(folder.iterdir()):
            raise CannotWrite(f"{folder}: is not empty; name another folder, or remove it")
        folder.mkdir(parents=True, exist_ok=True)
        for number, name, path in rows:
            source = Path(path)
            if not source.is_file():
                missing.append(path)
                continue
            if number not in within:
                within[number] = folder / _free(_safe(name), "", taken), set()
                within[number][0].mkdir()
            own, names = within[number]
            target = own / _free(source.stem, source.suffix, names)
            if how == "link":
                target.symlink_to(source)
            else:
                shutil.copy2(source, target)
    except OSError as error:
        raise CannotWrite(f"{error.filename2 or error.filename}: {error.strerror}") from error
    return ExportResult(len(rows) - len(missing), len(within), tuple(missing))


def _assign(gallery: Gallery, label_of: Mapping[int, str], skipped: list[str]) -> ImportResult:
    people: defaultdict[str, list[int]] = defaultdict(list)
    for face, label in label_of.items():
        people[label].append(face)
    carried = assign(
        gallery,
        [IdentityFaces(None if label.startswith("#") else label, tuple(faces)) for label, faces in people.items()],
    )
    return ImportResult(len(label_of), len(people), carried, tuple(skipped))


@dataclass(frozen=True, eq=False)
class _Known:
    """Photos of a gallery by path and by content, the newest of one path, and the faces that each shows."""

    by_path: Mapping[str, int]
    by_content: Mapping[bytes, int]
    faces: Mapping[int, list[tuple[int, _Box]]]

    @staticmethod
    def of(gallery: Gallery) -> "_Known":
        faces: defaultdict[int, list[tuple[int, _Box]]] = defaultdict(list)
        with gallery.reading() as connection:
            photos = connection.execute("SELECT id, path, sha256 FROM photos ORDER BY id").fetchall()
            for photo, face, *box in connection.execute(
                "SELECT photo_id, id, left_px, top_px, right_px, bottom_px FROM faces ORDER BY id"
            ):
                left, top, right, bottom = box
                faces[photo].append((face, (left, top, right, bottom)))
        return _Known({row[1]: row[0] for row in photos}, {row[2]: row[0] for row in photos}, dict(faces))

    def at(self, path: str) -> int | None:
        return self.by_path.get(path, self.by_path.get(str(absolute_path(path))))

    def shown_in(self, path: Path) -> int | None:
        """OSError where the file cannot be read."""
        photo = self.by_content.get(content_sha256(path))
        return self.at(str(path)) if photo is None else photo

    def face(self, photo: int, row: _Row) -> int | None:
        """Which face of the photo a line means: by box, the only one, or by its number."""
        shown = self.faces.get(photo, [])
        if row.box is not None:
            overlap, face = max(((_overlap(row.box, box), face) for face, box in shown), default=(0.0, 0))
            return face if overlap >= SAME_BOX else None
        if len(shown) == 1:
            return shown[0][0]
        return next((face for face, _ in shown if face == row.face), None)


def _read(path: Path) -> Iterator[_Row]:
    """The lines of a table. BadDataset names the first that is malformed."""
    try:
        text = path.read_bytes().decode("utf-8-sig", "surrogateescape")
    except OSError as error:
        raise BadDataset(f"{path}: cannot be read ({error.strerror})") from error
    reader = csv.DictReader(io.StringIO(text, newline=""), strict=True)
    try:
        if not {"path", "name"} <= set(reader.fieldnames or ()):
            raise BadDataset(f"{path}, line 1: names no columns path and name, separated by commas")
        for cells in reader:
            if None in cells or None in cells.values():
                raise ValueError("has more or fewer cells than the first line")
            yield _row(reader.line_num, cells)
    except (csv.Error, ValueError) as error:
        line = reader.line_num + isinstance(error, csv.Error)  # of the last row that could be read
        raise BadDataset(f"{path}, line {line}: {error}; nothing was imported") from error


def _row(line: int, cells: Mapping[str, str]) -> _Row:
    """ValueError where a number is none, or a box is no box."""
    sides = [cells.get(side, "").strip() for side in BOX]
    box = None
    if any(sides):
        left, top, right, bottom = map(float, sides)
        if not all(map(math.isfinite, (left, top, right, bottom))):
            raise ValueError("a side of the box is no number")
        # An embedding that was computed elsewhere has a box of no size.
        box = (left, top, right, bottom) if left < right and top < bottom else None
    name, face, number = (cells.get(column, "").strip() for column in ("name", "face", "identity"))
    if not cells["path"]:
        raise ValueError("names no path")
    if printable(name) != name:
        raise ValueError(f"{name!r} is no name, since it cannot be shown on one line")
    label = name or (f"#{int(number)}" if number else "")
    return _Row(line, cells["path"], box, int(face) if face else None, label)


def _overlap(one: _Box, other: _Box) -> float:
    """Intersection over union."""
    common = box_intersection_px(one, other)
    areas = sum((box[2] - box[0]) * (box[3] - box[1]) for box in (one, other))
    return common / (areas - common) if common else 0.0


def _listed(root: Path) -> Iterator[Path]:
    try:
        for path in root.iterdir():
            if path.is_dir() and not path.name.startswith("."):
                yield path
    except OSError as error:
        raise BadDataset(f"{root}: cannot be listed ({error.strerror})") from error


def _safe(name: str) -> str:
    """A name as a folder can be called on any system.

    >>> _safe("Tom/Jerry: twins"), _safe("..hidden")
    ('Tom_Jerry_ twins', '_.hidden')
    """
    kept = "".join("_" if letter in '/\\:*?"<>|' or printable(letter) != letter else letter for letter in name)
    kept = kept.encode()[:_NAME_BYTES].decode(errors="ignore").rstrip(" .")
    return "_" + kept[1:] if kept.startswith(".") or not kept else kept


def _free(stem: str, suffix: str, taken: set[str]) -> str:
    """The name, or with -2, -3, ... behind it where that is taken, also in other case."""
    name, count = stem + suffix, 1
    while name.casefold() in taken:
        count += 1
        name = f"{stem}-{count}{suffix}"
    taken.add(name.casefold())
    return name
