"""Photos of one pet that is not in the gallery yet: its best face on each, and whether the gallery knows them."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np
from jaxtyping import Float32

from familiar.core.errors import CannotWrite, FamiliarError, NoFaceFound, UnreadablePhoto
from familiar.core.files import content_sha256
from familiar.detection.detector import Detector, looked_for
from familiar.embedding.all_faces import EmbeddedFace, FaceBatch
from familiar.embedding.model import Model
from familiar.gallery.lost_pets.register import PERSON
from familiar.gallery.lost_pets.reports import Pet, list_pets
from familiar.gallery.store.store import Store
from familiar.photos.decoding import load_photo

MARGIN = 0.25  # around a face, on each side, as a share of its box
JPEG_QUALITY = 85


@dataclass(frozen=True, eq=False)
class PetPhotos:
    """The photos of one pet on which a face was detected.

    Attributes:
        paths: of the photos.
        faces: the best face of each that shows no person.
        skipped: the errors of the other photos.
    """

    paths: tuple[Path, ...]
    faces: tuple[EmbeddedFace, ...]
    skipped: tuple[FamiliarError, ...]

    @property
    def embeddings(self) -> Float32[np.ndarray, "n d"]:
        """The embedding of each face."""
        return np.stack([face.embedding for face in self.faces])


def embed_pet_photos(
    model: Model, paths: Sequence[Path], detector: Detector, *, flip: bool = False, species: str | None = None
) -> PetPhotos:
    """Detect and embed the best face of each photo of one pet. Nothing is stored.

    Args:
        model: the gallery's.
        paths: of the photos.
        detector: finds the faces.
        flip: as in `Embedder.embed`.
        species: of the pet; None: what the detector or the router says.

    Raises:
        NoFaceFound: no photo shows a face.
        UnreadablePhoto: there is only one photo, and it cannot be read.
    """
    skipped: list[FamiliarError] = []
    paths_with_face: list[Path] = []
    faces: list[EmbeddedFace] = []
    for start in range(0, len(paths), model.batch_size):
        batch, readable = FaceBatch(model, detector), list[Path]()
        for path in paths[start : start + model.batch_size]:
            try:
                batch.add(load_photo(path, min_side_px=model.min_decoded_side_px(detector)))
                readable.append(path)
            except UnreadablePhoto as error:
                skipped.append(error)
        faces_by_photo, _ = batch.embed(flip=flip, species=species)
        for path, photo_faces in zip(readable, faces_by_photo, strict=True):
            if not photo_faces:
                skipped.append(NoFaceFound(f"{path}: no {looked_for(detector)} found"))
                continue
            paths_with_face.append(path)
            faces.append(max(photo_faces, key=lambda face: (face.species != PERSON, face.quality)))
    if not faces:
        if len(skipped) == 1:
            raise skipped[0]
        raise NoFaceFound(
            f"{paths[0].parent}: no {looked_for(detector)} was found on {len(paths)} photos; give some on which it is "
            "larger, upright and turned to the camera"
        )
    return PetPhotos(tuple(paths_with_face), tuple(faces), tuple(skipped))


def photo_ids(gallery: Store, paths: Sequence[Path]) -> list[int]:
    """Return the ids of the photos that the gallery has, by their content. A file that cannot be read is none."""
    ids: list[int] = []
    with gallery.read() as repository:
        for path in paths:
            try:
                photo = repository.photos.with_hash(content_sha256(path))
            except OSError:
                continue
            ids += [] if photo is None else [photo.photo]
    return ids


def known_pets(gallery: Store, photos: Sequence[int]) -> list[Pet]:
    """Return the pets of the gallery that enrolled photos show, most of the photos first."""
    with gallery.read() as repository:
        identities = [row.identity for row in repository.faces.rows_in_photos(photos)]
        pets = [pet for pet in list_pets(gallery) if pet.identity in identities]
    return sorted(pets, key=lambda pet: -identities.count(pet.identity))


def face_picture(path: Path, box_xyxy_px: tuple[float, float, float, float], side_px: int = 512) -> bytes:
    """Cut a square around a face out of a photo, as a JPEG.

    Args:
        path: of the photo.
        box_xyxy_px: of the face, in pixels of the whole upright photo; the whole photo is shown if the box is empty.
        side_px: the picture's largest side; nothing is enlarged.

    Raises:
        UnreadablePhoto: the photo cannot be read.
    """
    rgb_u8 = load_photo(path).rgb_u8
    height, width = rgb_u8.shape[:2]
    left, top, right, bottom = box_xyxy_px
    box_side = max(right - left, bottom - top)
    if box_side > 0:
        side = max(1, min(round(box_side * (1 + 2 * MARGIN)), width, height))
        first_column = int(np.clip(round((left + right - side) / 2), 0, width - side))
        first_row = int(np.clip(round((top + bottom - side) / 2), 0, height - side))
        rgb_u8 = rgb_u8[first_row : first_row + side, first_column : first_column + side]
    scale = min(1.0, side_px / max(rgb_u8.shape[:2]))
    if scale < 1:
        size = (max(1, round(rgb_u8.shape[1] * scale)), max(1, round(rgb_u8.shape[0] * scale)))
        rgb_u8 = cv2.resize(rgb_u8, size, interpolation=cv2.INTER_AREA)
    bgr = cv2.cvtColor(np.ascontiguousarray(rgb_u8), cv2.COLOR_RGB2BGR)
    encoded, jpeg = cv2.imencode(".jpg", bgr, [cv2.IMWRITE_JPEG_QUALITY, JPEG_QUALITY])
    if not encoded:
        raise CannotWrite(f"{path}: cannot be encoded as a JPEG")
    return jpeg.tobytes()
