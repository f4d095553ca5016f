"""Export and import identity labels, as a CSV table or as one folder of photos per identity."""

import contextlib
import csv
import io
import logging
import math
import os
import re
import shutil
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, groupby, takewhile
from pathlib import Path

from familiar.core.csv_rows import read_rows
from familiar.core.errors import BadDataset, CannotWrite, Contradiction, FamiliarError, NotInGallery, UnreadablePhoto
from familiar.core.file_names import name_before_upload, safe_file_name, unused_name
from familiar.core.files import DISK_FAILURES, fsync_directory, fsync_tree, write_atomically
from familiar.core.gallery_types import GalleryFace
from familiar.core.names import normalize_name, unify_spelling
from familiar.core.plural import plural
from familiar.core.terminal_text import printable
from familiar.core.types import Box
from familiar.gallery.edits.corrections import Individual, assign
from familiar.gallery.store.photo_paths import CHANGED, file_sha256, photos_at_path, require_sha256
from familiar.gallery.store.store import Store
from familiar.photos.listing import EXCLUDED, Exclusion, describe_counts, find_photos, folder_kind

log = logging.getLogger(__name__)

BOX = ("left_px", "top_px", "right_px", "bottom_px")
COLUMNS = ("path", *BOX, "face", "identity", "name", "species", "by_user", "sha256")
_MISSING = "missing"
SAME_BOX = 0.3  # least intersection over union at which a box of a table or file means a face


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
    sha256: bytes | None


def export_csv(store: Store, path: Path, identity: int | None = None) -> int:
    """Write a CSV table with the columns `COLUMNS`: a header, then one row per face, of one identity or of all.

    The number, name and `by_user` of a face without an identity are empty. `sha256` is of the photo's content as it was
    enrolled, whatever its file has become; it is empty for an embedding that was enrolled without a photo.

    Returns:
        The number of faces.

    Raises:
        CannotWrite: the file cannot be written.
    """
    with store.read() as repository:
        rows = repository.faces.rows() if identity is None else repository.faces.rows_of_identity(identity)
        faces = sorted(rows, key=lambda row: (os.fsencode(row.path), row.face))
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow(COLUMNS)
    for row in faces:
        by_user = None if row.identity is None else int(row.by_user)
        sha256 = row.sha256.hex() if row.size_bytes else None
        writer.writerow((row.path, *row.box_xyxy_px, row.face, row.identity, row.name, row.species, by_user, sha256))
    write_atomically(path, os.fsencode(text.getvalue()))
    return len(faces)


def import_csv(store: Store, path: Path) -> ImportResult:
    """Assign faces to identities as a CSV table says, as one decision. Rows that cannot be applied are skipped.

    Of two rows that contradict each other the first counts.

    Args:
        store: to write to.
        path: of a table with the columns `path` and `name` at least, as `export_csv` writes it. A row means the photo
            with the content `sha256`, or if that is empty, the one at its path. A row for a photo of several faces
            needs a box in the photo's pixels, or the number of a face. Rows without a name that have the same number in
            the column `identity` are one identity without a name; a row with neither is ignored.

    Raises:
        BadDataset: the file cannot be read, or lacks a column; nothing is imported.
    """
    skipped: list[str] = []
    rows = _read_table(path, skipped)
    contents = {row.path: _read_content(row.path) for row in rows if row.sha256 is None}
    store.make_automatic_copy("before-import")
    with store.write():  # faces and names that the rows mean must not change before they are assigned
        photos = _PhotoLookup.load(store)
        row_of_face: dict[int, _TableRow] = {}
        for row in rows:
            try:
                face = photos.find_face(row, contents.get(row.path))
                if row.label and (first := row_of_face.setdefault(face, row)).label != row.label:
                    raise Contradiction(
                        f"is labeled {row.label} here, and {first.label} in line {first.line}, which counts; remove "
                        "the wrong one"
                    )
            except FamiliarError as error:
                reason = str(error).removeprefix(f"{row.path}: ")
                skipped.append(f"{path}, line {row.line}: {row.path}: {reason}")
        label_of = {face: row.label for face, row in row_of_face.items()}
        return assign_labels(store, label_of, chain(*photos.faces.values()), skipped)


def _read_content(path: str) -> bytes | UnreadablePhoto | None:
    """Hash a file; None if there is none."""
    try:
        return file_sha256(Path(path))
    except UnreadablePhoto as error:
        return error


