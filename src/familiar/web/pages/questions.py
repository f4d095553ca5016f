"""The page of review questions: the ones whose answers correct most, one at a time.

Batches come first: who is this, and which of these faces show the same individual?
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal
from urllib.parse import urlencode

from fastapi import APIRouter, Form, Query
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from familiar.core.errors import Contradiction, NotInGallery, SharedPhoto
from familiar.core.gallery_types import GalleryFace, Question
from familiar.core.names import unify_spelling
from familiar.gallery import Batch, Gallery, IdentityState
from familiar.web.pages.assignment_forms import NameField, Number, NumberField, SpeciesField, SpeciesQuery, find_by_name
from familiar.web.pages.edits import EditDep
from familiar.web.pages.flash import url_after_change, url_with_flash
from familiar.web.pages.individuals import merge_url
from familiar.web.pages.render import PageDep

MIN_GAIN = 0.01  # corrected faces and pairs, see `Question.expected_gain`; questions with less are not asked
MAX_SKIPPED = 100  # that a URL remembers; the oldest are asked again
EXTRA_FACES = 3  # further faces shown of an individual

router = APIRouter()
Pair = tuple[int, int]
_PAIRS = r"^([0-9]{1,18}-[0-9]{1,18}(_[0-9]{1,18}-[0-9]{1,18})*)?$"
SkippedQuery = Annotated[str, Query(max_length=40 * MAX_SKIPPED, pattern=_PAIRS)]
SkippedField = Annotated[str, Form(max_length=40 * MAX_SKIPPED, pattern=_PAIRS)]
ShownFaces = Annotated[list[Number] | None, Form(max_length=100)]
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
async def questions(page: PageDep, skipped: SkippedQuery = "", species: SpeciesQuery = None) -> HTMLResponse:
    """Show the first batch or question that was not skipped.

    Args:
        skipped: the questions that were skipped, as pairs of faces, and the batches, as 0 and the identity.
        species: only about faces of this species.
    """
    skipped_pairs = pairs(skipped)

    def read(gallery: Gallery) -> dict[str, Any]:
        shown = next(
            (
                _shown_batch(gallery, batch)
                for batch in gallery.batches(len(skipped_pairs) + 1, species=species)
                if (0, batch.identity) not in skipped_pairs
            ),
            None,
        ) or _shown_question(gallery, skipped_pairs, species)
        return shown | {
            "remaining": gallery.remaining(species=species),
            "questions_of": {each: gallery.remaining(species=each).questions for each in gallery.species()},
            "skip_url": questions_url([*skipped_pairs, shown["key"]], species) if shown["key"] else "",
        }

    shown = {"skipped": skipped, "skipped_count": len(skipped_pairs), "species": species}
    return await page.render("questions.html", read, **shown)


def _shown_batch(gallery: Gallery, batch: Batch) -> dict[str, Any]:
    """Return what the template shows of a batch."""
    summary = gallery.identity(batch.identity)
    members, candidates = ([gallery.face(face) for face in faces] for faces in (batch.members, batch.candidates))
    groups = dict.fromkeys(face.identity for face in candidates if face.identity is not None)
    sizes = {number: gallery.count_faces(number) for number in groups}
    return {
        "batch": batch,
        "question": None,
        "individual": summary,
        "sure_faces": [face for face in summary.best if face not in batch.members],
        "members": members,
        "candidates": [(face, sizes.get(face.identity or 0, 1)) for face in candidates],
        "states": [*gallery.states([batch.identity, *groups]).values()],
        "key": (0, batch.identity),
    }


def _shown_question(gallery: Gallery, skipped: Sequence[Pair], species: str | None) -> dict[str, Any]:
    """Return what the template shows of the first question that was not skipped, if there is one."""
    proposed = gallery.questions(len(skipped) + 2, species=species)  # one to show, and one to load
    open_questions = [each for each in proposed if each.expected_gain >= MIN_GAIN and pair(each) not in skipped]
    question, next_question, *_ = (*open_questions, None, None)
    sides = [] if question is None else _sides(gallery, question)
    return {
        "batch": None,
        "question": question,
        "next_question": next_question,
        "sides": sides,
        "states": [*gallery.states(side.face.identity for side in sides).values()],
        "key": None if question is None else pair(question),
    }


@router.post("/questions/batch")
async def answer_batch(
    edit: EditDep,
    identity: NumberField,
    member: ShownFaces = None,
    candidate: ShownFaces = None,
    same: ShownFaces = None,
    name: NameField = "",
    skipped: SkippedField = "",
    species: SpeciesField = "",
) -> Response:
    """Answer a batch, unless it is out of date, and redirect to the next one.

    Args:
        member, candidate: the faces that the page showed.
        same: those of them that were ticked.
        name: of the individual; if another one has it, the user is asked whether both are the same.
    """
    batch = Batch(identity, tuple(member or ()), tuple(candidate or ()), 0.0)

    def write(gallery: Gallery) -> str:
        skipped_pairs, new_name = pairs(skipped), unify_spelling(name)
        try:
            gallery.check_states(edit.states)
            other = find_by_name(gallery, new_name) if new_name else None
            is_taken = other not in (None, identity)
            gallery.answer_batch(batch, same or (), None if is_taken else new_name or None, same_photo=edit.same_photo)
        except (NotInGallery, Contradiction) as error:
            if isinstance(error, SharedPhoto):
                raise
            return url_with_flash(questions_url(skipped_pairs, species), "changed")
        if not gallery.names().get(identity):  # the user does not know it: not again
            skipped_pairs.append((0, identity))
        next_url = questions_url(skipped_pairs, species)
        return merge_url([other, identity], next_url) if is_taken else url_after_change(gallery, next_url, "")

    return await edit.write(write)


@router.post("/questions")
async def answer(
    edit: EditDep,
    kind: Annotated[Literal["merge", "split", "outlier"], Form()],
    first_face: NumberField,
    second_face: NumberField,
    same: Annotated[bool, Form()],
    first: IdentityField = "",
    second: IdentityField = "",
    skipped: SkippedField = "",
    species: SpeciesField = "",
) -> RedirectResponse:
    """Answer a question, unless it is out of date, and redirect to the next one.

    Before two named individuals are merged, the user is asked which name to keep.
    """
    question = Question(kind, first_face, second_face, first or None, second or None, 0.0, 0.0, 0.0)
    next_url = questions_url(pairs(skipped), species)
    return RedirectResponse(
        await edit.service.executor.write_locked(_answer, question, same, next_url, edit.states), 303
    )


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


def questions_url(skipped: Iterable[Pair], species: str | None = None) -> str:
    """Return the URL of the next question that is not skipped.

    >>> questions_url([(3, 7), (4, 5)], "cat"), questions_url([])
    ('/questions?species=cat&skipped=3-7_4-5', '/questions')
    """
    last = list(dict.fromkeys(skipped))[-MAX_SKIPPED:]
    fields = {"species": species, "skipped": "_".join(f"{low}-{high}" for low, high in last)}
    query = urlencode({key: value for key, value in fields.items() if value})
    return f"/questions?{query}" if query else "/questions"


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


def _sides(gallery: Gallery, question: Question) -> list[Side]:
    """Return the two sides of a question, with extra faces where they show the whole side."""
    return [
        _side(gallery, question.first_face, is_alone=question.kind != "merge"),
        _side(gallery, question.second_face, is_alone=question.kind == "split"),
    ]


def _side(gallery: Gallery, number: int, *, is_alone: bool = False) -> Side:
    face = gallery.face(number)
    if face.identity is None:
        return Side(face, 1, ())
    faces = [item.face.face for item in gallery.identity_faces(face.identity)]
    extra_faces = [] if is_alone else [other for other in faces if other != number][:EXTRA_FACES]
    return Side(face, len(faces), tuple(extra_faces))
