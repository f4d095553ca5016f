"""Found pets that come as photo files: search for them among the lost ones, enter them, and print what was found."""

import hashlib
import io
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

from familiar import Box, Detector, Face, FamiliarError, UnreadablePhoto, find_photos, load_photo
from familiar.core.errors import Contradiction, NoFaceFound
from familiar.core.file_names import safe_file_name, unused_name
from familiar.core.files import make_folder, write_atomically
from familiar.gallery import Gallery
from familiar.integrations.lost_pets.candidates import (
    FOUND_PET,
    NO_PET_FILTER,
    Candidate,
    PetFilter,
    Ranking,
    rank_pets,
)
from familiar.integrations.lost_pets.printable_page import PRINTED_SIDE_PX, PageCandidate, printable_page
from familiar.integrations.lost_pets.register import PERSON, dismiss, enter_pet
from familiar.integrations.lost_pets.reports import Pet, Report, list_pets
from familiar.photos import Exclusion, file_kind, folder_kind

_MARGIN = 0.25  # around a face on a printed picture, on each side, as a share of its box


@dataclass(frozen=True, eq=False)
class FoundPet:
    """A found pet that was searched for.

    Attributes:
        label: its name, or that of its folder or first photo.
        identity: its number, if it is in the gallery.
        report: what is known about it.
        faces: by the path of each photo on which a face was detected, the best one that shows no person.
        skipped: the errors of the other photos.
        ranking: the lost pets that it may be.
    """

    label: str
    identity: int | None
    report: Report
    faces: dict[Path, Face]
    skipped: tuple[FamiliarError, ...]
    ranking: Ranking


def list_found_pets(
    paths: Sequence[Path], exclude: Sequence[str] = ()
) -> tuple[dict[str, list[Path]], list[UnreadablePhoto]]:
    """Return the photos of each found pet, by a label, and the errors of the subfolders without a photo.

    Args:
        paths: photos and folders of one pet, or a folder that has no photos itself, but one subfolder per pet.
        exclude: patterns of files and folders to leave out, as for `find_photos`.

    Raises:
        UnreadablePhoto: there is no photo of one pet.
    """
    is_folder = os.path.isdir(paths[0])  # noqa: PTH112 - `Path.is_dir` may raise
    entries = sorted(paths[0].iterdir()) if is_folder and len(paths) == 1 else []
    exclusion = Exclusion(exclude)
    subfolders = [path for path in entries if path.is_dir() and not folder_kind(str(path))]
    subfolders = [path for path in subfolders if not exclusion.matches(path.name)]
    if not subfolders or any(path.is_file() and file_kind(path.name) is None for path in entries):
        return {paths[0].name if is_folder else paths[0].stem: find_photos(paths, exclude=exclude)}, []
    photos: dict[str, list[Path]] = {}
    errors: list[UnreadablePhoto] = []
    for folder in subfolders:
        try:
            photos[folder.name] = find_photos([folder], exclude=exclude)
        except UnreadablePhoto as error:
            errors.append(error)
    return photos, errors


def search_found_pet(
    gallery: Gallery,
    label: str,
    paths: Sequence[Path],
    detector: Detector,
    k: int = 5,
    *,
    only: PetFilter = NO_PET_FILTER,
    report: Report | None = None,
    dismissed: Sequence[int] = (),
    flip: bool = False,
) -> FoundPet:
    """Rank the lost pets that a found pet may be.

    If the gallery has it as a found pet, by the content of its photos, the lost pets that it was marked as different
    from are left out, and `dismissed` ones are remembered.

    Args:
        gallery: of the lost pets.
        label: for the result, if the pet has no name.
        paths: its photos.
        detector: finds the faces.
        k: maximum number of candidates, at least 1.
        only: the lost pets that are compared.
        report: what is known about the found pet; None: what the gallery knows.
        dismissed: identities of lost pets that it is not.
        flip: as in `Embedder.embed`.

    Raises:
        NoFaceFound: no photo shows a face.
        UnreadablePhoto: the only photo cannot be read.
    """
    faces, skipped = _embed_pet_photos(gallery, paths, detector, flip)
    identity, known_report = None, FOUND_PET
    with gallery.write() if dismissed else gallery.read():
        photos = gallery.photos_with_content(faces)
        pets = [pet for pet in known_pets(gallery, photos) if pet.report.status == "found"]
        if pets:
            label, identity, known_report = pets[0].label, pets[0].identity, pets[0].report
            for other in dismissed:
                dismiss(gallery, identity, other)
            dismissed = [*gallery.different_identities(identity)]
    report = report or known_report
    embeddings = np.stack([face.embedding for face in faces.values() if face.embedding is not None])
    ranking = rank_pets(gallery, embeddings, report, k, only=only, dismissed=dismissed)
    return FoundPet(label, identity, report, faces, tuple(skipped), ranking)


