"""The questions whose answers mend most, one at a time."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Literal
from urllib.parse import urlencode

from fastapi import APIRouter, Form, Query, Request
from fastapi.responses import HTMLResponse, RedirectResponse

from familiar.core.errors import NotInGallery
from familiar.gallery.clustering.review_queue import Question, answer_question, is_still_valid, propose_questions
from familiar.gallery.database.connection import Gallery
from familiar.gallery.search import listing
from familiar.gallery.search.listing import KnownFace
from familiar.web.pages.assignment_forms import Number
from familiar.web.pages.flash import FlashMessage, read_flash, url_with_flash
from familiar.web.pages.individuals import merge_url
from familiar.web.pages.render import render_page
from familiar.web.service import ServiceDep

MIN_RELATIVE_GAIN = 1 / 3  # of the worth of the first question somebody was asked: those worth less are not counted
MIN_GAIN = 0.01  # faces and pairs set right, as `Question.expected_gain`: for so little nobody is asked
MAX_COUNTED = 100
MAX_SKIPPED = 100  # that an address remembers; the oldest are asked again
EXTRA_FACES = 3  # more faces of whom a face stands for

router = APIRouter()
Pair = tuple[int, int]
_PAIRS = r"^([0-9]{1,18}-[0-9]{1,18}(_[0-9]{1,18}-[0-9]{1,18})*)?$"
Skipped = Annotated[str, Query(max_length=40 * MAX_SKIPPED, pattern=_PAIRS)]
SkippedBefore = Annotated[str, Form(max_length=40 * MAX_SKIPPED, pattern=_PAIRS)]
Best = Annotated[float, Query(ge=0, le=1e12, allow_inf_nan=False)]
BestBefore = Annotated[float, Form(ge=0, le=1e12, allow_inf_nan=False)]
IdentityField = Annotated[Number | Literal[""], Form()]


@dataclass(frozen=True)
class Side:
    """One of the two faces, how many its individual has, and a few of these; a face of nobody stands for itself."""

    face: KnownFace
    faces: int
    extra_faces: tuple[int, ...]


@router.get("/questions")
async def questions(
    request: Request, service: ServiceDep, skipped: Skipped = "", best: Best = 0.0, enough: bool = False
) -> HTMLResponse:
    """The first that was not skipped. The address carries those that were, the `best` worth that was asked for, and
    whether what matters beside that was all answered once."""
    passed = pairs(skipped)

    def read(gallery: Gallery) -> tuple[list[Question], list[Side], FlashMessage | None]:
        with gallery.reading():
            left = [question for question in _queue(gallery) if pair(question) not in passed]
            return left, _sides(gallery, left[:1]), read_flash(gallery, request.query_params)

    left, sides, told_of = await service.executor.read(read)
    best = best or (round(left[0].expected_gain, 3) if left else 0.0)
    count = 0 if enough else sum(question.expected_gain >= MIN_RELATIVE_GAIN * best for question in left)
    return await render_page(
        request,
        service,
        "questions.html",
        question=left[0] if left else None,
        following=left[1] if len(left) > 1 else None,
        sides=sides,
        count=min(count, MAX_COUNTED),
        many=count > MAX_COUNTED,
        best=best,
        skipped=skipped,
        skips=len(passed),
        enough=not count,
        skipping=address([*passed, pair(left[0])], best, enough=not count) if left else "",
        anew=address(passed, 0.0),
        said=told_of,
    )


@router.post("/questions")
async def answered(
    service: ServiceDep,
    kind: Annotated[Literal["merge", "outlier"], Form()],
    first_face: Annotated[Number, Form()],
    second_face: Annotated[Number, Form()],
    same: Annotated[bool, Form()],
    first: IdentityField = "",
    second: IdentityField = "",
    skipped: SkippedBefore = "",
    best: BestBefore = 0.0,
    enough: Annotated[bool, Form()] = False,
) -> RedirectResponse:
    """The user's word, unless what it is about has changed since it was asked; then the next question. Before two that
    both have a name become one, it is asked which name stays."""
    asked = Question(kind, first_face, second_face, first or None, second or None, 0.0, 0.0, 0.0)
    next_one = address(pairs(skipped), best, enough=enough)
    return RedirectResponse(await service.executor.write_locked(_answer, asked, same, next_one), 303)


def pair(question: Question) -> Pair:
    """Of whom it is; another about the same two faces is the same question."""
    low, high = sorted((question.first_face, question.second_face))
    return low, high


def pairs(skipped: str) -> list[Pair]:
    """
    >>> pairs("3-7_4-5"), pairs("")
    ([(3, 7), (4, 5)], [])
    """
    both = (one.split("-") for one in skipped.split("_") if one)
    return [(int(low), int(high)) for low, high in both]


def address(skipped: Iterable[Pair], best: float, *, enough: bool = False) -> str:
    """Where the questions go on, without these.

    >>> address([(3, 7), (4, 5)], 2.5), address([], 0.0)
    ('/questions?best=2.5&skipped=3-7_4-5', '/questions')
    """
    last = list(dict.fromkeys(skipped))[-MAX_SKIPPED:]
    words = {"best": best, "skipped": "_".join(f"{low}-{high}" for low, high in last), "enough": int(enough)}
    query = urlencode({key: word for key, word in words.items() if word})
    return f"/questions?{query}" if query else "/questions"


def _queue(gallery: Gallery) -> list[Question]:
    """What is to be asked, kept until something is written."""

    def found() -> list[Question]:
        every = propose_questions(gallery, MAX_COUNTED + MAX_SKIPPED)
        return [question for question in every if question.expected_gain >= MIN_GAIN]

    return gallery.cached("questions", gallery.revision, found)


def _answer(gallery: Gallery, asked: Question, same: bool, next_one: str) -> str:
    """Where it goes on, and what is told there."""
    try:
        faces = [listing.face(gallery, number) for number in (asked.first_face, asked.second_face)]
    except NotInGallery:
        return url_with_flash(next_one, "changed")
    now = [face.identity for face in faces]
    if asked.first_face == asked.second_face or not is_still_valid(gallery, asked):
        return url_with_flash(next_one, "changed")
    if (asked.kind == "outlier") != (asked.first is not None and asked.first == asked.second):
        return url_with_flash(next_one, "changed")
    joins = same and asked.kind == "merge"
    known = [number for number in now if number is not None]
    if joins and all(face.name for face in faces):
        return merge_url(known, next_one)
    answer_question(gallery, asked, same)
    if not joins:
        return next_one
    who = listing.face(gallery, asked.first_face).identity
    if len(known) == 2:
        return url_with_flash(next_one, "merged", identity=who)
    return url_with_flash(next_one, "moved" if known else "split", count=2 - len(known), identity=who)


def _sides(gallery: Gallery, asked: list[Question]) -> list[Side]:
    """Of one question, or of none. A face that is doubted stands for itself."""
    return [
        side
        for question in asked
        for side in (
            _side(gallery, question.first_face, alone=question.kind == "outlier"),
            _side(gallery, question.second_face),
        )
    ]


def _side(gallery: Gallery, number: int, *, alone: bool = False) -> Side:
    face = listing.face(gallery, number)
    if face.identity is None:
        return Side(face, 1, ())
    faces = [one.face.face for one in listing.face_confidences(gallery, face.identity)]
    beside = [] if alone else [other for other in faces if other != number][:EXTRA_FACES]
    return Side(face, len(faces), tuple(beside))
