"""The page of review questions: the ones whose answers correct most, one at a time."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

from fastapi import APIRouter, Form, Query, Request
from fastapi.responses import HTMLResponse, RedirectResponse

from familiar.core.errors import Contradiction, NotInGallery
from familiar.core.gallery_types import GalleryFace, Question
from familiar.gallery import AnswersLeft, Gallery, IdentityState
from familiar.web.pages.assignment_forms import Number, StatesDep
from familiar.web.pages.flash import FlashMessage, read_flash, url_after_change, url_with_flash
from familiar.web.pages.individuals import merge_url
from familiar.web.pages.render import render_page
from familiar.web.service import ServiceDep

MIN_GAIN = 0.01  # corrected faces and pairs, see `Question.expected_gain`; questions with less are not asked
MAX_SKIPPED = 100  # that a URL remembers; the oldest are asked again
EXTRA_FACES = 3  # further faces shown of an individual

router = APIRouter()
Pair = tuple[int, int]
_PAIRS = r"^([0-9]{1,18}-[0-9]{1,18}(_[0-9]{1,18}-[0-9]{1,18})*)?$"
SkippedQuery = Annotated[str, Query(max_length=40 * MAX_SKIPPED, pattern=_PAIRS)]
SkippedField = Annotated[str, Form(max_length=40 * MAX_SKIPPED, pattern=_PAIRS)]
IdentityField = Annotated[Number | Literal[""], Form()]


@dataclass(frozen=True)
class Side:
    """One of the two faces, the number of faces of its individual, and a few of these to show.

    An unassigned face has only itself.
    """

    face: GalleryFace
    faces: int
    extra_faces: tuple[int, ...]


@router.get("/questions")
async def questions(request: Request, service: ServiceDep, skipped: SkippedQuery = "") -> HTMLResponse:
    """Show the first question that was not skipped.

    Args:
        skipped: the questions that were skipped, as pairs of faces.
    """
    skipped_pairs = pairs(skipped)

    def read(
        gallery: Gallery,
    ) -> tuple[list[Question], list[Side], list[IdentityState], AnswersLeft, FlashMessage | None]:
        with gallery.read():
            proposed = gallery.questions(len(skipped_pairs) + 2)  # one to show, and one to load its faces
            remaining = [
                question
                for question in proposed
                if question.expected_gain >= MIN_GAIN and pair(question) not in skipped_pairs
            ]
            flash = read_flash(gallery, request.query_params)
            sides = _sides(gallery, remaining[:1])
            states = [*gallery.states(side.face.identity for side in sides).values()]
            return remaining, sides, states, gallery.answers_left(), flash

    remaining, sides, states, answers_left, flash = await service.executor.read(read)
    return await render_page(
        request,
        service,
        "questions.html",
        question=remaining[0] if remaining else None,
        next_question=remaining[1] if len(remaining) > 1 else None,
        sides=sides,
        states=states,
        answers_left=answers_left,
        skipped=skipped,
        skipped_count=len(skipped_pairs),
        skip_url=questions_url([*skipped_pairs, pair(remaining[0])]) if remaining else "",
        flash=flash,
    )


@router.post("/questions")
async def answer(
    service: ServiceDep,
    kind: Annotated[Literal["merge", "split", "outlier"], Form()],
    first_face: Annotated[Number, Form()],
    second_face: Annotated[Number, Form()],
    same: Annotated[bool, Form()],
    states: StatesDep,
    first: IdentityField = "",
    second: IdentityField = "",
    skipped: SkippedField = "",
) -> RedirectResponse:
    """Answer a question, unless it is out of date, and redirect to the next one.

    Before two named individuals are merged, the user is asked which name to keep.
    """
    question = Question(kind, first_face, second_face, first or None, second or None, 0.0, 0.0, 0.0)
    next_url = questions_url(pairs(skipped))
    return RedirectResponse(await service.executor.write_locked(_answer, question, same, next_url, states), 303)


def pair(question: Question) -> Pair:
    """Return the question's faces in order; another question about the same two faces is the same."""
    low, high = sorted((question.first_face, question.second_face))
    return low, high


def pairs(skipped: str) -> list[Pair]:
    """Parse the pairs of faces of a URL.

    >>> pairs("3-7_4-5"), pairs("")
    ([(3, 7), (4, 5)], [])
    """
    faces = (text.split("-") for text in skipped.split("_") if text)
    return [(int(low), int(high)) for low, high in faces]


def questions_url(skipped: Iterable[Pair]) -> str:
    """Return the URL of the next question that is not skipped.

    >>> questions_url([(3, 7), (4, 5)]), questions_url([])
    ('/questions?skipped=3-7_4-5', '/questions')
    """
    last = list(dict.fromkeys(skipped))[-MAX_SKIPPED:]
    return f"/questions?skipped={'_'.join(f'{low}-{high}' for low, high in last)}" if last else "/questions"


def _answer(gallery: Gallery, question: Question, same: bool, next_url: str, states: Sequence[IdentityState]) -> str:
    """Answer a question. Returns `next_url` with a flash message, or the URL of the page that asks for the name."""
    try:
        faces = [gallery.face(number) for number in (question.first_face, question.second_face)]
        gallery.check_states(states)
    except (NotInGallery, Contradiction):
        return url_with_flash(next_url, "changed")
    if question.first_face == question.second_face or not gallery.is_current(question):
        return url_with_flash(next_url, "changed")
    if (question.kind != "merge") != (question.first is not None and question.first == question.second):
        return url_with_flash(next_url, "changed")
    merges = same and question.kind == "merge"
    identities = [face.identity for face in faces if face.identity is not None]
    if merges and all(face.name for face in faces):
        return merge_url(identities, next_url)
    gallery.answer(question, same)
    if not merges:
        return url_after_change(gallery, next_url, "")
    merged = gallery.face(question.first_face).identity
    if len(identities) == 2:
        return url_after_change(gallery, next_url, "merged", identity=merged)
    return url_after_change(
        gallery, next_url, "moved" if identities else "split", count=2 - len(identities), identity=merged
    )


def _sides(gallery: Gallery, shown: list[Question]) -> list[Side]:
    """Return the two sides of the question that is shown, if any, with extra faces where they show the whole side."""
    return [
        side
        for question in shown
        for side in (
            _side(gallery, question.first_face, is_alone=question.kind != "merge"),
            _side(gallery, question.second_face, is_alone=question.kind == "split"),
        )
    ]


def _side(gallery: Gallery, number: int, *, is_alone: bool = False) -> Side:
    face = gallery.face(number)
    if face.identity is None:
        return Side(face, 1, ())
    faces = [item.face.face for item in gallery.identity_faces(face.identity)]
    extra_faces = [] if is_alone else [other for other in faces if other != number][:EXTRA_FACES]
    return Side(face, len(faces), tuple(extra_faces))
