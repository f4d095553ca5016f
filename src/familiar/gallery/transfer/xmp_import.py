"""Read the names of faces that other programs wrote: XMP sidecars, XMP packets in photos, and Picasa's files."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from familiar.core.errors import BadMetadata, FamiliarError
from familiar.core.files import absolute_path
from familiar.core.terminal_text import printable
from familiar.gallery.database.connection import GalleryDatabase
from familiar.gallery.transfer.import_export import SAME_BOX, ImportResult, assign_labels
from familiar.gallery.transfer.photo_metadata import (
    MetadataFolders,
    PhotoContent,
    StoredPhoto,
    find_unchanged,
    load_photos,
    read_limited,
    read_photo,
)
from familiar.photos.decoding import find_photos
from familiar.photos.metadata.regions import Box, Region, intersection_over_union, upright_box_px
from familiar.photos.metadata.xmp import read_regions

_REMEDY = "its names are left out; repair or remove it"


def import_xmp(gallery: GalleryDatabase, paths: Sequence[Path] = ()) -> ImportResult:
    """Assign faces to identities as the metadata of their photos names them, as one decision.

    Of several files that name one face, the first counts: the sidecar `photo.jpg.xmp`, `photo.xmp`, the photo itself,
    `.picasa.ini`. A region means the face that it overlaps most, by `SAME_BOX` at least.

    Args:
        gallery: to write to.
        paths: photos, and folders of photos; none: all photos of the gallery.

    Returns:
        The counts; skipped are photos that are not in the gallery or have changed since they were enrolled, files that
        cannot be read, and names that match no face or contradict another. Nothing is said of regions without a name.

    Raises:
        UnreadablePhoto: one of `paths` does not exist, or there is no photo in them.
    """
    with gallery.reading() as repository:
        photos = load_photos(repository)
        boxes: dict[int, list[tuple[int, Box]]] = {}
        for photo, face, left, top, right, bottom in repository.faces.boxes():
            boxes.setdefault(photo, []).append((face, (left, top, right, bottom)))
    reader = _Reader()
    label_of: dict[int, str] = {}
    for path in [absolute_path(path) for path in find_photos(paths)] if paths else photos:
        if path not in photos:
            reader.skipped.append(f"{path}: no photo of the gallery")
            continue
        try:
            photo, content = _read_unchanged(path, photos[path])
        except FamiliarError as error:
            reader.skipped.append(str(error))
            continue
        label_of |= reader.labels(path, content, boxes.get(photo, []))
    return assign_labels(gallery, label_of, boxes, reader.skipped)


def _read_unchanged(path: Path, stored: Sequence[StoredPhoto]) -> tuple[int, PhotoContent]:
    return find_unchanged(path, stored).photo, read_photo(path)


@dataclass
class _Reader:
    """Reads the names in the metadata of photos, and lists what it skips."""

    skipped: list[str] = field(default_factory=list[str])
    _folders: MetadataFolders = field(default_factory=MetadataFolders)

    def labels(self, path: Path, content: PhotoContent, faces: Sequence[tuple[int, Box]]) -> dict[int, str]:
        """Return the name of each face of a photo that a file names."""
        label_of: dict[int, str] = {}
        unmatched: dict[str, tuple[int, str]] = {}  # of each name: how many regions have it, and the reason
        for source, regions in self._sources(path, content):
            valid = [region for region in regions if self._is_valid(source, path, region)]
            counts = Counter(region.name for region in valid)
            matches = _match(valid, faces, content)
            for region in valid:
                face = matches.get(region)
                if face is None:
                    reason = f"its region in {source.name} matches no face of the gallery"
                elif (label := label_of.setdefault(face, region.name)) != region.name:
                    reason = f"{source.name} gives it to the face of {label}"
                else:
                    continue
                unmatched[region.name] = counts[region.name], f"{path}: {region.name}: {reason}"
        named = Counter(label_of.values())
        self.skipped += [reason for name, (count, reason) in unmatched.items() if named[name] < count]
        return label_of

    def _is_valid(self, source: Path, path: Path, region: Region) -> bool:
        """Whether a region has a name that an identity may have; if not, and it has any, say so."""
        if not region.name:
            return False
        if region.name.startswith("#") or printable(region.name) != region.name:
            self.skipped.append(
                f"{path}: {region.name!r} in {source.name} is not a valid name; a name is one line of printable "
                "characters that does not begin with #"
            )
            return False
        return True

    def _sources(self, path: Path, content: PhotoContent) -> Iterator[tuple[Path, list[Region]]]:
        """Iterate over the files that may name a photo's faces, and the regions in each."""
        size_px = content.metadata.stored_size_px
        for sidecar in self._folders.sidecars(path):
            try:
                packet = read_limited(sidecar)
            except BadMetadata as error:
                self.skipped.append(str(error))
                continue
            yield sidecar, self._regions(f"{sidecar}: ", packet, size_px)
        try:
            packet = content.packet
            if packet is not None:
                yield path, self._regions(f"{path}: its XMP packet ", packet, size_px)
                if (extended := content.extended_packet) is not None:
                    yield path, self._regions(f"{path}: its extended XMP packet ", extended, size_px)
        except BadMetadata as error:
            self._skip(f"{path}: ", error)
        try:
            picasa = self._folders.picasa_regions(path)
        except BadMetadata as error:
            self.skipped.append(str(error))
            return
        if picasa is not None:
            file, regions = picasa
            if any(not region.name for region in regions):
                self.skipped.append(f"{path}: {file.name} names a face by a contact whose name it does not have")
            yield file, regions

    def _regions(self, description: str, packet: bytes, size_px: tuple[int, int]) -> list[Region]:
        try:
            return read_regions(packet, size_px)
        except BadMetadata as error:
            self._skip(description, error)
            return []

    def _skip(self, description: str, error: BadMetadata) -> None:
        message = f"{description}{error}; {_REMEDY}"
        if message not in self.skipped:
            self.skipped.append(message)


def _match(regions: Sequence[Region], faces: Sequence[tuple[int, Box]], content: PhotoContent) -> dict[Region, int]:
    """Match regions to faces by their boxes, the best overlap first; a second region of a face must have its name."""
    metadata = content.metadata
    pairs = [
        (overlap, face, index)
        for index, region in enumerate(regions)
        for face, box in faces
        if (
            overlap := intersection_over_union(
                upright_box_px(region.box, metadata.stored_size_px, metadata.orientation), box
            )
        )
        >= SAME_BOX
    ]
    name_of: dict[int, str] = {}
    matches: dict[Region, int] = {}
    for _, face, index in sorted(pairs, key=lambda pair: (-pair[0], pair[2])):
        region = regions[index]
        if region not in matches and name_of.setdefault(face, region.name) == region.name:
            matches[region] = face
    return matches
