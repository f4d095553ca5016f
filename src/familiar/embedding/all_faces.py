"""Detection and embedding of all faces of photos."""

from collections.abc import Iterable
from dataclasses import replace

import numpy as np
from jaxtyping import Float32

from familiar.core.errors import FamiliarError
from familiar.core.types import Crop, Face, Photo
from familiar.detection.detector import Detector
from familiar.detection.quality import detect_faces, to_full_resolution
from familiar.embedding.model import Model

MIN_SCORE = 0.5  # of the detector: a detection below it is often not a face


class PhotoBatch:
    """Photos whose faces are embedded together. It keeps their crops, not the photos.

    Args:
        model: a bundle or a router.
        detector: finds the faces.
        min_score: faces below it are ignored, in [0, 1].
    """

    def __init__(self, model: Model, detector: Detector, min_score: float = MIN_SCORE) -> None:
        self.model = model
        self.detector = detector
        self.min_score = min_score
        self.photos = 0
        self._crops: list[Crop] = []
        self._faces: list[tuple[int, Face]] = []  # of each crop: its photo, and the face without the crop

    def add(self, photo: Photo) -> None:
        """Detect and crop the faces of a photo.

        Args:
            photo: decoded at the model's `min_decoded_side_px` or more.
        """
        for face in detect_faces(photo, self.detector, self.model.align, self.min_score):
            assert face.crop is not None
            self._crops.append(face.crop)
            self._faces.append((self.photos, replace(to_full_resolution(face, photo), crop=None)))
        self.photos += 1

    def embed(
        self, *, flip: bool = False, species: str | None = None
    ) -> tuple[list[list[Face]], list[tuple[int, FamiliarError]]]:
        """Embed the faces of all photos added.

        Args:
            flip: as in `Embedder.embed`.
            species: of all faces; None: what the detector or the router says.

        Returns:
            The faces of each photo, best first, and the errors of those that no bundle of a router can embed, each with
            the index of its photo.
        """
        embedded = self.model.embed_faces(self._crops, flip=flip, species=species)
        faces: list[list[Face]] = [[] for _ in range(self.photos)]
        for row, embedding, face_species in zip(
            map(int, embedded.rows), embedded.embeddings, embedded.species, strict=True
        ):
            photo, face = self._faces[row]
            faces[photo].append(replace(face, embedding=embedding, species=face_species))
        return faces, [(self._faces[row][0], error) for row, error in embedded.skipped_by_row().items()]


def stack_embeddings(faces: Iterable[Face]) -> Float32[np.ndarray, "n d"]:
    """Return the embeddings of faces, of which there is at least one, as rows.

    Args:
        faces: all of them embedded.
    """
    embeddings = [face.embedding for face in faces if face.embedding is not None]
    return np.stack(embeddings)
