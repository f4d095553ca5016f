"""Detection and embedding of all faces of photos."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float32

from familiar.core.errors import FamiliarError
from familiar.core.types import Crop, Detection, Photo
from familiar.detection.detector import Detector
from familiar.detection.quality import detect_faces, to_full_resolution
from familiar.embedding.model import Model

MIN_SCORE = 0.5  # of the detector: a detection below it is often not a face


@dataclass(frozen=True, eq=False)
class EmbeddedFace:
    """A detected and embedded face.

    Attributes:
        detection: in pixels of the whole upright photo.
        quality: how far its embedding can be trusted, in [0, 1].
        embedding: a unit vector of the model's space.
        species: what the detector, the router or the user says, if one does.
    """

    detection: Detection
    quality: float
    embedding: Float32[np.ndarray, " d"]
    species: str | None


class FaceBatch:
    """Photos whose faces are embedded together. It keeps their crops, not the photos.

    Args:
        model: a bundle or a router.
        detector: finds the faces.
        min_score: detections below it are ignored, in [0, 1].
    """

    def __init__(self, model: Model, detector: Detector, min_score: float = MIN_SCORE) -> None:
        self.model = model
        self.detector = detector
        self.min_score = min_score
        self.photos = 0
        self._crops: list[Crop] = []
        self._detections: list[tuple[int, Detection, float]] = []  # of each crop: its photo, detection, quality

    def add(self, photo: Photo) -> None:
        """Detect and crop the faces of a photo.

        Args:
            photo: decoded at the model's `min_decoded_side_px` or more.
        """
        for face in detect_faces(photo, self.detector, self.model.align, self.min_score):
            self._crops.append(face.crop)
            self._detections.append((self.photos, to_full_resolution(face.detection, photo), face.quality))
        self.photos += 1

    def embed(
        self, *, flip: bool = False, species: str | None = None
    ) -> tuple[list[list[EmbeddedFace]], list[tuple[int, FamiliarError]]]:
        """Embed the faces of all photos added.

        Args:
            flip: as in `Embedder.embed`.
            species: of all faces; None: what the detector or the router says.

        Returns:
            The faces of each photo, best first, and the errors of those that no bundle of a router can embed, each with
            the index of its photo.
        """
        embedded = self.model.embed_faces(self._crops, flip=flip, species=species)
        faces: list[list[EmbeddedFace]] = [[] for _ in range(self.photos)]
        for row, embedding, face_species in zip(
            map(int, embedded.rows), embedded.embeddings, embedded.species, strict=True
        ):
            photo, detection, quality = self._detections[row]
            faces[photo].append(EmbeddedFace(detection, quality, embedding, face_species))
        return faces, [(self._detections[row][0], error) for row, error in embedded.skipped_by_row().items()]
