"""Export and import identity labels, as a CSV table or as one folder of photos per identity."""

import csv
import io
import math
import os
import shutil
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from familiar.core.csv_rows import read_rows
from familiar.core.errors import BadDataset, CannotWrite, Contradiction, UnreadablePhoto
from familiar.core.file_names import safe_file_name, unused_name
from familiar.core.files import (
    DISK_FAILURES,
    absolute_path,
    content_sha256,
    fsync_directory,
    fsync_tree,
    write_atomically,
)
from familiar.core.terminal_text import printable
from familiar.gallery.database.connection import GalleryDatabase
from familiar.gallery.editing.corrections import IdentityFaces, assign
from familiar.photos.decoding import find_photos
from familiar.photos.metadata.regions import Box, intersection_over_union

BOX = ("left_px", "top_px", "right_px", "bottom_px")
COLUMNS = ("path", *BOX, "face", "identity", "name", "by_user")
SAME_BOX = 0.3  # least intersection over union at which a box of the table means a face of the gallery


@dataclass(frozen=True)
class ImportResult:
    """The outcome of an import.

    Attributes:
        faces: the number of labeled faces.
        identities: the number of identities that they were assigned to.
        propagated_faces: other faces that were reassigned as a consequence.
        skipped: each row or photo that was left out, and why: it cannot be read, matches no face of the gallery, or
            contradicts another.
    """

    faces: int
    identities: int
    propagated_faces: int
    skipped: tuple[str, ...]


@dataclass(frozen=True)
class ExportResult:
    """The outcome of an export to folders.

    Attributes:
        photos: the number of links or copies made.
        identities: the number of folders made.
        missing: paths of photos that are not where they were enrolled.
        skipped: each photo that was left out though there is a file at its path, and why.
    """

    photos: int
    identities: int
    missing: tuple[str, ...]
    skipped: tuple[str, ...]


@dataclass(frozen=True)
class _TableRow:
    """One row of a table. `label` is a name, or #12 for an identity without one, or empty for no identity."""

    line: int
    path: str
    box: Box | None
    face: int | None
    label: str


def export_csv(gallery: GalleryDatabase, path: Path) -> int:
    """Write a CSV table with the columns `COLUMNS`: a header, then one row per face.

    The number, name and `by_user` of a face without an identity are empty.

    Returns:
        The number of faces.

    Raises:
        CannotWrite: the file cannot be written.
    """
    with gallery.reading() as repository:
        rows = repository.faces.export_rows()
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow(COLUMNS)
    writer.writerows(rows)
    write_atomically(path, os.fsencode(text.getvalue()))
    return len(rows)


def import_csv(gallery: GalleryDatabase, path: Path) -> ImportResult:
    """Assign faces to identities as a CSV table says, as one decision. Rows that cannot be applied are skipped.

    Of two rows that contradict each other the first counts.

    Args:
        gallery: to write to.
        path: of a table with the columns `path` and `name` at least, as `export_csv` writes it. A row for a photo of
            several faces needs a box in the photo's pixels, or the number of a face. Rows without a name that have the
            same number in the column `identity` are one identity without a name; a row with neither is ignored.

    Raises:
        BadDataset: the file cannot be read, or lacks a column; nothing is imported.
    """
    skipped: list[str] = []
    rows = list(_read_table(path, skipped))
    with gallery.exclusive():  # faces and names that the rows mean must not change before they are assigned
        return _import_rows(gallery, path, rows, skipped)


