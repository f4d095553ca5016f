"""Results of detection, search and verification, as the gallery, the HTTP API and the client share them.

As in `core.gallery_types`, a field that is not described under "Attributes" is described with its type.
"""

from dataclasses import dataclass, field
from typing import Generic, TypeVar

from familiar.core.field_types import FaceIdentity, Name, Number, Probability, Similarity, Text, Vector
from familiar.core.types import Face, PhotoBox


@dataclass(frozen=True, eq=False, kw_only=True)
class EmbeddedFace(Face):
    """A detected face with its embedding.

    Attributes:
        embedding: A unit vector of the model's space.
    """

    embedding: Vector = field()


FaceType = TypeVar("FaceType", bound=Face)


@dataclass(frozen=True)
class DetectedPhoto(Generic[FaceType]):
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

    photos: tuple[DetectedPhoto[FaceType], ...]
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
    box_xyxy_px: PhotoBox
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

    first: Face
    second: Face
