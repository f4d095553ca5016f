"""Read the names of faces that other programs wrote: XMP sidecars, XMP packets in photos, and Picasa's files."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from familiar.core.errors import BadMetadata, Contradiction, FamiliarError
from familiar.core.files import absolute_path
from familiar.core.names import unify_spelling
from familiar.gallery.editing.corrections import check_name
from familiar.gallery.store.store import Store
from familiar.gallery.transfer.import_export import SAME_BOX, ImportResult, assign_labels
from familiar.gallery.transfer.photo_metadata import (
    PhotoContent,
    load_photos,
    read_photo,
)
from familiar.gallery.transfer.sidecars import MetadataFolders, Sidecar, read_limited
from familiar.photos.decoding import find_photos
from familiar.photos.metadata.regions import Box, Region, intersection_over_union, upright_box_px
from familiar.photos.metadata.xmp import has_named_regions, read_raw_regions, read_regions

_REMEDY = "its names are left out; repair or remove it"


def import_xmp(gallery: Store, paths: Sequence[Path] = ()) -> ImportResult:
    """Assign faces to identities as the metadata of their photos names them, as one decision.

    Of several files that name one face, the first counts: the sidecar `photo.jpg.xmp`, `photo.xmp`, the photo itself,
    `.picasa.ini`. The sidecar of a raw file of the same name counts if its regions are for a photo of the same
    proportions. A region means the face that it overlaps most, by `SAME_BOX` at least.

    Args:
        gallery: to write to.
        paths: photos, and folders of photos; none: all photos of the gallery.

    Returns:
        The counts; skipped are photos that are not in the gallery or have changed since they were enrolled, files that
        cannot be read, sidecars with names that may be another photo's, and names that match no face or contradict
        another. Nothing is said of regions without a name.

    Raises:
        UnreadablePhoto: one of `paths` does not exist, or there is no photo in them.
    """
    with gallery.read() as repository:
        photos = load_photos(repository)
        boxes: dict[int, list[tuple[int, Box]]] = {}
        for row in repository.faces.rows():
            boxes.setdefault(row.photo, []).append((row.face, row.box_xyxy_px))
    gallery.make_automatic_copy("before-import")
    reader = _Reader()
    label_of: dict[int, str] = {}
    for path in [absolute_path(path) for path in find_photos(paths)] if paths else photos:
        if path not in photos:
            reader.skipped.append(f"{path}: no photo of the gallery")
            continue
        try:
            photo, content = read_photo(path, photos[path])
        except FamiliarError as error:
            reader.skipped.append(str(error))
            continue
        label_of |= reader.labels(path, content, boxes.get(photo.photo, []))
    reader.skip_unused()
    return assign_labels(gallery, label_of, boxes, reader.skipped)


@dataclass
class _Reader:
    """Reads the names in the metadata of photos, and lists what it skips."""

    skipped: list[str] = field(default_factory=list[str])
    _folders: MetadataFolders = field(default_factory=MetadataFolders)
    _used: set[Path] = field(default_factory=set[Path])
    _unused: dict[Path, str] = field(default_factory=dict[Path, str])

    def labels(self, path: Path, content: PhotoContent, faces: Sequence[tuple[int, Box]]) -> dict[int, str]:
        """Return the name of each face of a photo that a file names."""
        label_of: dict[int, str] = {}
        unmatched: dict[str, tuple[int, str]] = {}  # of each name: how many regions have it, and the reason
        for source, regions in self._sources(path, content):
            valid = [named for region in regions if (named := self._with_valid_name(source, path, region))]
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

    def _with_valid_name(self, source: Path, path: Path, region: Region) -> Region | None:
        """Return a region with its name as it is stored; None if it has none that an identity may have.

        Of a name that is not valid, say so.
        """
        if not unify_spelling(region.name):
            return None
        try:
            return replace(region, name=check_name(region.name))
        except Contradiction as error:
            self.skipped.append(f"{path}: {source.name}: {error}")
            return None

    def _sources(self, path: Path, content: PhotoContent) -> Iterator[tuple[Path, list[Region]]]:
        """Iterate over the files that may name a photo's faces, and the regions in each."""
        size_px = content.metadata.stored_size_px
        try:
            sidecars, picasa_files = self._folders.sidecars(path), self._folders.picasa_files(path)
        except BadMetadata as error:
            sidecars, picasa_files = [], []
            self._skip(str(error))
        for sidecar in sidecars:
            if sidecar.owner in ("photo", "raw"):
                yield sidecar.path, self._sidecar_regions(sidecar, content)
            else:
                self._unused[sidecar.path] = sidecar.reason
        try:
            packet = content.packet
            if packet is not None:
                yield path, self._regions(f"{path}: its XMP packet ", packet, size_px)
                if (extended := content.extended_packet) is not None:
                    yield path, self._regions(f"{path}: its extended XMP packet ", extended, size_px)
        except BadMetadata as error:
            self._skip(f"{path}: {error}; {_REMEDY}")
        for file in picasa_files:
            try:
                regions = self._folders.picasa_regions(file, path.name)
            except BadMetadata as error:
                self._skip(str(error))
                continue
            if any(not region.name for region in regions):
                self.skipped.append(f"{path}: {file.name} names a face by a contact whose name it does not have")
            yield file, regions

    def _sidecar_regions(self, sidecar: Sidecar, content: PhotoContent) -> list[Region]:
        """Read the regions of a sidecar, and note that it belongs to a photo."""
        self._used.add(sidecar.path)
        size_px, orientation = content.metadata.stored_size_px, content.metadata.orientation
        if (packet := self._read(sidecar.path)) is None:
            return []
        if sidecar.owner == "photo":
            return self._regions(f"{sidecar.path}: ", packet, size_px)
        try:
            return read_raw_regions(packet, size_px, orientation)
        except BadMetadata as error:
            self._skip(f"{sidecar.path}: {error}; it {sidecar.reason}")
            return []

    def skip_unused(self) -> None:
        """List the sidecars with names that were left out, as they are, or may be, those of other files."""
        for sidecar, reason in self._unused.items():
            packet = None if sidecar in self._used else self._read(sidecar)
            try:
                if packet is not None and has_named_regions(packet):
                    self._skip(f"{sidecar}: {reason}")
            except BadMetadata as error:
                self._skip(f"{sidecar}: {error}; {_REMEDY}")

    def _read(self, sidecar: Path) -> bytes | None:
        try:
            return read_limited(sidecar)
        except BadMetadata as error:
            self._skip(str(error))
            return None

    def _regions(self, description: str, packet: bytes, size_px: tuple[int, int]) -> list[Region]:
        try:
            return read_regions(packet, size_px)
        except BadMetadata as error:
            self._skip(f"{description}{error}; {_REMEDY}")
            return []

    def _skip(self, message: str) -> None:
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