def import_folders(store: Store, root: Path, exclude: Sequence[str] = ()) -> ImportResult:
    """Assign faces to identities as folders ROOT/IDENTITY/PHOTO say, as one decision.

    A folder called as `export_folders` calls that of a species, such as cats, has the folders of identities in it.
    Photos are identified by their content; one that does not show exactly one face is skipped. A folder called #12 or
    the like is an identity without a name. One called as `export_folders` calls that of a name which no file system
    accepts, such as AC_DC for AC/DC, is that identity's. Of two folders with the same photo the first counts. Folders
    of systems and hidden ones are no identities; how many photos are passed over is logged.

    Args:
        store: to write to.
        root: of the folders.
        exclude: patterns of files and folders to leave out, as for `find_photos`.

    Raises:
        BadDataset: there are no such folders; nothing is imported.
    """
    photos = _PhotoLookup.load(store)
    with store.read() as repository:
        species_folders = {str(_species_folder(species)) for species in repository.identities.species().values()}
    exclusion, passed_over = Exclusion(exclude), Counter[str]()
    folders = [each for folder in _list_folders(root) for each in _identity_folders(folder, species_folders)]
    if not folders:
        raise BadDataset(f"{root}: contains no folders; expected {root}/IDENTITY/PHOTO.jpg")
    store.make_automatic_copy("before-import")
    label_of_folder = _label_of_folder(store)
    label_and_path: dict[int, tuple[str, Path]] = {}  # of each face
    skipped: list[str] = []
    for folder in folders:
        try:
            label, listed = normalize_name(folder.name), find_photos([folder], passed_over=passed_over)
        except ValueError as error:
            skipped.append(f"{printable(str(folder))}: {error}; rename the folder")
            continue
        except UnreadablePhoto as error:
            skipped.append(str(error))
            continue
        label = label_of_folder.get(label, label)
        paths = [path for path in listed if not _is_excluded(path, root, exclusion)]
        passed_over[EXCLUDED] += len(listed) - len(paths)
        for path in paths:
            try:
                faces = photos.faces_with_content_of(path)
                if len(faces) != 1:
                    raise NotInGallery(f"{path}: shows {len(faces)} faces")
                first_label, first_path = label_and_path.setdefault(faces[0].face, (label, path))
                if first_label != label:
                    remedy = "remove it from one of the two folders"
                    raise Contradiction(f"{path}: is the same photo as {first_path}, which counts; {remedy}")
            except FamiliarError as error:
                skipped.append(str(error))
    if +passed_over:
        log.warning("%s: passed over %s", printable(str(root)), describe_counts(passed_over))
    label_of = {face: label for face, (label, _) in label_and_path.items()}
    return assign_labels(store, label_of, chain(*photos.faces.values()), skipped)


def export_folders(store: Store, folder: Path, *, link: bool = False, identity: int | None = None) -> ExportResult:
    """Create FOLDER/NAME/PHOTO for every face with an identity, unless the file has other content than was enrolled.

    Of several species it is FOLDER/cats/NAME/PHOTO and so on; of a single identity, FOLDER/PHOTO.

    Args:
        store: to read.
        folder: must be empty or missing. An identity without a name gets a folder called #12 or the like.
        link: make symbolic links to the photos where they lie, in place of copies.
        identity: export the photos of this one; None: of all.

    Raises:
        CannotWrite: the folder is not empty, or a file cannot be written.
    """
    with store.read() as repository:
        rows = repository.assignments.photos_by_identity()
        species = repository.identities.species()
    folder_of = {number: Path(folder_name) for number, folder_name in _folder_names(rows).items()}
    if identity is not None:
        rows, folder_of = [row for row in rows if row[0] == identity], {identity: Path()}
    elif len(set(species.values())) > 1:
        folder_of = {number: _species_folder(species[number]) / name for number, name in folder_of.items()}
    file_names: defaultdict[int, set[str]] = defaultdict(set)  # of each identity with a folder
    try:
        if folder.exists() and any(folder.iterdir()):
            raise CannotWrite(f"{folder}: is not empty; name another folder, or remove it")
        folder.mkdir(parents=True, exist_ok=True)
        contents = {path: sha256 for _, _, path, sha256 in rows}
        left_out = {path: _reason_to_leave_out(Path(path), sha256) for path, sha256 in contents.items()}
        for number, _, path, _ in rows:
            if left_out[path] is not None:
                continue
            source = Path(path)
            identity_folder = folder / folder_of[number]
            identity_folder.mkdir(parents=True, exist_ok=True)
            stem = Path(name_before_upload(source)).stem
            target = identity_folder / unused_name(stem, source.suffix, file_names[number])
            try:
                target.symlink_to(source) if link else shutil.copy2(source, target)
            except OSError as error:
                if error.errno in DISK_FAILURES:
                    raise
                target.unlink(missing_ok=True)
                left_out[path] = f"cannot be {'linked' if link else 'copied'} ({error.strerror})"
        fsync_tree(folder)
        fsync_directory(folder.absolute().parent)
    except OSError as error:
        raise CannotWrite(f"{error.filename2 or error.filename}: {error.strerror}") from error
    missing = tuple(path for path, reason in left_out.items() if reason == _MISSING)
    skipped = tuple(f"{path}: {reason}" for path, reason in left_out.items() if reason not in (None, _MISSING))
    exported = sum(left_out[path] is None for _, _, path, _ in rows)
    return ExportResult(exported, len(file_names), missing, skipped)