def _import_rows(gallery: GalleryDatabase, path: Path, rows: Sequence[_TableRow], skipped: list[str]) -> ImportResult:
    photos = _PhotoLookup.load(gallery)
    row_of_face: dict[int, _TableRow] = {}
    row_in_photo: dict[tuple[int, str], _TableRow] = {}  # of each photo and label
    for row in rows:
        photo = photos.at_path(row.path)
        face = None if photo is None else photos.matching_face(photo, row)
        if photo is None or face is None:
            reason = "no photo of the gallery" if photo is None else "the photo shows no such face, or more than one"
            skipped.append(f"{path}, line {row.line}: {row.path}: {reason}")
            continue
        if not row.label:
            continue
        if (first := row_of_face.get(face)) is not None:
            if first.label != row.label:
                skipped.append(
                    f"{path}, line {row.line}: {row.path}: is labeled {row.label} here, and {first.label} in line "
                    f"{first.line}, which counts; remove the wrong one"
                )
            continue
        if (first := row_in_photo.setdefault((photo, row.label), row)) is not row:
            skipped.append(
                f"{path}, line {row.line}: {row.path}: shows {row.label} in line {first.line} too, which counts: two "
                "faces in one photo cannot be the same individual; remove the wrong one"
            )
            continue
        row_of_face[face] = row
    skipped += [
        f"{path}, line {row.line}: {row.path}: another face of this photo is {row.label} in the gallery, and two faces "
        "in one photo cannot be the same individual; reject or move that one first"
        for row in _remove_taken(gallery, row_of_face, photos)
    ]
    return assign_labels(gallery, {face: row.label for face, row in row_of_face.items()}, photos.faces, skipped)


def _remove_taken(
    gallery: GalleryDatabase, row_of_face: dict[int, _TableRow], photos: "_PhotoLookup"
) -> list[_TableRow]:
    """Remove and return the rows whose name another face of the photo has, which keeps it."""
    photo_of = {face: photo for photo, faces in photos.faces.items() for face, _ in faces}
    with gallery.reading() as repository:
        holders = {(photo, name): face for photo, face, *_, name in repository.faces.named()}
    removed: list[_TableRow] = []
    while taken := [
        face
        for face, row in row_of_face.items()
        if (holder := holders.get((photo_of[face], row.label), face)) != face and holder not in row_of_face
    ]:
        removed += [row_of_face.pop(face) for face in taken]
    return removed


def import_folders(gallery: GalleryDatabase, root: Path) -> ImportResult:
    """Assign faces to identities as folders ROOT/IDENTITY/PHOTO say, as one decision.

    Photos are identified by their content, or else by their path; one that does not show exactly one face is skipped.
    A folder called #12 or the like is an identity without a name. Of two folders with the same photo the first counts.

    Raises:
        BadDataset: there are no such folders; nothing is imported.
    """
    photos = _PhotoLookup.load(gallery)
    folders = sorted(_list_folders(root))
    if not folders:
        raise BadDataset(f"{root}: contains no folders; expected {root}/IDENTITY/PHOTO.jpg")
    label_and_path: dict[int, tuple[str, Path]] = {}  # of each face
    skipped: list[str] = []
    for folder in folders:
        label = folder.name.strip()
        if printable(label) != label or not label:
            skipped.append(f"{folder}: the folder's name is not one line of printable characters; rename it")
            continue
        for path in _list_photos(folder, skipped):
            try:
                photo = photos.with_content_of(path)
            except OSError as error:
                skipped.append(f"{path}: {error.strerror}")
                continue
            faces = photos.faces.get(photo, []) if photo is not None else []
            if len(faces) != 1:
                reason = "no photo of the gallery" if photo is None else f"shows {len(faces)} faces"
                skipped.append(f"{path}: {reason}")
                continue
            first_label, first_path = label_and_path.setdefault(faces[0][0], (label, path))
            if first_label != label:
                skipped.append(
                    f"{path}: is the same photo as {first_path}, which counts; remove it from one of the two folders"
                )
    label_of = {face: label for face, (label, _) in label_and_path.items()}
    return assign_labels(gallery, label_of, photos.faces, skipped)


