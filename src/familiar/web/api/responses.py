"""Response bodies of the API. Most are made from the gallery's own values by their attributes."""

from typing import Annotated, Any, Generic, Literal, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from familiar.core.terminal_text import printable

LARGEST_NUMBER = 2**53 - 1  # every JSON parser reads it exactly; a gallery never counts this far

Item = TypeVar("Item")
Number = Annotated[int, Field(ge=1, le=LARGEST_NUMBER, examples=[17])]
# A path or a name may contain bytes that are not UTF-8, which JSON cannot represent.
PrintableText = Annotated[str, BeforeValidator(printable)]
Name = Annotated[PrintableText | None, Field(description="null: none.", examples=["Mia"])]
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


class ApiModel(BaseModel):
    model_config = ConfigDict(from_attributes=True, allow_inf_nan=False)


class Page(ApiModel, Generic[Item]):
    """One page of a list."""

    items: list[Item]
    next: str | None = Field(description="The `cursor` of the next page; null: this is the last page.")


class Problem(ApiModel):
    """Problem details (RFC 9457)."""

    type: str = Field(
        description="urn:familiar:problem: and the kind of problem.",
        examples=["urn:familiar:problem:not-in-gallery"],
    )
    title: str = Field(examples=["Not Found"])
    status: int = Field(examples=[404])
    detail: str = Field(description="Cause and remedy, in one line.", examples=["album: has no face 17"])


class Counts(ApiModel):
    """Number of photos, faces and identities of a gallery."""

    photos: int
    faces: int
    named: int = Field(description="Identities with a name.")
    unnamed: int = Field(description="Identities without a name.")
    unassigned: int = Field(description="Faces without an identity.")


class Thresholds(ApiModel):
    """Minimum similarities of two faces of one individual."""

    high_precision: Similarity
    balanced: Similarity
    high_recall: Similarity
    clustering: Similarity
    fitted_on_gallery: bool = Field(
        description="Whether they were fitted on this gallery's confirmed faces, not on the model's validation data."
    )


class GalleryState(ApiModel):
    """The gallery of this server."""

    counts: Counts
    space_id: str = Field(description="Identifies the space of its embeddings.")
    embedding_dim: int = Field(examples=[128])
    prefixes: list[int] = Field(description="Numbers of leading dimensions that can be searched by.")
    thresholds: Thresholds
    revision: int = Field(description="Incremented by every write.")
    read_only: bool
    has_model: bool = Field(description="Whether photos can be enrolled, embedded and searched for.")


class Model(ApiModel):
    """Metadata of the server's embedding model, from its bundle."""

    file_id: str = Field(description="SHA-256 of the network.")
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


class Face(ApiModel):
    """A detected face, its quality and its identity."""

    face: Number
    photo: Number
    box_xyxy_px: Box
    score: float = Field(description="The detector's score, in [0, 1].")
    quality: float = Field(description="How well the face can be recognized, in [0, 1].")
    species: PrintableText | None
    identity: FaceIdentity
    name: Name
    by_user: bool = Field(description="Whether a user assigned or confirmed the identity.")


class Photo(ApiModel):
    """A photo of the gallery."""

    photo: Number
    path: PrintableText
    sha256: str
    taken_at: PrintableText | None = Field(description="ISO 8601, local time.", examples=["2024-06-01T12:00:00"])
    faces: list[Face]


class Identity(ApiModel):
    """An individual."""

    identity: Number
    name: Name
    faces: int = Field(description="Number of its faces.")
    confirmed: int = Field(description="Number of its faces that a user confirmed.")
    best: list[int] = Field(description="At most four representative faces, of different photos.")


class FaceConfidence(ApiModel):
    """A face of an identity, compared with the mean of the identity's other faces."""

    face: Face
    similarity: Similarity
    probability: Probability


class CorrectionResult(ApiModel):
    """Result of a correction."""

    identity: Number = Field(description="The corrected identity.")
    propagated_faces: int = Field(description="Number of further, similar faces that the correction changed.")


