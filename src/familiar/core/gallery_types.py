"""Values that describe a gallery, its photos, faces and identities, and the changes to it.

The gallery returns them, the HTTP API sends them and the client receives them. A field that is not described under
"Attributes" is described with its type in `core.field_types`.
"""

from dataclasses import dataclass, field
from typing import Annotated, Any, Generic, Literal, TypeVar

from familiar.core.field_types import (
    NOT_IN_API,
    FaceIdentity,
    Landmarks,
    Name,
    Number,
    Probability,
    Similarity,
    Text,
)
from familiar.core.types import Box, Face, Label

Item = TypeVar("Item")
StoredType = Literal["float16", "float32", "int8"]
"""How a gallery stores embeddings."""


@dataclass(frozen=True)
class Page(Generic[Item]):
    """One page of a list.

    Attributes:
        next: The `cursor` of the next page; None: this is the last page.
    """

    items: tuple[Item, ...]
    next: str | None


# --- the gallery and its model --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Counts:
    """Number of photos, faces and identities of a gallery.

    Attributes:
        named: Identities with a name.
        unnamed: Identities without a name.
        unassigned: Faces without an identity.
    """

    photos: int
    faces: int
    named: int
    unnamed: int
    unassigned: int


@dataclass(frozen=True)
class SpeciesClustering:
    """From which similarity on faces of one species are clustered together.

    Attributes:
        species: The label from the detector or the user, if there is one.
        faces: Number of these faces.
        threshold: Cosine similarity, in [-1, 1], of faces as they are clustered.
        uncertainty: Its standard deviation, if it was estimated from the album; none if the album shows too few
            individuals: then it is the model's.
        false_match_rate: Estimated share, in [0, 1], of the pairs of two individuals that reach it, an upper limit.
        same_photo_pairs: Number of pairs of faces in one photo, which show two individuals: nobody said otherwise.
        same_photo_matches: How many of these reach the threshold all the same.
        burst_pairs: Number of pairs of photos with a single face each, taken one right after the other within ten
            seconds, which nearly always show the same individual.
        burst_matches: How many of these reach the threshold.
        learned_individuals: Number of confirmed individuals that taught how faces are compared; 0 if none did: fewer
            than five are confirmed, or what they teach does not help with others.
        learned_gain: By how much that raises the mean average precision, in [-1, 1], of confirmed individuals that are
            left out of what is learned.
        decided: How the threshold was decided, in one sentence.
    """

    species: Text | None
    faces: int
    threshold: Similarity
    uncertainty: float | None
    false_match_rate: float | None
    same_photo_pairs: int
    same_photo_matches: int
    burst_pairs: int
    burst_matches: int
    learned_individuals: int
    learned_gain: float | None
    decided: str


@dataclass(frozen=True)
class MinSimilarities:
    """Minimum similarities of two faces of one individual.

    Attributes:
        clustering: Of the species with most faces.
        by_species: From which on faces are clustered.
        is_guess: Whether they are fixed numbers, as the model was never calibrated and the album shows too little.
    """

    high_precision: Similarity
    balanced: Similarity
    high_recall: Similarity
    clustering: Similarity
    by_species: tuple[SpeciesClustering, ...]
    is_guess: bool


@dataclass(frozen=True)
class GalleryState:
    """The gallery of this server.

    Attributes:
        space_id: Identifies the space of its embeddings.
        prefixes: Numbers of leading dimensions that can be searched by.
        revision: Incremented by every write.
        has_model: Whether photos can be enrolled, embedded and searched for.
    """

    counts: Counts
    space_id: str
    embedding_dim: int
    prefixes: tuple[int, ...]
    thresholds: MinSimilarities
    revision: int
    read_only: bool
    has_model: bool


@dataclass(frozen=True)
class ModelMetadata:
    """Metadata of the server's embedding model, from its bundle.

    Attributes:
        file_id: SHA-256 of the network.
        species: Those that this bundle embeds; empty: all.
    """

    file_id: str
    space_id: str
    embedding_dim: int
    prefixes: tuple[int, ...]
    recipe: str
    network: str
    precision: str
    license: str
    taught_by: tuple[str, ...]
    preprocessing: dict[str, Any]
    calibration: dict[str, Any]
    trained_on: dict[str, Any]
    results: dict[str, Any]
    parity: dict[str, Any]
    species: tuple[Text, ...] = ()


# --- photos, faces and identities -----------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class GalleryFace(Face):
    """A face of the gallery, its photo and its identity.

    Attributes:
        box_xyxy_px: Left, top, right, bottom in pixels of the upright photo; all 0 if it was enrolled as an embedding.
        species: What the user or the detector says it is; None: nobody does.
        face: The face's number.
        photo: The number of its photo.
        identity: The face's identity; None: unassigned.
        name: None: none.
        by_user: Whether a user assigned or confirmed the identity.
        path: where the photo was enrolled from.
        sha256: of the photo's content.
        size_bytes: of the photo's file; 0 if the face was enrolled as an embedding.
        taken_at: when the photo was taken: ISO 8601, local time; None: unknown.
    """

    landmarks_px: Annotated[Landmarks | None, NOT_IN_API] = field(default=None, compare=False)
    label: Annotated[Label | None, NOT_IN_API] = None
    face: Number
    photo: Number
    identity: FaceIdentity
    name: Name
    by_user: bool
    path: Annotated[str, NOT_IN_API] = ""
    sha256: Annotated[bytes, NOT_IN_API] = b""
    size_bytes: Annotated[int, NOT_IN_API] = 0
    taken_at: Annotated[str | None, NOT_IN_API] = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "box_xyxy_px", Box(*self.box_xyxy_px))  # it may be empty, unlike that of a detector


