"""What the API is asked, as JSON. A key that is not known is refused, as a word that was misspelt would be unheard."""

from typing import Annotated, Literal

from fastapi import File, Query, UploadFile
from fastapi import Path as InPath
from pydantic import BeforeValidator, ConfigDict, Field, model_validator

from familiar.web.api.responses import LARGEST_NUMBER, ApiModel

_FARTHEST_PX = 1_000_000.0
_TIME = r"^[0-9]{4}(-[0-9]{2}(-[0-9]{2}(T[0-9]{2}(:[0-9]{2}(:[0-9]{2})?)?)?)?)?$"


def _as_number(value: object) -> object:
    """To JSON 3.0 is as whole as 3, to a strict int it is not."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


_WHOLE = BeforeValidator(_as_number)
Number = Annotated[int, Field(ge=1, le=LARGEST_NUMBER, examples=[17]), _WHOLE]
PathNumber = Annotated[int, InPath(ge=1, le=LARGEST_NUMBER, examples=[17])]
Cursor = Annotated[
    str | None,
    Query(max_length=300, description="What the part before gave as `next`; without it, the first part."),
]
Limit = Annotated[int, Query(ge=1, le=500, description="So many at most.")]
Side = Annotated[int, Query(ge=16, le=4096, description="Of the picture's longer side in pixels, at most.")]
Photos = Annotated[
    list[UploadFile], File(min_length=1, description="Photos; what they are is judged by their content.")
]
Photo = Annotated[UploadFile, File(description="A photo; what it is is judged by its content.")]

PreviousJob = Annotated[
    str | None,
    Query(
        max_length=20,
        description="The job of the part before, where one set comes in parts: what is told then holds for all "
        "of it. One that is not known any more is left unheard.",
    ),
]

Component = Annotated[float, Field(ge=-1.01, le=1.01)]
Pixels = Annotated[float, Field(ge=-_FARTHEST_PX, le=_FARTHEST_PX)]
NameText = Annotated[str, Field(min_length=1, max_length=200, description="One line.", examples=["Mia"])]
Time = Annotated[str, Field(pattern=_TIME, examples=["2024-06"])]
K = Annotated[int, Field(ge=1, le=1000, description="So many of each at most."), _WHOLE]
ResultKind = Literal["photo", "identity"]


class RequestBody(ApiModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class EnrollFolderRequest(RequestBody):
    folder: str = Field(
        min_length=1,
        max_length=4096,
        description="On the server, inside its roots: absolute, or relative to one of them.",
        examples=["holiday/2024"],
    )


class NameRequest(RequestBody):
    name: NameText
    confirm: bool = Field(False, description="Whether all its faces are rightly there.")


class MergeRequest(RequestBody):
    others: list[Number] = Field(min_length=1, max_length=1000, examples=[[5, 9]])


class FacesRequest(RequestBody):
    faces: list[Number] = Field(min_length=1, max_length=10_000, examples=[[17, 18]])


class MoveRequest(FacesRequest):
    to: Number = Field(description="The identity that they show.")


class SplitRequest(FacesRequest):
    name: NameText | None = None


class RejectRequest(FacesRequest):
    identity: Number | None = Field(None, description="Whom they do not show; null: whom they are said to.")


class CannotLinkRequest(RequestBody):
    first: Number
    second: Number


class ClusterRequest(RequestBody):
    threshold: float | None = Field(
        None,
        ge=-1,
        le=1,
        description="The similarity from which on faces show one individual; null: the gallery's.",
    )
    rebuild: bool = Field(False, description="Whether groups without a name are made anew.")


class ReviewQuestion(RequestBody):
    """Do two faces show one individual?

    "merge": they stand for two groups, `first` and `second` (null: a face of its own), which would become one.
    "outlier": both are in `first`, and the first face may not belong there.
    """

    kind: Literal["merge", "outlier"]
    first_face: Number
    second_face: Number
    first: Number | None
    second: Number | None
    similarity: float
    probability: float = Field(description="That the answer is yes.")
    expected_gain: float = Field(description="How much an answer would mend, beside the others.")


class AnswerRequest(RequestBody):
    question: ReviewQuestion = Field(description="As it was asked.")
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
    def _is_a_box(self) -> "FaceBoxRequest":
        left, top, right, bottom = self.box
        if not (left < right and top < bottom):
            raise ValueError("a box is left, top, right, bottom, and not empty")
        return self


class SearchFilter(RequestBody):
    """Which faces are searched; what is null does not matter."""

    identities: Annotated[list[Number] | None, Field(max_length=1000)] = None
    species: Annotated[str | None, Field(max_length=100, examples=["cat"])] = None
    since: Annotated[Time | None, Field(description="Only photos taken then or later.")] = None
    until: Annotated[Time | None, Field(description="Only photos taken then or earlier.")] = None


class SearchRequest(RequestBody):
    """For whom: exactly one of `embedding` and `face`."""

    embedding: list[Component] | None = Field(None, min_length=1, max_length=4096, description="A unit vector.")
    face: Number | None = Field(None, description="One of the gallery's, which is found itself, too.")
    k: K = 10
    by: ResultKind | None = Field(None, description="Only photos, or only identities, in half the time; null: both.")
    prefix: Annotated[int, Field(ge=1, le=4096), _WHOLE] | None = Field(
        None, description="Photos are found by so many first numbers alone, which is faster."
    )
    only: SearchFilter = SearchFilter()

    @model_validator(mode="after")
    def _asks_for_one(self) -> "SearchRequest":
        if (self.embedding is None) == (self.face is None):
            raise ValueError("give exactly one of embedding and face")
        return self