def export_folders(gallery: GalleryDatabase, folder: Path, mode: Literal["link", "copy"] = "link") -> ExportResult:
    """Create FOLDER/NAME/PHOTO for every face with an identity.

    Args:
        gallery: to read.
        folder: must be empty or missing. An identity without a name gets a folder called #12 or the like.
        mode: make symbolic links to the photos where they lie, or copies.

    Raises:
        CannotWrite: the folder is not empty, or a file cannot be written.
    """
    with gallery.reading() as repository:
        rows = repository.assignments.photos_by_identity()
    missing: list[str] = []
    skipped: list[str] = []
    folder_names: set[str] = set()
    folders: dict[int, tuple[Path, set[str]]] = {}  # of each identity: its folder, and the names used in it
    try:
        if folder.exists() and any(folder.iterdir()):
            raise CannotWrite(f"{folder}: is not empty; name another folder, or remove it")
        folder.mkdir(parents=True, exist_ok=True)
        for number, name, path in rows:
            source = Path(path)
            if not os.path.isfile(source):  # noqa: PTH113 - `Path.is_file` may raise
                missing.append(path)
                continue
            if number not in folders:
                folders[number] = folder / unused_name(safe_file_name(name), "", folder_names), set()
                folders[number][0].mkdir()
            identity_folder, file_names = folders[number]
            target = identity_folder / unused_name(source.stem, source.suffix, file_names)
            try:
                target.symlink_to(source) if mode == "link" else shutil.copy2(source, target)
            except OSError as error:
                if error.errno in DISK_FAILURES:
                    raise
                target.unlink(missing_ok=True)
                skipped.append(f"{path}: cannot be {'linked' if mode == 'link' else 'copied'} ({error.strerror})")
        fsync_tree(folder)
        fsync_directory(folder.absolute().parent)
    except OSError as error:
        raise CannotWrite(f"{error.filename2 or error.filename}: {error.strerror}") from error
    return ExportResult(len(rows) - len(missing) - len(skipped), len(folders), tuple(missing), tuple(skipped))


def assign_labels(
    gallery: GalleryDatabase,
    label_of: Mapping[int, str],
    faces_of_photo: Mapping[int, Sequence[tuple[int, Box]]],
    skipped: list[str],
) -> ImportResult:
    """Assign faces, given by number, to the identities of their labels, as one decision.

    Args:
        gallery: to write to.
        label_of: the name of each face's identity; faces with the same label #12 are one identity without a name.
        faces_of_photo: numbers and boxes of the faces of each photo, as they were when the labels were read.
        skipped: for the result.

    Raises:
        Contradiction: another program has changed or deleted a labeled face since, or the labels contradict what the
            gallery contains; nothing is assigned.
    """
    faces_of: defaultdict[str, list[int]] = defaultdict(list)
    for face, label in label_of.items():
        faces_of[label].append(face)
    individuals = [
        IdentityFaces(None if label.startswith("#") else label, tuple(faces)) for label, faces in faces_of.items()
    ]
    with gallery.exclusive():
        _check_unchanged(gallery, label_of, faces_of_photo)
        propagated_faces = assign(gallery, individuals)
    return ImportResult(len(label_of), len(faces_of), propagated_faces, tuple(skipped))


def _check_unchanged(
    gallery: GalleryDatabase, faces: Collection[int], faces_of_photo: Mapping[int, Sequence[tuple[int, Box]]]
) -> None:
    """Raise Contradiction unless the faces are still where they were: reading the files may have taken minutes."""
    now = _PhotoLookup.load(gallery).faces
    for photo, before in faces_of_photo.items():
        for face, box in before:
            if face in faces and (face, box) not in now.get(photo, []):
                raise Contradiction(
                    f"{gallery.folder}: another program changed or deleted face {face} during the import; nothing was "
                    "imported; import again"
                )