def _embed_pet_photos(
    gallery: Gallery, paths: Sequence[Path], detector: Detector, flip: bool
) -> tuple[dict[Path, Face], list[FamiliarError]]:
    """Detect and embed the best face of each photo; return them, and the errors of photos without one."""
    skipped: list[FamiliarError] = []
    faces: dict[Path, Face] = {}
    for path, photo in zip(paths, gallery.embedder.faces(paths, detector, flip=flip), strict=True):
        if isinstance(photo, FamiliarError):
            skipped.append(photo)
        elif photo.faces:
            faces[path] = next((face for face in photo.faces if face.species != PERSON), photo.faces[0])
        else:
            skipped.append(NoFaceFound(f"{path}: no face of a pet found"))
    if not faces:
        if len(skipped) == 1:
            raise skipped[0]
        raise NoFaceFound(
            f"{paths[0].parent}: no face of a pet was found on {len(paths)} photos; give some on which it is larger, "
            "upright and turned to the camera"
        )
    return faces, skipped


def known_pets(gallery: Gallery, photos: Sequence[int]) -> list[Pet]:
    """Return the pets of the gallery that enrolled photos show, most of the photos first."""
    with gallery.read():
        identities = [face.identity for face in gallery.faces(photos=photos)]
        pets = [pet for pet in list_pets(gallery) if pet.identity in identities]
    return sorted(pets, key=lambda pet: -identities.count(pet.identity))


def save_found_pet(
    gallery: Gallery,
    paths: Sequence[Path],
    detector: Detector,
    name: str,
    report: Report,
    *,
    flip: bool = False,
) -> int:
    """Enroll the photos of a found pet, and enter it in the register; return the number of its identity.

    Args:
        gallery: to write to.
        paths: its photos, which stay where they are.
        detector: finds the faces.
        name: of the pet.
        report: what is known about it.
        flip: as in `Embedder.embed`.

    Raises:
        NoFaceFound: no photo shows a face.
        Contradiction: a photo shows a pet that was entered before, or the name is taken; only the photos are enrolled.
    """
    if gallery.check_name(name) in gallery.names().values():
        raise Contradiction(f"{gallery.folder}: has a pet called {name} already; choose another name")
    gallery.enroll(paths, detector, flip=flip)
    return enter_pet(gallery, gallery.photos_with_content(paths), name, report)


def write_pages(
    gallery: Gallery, pets: Sequence[FoundPet], folder: Path, printed_on: str, *, with_contact: bool = False
) -> list[Path]:
    """Write the printable page of each found pet to a folder; return the files.

    Args:
        gallery: of the candidates.
        pets: as they were searched for.
        folder: created if missing.
        printed_on: date, for the footer.
        with_contact: whether the pages show how to reach owner and finder.

    Raises:
        CannotWrite: a file cannot be written.
    """
    make_folder(folder)
    names: set[str] = set()
    files: list[Path] = []
    for pet in pets:
        candidates = [_page_candidate(gallery, pet, candidate) for candidate in pet.ranking.candidates]
        page = printable_page(pet.label, pet.report, candidates, printed_on, with_contact=with_contact)
        files.append(folder / unused_name(safe_file_name(pet.label), ".html", names))
        write_atomically(files[-1], page.encode("utf-8", "backslashreplace"))
    return files


def _page_candidate(gallery: Gallery, pet: FoundPet, candidate: Candidate) -> PageCandidate:
    """Return a candidate with the pictures of the most similar pair of photos."""
    path, face = [*pet.faces.items()][candidate.photo]
    other = gallery.face(candidate.face)
    return PageCandidate(
        candidate,
        _picture(path, None, face.box_xyxy_px),
        _picture(Path(other.path), other.sha256, other.box_xyxy_px),
    )


def _picture(path: Path, sha256: bytes | None, box_xyxy_px: Box) -> bytes | None:
    """Return the picture of a face; None if the file cannot be read, or is not the one that was enrolled."""
    try:
        if sha256 is not None and hashlib.sha256(path.read_bytes()).digest() != sha256:
            return None
        picture = Image.fromarray(load_photo(path).rgb_u8)
    except (UnreadablePhoto, OSError):
        return None
    left, top, right, bottom = box_xyxy_px
    x, y, side = (left + right) / 2, (top + bottom) / 2, max(right - left, bottom - top) * (1 + 2 * _MARGIN)
    width, height = picture.size
    low, high = -side / 2, side / 2
    picture = picture.crop((max(0, x + low), max(0, y + low), min(width, x + high), min(height, y + high)))
    picture.thumbnail((PRINTED_SIDE_PX, PRINTED_SIDE_PX))
    content = io.BytesIO()
    picture.save(content, "JPEG", quality=85)
    return content.getvalue()
