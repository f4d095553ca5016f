"""Models of what the API sends: `core.gallery_types` and `core.recognition_types` as the OpenAPI document has them.

A model has the fields of the shared type whose values it is made from; a test compares them.
"""

from typing import Annotated, Any, Generic, Literal, TypeVar

from pydantic import Field

from familiar.web.api.models import FROM_ARRAY, ApiModel, Number, RequestBody, RequestNumber, Text

Name = Annotated[str | None, Field(description="null: none.", examples=["Mia"])]
FaceIdentity = Annotated[int | None, Field(description="The face's identity; null: unassigned.", examples=[3])]
Similarity = Annotated[float, Field(description="Cosine similarity, in [-1, 1].", examples=[0.73])]
Probability = Annotated[
    float | None, Field(description="In [0, 1]; null: the model was never calibrated.", examples=[0.98])
]
Box = Annotated[
    list[float],
    Field(
        min_length=4,
        max_length=4,
        description="Left, top, right, bottom in pixels of the upright photo.",
        examples=[[40, 32, 168, 160]],
    ),
]
# Not strict, which would refuse the tuples that a gallery returns.
BatchFaces = Annotated[list[RequestNumber], Field(strict=False, max_length=100)]

Item = TypeVar("Item")


class Page(ApiModel, Generic[Item]):
    """One page of a list."""

    items: list[Item]
    next: str | None
    """The `cursor` of the next page; null: this is the last page."""


# --- the gallery and its model --------------------------------------------------------------------------------------


class Counts(ApiModel):
    """Number of photos, faces and identities of a gallery."""

    photos: int
    faces: int
    named: int
    """Identities with a name."""
    unnamed: int
    """Identities without a name."""
    unassigned: int
    """Faces without an identity."""


class SpeciesThreshold(ApiModel):
    """From which similarity on faces of one species are clustered together."""

    species: Text | None
    """The label from the detector or the user, if there is one."""
    faces: int
    """Number of these faces."""
    threshold: Similarity = Field(description="Cosine similarity, in [-1, 1], of faces as they are clustered.")
    uncertainty: float | None
    """Its standard deviation, if it was estimated from the album; none if the album shows too few individuals: then it
    is the model's."""
    false_match_rate: float | None
    """Estimated share, in [0, 1], of the pairs of two individuals that reach it, an upper limit."""
    same_photo_pairs: int
    """Number of pairs of faces in one photo, which show two individuals: nobody said otherwise."""
    same_photo_matches: int
    """How many of these reach the threshold all the same."""
    burst_pairs: int
    """Number of pairs of photos with a single face each, taken one right after the other within ten seconds, which
    nearly always show the same individual."""
    burst_matches: int
    """How many of these reach the threshold."""
    learned_individuals: int
    """Number of confirmed individuals that taught how faces are compared; 0 if none did: fewer than five are confirmed,
    or what they teach does not help with others."""
    learned_gain: float | None
    """By how much that raises the mean average precision, in [-1, 1], of confirmed individuals that are left out of
    what is learned."""
    decided: str
    """How the threshold was decided, in one sentence."""


class Thresholds(ApiModel):
    """Minimum similarities of two faces of one individual."""

    high_precision: Similarity
    balanced: Similarity
    high_recall: Similarity
    clustering: Similarity = Field(description="Of the species with most faces.")
    by_species: list[SpeciesThreshold]
    """From which on faces are clustered."""
    is_guess: bool
    """Whether they are fixed numbers, as the model was never calibrated and the album shows too little."""


class GalleryState(ApiModel):
    """The gallery of this server."""

    counts: Counts
    space_id: str
    """Identifies the space of its embeddings."""
    embedding_dim: int = Field(examples=[128])
    prefixes: list[int]
    """Numbers of leading dimensions that can be searched by."""
    thresholds: Thresholds
    revision: int
    """Incremented by every write."""
    read_only: bool
    has_model: bool
    """Whether photos can be enrolled, embedded and searched for."""


