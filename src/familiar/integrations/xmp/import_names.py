"""Read the names of faces that other programs wrote: XMP sidecars, XMP packets in photos, and Picasa's files."""

import contextlib
from collections import Counter
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from familiar import FamiliarError, Gallery, find_photos
from familiar.core.errors import BadMetadata, Contradiction, NotInGallery
from familiar.core.files import absolute_path
from familiar.core.names import unify_spelling
from familiar.gallery import SAME_BOX, GalleryFace, ImportResult
from familiar.integrations.xmp.content import PhotoContent, load_faces, load_photos, read_photo
from familiar.integrations.xmp.packet import read_regions
from familiar.integrations.xmp.regions import Region, upright_box_px
from familiar.integrations.xmp.sidecars import MetadataFolders, Sidecar, read_limited

_REMEDY = "; its names are left out; repair or remove it"


def import_xmp(gallery: Gallery, paths: Sequence[Path] = (), exclude: Sequence[str] = ()) -> ImportResult:
    """Assign faces to identities as the metadata of their photos names them, as one decision.

    Of several files that name one face, the first counts: the sidecar `photo.jpg.xmp`, `photo.xmp`, the photo itself,
    `.picasa.ini`. The sidecar of a raw file of the same name counts if its regions are for a photo of the same
    proportions. A region means the face that it overlaps most, by `SAME_BOX` at least.

    Args:
        gallery: to write to.
        paths: photos, and folders of photos; none: all photos of the gallery.
        exclude: patterns of files and folders in `paths` to leave out, as for `find_photos`.

    Returns:
        The counts; skipped are photos that are not in the gallery or have changed since they were enrolled, files that
        cannot be read, sidecars with names that may be another photo's, and names that match no face or contradict
        another. Nothing is said of regions without a name.

    Raises:
        UnreadablePhoto: one of `paths` does not exist, or there is no photo in them.
    """
    with gallery.read():
        photos, faces = load_photos(gallery), load_faces(gallery)
    reader = _Reader()
    label_of: dict[int, str] = {}
    for path in [absolute_path(path) for path in find_photos(paths, exclude=exclude)] if paths else photos:
        try:
            if path not in photos:
                raise NotInGallery(f"{path}: no photo of the gallery")
            photo, content = read_photo(path, photos[path])
            label_of |= reader.labels(path, content, faces.get(photo.photo, []))
        except FamiliarError as error:
            reader.skipped.append(str(error))
    seen = [face for in_photo in faces.values() for face in in_photo]
    return gallery.assign_names(label_of, seen, reader.skipped)


@dataclass
class _Reader:
    """Reads the names in the metadata of photos, and lists what it skips."""

    skipped: list[str] = field(default_factory=list[str])
    _folders: MetadataFolders = field(default_factory=MetadataFolders)

    def labels(self, path: Path, content: PhotoContent, faces: Sequence[GalleryFace]) -> dict[int, str]:
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
            return replace(region, name=Gallery.check_name(region.name))
        except Contradiction as error:
            self.skipped.append(f"{path}: {source.name}: {error}")
            return None

    def _sources(self, path: Path, content: PhotoContent) -> Iterator[tuple[Path, list[Region]]]:
        """Iterate over the files that may name a photo's faces, and the regions in each."""
        size_px, orientation = content.metadata.stored_size_px, content.metadata.orientation
        sidecars, picasa_files = list[Sidecar](), list[Path]()
        with self._skip_bad():
            sidecars, picasa_files = self._folders.sidecars(path), self._folders.picasa_files(path)
        for sidecar in sidecars:
            with self._skip_bad(f"{sidecar.path}: ", f"; it {sidecar.reason}" if sidecar.reason else _REMEDY):
                packet = read_limited(sidecar.path)
                if sidecar.owner != "unclear":
                    turned_as = orientation if sidecar.owner == "raw" else None
                    yield sidecar.path, read_regions(packet, size_px, turned_as=turned_as)
                elif any(region.name for region in read_regions(packet)):
                    raise BadMetadata("its names are left out")
        with self._skip_bad(f"{path}: its XMP: ", _REMEDY):
            for packet in content.packets:
                yield path, read_regions(packet, size_px)
        for file in picasa_files:
            with self._skip_bad(f"{file}: ", _REMEDY):
                regions = self._folders.picasa_regions(file, path.name)
                if any(not region.name for region in regions):
                    self.skipped.append(f"{path}: {file.name} names a face by a contact whose name it does not have")
                yield file, regions

    @contextlib.contextmanager
    def _skip_bad(self, description: str = "", remedy: str = "") -> Generator[None, None, None]:
        """Leave out metadata that cannot be read, and say so."""
        try:
            yield
        except BadMetadata as error:
            message = f"{description}{error}{remedy}"
            if message not in self.skipped:
                self.skipped.append(message)


def _match(regions: Sequence[Region], faces: Sequence[GalleryFace], content: PhotoContent) -> dict[Region, int]:
    """Match regions to faces by their boxes, the best overlap first; a second region of a face must have its name."""
    size_px, orientation = content.metadata.stored_size_px, content.metadata.orientation
    pairs: list[tuple[float, Region, int]] = []
    for region in regions:
        box = upright_box_px(region.box, size_px, orientation)
        pairs += [(box.intersection_over_union(face.box_xyxy_px), region, face.face) for face in faces]
    name_of: dict[int, str] = {}
    matches: dict[Region, int] = {}
    for overlap, region, face in sorted(pairs, key=lambda pair: -pair[0]):
        if overlap >= SAME_BOX and region not in matches and name_of.setdefault(face, region.name) == region.name:
            matches[region] = face
    return matches