def _reason_to_leave_out(path: Path, sha256: bytes | None) -> str | None:
    """Say why a photo's file cannot be exported; None: it has the content that was enrolled."""
    try:
        content = None if sha256 is None else file_sha256(path)
    except UnreadablePhoto as error:
        return str(error).removeprefix(f"{path}: ")
    if content is None:
        return _MISSING
    return None if content == sha256 else CHANGED


def _folder_names(rows: Sequence[tuple[int, str, str, bytes | None]]) -> dict[int, str]:
    """Return the name of the folder of each identity of `photos_by_identity`."""
    used_names: set[str] = set()
    labels = {number: label for number, label, *_ in rows}
    return {number: unused_name(safe_file_name(label), "", used_names) for number, label in labels.items()}


def _species_folder(species: str | None) -> Path:
    """Return the folder of the identities of a species.

    >>> _species_folder("cat"), _species_folder(None)
    (PosixPath('cats'), PosixPath('others'))
    """
    return Path(safe_file_name(plural(species or "other")))


def _label_of_folder(store: Store) -> dict[str, str]:
    """Return the label of each folder that an export gives another name than its label."""
    with store.read() as repository:
        rows = repository.assignments.photos_by_identity()
        names = set(repository.identities.names().values())
    folder_names, labels = _folder_names(rows), {number: label for number, label, *_ in rows}
    by_folder = {unify_spelling(folder): labels[number] for number, folder in folder_names.items()}
    return {folder: label for folder, label in by_folder.items() if folder not in names}


def assign_labels(
    store: Store,
    label_of: Mapping[int, str],
    faces: Iterable[GalleryFace],
    skipped: list[str],
) -> ImportResult:
    """Assign faces, given by number, to the identities of their labels, as one decision.

    Args:
        store: to write to.
        label_of: the name of each face's identity; faces with the same label #12 are one identity without a name.
        faces: the labeled ones, among others, as they were when the labels were read.
        skipped: for the result.

    Raises:
        Contradiction: another program has changed or deleted a labeled face since, or the labels contradict what the
            gallery contains; nothing is assigned.
    """
    faces_of: defaultdict[str, list[int]] = defaultdict(list)
    for face, label in label_of.items():
        faces_of[label].append(face)
    individuals = [
        Individual(None if label.startswith("#") else label, tuple(numbers)) for label, numbers in faces_of.items()
    ]
    seen = {face.face: face for face in faces}
    with store.write() as repository:
        now = {face.face: (face.photo, face.box_xyxy_px) for face in repository.faces.rows(label_of)}
        for face in label_of:  # reading the files may have taken minutes
            if now.get(face) != (seen[face].photo, seen[face].box_xyxy_px):
                raise Contradiction(
                    f"{store.folder}: another program changed or deleted face {face} during the import; nothing was "
                    "imported; import again"
                )
        propagated_faces = assign(store, individuals)
    return ImportResult(len(label_of), len(faces_of), propagated_faces, tuple(skipped))


