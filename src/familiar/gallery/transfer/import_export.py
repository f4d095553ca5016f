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

from familiar.core.errors import BadDataset, CannotWrite, Contradiction
from familiar.core.file_names import safe_file_name, unused_name
from familiar.core.files import absolute_path, content_sha256, fsync_directory, fsync_tree, write_atomically
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
        skipped: each row or photo that matches no face of the gallery, and why.
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
    """

    photos: int
    identities: int
    missing: tuple[str, ...]


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
    """Assign faces to identities as a CSV table says, as one decision.

    Args:
        gallery: to write to.
        path: of a table with the columns `path` and `name` at least, as `export_csv` writes it. A row for a photo of
            several faces needs a box in the photo's pixels, or the number of a face. Rows without a name that have the
            same number in the column `identity` are one identity without a name; a row with neither is ignored.

    Raises:
        BadDataset: a row is malformed, or assigns a face that an earlier one assigns to another identity; nothing is
            imported.
        Contradiction: the table contradicts what the gallery contains; nothing is imported.
    """
    rows = list(_read_table(path))
    with gallery.exclusive():  # faces and names that the rows mean must not change before they are assigned
        return _import_rows(gallery, path, rows)


def _import_rows(gallery: GalleryDatabase, path: Path, rows: Sequence[_TableRow]) -> ImportResult:
    photos = _PhotoLookup.load(gallery)
    row_of_face: dict[int, _TableRow] = {}
    skipped: list[str] = []
    for row in rows:
        photo = photos.at_path(row.path)
        face = None if photo is None else photos.matching_face(photo, row)
        if photo is None or face is None:
            reason = "no photo of the gallery" if photo is None else "the photo shows no such face, or more than one"
            skipped.append(f"{path}, line {row.line}: {row.path}: {reason}")
            continue
        if not row.label:
            continue
        first_of_face = row_of_face.setdefault(face, row)
        if first_of_face.label != row.label:
            raise BadDataset(
                f"{path}, line {row.line}: {row.path}: is labeled {row.label} here, and {first_of_face.label} in line "
                f"{first_of_face.line}"
            )
    return assign_labels(gallery, {face: row.label for face, row in row_of_face.items()}, photos.faces, skipped)


def import_folders(gallery: GalleryDatabase, root: Path) -> ImportResult:
    """Assign faces to identities as folders ROOT/IDENTITY/PHOTO say, as one decision.

    Photos are identified by their content, or else by their path; one that does not show exactly one face is skipped.
    A folder called #12 or the like is an identity without a name.

    Raises:
        BadDataset: there are no such folders, one has no usable name, or one photo is in two; nothing is imported.
        Contradiction: the folders contradict what the gallery contains; nothing is imported.
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
            raise BadDataset(
                f"{printable(str(folder))}: the folder's name is not one line of printable characters; rename it"
            )
        for path in find_photos([folder]) if any(folder.iterdir()) else []:
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
                raise BadDataset(f"{path}: is the same photo as {first_path}; remove it from one of the two folders")
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
    folder_names: set[str] = set()
    folders: dict[int, tuple[Path, set[str]]] = {}  # of each identity: its folder, and the names used in it
    try:
        if folder.exists() and any(folder.iterdir()):
            raise CannotWrite(f"{folder}: is not empty; name another folder, or remove it")
        folder.mkdir(parents=True, exist_ok=True)
        for number, name, path in rows:
            source = Path(path)
            if not source.is_file():
                missing.append(path)
                continue
            if number not in folders:
                folders[number] = folder / unused_name(safe_file_name(name), "", folder_names), set()
                folders[number][0].mkdir()
            identity_folder, file_names = folders[number]
            target = identity_folder / unused_name(source.stem, source.suffix, file_names)
            if mode == "link":
                target.symlink_to(source)
            else:
                shutil.copy2(source, target)
        fsync_tree(folder)
        fsync_directory(folder.absolute().parent)
    except OSError as error:
        raise CannotWrite(f"{error.filename2 or error.filename}: {error.strerror}") from error
    return ExportResult(len(rows) - len(missing), len(folders), tuple(missing))


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


def _read_table(path: Path) -> Iterator[_TableRow]:
    """Read the rows of a table. BadDataset names the first malformed line."""
    try:
        text = path.read_bytes().decode("utf-8-sig", "surrogateescape")
    except OSError as error:
        raise BadDataset(f"{path}: cannot be read ({error.strerror})") from error
    reader = csv.DictReader(io.StringIO(text, newline=""), strict=True)
    try:
        if not {"path", "name"} <= set(reader.fieldnames or ()):
            raise BadDataset(
                f'{path}, line 1: the header must contain the columns "path" and "name", separated by commas'
            )
        for cells in reader:
            if None in cells or None in cells.values():
                raise ValueError("has more or fewer cells than the first line")
            yield _parse_row(reader.line_num, cells)
    except (csv.Error, ValueError) as error:
        line = reader.line_num + isinstance(error, csv.Error)  # line_num is of the last row that could be read
        raise BadDataset(f"{path}, line {line}: {error}; nothing was imported") from error


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


def _list_folders(root: Path) -> Iterator[Path]:
    """List the folders in a folder, hidden ones left out."""
    try:
        for path in root.iterdir():
            if path.is_dir() and not path.name.startswith("."):
                yield path
    except OSError as error:
        raise BadDataset(f"{root}: cannot be listed ({error.strerror})") from error