@dataclass(frozen=True)
class GalleryPhoto:
    """A photo of the gallery.

    Attributes:
        path: where it was enrolled from last. If another photo has replaced its file, " (replaced, photo NUMBER)" is
            appended, and there is no such file.
        sha256: of its content, as hex.
        taken_at: ISO 8601, local time.
    """

    photo: Number
    path: Text
    sha256: str
    taken_at: Text | None
    faces: tuple[GalleryFace, ...]


@dataclass(frozen=True)
class IdentitySummary:
    """An individual.

    Attributes:
        identity: The identity's number.
        name: None: none.
        faces: Number of its faces.
        confirmed: Number of its faces that a user confirmed.
        best: At most four representative faces, of different photos.
    """

    identity: Number
    name: Name
    faces: int
    confirmed: int
    best: tuple[int, ...]


@dataclass(frozen=True)
class AssignmentConfidence:
    """A face of an identity, compared with the mean of the identity's other faces."""

    face: GalleryFace
    similarity: Similarity
    probability: Probability


@dataclass(frozen=True)
class AdditionResult:
    """Result of adding a face by hand."""

    face: Number


# --- changes --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class CorrectionResult:
    """Result of a correction.

    Attributes:
        identity: The corrected identity.
        propagated_faces: Number of further, similar faces that the correction changed.
    """

    identity: Number
    propagated_faces: int


@dataclass(frozen=True)
class ClusterResult:
    """Result of clustering the faces.

    Attributes:
        identities: Number of identities with faces.
        faces: Number of faces with an identity.
        unassigned: Number of faces without one.
        changed: Number of faces whose identity changed.
        threshold: Cosine similarity, in [-1, 1], from which two faces were taken for the same individual.
    """

    identities: int
    faces: int
    unassigned: int
    changed: int
    threshold: Similarity


@dataclass(frozen=True)
class Decision:
    """A user's change, which can be undone.

    Attributes:
        number: The change's number; later changes have higher numbers.
        kind: The command that made the change.
        decided_at: ISO 8601, UTC.
        changes: Number of changed database rows.
    """

    number: int
    kind: str
    decided_at: str
    changes: int


@dataclass(frozen=True)
class Question:
    """Do two faces show the same individual?

    Attributes:
        kind: "merge": the faces represent two clusters, which a yes would merge. "split": they represent two parts of
            one identity, which a no would separate. "outlier": both are of one identity, and the first face may not
            belong there.
        first_face: The first face's number.
        second_face: The second face's number.
        first: The first face's identity; None: unassigned.
        second: The second face's identity; None: unassigned.
        similarity: Cosine similarity, in [-1, 1], of the two clusters' means ("merge"), of the first face and the mean
            of the identity's other faces ("outlier"), or the mean of that of faces in different parts ("split").
        probability: Probability that the answer is yes, in [0, 1].
        expected_gain: Expected number of corrected faces and pairs; used for ranking.
    """

    kind: Literal["merge", "split", "outlier"]
    first_face: Number
    second_face: Number
    first: Number | None
    second: Number | None
    similarity: float
    probability: float
    expected_gain: float


@dataclass(frozen=True)
class Batch:
    """Which of these faces show one individual?

    Attributes:
        identity: The individual's number.
        members: Faces of the identity that nobody confirmed, those that fit least first.
        candidates: Unassigned faces, and one face of each unnamed group, that may show it, the most likely first.
        expected_gain: Expected number of corrected and named faces.
    """

    identity: Number
    members: tuple[Number, ...]
    candidates: tuple[Number, ...]
    expected_gain: float


# --- enrollment jobs ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SkippedPhoto:
    """A photo that could not be read."""

    name: Text
    reason: Text


@dataclass(frozen=True)
class Progress:
    """Progress of an enrollment job.

    Attributes:
        number: The job's number.
        total: Number of photos to process.
        processed: Number of photos processed so far.
        photos: Number of new photos.
        faces: Number of new faces.
        without_face: Number of new photos in which no face was detected.
        without_bundle: Number of new photos that have no face, as there is no model for any that was detected.
        looked_for: What the detector looks for, such as "head of a cat or dog"; None: not known yet.
        known: Number of photos that were in the gallery before.
        skipped: The first 200.
        after_photo: The last photo of the gallery before; its own have higher numbers.
        error: Why the job failed; None: it did not.
    """

    number: str
    state: Literal["waiting", "processing", "clustering", "done", "stopped", "failed"] = "waiting"
    total: int = 0
    processed: int = 0
    photos: int = 0
    faces: int = 0
    without_face: int = 0
    without_bundle: int = 0
    looked_for: Text | None = None
    known: int = 0
    skipped: tuple[SkippedPhoto, ...] = ()
    skipped_count: int = 0
    new_individuals: int = 0
    after_photo: Annotated[int, NOT_IN_API] = 0
    error: Text | None = None

    @property
    def ended(self) -> bool:
        """Whether it does not change any more."""
        return self.state in ("done", "stopped", "failed")