@dataclass(frozen=True, eq=False)
class _PhotoLookup:
    """The numbers of a gallery's photos by content, and the faces of each."""

    store: Store
    by_content: Mapping[bytes, int]
    faces: Mapping[int, list[GalleryFace]]

    @staticmethod
    def load(store: Store) -> "_PhotoLookup":
        with store.read() as repository:
            photos = {row.sha256: row.photo for row in repository.photos.rows()}
            faces = groupby(repository.faces.rows(), key=lambda row: row.photo)
            return _PhotoLookup(store, photos, {photo: list(in_photo) for photo, in_photo in faces})

    def faces_with_content_of(self, path: Path) -> list[GalleryFace]:
        """Return the faces of the photo with a file's content, or of what was enrolled under its path as embeddings."""
        content = require_sha256(path)  # of a folder that cannot be listed too, which says why
        photo = self.by_content.get(content)
        return self._faces_at_path(str(path), content) if photo is None else self.faces.get(photo, [])

    def find_face(self, row: _TableRow, content: bytes | UnreadablePhoto | None) -> int:
        """Return the face that a row means, given the hash of the file at its path.

        Raises:
            FamiliarError: there is none, or it is not certain which.
        """
        if row.sha256 is None:
            if isinstance(content, UnreadablePhoto):
                raise content
            faces = self._faces_at_path(row.path, content)
        elif (photo := self.by_content.get(row.sha256)) is not None:
            faces = self.faces.get(photo, [])
        else:
            raise NotInGallery("no photo of the gallery has the content sha256; empty that cell to go by the path")
        match = _matching_face(faces, row)
        if match is None:
            raise NotInGallery("the photo shows no such face, or more than one")
        return match

    def _faces_at_path(self, path: str, content: bytes | None) -> list[GalleryFace]:
        photos = photos_at_path(self.store, path, content)
        if not photos:
            raise NotInGallery(f"{path}: no photo of the gallery")
        return [face for photo in photos for face in self.faces.get(photo, [])]


def _matching_face(faces: Sequence[GalleryFace], row: _TableRow) -> int | None:
    """Return the number of the face that a row means: by its box, as the only one, or by its number."""
    if row.box is not None:
        overlaps = ((row.box.intersection_over_union(face.box_xyxy_px), face.face) for face in faces)
        overlap, face = max(overlaps, default=(0.0, 0))
        return face if overlap >= SAME_BOX else None
    if len(faces) == 1:
        return faces[0].face
    return next((face.face for face in faces if face.face == row.face), None)


def _read_table(path: Path, skipped: list[str]) -> list[_TableRow]:
    """Read the rows of a table, and describe the malformed ones. BadDataset if it is no such table."""
    try:
        text = path.read_bytes().decode("utf-8-sig", "surrogateescape")
    except OSError as error:
        raise BadDataset(f"{path}: cannot be read ({error.strerror})") from error
    reader = csv.DictReader(io.StringIO(text, newline=""), strict=True)
    columns: Sequence[str] = ()
    with contextlib.suppress(csv.Error):
        columns = reader.fieldnames or ()
    if not {"path", "name"} <= set(columns):
        raise BadDataset(f'{path}, line 1: the header must contain the columns "path" and "name", separated by commas')
    rows: list[_TableRow] = []
    for line, cells in read_rows(reader):
        try:
            if isinstance(cells, ValueError):
                raise cells
            rows.append(_parse_row(line, cells))
        except ValueError as error:
            skipped.append(f"{path}, line {line}: {error}")
    return rows


def _parse_row(line: int, cells: Mapping[str, str]) -> _TableRow:
    """Parse the cells of a row. ValueError if one is not what its column needs."""
    sides = [cells.get(side, "").strip() for side in BOX]
    box = None
    if any(sides):
        box = Box(*map(float, sides))
        if not all(map(math.isfinite, box)):
            raise ValueError("a side of the box is not a finite number")
        # An embedding that was computed elsewhere has a box of no size.
        box = None if box.is_empty else box
    face, number = (cells.get(column, "").strip() for column in ("face", "identity"))
    name = unify_spelling(cells["name"])
    if not cells["path"]:
        raise ValueError("the path is empty")
    label = normalize_name(name) if name else (f"#{int(number)}" if number else "")
    sha256 = cells.get("sha256", "").strip()
    if sha256 and not re.fullmatch("[0-9a-fA-F]{64}", sha256):
        raise ValueError(f"the sha256 {sha256!r} is not 64 hexadecimal digits")
    return _TableRow(
        line, cells["path"], box, int(face) if face else None, label, bytes.fromhex(sha256) if sha256 else None
    )


def _is_excluded(path: Path, root: Path, exclusion: Exclusion) -> bool:
    """Tell whether a file or one of the folders between it and the root is left out."""
    below_root = takewhile(lambda each: each != root, (path, *path.parents))
    return any(exclusion.matches(str(each), str(root)) for each in below_root)


def _identity_folders(folder: Path, species_folders: set[str]) -> list[Path]:
    """Return the folders of a species' folder, else the folder itself."""
    return (_list_folders(folder) if folder.name in species_folders else []) or [folder]


def _list_folders(root: Path) -> list[Path]:
    """List the folders in a folder, sorted, without hidden ones and those of systems."""
    try:
        paths = sorted(path for path in root.iterdir() if folder_kind(str(path)) is None)
    except OSError as error:
        raise BadDataset(f"{root}: cannot be listed ({error.strerror})") from error
    return [path for path in paths if os.path.isdir(path)]  # noqa: PTH112 - `Path.is_dir` may raise
