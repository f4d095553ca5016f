"""Write the names of a gallery's faces into XMP sidecars, or into the JPEGs themselves."""

import contextlib
import hashlib
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from familiar import CannotWrite, FamiliarError, Gallery
from familiar.core.errors import BadMetadata, Contradiction
from familiar.core.files import (
    content_sha256,
    fsync_directory,
    real_path,
    remove_unfinished_files,
    require_regular_file,
    write_atomically,
)
from familiar.gallery import GalleryFace, PhotoRow
from familiar.integrations.xmp.content import PhotoContent, load_faces, load_photos, read_photo
from familiar.integrations.xmp.jpeg import is_jpeg, replace_packet
from familiar.integrations.xmp.packet import add_names, has_added_names, has_names
from familiar.integrations.xmp.regions import Region, stored_box
from familiar.integrations.xmp.sidecars import SUFFIX, MetadataFolders, read_limited

_PEOPLE = (None, "person")  # species whose faces are of the type "Face"; those of animals are of the type "Pet"
_HEAD_BYTES = 2**18  # of a JPEG that shows nobody known, in which a packet that was written earlier is looked for
_STALE_SECONDS = 3600.0  # writing one file takes less; an older unfinished one was left by a killed process
_LEFT = "the file is left as it is"


@dataclass(frozen=True)
class XmpExportResult:
    """The outcome of an export to photos' metadata.

    Attributes:
        faces: the number of faces whose names were written, or were there already.
        photos: the number of photos with such faces.
        sidecars: the number of sidecars that were written.
        jpegs: the number of JPEGs that were changed.
        removed: the number of sidecars that contained nothing else, and were removed with the last name.
        not_in_place: each JPEG that could not be changed and got a sidecar instead, and why.
        skipped: each photo or sidecar that could not be read or written, and why.
    """

    faces: int
    photos: int
    sidecars: int
    jpegs: int
    removed: int
    not_in_place: tuple[str, ...]
    skipped: tuple[str, ...]


def export_xmp(gallery: Gallery, *, in_place: bool = False) -> XmpExportResult:
    """Write the faces of named identities into the metadata of their photos, and take back names that have gone.

    Repeating it makes the files follow the gallery: also after `undo`. Data of other programs stay.

    Args:
        gallery: to read. With `in_place`, the content of each changed photo is recorded, so that it stays known.
        in_place: change the XMP packets in JPEGs. Other formats always get sidecars.
    """
    with gallery.read():
        photos, faces = load_photos(gallery), load_faces(gallery)
    export = _Export(gallery, faces, in_place)
    for path, stored in photos.items():
        try:
            export.write_photo(path, stored)
        except FamiliarError as error:
            export.skipped.append(str(error))
        except OSError as error:
            export.skipped.append(f"{error.filename or path}: {error.strerror}")
    return XmpExportResult(**export.counts, not_in_place=tuple(export.not_in_place), skipped=tuple(export.skipped))


