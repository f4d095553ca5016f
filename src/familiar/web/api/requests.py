"""Request bodies and parameters of the API. Unknown keys are rejected, so that typos are not silently ignored."""

from typing import Annotated, Literal

from fastapi import File, Query, UploadFile
from fastapi import Path as InPath
from pydantic import BeforeValidator, ConfigDict, Field, model_validator

from familiar.web.api.responses import LARGEST_NUMBER, ApiModel

_MAX_COORDINATE_PX = 1_000_000.0
_TIME = r"^[0-9]{4}(-[0-9]{2}(-[0-9]{2}(T[0-9]{2}(:[0-9]{2}(:[0-9]{2})?)?)?)?)?$"


def _float_to_int(value: object) -> object:
    """Convert 3.0 to 3: equal in JSON, but not to a strict int."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


_WHOLE = BeforeValidator(_float_to_int)
Number = Annotated[int, Field(ge=1, le=LARGEST_NUMBER, examples=[17]), _WHOLE]
PathNumber = Annotated[int, InPath(ge=1, le=LARGEST_NUMBER, examples=[17])]
Cursor = Annotated[
    str | None,
    Query(
        max_length=300,
        description="Pagination cursor from the previous page's `next`; omit for the first page.",
    ),
]
Limit = Annotated[int, Query(ge=1, le=500, description="Maximum number of results.")]
Side = Annotated[int, Query(ge=16, le=4096, description="Maximum length of the image's longer side, in pixels.")]
Photos = Annotated[
    list[UploadFile],
    File(min_length=1, description="Photo files; their format is detected from their content."),
]
Photo = Annotated[UploadFile, File(description="A photo file; its format is detected from its content.")]

PreviousJob = Annotated[
    str | None,
    Query(
        max_length=20,
        description="If a set of photos is sent in parts: the job of the previous part. The new job then reports the "
        "progress of both. Unknown job numbers are ignored.",
    ),
]

Component = Annotated[float, Field(ge=-1.01, le=1.01)]
Pixels = Annotated[float, Field(ge=-_MAX_COORDINATE_PX, le=_MAX_COORDINATE_PX)]
NameText = Annotated[str, Field(min_length=1, max_length=200, description="A single line.", examples=["Mia"])]
Time = Annotated[str, Field(pattern=_TIME, examples=["2024-06"])]
K = Annotated[int, Field(ge=1, le=1000, description="Maximum number of results of each kind."), _WHOLE]
ResultKind = Literal["photo", "identity"]


class RequestBody(ApiModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class EnrollFolderRequest(RequestBody):
    folder: str = Field(
        min_length=1,
        max_length=4096,
        description="A folder on the server, within its roots: absolute, or relative to one of them.",
        examples=["holiday/2024"],
    )


class NameRequest(RequestBody):
    name: NameText
    confirm: bool = Field(False, description="Also mark every face of the identity as confirmed.")


class MergeRequest(RequestBody):
    identities: list[Number] = Field(
        min_length=1, max_length=1000, description="The identities to merge into this one.", examples=[[5, 9]]
    )


class FacesRequest(RequestBody):
    faces: list[Number] = Field(min_length=1, max_length=10_000, examples=[[17, 18]])


class MoveRequest(FacesRequest):
    identity: Number = Field(description="The identity that the faces show.")


class SplitRequest(FacesRequest):
    name: NameText | None = Field(None, description="Name of the new identity; null: none.")


class RejectRequest(FacesRequest):
    identity: Number | None = Field(None, description="Identity to reject; null means each face's current identity.")


class CannotLinkRequest(RequestBody):
    first_face: Number
    second_face: Number


class ClusterRequest(RequestBody):
    threshold: float | None = Field(
        None,
        ge=-1,
        le=1,
        description="Minimum similarity of faces of one individual; null: the gallery's threshold.",
    )
    rebuild: bool = Field(False, description="Cluster again all faces that are neither named nor confirmed.")


class ReviewQuestion(RequestBody):
    """Do two faces show the same individual?

    "merge": they represent two clusters, `first` and `second` (null: an unassigned face), which a yes would merge.
    "outlier": both are in `first`, and the first face may not belong there.
    """

    kind: Literal["merge", "outlier"]
    first_face: Number
    second_face: Number
    first: Number | None = Field(description="The first face's identity.")
    second: Number | None = Field(description="The second face's identity.")
    similarity: float
    probability: float = Field(description="Probability that the answer is yes.")
    expected_gain: float = Field(description="Expected number of corrected faces and pairs; used for ranking.")


class AnswerRequest(RequestBody):
    question: ReviewQuestion = Field(description="The question as returned by `list_questions`.")
    same: bool


class FaceBoxRequest(RequestBody):
    box_xyxy_px: list[Pixels] = Field(
        min_length=4,
        max_length=4,
        description="Left, top, right, bottom in pixels of the upright photo.",
        examples=[[40, 32, 168, 160]],
    )

    @property
    def box(self) -> tuple[float, float, float, float]:
        left, top, right, bottom = self.box_xyxy_px
        return left, top, right, bottom

    @model_validator(mode="after")
    def _check_box(self) -> "FaceBoxRequest":
        left, top, right, bottom = self.box
        if not (left < right and top < bottom):
            raise ValueError("a box must have left < right and top < bottom")
        return self


class SearchFilter(RequestBody):
    """The faces to search; null: no restriction."""

    identities: Annotated[list[Number] | None, Field(max_length=1000)] = None
    species: Annotated[str | None, Field(max_length=100, examples=["cat"])] = None
    since: Annotated[Time | None, Field(description="Only photos taken then or later.")] = None
    until: Annotated[Time | None, Field(description="Only photos taken then or earlier.")] = None


class SearchRequest(RequestBody):
    """The query: exactly one of `embedding` and `face`."""

    embedding: list[Component] | None = Field(None, min_length=1, max_length=4096, description="A unit vector.")
    face: Number | None = Field(None, description="A face of the gallery; it is among the results itself.")
    k: K = 10
    by: ResultKind | None = Field(
        None, description="Return only photos, or only identities, in half the time; null: both."
    )
    prefix: Annotated[int, Field(ge=1, le=4096), _WHOLE] | None = Field(
        None, description="Search photos by this many leading dimensions of the embedding, which is faster."
    )
    filter: SearchFilter = SearchFilter()

    @model_validator(mode="after")
    def _check_query(self) -> "SearchRequest":
        if (self.embedding is None) == (self.face is None):
            raise ValueError("give exactly one of embedding and face")
        return self
