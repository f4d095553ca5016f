"""Found pets that come as photo files: search for them among the lost ones, enter them, and print what was found."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from familiar.core.errors import Contradiction, UnreadablePhoto
from familiar.core.file_names import safe_file_name, unused_name
from familiar.core.files import content_sha256, make_folder, write_atomically
from familiar.detection.detector import Detector
from familiar.embedding.model import Model
from familiar.gallery.enrollment.enroll import enroll
from familiar.gallery.lost_pets.candidates import NO_PET_FILTER, PetFilter, Ranking, rank_lost_pets
from familiar.gallery.lost_pets.photos import PetPhotos, embed_pet_photos, face_picture, known_pets, photo_ids
from familiar.gallery.lost_pets.printable_page import PageCandidate, printable_page
from familiar.gallery.lost_pets.register import dismiss, dismissed_pets, enter_pet
from familiar.gallery.lost_pets.reports import Report
from familiar.gallery.search.listing import face
from familiar.gallery.store.store import Store
from familiar.photos.decoding import PHOTO_SUFFIXES, find_photos


@dataclass(frozen=True, eq=False)
class FoundPet:
    """A found pet that was searched for.

    Attributes:
        label: its name, or that of its folder or first photo.
        identity: its number, if it is in the gallery.
        report: what is known about it.
        photos: with their faces.
        ranking: the lost pets that it may be.
    """

    label: str
    identity: int | None
    report: Report
    photos: PetPhotos
    ranking: Ranking


def list_found_pets(paths: Sequence[Path]) -> tuple[dict[str, list[Path]], list[UnreadablePhoto]]:
    """Return the photos of each found pet, by a label, and the errors of the subfolders without a photo.

    Args:
        paths: photos and folders of one pet, or a folder that has no photos itself, but one subfolder per pet.

    Raises:
        UnreadablePhoto: there is no photo of one pet.
    """
    if len(paths) == 1 and os.path.isdir(paths[0]):  # noqa: PTH112 - `Path.is_dir` may raise
        entries = sorted(path for path in paths[0].iterdir() if not path.name.startswith("."))
        subfolders = [path for path in entries if path.is_dir()]
        if subfolders and not any(path.suffix.lower() in PHOTO_SUFFIXES for path in entries if path.is_file()):
            return _list_subfolders(subfolders)
    label = paths[0].name if os.path.isdir(paths[0]) else paths[0].stem  # noqa: PTH112 - `Path.is_dir` may raise
    return {label: find_photos(paths)}, []


def _list_subfolders(folders: Sequence[Path]) -> tuple[dict[str, list[Path]], list[UnreadablePhoto]]:
    photos: dict[str, list[Path]] = {}
    errors: list[UnreadablePhoto] = []
    for folder in folders:
        try:
            photos[folder.name] = find_photos([folder])
        except UnreadablePhoto as error:
            errors.append(error)
    return photos, errors


def search_found_pet(
    gallery: Store,
    model: Model,
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
        model: the gallery's.
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
    photos = embed_pet_photos(model, paths, detector, flip=flip)
    with gallery.write() if dismissed else gallery.read():
        pets = [pet for pet in known_pets(gallery, photo_ids(gallery, photos.paths)) if pet.report.status == "found"]
        known = pets[0] if pets else None
        if known is not None:
            for identity in dismissed:
                dismiss(gallery, known.identity, identity)
    excluded = {*dismissed} if known is None else dismissed_pets(gallery, known.identity)
    if report is None:
        report = Report("found") if known is None else known.report
    ranking = rank_lost_pets(gallery, photos.embeddings, k, only=only, report=report, dismissed=excluded)
    return FoundPet(
        label if known is None else known.label, None if known is None else known.identity, report, photos, ranking
    )


def save_found_pet(
    gallery: Store,
    model: Model,
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
        model: the gallery's.
        paths: its photos, which stay where they are.
        detector: finds the faces.
        name: of the pet.
        report: what is known about it.
        flip: as in `Embedder.embed`.

    Raises:
        NoFaceFound: no photo shows a face.
        Contradiction: a photo shows a pet that was entered before, or the name is taken; only the photos are enrolled.
    """
    with gallery.read() as repository:
        if repository.identities.with_name(name) is not None:
            raise Contradiction(f"{gallery.folder}: has a pet called {name} already; choose another name")
    enroll(gallery, model, paths, detector, flip=flip)
    return enter_pet(gallery, photo_ids(gallery, paths), name, report)


def page_about(gallery: Store, pet: FoundPet, printed_on: str, *, with_contact: bool = False) -> str:
    """Make the printable page of a found pet and its candidates.

    Args:
        gallery: of the candidates.
        pet: as it was searched for.
        printed_on: date, for the footer.
        with_contact: whether the page shows how to reach owner and finder.
    """
    candidates: list[PageCandidate] = []
    for candidate in pet.ranking.candidates:
        row = candidate.photo
        picture = _picture(pet.photos.paths[row], pet.photos.faces[row].detection.box_xyxy_px, None)
        shown = face(gallery, candidate.face)
        with gallery.read() as repository:
            photo = repository.photos.row(shown.photo)
        assert photo is not None, "the photo of a face"
        candidates.append(
            PageCandidate(candidate, picture, _picture(Path(photo.path), shown.box_xyxy_px, photo.sha256))
        )
    return printable_page(pet.label, pet.report, candidates, printed_on, with_contact=with_contact)


def write_pages(
    gallery: Store, pets: Sequence[FoundPet], folder: Path, printed_on: str, *, with_contact: bool = False
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
        files.append(folder / unused_name(safe_file_name(pet.label), ".html", names))
        page = page_about(gallery, pet, printed_on, with_contact=with_contact)
        write_atomically(files[-1], page.encode("utf-8", "backslashreplace"))
    return files


def _picture(path: Path, box_xyxy_px: tuple[float, float, float, float], sha256: bytes | None) -> bytes | None:
    """Return the picture of a face; None if the file cannot be read, or is not the one that was enrolled."""
    try:
        if sha256 is not None and content_sha256(path) != sha256:
            return None
        return face_picture(path, box_xyxy_px)
    except (UnreadablePhoto, OSError):
        return None