@dataclass
class _Export:
    """An export and its result so far."""

    gallery: Gallery
    faces: Mapping[int, Sequence[GalleryFace]]
    in_place: bool
    skipped: list[str] = field(default_factory=list[str])
    not_in_place: list[str] = field(default_factory=list[str])
    counts: Counter[str] = field(default_factory=lambda: Counter(faces=0, photos=0, sidecars=0, jpegs=0, removed=0))
    _folders: MetadataFolders = field(default_factory=MetadataFolders)
    _cleaned: set[Path] = field(default_factory=set[Path])

    def write_photo(self, path: Path, stored: Sequence[PhotoRow]) -> None:
        candidates = self._folders.sidecars(path)
        sidecars = [sidecar.path for sidecar in candidates if sidecar.owner == "photo"]
        if any(face.name for photo in stored for face in self.faces.get(photo.photo, ())):
            photo, content = read_photo(path, stored)
            regions = _regions(self.faces.get(photo.photo, ()), content)
            if self.in_place and is_jpeg(content.data) and self._write_in_place(photo, content, regions):
                # A sidecar with names of an earlier export would contradict the photo.
                self._write_sidecars(sidecars, regions, content)
            else:
                self._write_sidecars(sidecars or [path.with_name(path.name + SUFFIX)], regions, content, create=True)
            self.counts.update(photos=bool(regions), faces=len(regions))
        else:  # it shows nobody known by now: remove the names that earlier exports wrote
            self._write_sidecars(sidecars, [], None)
            if self.in_place and _may_have_names(path):
                self._write_in_place(*read_photo(path, stored), [])
        for sidecar in candidates:
            if sidecar.owner in ("raw", "unclear"):  # perhaps only since an earlier export wrote names to it
                with contextlib.suppress(BadMetadata):
                    self._write_sidecars([sidecar.path], [], None)

    def _write_sidecars(
        self, sidecars: Sequence[Path], regions: Sequence[Region], content: PhotoContent | None, create: bool = False
    ) -> None:
        """Write the names to the first sidecar; in others, take back those that are there.

        Args:
            sidecars: of the photo.
            regions: the faces with names.
            content: of the photo, if there are regions.
            create: also write to a sidecar without names of an earlier export, or to a new one.
        """
        size_px, base = (1, 1), None
        if content is not None:
            size_px = content.metadata.stored_size_px
            with contextlib.suppress(BadMetadata):  # a packet that cannot be read
                base = next(iter(content.packets), None)
        for sidecar in sidecars:
            try:
                packet = read_limited(sidecar) if sidecar.exists() else None
                is_written = create or (packet is not None and has_added_names(packet))
                changed = add_names(packet, regions, size_px, base) if is_written else packet
            except BadMetadata as error:
                raise BadMetadata(f"{sidecar}: {error}; {_LEFT}; repair or remove it") from error
            if changed is not packet:
                self._write_sidecar(sidecar, changed)
            regions, base = list[Region](), None

    def _write_sidecar(self, sidecar: Path, packet: bytes | None) -> None:
        file = real_path(sidecar)  # a link stays one
        self._prepare(file)
        if packet is not None:
            write_atomically(file, packet, keep_attributes=True)
            self.counts["sidecars"] += 1
            return
        file.unlink()
        fsync_directory(file.parent)
        self.counts["removed"] += 1

    def _write_in_place(self, photo: PhotoRow, content: PhotoContent, regions: Sequence[Region]) -> bool:
        """Change the packet in a JPEG; False if that is not possible, and a sidecar is needed."""
        try:
            packet = next(iter(content.packets), None)
            changed = add_names(packet, regions, content.metadata.stored_size_px)
        except BadMetadata as error:
            raise BadMetadata(
                f"{photo.path}: its XMP packet {error}; {_LEFT}; repair it, for instance by saving the photo again in "
                "the program that wrote it"
            ) from error
        if changed is packet:
            return True
        try:
            if any(map(has_names, content.packets[1:])):
                raise BadMetadata("has regions or keywords in an extended XMP packet, which is not changed")
            data = replace_packet(content.data, changed)
        except BadMetadata as error:
            self.not_in_place.append(f"{photo.path}: {error}")
            return False
        self._replace_photo(photo, data)
        return True

    def _replace_photo(self, photo: PhotoRow, data: bytes) -> None:
        """Replace a photo's file, and record its new content in the gallery.

        If the process is killed in between, the next `enroll` finds an edited photo with the same faces.
        """
        file = real_path(photo.path)  # a link stays one
        self._prepare(file)

        def replace() -> Path:
            if content_sha256(file) != photo.sha256:
                raise CannotWrite(f"{photo.path}: was changed meanwhile by another program; {_LEFT}; try again")
            write_atomically(file, data, keep_attributes=True)
            return file

        try:
            self.gallery.replace_photo_content(photo.photo, hashlib.sha256(data).digest(), replace)
        except Contradiction as error:
            raise CannotWrite(
                f"{photo.path}: would become equal to another photo of the gallery; {_LEFT}; remove one of the two"
            ) from error
        self.counts["jpegs"] += 1

    def _prepare(self, file: Path) -> None:
        """Refuse to replace a protected file, which renaming another one would do; remove unfinished files once."""
        if file.exists() and not os.access(file, os.W_OK):
            raise CannotWrite(f"{file}: is write-protected; allow writing to it, or export without it")
        if file.parent not in self._cleaned:
            self._cleaned.add(file.parent)
            remove_unfinished_files(file.parent, _STALE_SECONDS)


def _regions(faces: Sequence[GalleryFace], content: PhotoContent) -> list[Region]:
    """Convert faces with names to regions of the stored photo; one without any part in the photo is left out."""
    size_px, orientation = content.metadata.stored_size_px, content.metadata.orientation
    return [
        Region(box, face.name, "Face" if face.species in _PEOPLE else "Pet")
        for face in faces
        if face.name is not None and (box := stored_box(face.box_xyxy_px, size_px, orientation)) is not None
    ]


def _may_have_names(path: Path) -> bool:
    """Whether a JPEG contains names of an earlier export, by its first bytes."""
    with contextlib.suppress(OSError):  # a photo that shows nobody known needs not be read
        require_regular_file(path)
        with path.open("rb") as file:
            head = file.read(_HEAD_BYTES)
        return is_jpeg(head) and has_added_names(head)
    return False
