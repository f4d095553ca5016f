"""The server's responses as values. Boxes are (left, top, right, bottom) in pixels of the upright photo."""

import dataclasses
from dataclasses import dataclass
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import numpy as np
from jaxtyping import Float32

from familiar.core.errors import FamiliarError

Box = tuple[float, float, float, float]
Vector = Float32[np.ndarray, " d"]


@dataclass(frozen=True)
class Counts:
    """Number of photos and faces, of `named` and `unnamed` identities, and of `unassigned` faces."""

    photos: int
    faces: int
    named: int
    unnamed: int
    unassigned: int


@dataclass(frozen=True)
class Thresholds:
    """Minimum similarities; `fitted_on_gallery`: they were fitted on this gallery's confirmed faces."""

    high_precision: float
    balanced: float
    high_recall: float
    clustering: float
    fitted_on_gallery: bool


@dataclass(frozen=True)
class GalleryState:
    counts: Counts
    space_id: str
    embedding_dim: int
    prefixes: tuple[int, ...]
    thresholds: Thresholds
    revision: int
    read_only: bool
    has_model: bool


@dataclass(frozen=True)
class Model:
    """Metadata of the model."""

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


@dataclass(frozen=True)
class Face:
    """A face. `identity` None: unassigned; `by_user`: a user assigned or confirmed the identity."""

    face: int
    photo: int
    box_xyxy_px: Box
    score: float
    quality: float
    species: str | None
    identity: int | None
    name: str | None
    by_user: bool


@dataclass(frozen=True)
class Photo:
    """A photo. `sha256` in hex; `taken_at` as ISO 8601, local time."""

    photo: int
    path: str
    sha256: str
    taken_at: str | None
    faces: tuple[Face, ...]


@dataclass(frozen=True)
class Identity:
    """An identity. `best`: at most four representative faces, of different photos."""

    identity: int
    name: str | None
    faces: int
    confirmed: int
    best: tuple[int, ...]


@dataclass(frozen=True)
class FaceConfidence:
    """A face's similarity to the mean of its identity's other faces."""

    face: Face
    similarity: float
    probability: float | None


@dataclass(frozen=True)
class CorrectionResult:
    """The corrected identity, and the number of further, similar faces that the correction changed."""

    identity: int
    propagated_faces: int


@dataclass(frozen=True)
class ClusterResult:
    """Number of `identities` with faces, of their `faces`, of `unassigned` faces, and of faces that `changed`."""

    identities: int
    faces: int
    unassigned: int
    changed: int
    threshold: float


@dataclass(frozen=True)
class Decision:
    number: int
    kind: str
    decided_at: str
    changes: int


@dataclass(frozen=True)
class Question:
    """Do two faces show the same individual? `kind` is "merge" or "outlier" (`gallery.clustering.review_queue`)."""

    kind: str
    first_face: int
    second_face: int
    first: int | None
    second: int | None
    similarity: float
    probability: float
    expected_gain: float


@dataclass(frozen=True)
class SkippedPhoto:
    name: str
    reason: str


@dataclass(frozen=True)
class Progress:
    """Progress of the job `number`. It ends in the `state` done, stopped or failed; `skipped`: the first 200."""

    number: str
    state: str
    total: int
    processed: int
    photos: int
    faces: int
    without_face: int
    known: int
    skipped: tuple[SkippedPhoto, ...]
    skipped_count: int
    new_individuals: int
    error: str | None


@dataclass(frozen=True, eq=False)
class DetectedFace:
    """A detected face. `landmarks_px`: five (x, y); `embedding`: a unit vector of the model's space, if requested."""

    box_xyxy_px: Box
    landmarks_px: tuple[tuple[float, float], ...] | None
    score: float
    quality: float
    embedding: Vector | None = None


@dataclass(frozen=True)
class PhotoFaces:
    """A photo's width and height, and its faces, best first."""

    name: str
    size_px: tuple[int, int]
    faces: tuple[DetectedFace, ...]


@dataclass(frozen=True)
class DetectionResult:
    """The photos that could be read, in the order in which they were sent; the others with the reasons."""

    photos: tuple[PhotoFaces, ...]
    skipped: tuple[str, ...]


@dataclass(frozen=True)
class Hit:
    face: int
    path: str
    box_xyxy_px: Box
    identity: int | None
    name: str | None
    similarity: float
    probability: float | None


@dataclass(frozen=True)
class Match:
    """An identity. `best`: the similarity of its most similar `face`; `mean`: that of the mean of its faces."""

    identity: int
    name: str | None
    face: int
    best: float
    mean: float
    probability: float | None
    known: bool


@dataclass(frozen=True)
class SearchResult:
    """Search results. `known` None: no identity was recognized, or none were requested."""

    known: Match | None
    identities: tuple[Match, ...]
    photos: tuple[Hit, ...]


@dataclass(frozen=True)
class VerificationResult:
    """A verdict: `same` if the similarity is at least `threshold`. Of two photos, with the best face of each."""

    similarity: float
    probability: float | None
    same: bool
    threshold: float
    first: DetectedFace | None = None
    second: DetectedFace | None = None


@dataclass(frozen=True)
class NewFace:
    face: int


@dataclass(frozen=True)
class Page:
    items: tuple[Any, ...]
    next: str | None


def parse_response(target: Any, content: Any) -> Any:
    """Convert JSON to a value of a type; unknown keys are ignored.

    Raises:
        FamiliarError: the JSON does not fit the type.

    >>> parse_response(CorrectionResult, {"identity": 3, "propagated_faces": 2, "news": True})
    CorrectionResult(identity=3, propagated_faces=2)
    """
    try:
        return _convert(target, content)
    except (TypeError, ValueError) as error:
        raise FamiliarError("unexpected response; the versions of client and server differ, update familiar") from error


def _convert(target: Any, content: Any) -> Any:
    if get_origin(target) in (Union, UnionType):
        return None if content is None else _convert(get_args(target)[0], content)
    if target is Vector:
        return np.array(content, np.float32)
    if get_origin(target) is tuple:
        inner = get_args(target)
        types = inner[:1] * len(content) if inner[-1] is Ellipsis else inner
        return tuple(_convert(item_type, value) for item_type, value in zip(types, content, strict=True))
    if dataclasses.is_dataclass(target) and isinstance(target, type):
        hints = get_type_hints(target, include_extras=True)
        return target(**{name: _convert(hint, content[name]) for name, hint in hints.items() if name in content})
    return content