class Model(ApiModel):
    """Metadata of the server's embedding model, from its bundle."""

    file_id: str
    """SHA-256 of the network."""
    space_id: str
    embedding_dim: int
    prefixes: list[int]
    recipe: str
    network: str
    precision: str
    license: str
    taught_by: list[str]
    preprocessing: dict[str, Any]
    calibration: dict[str, Any]
    trained_on: dict[str, Any]
    results: dict[str, Any]
    parity: dict[str, Any]
    species: list[Text]
    """Those that this bundle embeds; empty: all."""


# --- photos, faces and identities -----------------------------------------------------------------------------------


class Face(ApiModel):
    """A detected face, its quality and its identity."""

    face: Number
    photo: Number
    box_xyxy_px: Box
    score: float
    """The detector's score, in [0, 1]."""
    quality: float
    """How well the face can be recognized, in [0, 1]."""
    species: Text | None
    identity: FaceIdentity
    name: Name
    by_user: bool
    """Whether a user assigned or confirmed the identity."""


class Photo(ApiModel):
    """A photo of the gallery."""

    photo: Number
    path: Text
    """Where it was enrolled from last. If another photo has replaced its file, " (replaced, photo NUMBER)" is appended,
    and there is no such file."""
    sha256: str
    """Of its content, as hex."""
    taken_at: Text | None = Field(description="ISO 8601, local time.", examples=["2024-06-01T12:00:00"])
    faces: list[Face]


class Identity(ApiModel):
    """An individual."""

    identity: Number
    """The identity's number."""
    name: Name
    faces: int
    """Number of its faces."""
    confirmed: int
    """Number of its faces that a user confirmed."""
    best: list[int]
    """At most four representative faces, of different photos."""


class FaceConfidence(ApiModel):
    """A face of an identity, compared with the mean of the identity's other faces."""

    face: Face
    similarity: Similarity
    probability: Probability


class NewFace(ApiModel):
    """A face that was added."""

    face: Number


# --- changes --------------------------------------------------------------------------------------------------------


class CorrectionResult(ApiModel):
    """Result of a correction."""

    identity: Number
    """The corrected identity."""
    propagated_faces: int
    """Number of further, similar faces that the correction changed."""


class ClusterResult(ApiModel):
    """Result of clustering the faces."""

    identities: int
    """Number of identities with faces."""
    faces: int
    """Number of faces with an identity."""
    unassigned: int
    """Number of faces without one."""
    changed: int
    """Number of faces whose identity changed."""
    threshold: Similarity = Field(
        description="Cosine similarity, in [-1, 1], from which two faces were taken for the same individual."
    )


class Decision(ApiModel):
    """A user's change, which can be undone."""

    number: int
    """The change's number; later changes have higher numbers."""
    kind: str = Field(description="The command that made the change.", examples=["merge"])
    decided_at: str = Field(description="ISO 8601, UTC.", examples=["2024-06-01T12:00:00+00:00"])
    changes: int
    """Number of changed database rows."""


class ReviewQuestion(RequestBody):
    """Do two faces show the same individual?"""

    kind: Literal["merge", "split", "outlier"]
    """"merge": the faces represent two clusters, which a yes would merge. "split": they represent two parts of one
    identity, which a no would separate. "outlier": both are of one identity, and the first face may not belong
    there."""
    first_face: RequestNumber
    """The first face's number."""
    second_face: RequestNumber
    """The second face's number."""
    first: RequestNumber | None
    """The first face's identity; null: unassigned."""
    second: RequestNumber | None
    """The second face's identity; null: unassigned."""
    similarity: float
    """Cosine similarity, in [-1, 1], of the two clusters' means ("merge"), of the first face and the mean of the
    identity's other faces ("outlier"), or the mean of that of faces in different parts ("split")."""
    probability: float
    """Probability that the answer is yes, in [0, 1]."""
    expected_gain: float
    """Expected number of corrected faces and pairs; used for ranking."""


class ReviewBatch(RequestBody):
    """Which of these faces show one individual?"""

    identity: RequestNumber
    """The individual's number."""
    members: BatchFaces
    """Faces of the identity that nobody confirmed, those that fit least first."""
    candidates: BatchFaces
    """Unassigned faces, and one face of each unnamed group, that may show it, the most likely first."""
    expected_gain: float
    """Expected number of corrected and named faces; used for ranking."""