class NewFace(ApiModel):
    face: Number


class ClusterResult(ApiModel):
    """Result of clustering the faces."""

    identities: int = Field(description="Number of identities with faces.")
    faces: int = Field(description="Number of faces with an identity.")
    unassigned: int = Field(description="Number of faces without one.")
    changed: int = Field(description="Number of faces whose identity changed.")
    threshold: Similarity


class Decision(ApiModel):
    """A user's change, which can be undone."""

    number: int
    kind: str = Field(examples=["merge"])
    decided_at: str = Field(description="ISO 8601, UTC.", examples=["2024-06-01T12:00:00+00:00"])
    changes: int = Field(description="Number of changed database rows.")


class SkippedPhoto(ApiModel):
    """A photo that could not be read."""

    name: PrintableText
    reason: PrintableText


class Progress(ApiModel):
    """Progress of an enrollment job."""

    number: str = Field(description="The job's number.")
    state: Literal["waiting", "processing", "clustering", "done", "stopped", "failed"]
    total: int = Field(description="Number of photos to process.")
    processed: int = Field(description="Number of photos processed so far.")
    photos: int = Field(description="Number of new photos.")
    faces: int = Field(description="Number of new faces.")
    without_face: int = Field(description="Number of new photos without a face.")
    known: int = Field(description="Number of photos that were in the gallery before.")
    skipped: list[SkippedPhoto] = Field(description="The first 200.")
    skipped_count: int
    new_individuals: int
    error: PrintableText | None = Field(description="Why the job failed; null: it did not.")


class DetectedFace(ApiModel):
    """A detected face."""

    box_xyxy_px: Box
    landmarks_px: list[list[float]] | None = Field(
        description="Left eye, right eye, nose, left and right mouth corner as they appear; null: none detected."
    )
    score: float = Field(description="The detector's score, in [0, 1].")
    quality: float = Field(description="How well the face can be recognized, in [0, 1].")


class EmbeddedFace(DetectedFace):
    embedding: list[float] = Field(description="A unit vector of the model's space.")


FaceType = TypeVar("FaceType", bound=DetectedFace)


class PhotoFaces(ApiModel, Generic[FaceType]):
    """A photo's faces, best first."""

    name: PrintableText
    size_px: list[int] = Field(min_length=2, max_length=2, description="Width and height of the upright photo.")
    faces: list[FaceType]


class DetectionResult(ApiModel, Generic[FaceType]):
    """The photos that could be read, in the order in which they were sent."""

    photos: list[PhotoFaces[FaceType]]
    skipped: list[PrintableText] = Field(description="Name and reason for each photo that could not be read.")


class Hit(ApiModel):
    """A face similar to the query."""

    face: Number
    path: PrintableText
    box_xyxy_px: Box
    identity: FaceIdentity
    name: Name
    similarity: Similarity
    probability: Probability


class Match(ApiModel):
    """An identity similar to the query."""

    identity: Number
    name: Name
    face: Number = Field(description="Its most similar face.")
    best: float = Field(description="Similarity of its most similar face.")
    mean: float = Field(description="Similarity of the mean of its faces.")
    probability: Probability
    known: bool = Field(description="Whether it is more likely than not that the query shows it.")


class SearchResult(ApiModel):
    """The recognized identity, if any, and the most similar identities and photos."""

    known: Match | None = Field(description="null: no identity was recognized, or none were requested.")
    identities: list[Match]
    photos: list[Hit]


class VerificationResult(ApiModel):
    """Whether two faces show the same individual: if their similarity is at least `threshold`."""

    similarity: Similarity
    probability: Probability
    same: bool
    threshold: Similarity


class PhotoVerificationResult(VerificationResult):
    first: DetectedFace = Field(description="The first photo's best face.")
    second: DetectedFace = Field(description="The second photo's best face.")
