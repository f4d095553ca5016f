"""What a server answers, as values. Boxes are (left, top, right, bottom) in pixels of the upright photo."""

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
    """`named` and `unnamed` identities, and faces that are `unknown`, nobody's."""

    photos: int
    faces: int
    named: int
    unnamed: int
    unassigned: int


@dataclass(frozen=True)
class Thresholds:
    """Similarities; `own` where they were fitted on this gallery."""

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
    """What the model's file says of itself."""

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
    """`identity` is None where it is nobody's; `by_user`: a user said whose it is."""

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
    """`sha256` in hex; `taken_at` as ISO 8601, local time."""

    photo: int
    path: str
    sha256: str
    taken_at: str | None
    faces: tuple[Face, ...]


@dataclass(frozen=True)
class Identity:
    """`best`: at most four faces, of different photos."""

    identity: int
    name: str | None
    faces: int
    confirmed: int
    best: tuple[int, ...]


@dataclass(frozen=True)
class FaceConfidence:
    """How like the mean of its identity's other faces a face is."""

    face: Face
    similarity: float
    probability: float | None


@dataclass(frozen=True)
class CorrectionResult:
    """The identity that a correction was about, and how many faces nobody spoke of it carried along."""

    identity: int
    propagated_faces: int


@dataclass(frozen=True)
class ClusterResult:
    """`identities` that hold faces now, the `faces` they hold, those `alone`, and how many `changed`."""

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
    """Do two faces show one individual? `kind` is "merge" or "outlier" (`familiar.gallery.clustering.review_queue`)."""

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
    """Of the job `number`, which is over where the `state` is done, stopped or failed; `skipped`: the first 200."""

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
    """`landmarks_px`: five (x, y); `embedding`: a unit vector of the model's space, where it was asked for."""

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
    """The photos that could be read, in the order in which they were sent; and of the others, why not."""

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
    """`best`: the similarity of its likest `face`; `mean`: that of the mean of its faces."""

    identity: int
    name: str | None
    face: int
    best: float
    mean: float
    probability: float | None
    known: bool


@dataclass(frozen=True)
class SearchResult:
    """`known` None: nobody here, or identities were not asked for."""

    known: Match | None
    identities: tuple[Match, ...]
    photos: tuple[Hit, ...]


@dataclass(frozen=True)
class VerificationResult:
    """`same` from the `threshold` on. Of two photos with the best face of each."""

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


def parse_response(kind: Any, said: Any) -> Any:
    """A `kind` of what JSON holds; keys that it does not know are left out. FamiliarError where it is none.

    >>> understood(Corrected, {"identity": 3, "propagated_faces": 2, "news": True})
    Corrected(identity=3, propagated_faces=2)
    """
    try:
        return _convert(kind, said)
    except (TypeError, ValueError) as error:
        raise FamiliarError("the server's answer is none that this client knows; update familiar") from error


def _convert(kind: Any, said: Any) -> Any:
    if get_origin(kind) in (Union, UnionType):
        return None if said is None else _convert(get_args(kind)[0], said)
    if kind is Vector:
        return np.array(said, np.float32)
    if get_origin(kind) is tuple:
        inner = get_args(kind)
        kinds = inner[:1] * len(said) if inner[-1] is Ellipsis else inner
        return tuple(_convert(one, value) for one, value in zip(kinds, said, strict=True))
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        hints = get_type_hints(kind, include_extras=True)
        return kind(**{name: _convert(hint, said[name]) for name, hint in hints.items() if name in said})
    return said
