"""The page of review questions: the ones whose answers correct most, one at a time.

Batches come first: who is this, and which of these faces show the same individual?
"""

from collections.abc import Sequence
from typing import Annotated, Any, Literal
from urllib.parse import urlencode

from fastapi import APIRouter, Form, Query
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from familiar.core.errors import Contradiction, NotInGallery, SharedPhoto
from familiar.core.gallery_types import Question
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
_PAIRS = r"^([0-9]{1,18}-[0-9]{1,18}(_[0-9]{1,18}-[0-9]{1,18})*)?$"
SkippedQuery = Annotated[str, Query(max_length=40 * MAX_SKIPPED, pattern=_PAIRS)]
SkippedField = Annotated[str, Form(max_length=40 * MAX_SKIPPED, pattern=_PAIRS)]
ShownFaces = Annotated[list[Number] | None, Form(max_length=100)]
IdentityField = Annotated[Number | Literal[""], Form()]


@router.get("/questions")
async def questions(page: PageDep, skipped: SkippedQuery = "", species: SpeciesQuery = None) -> HTMLResponse:
    """Show the first batch or question that was not skipped.

    Args:
        skipped: the questions that were skipped, as pairs of faces, and the batches, as 0 and the identity.
        species: only about faces of this species.
    """
    skipped_keys = skipped.split("_") if skipped else []

    def read(gallery: Gallery) -> dict[str, Any]:
        proposed = gallery.batches(len(skipped_keys) + 1, species=species)
        batch = next((each for each in proposed if f"0-{each.identity}" not in skipped_keys), None)
        shown = _shown_batch(gallery, batch) if batch else _shown_question(gallery, skipped_keys, species)
        return shown | {
            "remaining": gallery.remaining(species=species),
            "questions_of": {each: gallery.remaining(species=each).questions for each in gallery.species()},
            "skip_url": questions_url(skipped, species, shown["key"]) if shown["key"] else "",
        }

    shown = {"skipped": skipped, "skipped_count": len(skipped_keys), "species": species}
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
        "key": f"0-{batch.identity}",
    }


def _shown_question(gallery: Gallery, skipped: Sequence[str], species: str | None) -> dict[str, Any]:
    """Return what the template shows of the first question that was not skipped, if there is one."""
    proposed = gallery.questions(len(skipped) + 2, species=species)  # one to show, and one to load
    open_questions = [each for each in proposed if each.expected_gain >= MIN_GAIN and _key(each) not in skipped]
    question, next_question, *_ = (*open_questions, None, None)
    sides: list[dict[str, Any]] = []
    if question is not None:
        sides.append(_side(gallery, question.first_face, shows_more=question.kind == "merge"))
        sides.append(_side(gallery, question.second_face, shows_more=question.kind != "split"))
    return {
        "batch": None,
        "question": question,
        "next_question": next_question,
        "sides": sides,
        "states": [*gallery.states(side["face"].identity for side in sides).values()],
        "key": question and _key(question),
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
        new_name = unify_spelling(name)
        try:
            gallery.check_states(edit.states)
            other = find_by_name(gallery, new_name) if new_name else None
            is_taken = other not in (None, identity)
            gallery.answer_batch(batch, same or (), None if is_taken else new_name or None, same_photo=edit.same_photo)
        except (NotInGallery, Contradiction) as error:
            if isinstance(error, SharedPhoto):
                raise
            return url_with_flash(questions_url(skipped, species), "changed")
        is_known = identity in gallery.names()
        next_url = questions_url(skipped, species, "" if is_known else f"0-{identity}")  # unknown: not again
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
    next_url = questions_url(skipped, species)
    return RedirectResponse(await edit.service.executor.write(_answer, question, same, next_url, edit.states), 303)


def questions_url(skipped: str, species: str | None = None, skipped_now: str = "") -> str:
    """Return the URL of the next question that is not skipped.

    >>> questions_url("3-7", "cat", "4-5"), questions_url("")
    ('/questions?species=cat&skipped=3-7_4-5', '/questions')
    """
    keys = list(dict.fromkeys(key for key in (*skipped.split("_"), skipped_now) if key))[-MAX_SKIPPED:]
    query = urlencode({key: value for key, value in (("species", species), ("skipped", "_".join(keys))) if value})
    return f"/questions?{query}" if query else "/questions"


def _key(question: Question) -> str:
    """Return the two faces of a question in order; another question about the same two is the same."""
    return "-".join(map(str, sorted((question.first_face, question.second_face))))


def _answer(gallery: Gallery, question: Question, same: bool, next_url: str, states: Sequence[IdentityState]) -> str:
    """Answer a question. Returns `next_url` with a flash message, or the URL of the page that asks for the name."""
    try:
        faces = [gallery.face(number) for number in (question.first_face, question.second_face)]
        gallery.check_states(states)
    except (NotInGallery, Contradiction):
        faces = []
    are_one = question.first is not None and question.first == question.second
    is_sound = len({face.face for face in faces}) == 2 and are_one == (question.kind != "merge")
    if not is_sound or not gallery.is_current(question):
        return url_with_flash(next_url, "changed")
    merges = same and question.kind == "merge"
    identities = [face.identity for face in faces if face.identity is not None]
    if merges and all(face.name for face in faces):
        return merge_url(identities, next_url)
    gallery.answer(question, same)
    if not merges:
        return url_after_change(gallery, next_url, "")
    merged, done = gallery.face(question.first_face).identity, ("split", "moved", "merged")[len(identities)]
    return url_after_change(gallery, next_url, done, count=2 - len(identities), identity=merged)


def _side(gallery: Gallery, number: int, *, shows_more: bool) -> dict[str, Any]:
    """Return a face of a question, the number of faces of its individual, and a few of these if they are shown."""
    face = gallery.face(number)
    faces = [number] if face.identity is None else [each.face.face for each in gallery.identity_faces(face.identity)]
    others = [other for other in faces if other != number]
    return {"face": face, "faces": len(faces), "extra_faces": others[:EXTRA_FACES] if shows_more else []}