# --- enrollment jobs ------------------------------------------------------------------------------------------------


class SkippedPhoto(ApiModel):
    """A photo that could not be read."""

    name: Text
    reason: Text


class Progress(ApiModel):
    """Progress of an enrollment job."""

    number: str
    """The job's number."""
    state: Literal["waiting", "processing", "clustering", "done", "stopped", "failed"]
    total: int
    """Number of photos to process."""
    processed: int
    """Number of photos processed so far."""
    photos: int
    """Number of new photos."""
    faces: int
    """Number of new faces."""
    without_face: int
    """Number of new photos in which no face was detected."""
    without_bundle: int
    """Number of new photos that have no face, as there is no model for any that was detected."""
    looked_for: Text | None
    """What the detector looks for, such as "head of a cat or dog"; null: not known yet."""
    known: int
    """Number of photos that were in the gallery before."""
    skipped: list[SkippedPhoto]
    """The first 200."""
    skipped_count: int
    new_individuals: int
    error: Text | None
    """Why the job failed; null: it did not."""


# --- detection, search and verification -----------------------------------------------------------------------------


class DetectedFace(ApiModel):
    """A detected face."""

    box_xyxy_px: Box
    landmarks_px: Annotated[list[list[float]], FROM_ARRAY] | None
    """Left eye, right eye, nose, and of people both corners of the mouth, as they appear; null: none detected."""
    score: float
    """The detector's score, in [0, 1]."""
    quality: float
    """How well the face can be recognized, in [0, 1]."""
    label: Literal["cat", "dog", "person"] | None
    """What the detector says it is: cat, dog or person; null: it does not tell."""
    species: Text | None
    """What the user says it is, or else the detector; null: neither does."""


class EmbeddedFace(DetectedFace):
    """A detected face with its embedding."""

    embedding: Annotated[list[float], FROM_ARRAY]
    """A unit vector of the model's space."""


FaceType = TypeVar("FaceType", bound=DetectedFace)


class PhotoFaces(ApiModel, Generic[FaceType]):
    """A photo's faces, best first."""

    name: Text
    size_px: list[int] = Field(min_length=2, max_length=2, description="Width and height of the upright photo.")
    faces: list[FaceType]


class DetectionResult(ApiModel, Generic[FaceType]):
    """The photos that could be read, in the order in which they were sent."""

    photos: list[PhotoFaces[FaceType]]
    skipped: list[Text]
    """Name and reason for each photo that could not be read."""


class Hit(ApiModel):
    """A face similar to the query."""

    face: Number
    """The face's number."""
    path: Text
    """Path of its photo."""
    box_xyxy_px: Box
    identity: FaceIdentity
    name: Name
    similarity: Similarity
    probability: Probability


class Match(ApiModel):
    """An identity similar to the query."""

    identity: Number
    """The identity's number."""
    name: Name
    face: Number
    """Its most similar face."""
    best: float
    """Similarity of its most similar face."""
    mean: float
    """Similarity of the mean of its faces."""
    probability: Probability
    known: bool
    """Whether it is more likely than not that the query shows it."""


class SearchResult(ApiModel):
    """The recognized identity, if any, and the most similar identities and photos."""

    known: Match | None
    """null: no identity was recognized, or none were requested."""
    identities: list[Match]
    photos: list[Hit]


class VerificationResult(ApiModel):
    """Whether two faces show the same individual."""

    similarity: Similarity
    probability: Probability
    same: bool | None
    """Whether the similarity is at least `threshold`; null: no verdict, as the model was never calibrated."""
    threshold: Similarity | None
    """Cosine similarity, in [-1, 1]; null: the model was never calibrated."""


class PhotoVerificationResult(VerificationResult):
    """Whether two photos show the same individual, by their best faces."""

    first: DetectedFace
    """The first photo's best face."""
    second: DetectedFace
    """The second photo's best face."""
