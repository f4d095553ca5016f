"""Request bodies and parameters of the API."""

from typing import Annotated, Literal

from fastapi import File, Query, UploadFile
from fastapi import Path as InPath
from pydantic import Field, model_validator

from familiar.core.field_types import LARGEST_NUMBER
from familiar.core.gallery_types import Batch, Question
from familiar.web.api.models import WHOLE_NUMBER, RequestBody, RequestNumber
from familiar.web.api.shared_types import api_type

_MAX_COORDINATE_PX = 1_000_000.0
_TIME = r"^[0-9]{4}(-[0-9]{2}(-[0-9]{2}(T[0-9]{2}(:[0-9]{2}(:[0-9]{2})?)?)?)?)?$"

PathNumber = Annotated[int, InPath(ge=1, le=LARGEST_NUMBER, examples=[17])]
Cursor = Annotated[
    str | None,
    Query(max_length=300, description="Pagination cursor from the previous page's `next`; omit for the first page."),
]
Limit = Annotated[int, Query(ge=1, le=500, description="Maximum number of results.")]
Species = Annotated[str | None, Query(max_length=100, description="Only of this species.", examples=["cat"])]
Side = Annotated[
    int,
    Query(
        ge=16, le=4096, description="Length of the image's longer side, in pixels; rounded up to 64, 128, ... or 2048."
    ),
]
Photos = Annotated[
    list[UploadFile], File(min_length=1, description="Photo files; their format is detected from their content.")
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
NameText = Annotated[
    str,
    Field(
        min_length=1,
        max_length=200,
        description="Without control characters. Stored with composed accents, plain spaces, and no invisible marks.",
        examples=["Mia"],
    ),
]
Time = Annotated[str, Field(pattern=_TIME, examples=["2024-06"])]
K = Annotated[int, Field(ge=1, le=1000, description="Maximum number of results of each kind."), WHOLE_NUMBER]
ResultKind = Literal["photo", "identity"]
SamePhoto = Annotated[
    bool,
    Field(
        description="Accept that a photo shows the identity twice, as a collage or a mirror does. These faces are then "
        "confirmed."
    ),
]


class EnrollFolderRequest(RequestBody):
    folder: str = Field(min_length=1, max_length=4096, examples=["holiday/2024"])
    """A folder on the server, within its roots: absolute, or relative to one of them."""


DetectorName = Literal["pets", "auto"]


class RedetectRequest(RequestBody):
    detector: DetectorName | None = None
    """pets: look for cats and dogs; auto: also for people. null: for what the gallery has looked for."""


class NameRequest(RequestBody):
    name: NameText
    confirm: bool = False
    """Also mark every face of the identity as confirmed."""


class MergeRequest(RequestBody):
    identities: list[RequestNumber] = Field(min_length=1, max_length=1000, examples=[[5, 9]])
    """The identities to merge into this one."""
    same_photo: SamePhoto = False


class FacesRequest(RequestBody):
    faces: list[RequestNumber] = Field(min_length=1, max_length=10_000, examples=[[17, 18]])


class MoveRequest(FacesRequest):
    identity: RequestNumber
    """The identity that the faces show."""
    same_photo: SamePhoto = False


class SplitRequest(FacesRequest):
    name: NameText | None = None
    """Name of the new identity; null: none."""
    same_photo: SamePhoto = False


class RejectRequest(FacesRequest):
    identity: RequestNumber | None = None
    """Identity to reject; null means each face's current identity."""


class CannotLinkRequest(RequestBody):
    first_face: RequestNumber
    second_face: RequestNumber


class ClusterRequest(RequestBody):
    threshold: float | None = Field(None, ge=-1, le=1)
    """Minimum similarity of faces of one individual; null: the gallery's threshold."""
    rebuild: bool = False
    """Cluster again all faces that are neither named nor confirmed."""


ReviewQuestion = api_type(Question, RequestBody)
ReviewBatch = api_type(Batch, RequestBody)


class AnswerRequest(RequestBody):
    question: ReviewQuestion  # pyright: ignore[reportInvalidTypeForm] - a class made from a shared type
    """The question as returned by `list_questions`."""
    same: bool


class BatchAnswerRequest(RequestBody):
    batch: ReviewBatch  # pyright: ignore[reportInvalidTypeForm]
    """The batch as returned by `list_batches`."""
    same: list[RequestNumber] = Field(max_length=100)
    """Those of its faces that show the individual; the others do not."""
    name: NameText | None = None
    """The identity's name from now on; null: as it is."""
    same_photo: SamePhoto = False


class FaceBoxRequest(RequestBody):
    box_xyxy_px: list[Pixels] = Field(min_length=4, max_length=4, examples=[[40, 32, 168, 160]])
    """Left, top, right, bottom in pixels of the upright photo."""

    @model_validator(mode="after")
    def _check_box(self) -> "FaceBoxRequest":
        left, top, right, bottom = self.box_xyxy_px
        if not (left < right and top < bottom):
            raise ValueError("a box must have left < right and top < bottom")
        return self


class NewFaceRequest(FaceBoxRequest):
    species: str | None = None
    """What the face is of; null: the species of all other faces in the photo, if they are of one."""


class SearchFilter(RequestBody):
    """The faces to search; null: no restriction."""

    identities: Annotated[list[RequestNumber] | None, Field(max_length=1000)] = None
    species: Annotated[str | None, Field(max_length=100, examples=["cat"])] = None
    since: Time | None = None
    """Only photos taken then or later."""
    until: Time | None = None
    """Only photos taken then or earlier."""


class SearchRequest(RequestBody):
    """The query: exactly one of `embedding` and `face`."""

    embedding: list[Component] | None = Field(None, min_length=1, max_length=4096)
    """A unit vector of one of the gallery's lengths."""
    face: RequestNumber | None = None
    """A face of the gallery; it is among the results itself."""
    k: K = 10
    by: ResultKind | None = None
    """Return only photos, or only identities, in half the time; null: both."""
    prefix: Annotated[int, Field(ge=1, le=4096), WHOLE_NUMBER] | None = None
    """Search photos by this many leading dimensions of the embedding, which is faster."""
    filter: SearchFilter = SearchFilter()

    @model_validator(mode="after")
    def _check_query(self) -> "SearchRequest":
        if (self.embedding is None) == (self.face is None):
            raise ValueError("give exactly one of embedding and face")
        return self
