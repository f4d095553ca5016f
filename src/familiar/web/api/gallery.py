"""Routes of the gallery as a whole: its state and model, clustering, review questions and undo."""

import dataclasses
from typing import Annotated, Any

from fastapi import APIRouter, Query, Response

from familiar.core.errors import Contradiction
from familiar.gallery.clustering import review_queue
from familiar.gallery.clustering.assignments import check_faces
from familiar.gallery.clustering.calibration import calibration, clustering_calibration
from familiar.gallery.clustering.cluster import ClusterResult, cluster
from familiar.gallery.database.connection import GalleryDatabase
from familiar.gallery.editing.undo_log import Decision, decisions, undo
from familiar.gallery.search import listing
from familiar.web.api import requests, responses
from familiar.web.api.openapi import WRITE_STATUSES, problems
from familiar.web.service import ServiceDep

MAX_QUESTIONS = 100

router = APIRouter()


@router.get("/gallery", operation_id="get_gallery", tags=["gallery"], response_model=responses.GalleryState)
async def state(service: ServiceDep) -> dict[str, Any]:
    """Get the state of the gallery."""
    read = await service.executor.read(_state)
    return read | {"read_only": service.settings.read_only, "has_model": service.inference.has_model}


@router.get(
    "/model",
    operation_id="get_model",
    tags=["gallery"],
    response_model=responses.Model,
    responses=problems(409),
)
async def model(service: ServiceDep) -> dict[str, Any]:
    """Get the model's metadata: its training data, results and calibration."""
    bundle = service.inference.embedder.bundle
    return {"file_id": bundle.file_id} | dataclasses.asdict(bundle.metadata)


@router.post(
    "/cluster",
    operation_id="cluster",
    tags=["gallery"],
    response_model=responses.ClusterResult,
    responses=problems(*WRITE_STATUSES),
)
async def cluster_faces(service: ServiceDep, body: requests.ClusterRequest) -> ClusterResult:
    """Cluster the unassigned faces, respecting all corrections."""
    return await service.executor.write(cluster, threshold=body.threshold, rebuild=body.rebuild)


@router.get(
    "/questions", operation_id="list_questions", tags=["questions"], response_model=list[requests.ReviewQuestion]
)
async def questions(
    service: ServiceDep, limit: Annotated[int, Query(ge=1, le=MAX_QUESTIONS)] = 10
) -> list[review_queue.Question]:
    """List the most informative questions to review, by expected gain."""
    return await service.executor.read(review_queue.propose_questions, limit)


@router.post(
    "/questions/answer",
    operation_id="answer_question",
    tags=["questions"],
    status_code=204,
    response_class=Response,
    responses=problems(404, *WRITE_STATUSES),
)
async def answer(service: ServiceDep, body: requests.AnswerRequest) -> None:
    """Answer a question. Conflict if its faces or identities have changed since it was listed."""
    question = review_queue.Question(**body.question.model_dump())
    await service.executor.write_locked(_answer, question, body.same)


@router.get("/decisions", operation_id="list_decisions", tags=["gallery"], response_model=list[responses.Decision])
async def last_decisions(service: ServiceDep, limit: requests.Limit = 20) -> list[Decision]:
    """List the last changes that can be undone, newest first."""
    return await service.executor.read(decisions, limit)


@router.post(
    "/undo",
    operation_id="undo",
    tags=["gallery"],
    response_model=responses.Decision,
    responses=problems(404, *WRITE_STATUSES),
)
async def undo_last(
    service: ServiceDep,
    decision: Annotated[
        int | None, Query(ge=1, le=responses.LARGEST_NUMBER, description="Undo only if this is the last one.")
    ] = None,
) -> Decision:
    """Undo the last change and return it."""
    return await service.executor.write(undo, decision)


def _state(gallery: GalleryDatabase) -> dict[str, Any]:
    with gallery.reading():
        space, current, clustering = gallery.space, calibration(gallery), clustering_calibration(gallery)
        similarities = {
            name: getattr(current, name).similarity for name in ("high_precision", "balanced", "high_recall")
        }
        return {
            "counts": listing.counts(gallery),
            "space_id": space.space_id,
            "embedding_dim": space.embedding_dim,
            "prefixes": space.prefixes,
            "thresholds": {
                **similarities,
                "clustering": clustering.threshold,
                "fitted_on_gallery": clustering.from_gallery,
            },
            "revision": gallery.revision,
        }


def _answer(gallery: GalleryDatabase, question: review_queue.Question, same: bool) -> None:
    check_faces(gallery, (question.first_face, question.second_face))
    if not review_queue.is_still_valid(gallery, question):
        raise Contradiction("the faces of this question have changed since it was listed; list the questions again")
    review_queue.answer_question(gallery, question, same)
