"""Results of detection, search and verification, as the gallery, the HTTP API and the client share them.

As in `core.gallery_types`, a field that is not described under "Attributes" is described with its type.
"""

from dataclasses import dataclass, field
from typing import Annotated, Generic, Literal, TypeVar

from familiar.core.field_types import (
    NOT_IN_API,
    Box,
    FaceIdentity,
    Name,
    Number,
    Probability,
    Similarity,
    Text,
    Vector,
)


@dataclass(frozen=True, eq=False)
class DetectedFace:
    """A detected face.

    Attributes:
        landmarks_px: Left eye, right eye, nose, and of people both corners of the mouth, as they appear; None: none
            detected.
        score: The detector's score, in [0, 1].
        label: What the detector says it is: cat, dog or person; None: it does not tell.
        quality: How well the face can be recognized, in [0, 1].
        embedding: None, as none was requested.
        species: What the router says it is, or else the detector; None: neither does.
    """

    box_xyxy_px: Box
    landmarks_px: tuple[tuple[float, ...], ...] | None
    score: float
    quality: float
    label: Literal["cat", "dog", "person"] | None
    embedding: Annotated[Vector | None, NOT_IN_API] = None
    species: Text | None = None


@dataclass(frozen=True, eq=False)
class EmbeddedFace(DetectedFace):
    """A detected face with its embedding.

    Attributes:
        embedding: A unit vector of the model's space.
    """

    embedding: Vector = field()


FaceType = TypeVar("FaceType", bound=DetectedFace)


@dataclass(frozen=True)
class PhotoFaces(Generic[FaceType]):
    """A photo's faces, best first.

    Attributes:
        size_px: Width and height of the upright photo.
    """

    name: Text
    size_px: tuple[int, int]
    faces: tuple[FaceType, ...]


@dataclass(frozen=True)
class DetectionResult(Generic[FaceType]):
    """The photos that could be read, in the order in which they were sent.

    Attributes:
        skipped: Name and reason for each photo that could not be read.
    """

    photos: tuple[PhotoFaces[FaceType], ...]
    skipped: tuple[Text, ...]


@dataclass(frozen=True)
class Hit:
    """A face similar to the query.

    Attributes:
        face: The face's number.
        path: Path of its photo.
        box_xyxy_px: Left, top, right, bottom in pixels of the upright photo.
        identity: The face's identity; None: unassigned.
        name: None: none.
        similarity: Cosine similarity, in [-1, 1].
        probability: In [0, 1]; None: the model was never calibrated.
    """

    face: Number
    path: Text
    box_xyxy_px: Box
    identity: FaceIdentity
    name: Name
    similarity: Similarity
    probability: Probability


@dataclass(frozen=True)
class Match:
    """An identity similar to the query.

    Attributes:
        identity: The identity's number.
        name: None: none.
        face: Its most similar face.
        best: Similarity of its most similar face.
        mean: Similarity of the mean of its faces.
        probability: In [0, 1]; None: the model was never calibrated.
        known: Whether it is more likely than not that the query shows it.
    """

    identity: Number
    name: Name
    face: Number
    best: float
    mean: float
    probability: Probability
    known: bool


@dataclass(frozen=True)
class SearchResult:
    """The recognized identity, if any, and the most similar identities and photos.

    Attributes:
        known: None: no identity was recognized, or none were requested.
    """

    known: Match | None
    identities: tuple[Match, ...]
    photos: tuple[Hit, ...]


@dataclass(frozen=True)
class VerificationResult:
    """Whether two faces show the same individual.

    Attributes:
        similarity: Cosine similarity, in [-1, 1].
        probability: In [0, 1]; None: the model was never calibrated.
        same: Whether the similarity is at least `threshold`; None: no verdict, as the model was never calibrated.
        threshold: Cosine similarity, in [-1, 1]; None: the model was never calibrated.
    """

    similarity: Similarity
    probability: Probability
    same: bool | None
    threshold: Similarity | None


@dataclass(frozen=True)
class PhotoVerificationResult(VerificationResult):
    """Whether two photos show the same individual, by their best faces.

    Attributes:
        first: The first photo's best face.
        second: The second photo's best face.
    """

    first: DetectedFace
    second: DetectedFace