@dataclass(frozen=True, eq=False)
class _PhotoLookup:
    """The numbers of a gallery's photos by path (the newest of one path) and by content, and the faces of each."""

    by_path: Mapping[str, int]
    by_content: Mapping[bytes, int]
    faces: Mapping[int, list[tuple[int, Box]]]

    @staticmethod
    def load(gallery: GalleryDatabase) -> "_PhotoLookup":
        faces: defaultdict[int, list[tuple[int, Box]]] = defaultdict(list)
        with gallery.reading() as repository:
            photos = repository.photos.paths_and_hashes()
            for photo, face, left, top, right, bottom in repository.faces.boxes():
                faces[photo].append((face, (left, top, right, bottom)))
        return _PhotoLookup({row[1]: row[0] for row in photos}, {row[2]: row[0] for row in photos}, dict(faces))

    def at_path(self, path: str) -> int | None:
        return self.by_path.get(path, self.by_path.get(str(absolute_path(path))))

    def with_content_of(self, path: Path) -> int | None:
        """Return the photo with a file's content, or else the one at its path. OSError if it cannot be read."""
        photo = self.by_content.get(content_sha256(path))
        return self.at_path(str(path)) if photo is None else photo

    def matching_face(self, photo: int, row: _TableRow) -> int | None:
        """Return the face of a photo that a row means: by its box, as the only one, or by its number."""
        faces = self.faces.get(photo, [])
        if row.box is not None:
            overlaps = ((intersection_over_union(row.box, box), face) for face, box in faces)
            overlap, face = max(overlaps, default=(0.0, 0))
            return face if overlap >= SAME_BOX else None
        if len(faces) == 1:
            return faces[0][0]
        return next((face for face, _ in faces if face == row.face), None)


def _read_table(path: Path, skipped: list[str]) -> Iterator[_TableRow]:
    """Read the rows of a table, and describe the malformed ones. BadDataset if it is no such table."""
    try:
        text = path.read_bytes().decode("utf-8-sig", "surrogateescape")
    except OSError as error:
        raise BadDataset(f"{path}: cannot be read ({error.strerror})") from error
    reader = csv.DictReader(io.StringIO(text, newline=""), strict=True)
    try:
        has_columns = {"path", "name"} <= set(reader.fieldnames or ())
    except csv.Error:
        has_columns = False
    if not has_columns:
        raise BadDataset(f'{path}, line 1: the header must contain the columns "path" and "name", separated by commas')
    for line, cells in read_rows(reader):
        try:
            if isinstance(cells, ValueError):
                raise cells
            row = _parse_row(line, cells)
        except ValueError as error:
            skipped.append(f"{path}, line {line}: {error}")
        else:
            yield row


def _parse_row(line: int, cells: Mapping[str, str]) -> _TableRow:
    """Parse the cells of a row. ValueError if one is not what its column needs."""
    sides = [cells.get(side, "").strip() for side in BOX]
    box = None
    if any(sides):
        left, top, right, bottom = map(float, sides)
        if not all(map(math.isfinite, (left, top, right, bottom))):
            raise ValueError("a side of the box is not a finite number")
        # An embedding that was computed elsewhere has a box of no size.
        box = (left, top, right, bottom) if left < right and top < bottom else None
    name, face, number = (cells.get(column, "").strip() for column in ("name", "face", "identity"))
    if not cells["path"]:
        raise ValueError("the path is empty")
    if printable(name) != name:
        raise ValueError(f"the name {name!r} is not one line of printable characters")
    label = name or (f"#{int(number)}" if number else "")
    return _TableRow(line, cells["path"], box, int(face) if face else None, label)


def _list_photos(folder: Path, skipped: list[str]) -> list[Path]:
    try:
        return find_photos([folder])
    except UnreadablePhoto as error:
        skipped.append(str(error))
        return []


def _list_folders(root: Path) -> Iterator[Path]:
    """List the folders in a folder, hidden ones left out."""
    try:
        for path in root.iterdir():
            if os.path.isdir(path) and not path.name.startswith("."):  # noqa: PTH112 - `Path.is_dir` may raise
                yield path
    except OSError as error:
        raise BadDataset(f"{root}: cannot be listed ({error.strerror})") from error
