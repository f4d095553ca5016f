"""What the API answers with, as JSON; most are made of the gallery's own values by their attributes."""

from typing import Annotated, Any, Generic, Literal, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from familiar.core.terminal_text import printable

LARGEST_NUMBER = 2**53 - 1  # that every program reads as it is written; a gallery never counts so far

Item = TypeVar("Item")
Number = Annotated[int, Field(ge=1, le=LARGEST_NUMBER, examples=[17])]
# A path or a name may hold bytes that are no UTF-8, which JSON may not.
PrintableText = Annotated[str, BeforeValidator(printable)]
Name = Annotated[PrintableText | None, Field(description="null: it has none.", examples=["Mia"])]
FaceIdentity = Annotated[int | None, Field(description="The identity it shows; null: nobody known.", examples=[3])]
Similarity = Annotated[float, Field(description="The cosine, in [-1, 1].", examples=[0.73])]
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
    """A part of a list."""

    items: list[Item]
    next: str | None = Field(description="The `cursor` that the next part is asked for with; null: there is none.")


class Problem(ApiModel):
    """Problem details (RFC 9457)."""

    type: str = Field(
        description="urn:familiar:problem: and its kind.", examples=["urn:familiar:problem:not-in-gallery"]
    )
    title: str = Field(examples=["Not Found"])
    status: int = Field(examples=[404])
    detail: str = Field(description="What is wrong and what to do, in one line.", examples=["album: has no face 17"])


class Counts(ApiModel):
    """How much a gallery holds; `unknown` faces are nobody's."""

    photos: int
    faces: int
    named: int = Field(description="Identities that have a name.")
    unnamed: int = Field(description="Identities that have none.")
    unassigned: int = Field(description="Faces that are in no identity.")


class Thresholds(ApiModel):
    """From which similarity on two faces show one individual."""

    high_precision: Similarity
    balanced: Similarity
    high_recall: Similarity
    clustering: Similarity
    fitted_on_gallery: bool = Field(description="Whether they were fitted on this gallery, and not on the model's own data.")


class GalleryState(ApiModel):
    """The gallery that is served."""

    counts: Counts
    space_id: str = Field(description="Of the space that its embeddings lie in.")
    embedding_dim: int = Field(examples=[128])
    prefixes: list[int] = Field(description="So many first numbers of an embedding may be searched by alone.")
    thresholds: Thresholds
    revision: int = Field(description="One more with every write.")
    read_only: bool
    has_model: bool = Field(description="Whether photos can be taken in, embedded and searched for.")


class Model(ApiModel):
    """What the model's file says of itself."""

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
    """A face that the gallery holds."""

    face: Number
    photo: Number
    box_xyxy_px: Box
    score: float = Field(description="The detector's, in [0, 1].")
    quality: float = Field(description="How much there is to recognize somebody by, in [0, 1].")
    species: PrintableText | None
    identity: FaceIdentity
    name: Name
    by_user: bool = Field(description="Whether a user said whom it shows.")


class Photo(ApiModel):
    """A photo that the gallery holds."""

    photo: Number
    path: PrintableText
    sha256: str
    taken_at: PrintableText | None = Field(description="ISO 8601, local time.", examples=["2024-06-01T12:00:00"])
    faces: list[Face]


class Identity(ApiModel):
    """An individual."""

    identity: Number
    name: Name
    faces: int = Field(description="How many it has.")
    confirmed: int = Field(description="How many of them a user confirmed.")
    best: list[int] = Field(description="At most four faces that show it best, of different photos.")


class FaceConfidence(ApiModel):
    """A face of an identity, compared with the mean of its others."""

    face: Face
    similarity: Similarity
    probability: Probability


class CorrectionResult(ApiModel):
    """Which identity a correction was about."""

    identity: Number
    propagated_faces: int = Field(description="How many faces nobody spoke of followed.")


class NewFace(ApiModel):
    face: Number


class ClusterResult(ApiModel):
    """What grouping came to."""

    identities: int = Field(description="That hold faces now.")
    faces: int = Field(description="That they hold.")
    unassigned: int = Field(description="Faces of nobody.")
    changed: int = Field(description="Faces that are elsewhere now.")
    threshold: Similarity


class Decision(ApiModel):
    """What a user decided, and can take back."""

    number: int
    kind: str = Field(examples=["merge"])
    decided_at: str = Field(description="ISO 8601, UTC.", examples=["2024-06-01T12:00:00+00:00"])
    changes: int = Field(description="Rows that it changed.")


class SkippedPhoto(ApiModel):
    """A photo that could not be read."""

    name: PrintableText
    reason: PrintableText


class Progress(ApiModel):
    """How far photos have been taken in."""

    number: str = Field(description="Of the job.")
    state: Literal["waiting", "looking", "grouping", "done", "stopped", "failed"]
    total: int = Field(description="Photos to look at.")
    processed: int = Field(description="Photos looked at so far.")
    photos: int = Field(description="New ones.")
    faces: int = Field(description="New ones.")
    without_face: int
    known: int = Field(description="Photos that the gallery knew already.")
    skipped: list[SkippedPhoto] = Field(description="The first 200.")
    skipped_count: int
    new_individuals: int
    error: PrintableText | None = Field(description="Why it failed.")


class DetectedFace(ApiModel):
    """A face that the detector found."""

    box_xyxy_px: Box
    landmarks_px: list[list[float]] | None = Field(
        description="Left eye, right eye, nose, left and right mouth corner as they appear; null: none found."
    )
    score: float = Field(description="The detector's, in [0, 1].")
    quality: float = Field(description="How much there is to recognize somebody by, in [0, 1].")


class EmbeddedFace(DetectedFace):
    embedding: list[float] = Field(description="A unit vector of the model's space.")


FaceType = TypeVar("Found", bound=DetectedFace)


class PhotoFaces(ApiModel, Generic[FaceType]):
    """A photo's faces, best first."""

    name: PrintableText
    size_px: list[int] = Field(min_length=2, max_length=2, description="Width and height of the upright photo.")
    faces: list[FaceType]


class DetectionResult(ApiModel, Generic[FaceType]):
    """The photos that could be read, in the order in which they were sent."""

    photos: list[PhotoFaces[FaceType]]
    skipped: list[PrintableText] = Field(description="Of each other photo its name, and why it could not be read.")


class Hit(ApiModel):
    """A face like the one that was asked for."""

    face: Number
    path: PrintableText
    box_xyxy_px: Box
    identity: FaceIdentity
    name: Name
    similarity: Similarity
    probability: Probability


class Match(ApiModel):
    """An identity like the face that was asked for."""

    identity: Number
    name: Name
    face: Number
    best: float = Field(description="The similarity of its likest face, which is `face`.")
    mean: float = Field(description="The similarity of the mean of its faces.")
    probability: Probability
    known: bool = Field(description="Whether it is more likely so than not.")


class SearchResult(ApiModel):
    """Who it is, if anybody, and the likest of each."""

    known: Match | None = Field(description="null: nobody here, or identities were not asked for.")
    identities: list[Match]
    photos: list[Hit]


class VerificationResult(ApiModel):
    """Whether it is the same individual: from `threshold` on."""

    similarity: Similarity
    probability: Probability
    same: bool
    threshold: Similarity


class PhotoVerificationResult(VerificationResult):
    first: DetectedFace = Field(description="The first photo's best face.")
    second: DetectedFace = Field(description="The second photo's best face.")
