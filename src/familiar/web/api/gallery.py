"""Routes of the gallery as a whole: its state and model, clustering, review questions and undo."""

import dataclasses
from typing import Annotated, Any

from fastapi import APIRouter, Query, Response

from familiar.core.field_types import LARGEST_NUMBER
from familiar.core.gallery_types import (
    Batch,
    ClusterResult,
    Decision,
    GalleryState,
    MinSimilarities,
    ModelMetadata,
    Question,
)
from familiar.gallery import Gallery
from familiar.web.api import requests
from familiar.web.api.openapi import CONFLICT, EDIT, MISSING, WRITE
from familiar.web.api.shared_types import ApiRoute, api_type
from familiar.web.errors import HttpProblem
from familiar.web.service import ServiceDep

QuestionLimit = Annotated[int, Query(ge=1, le=100)]

router = APIRouter(route_class=ApiRoute)


@router.get("/gallery", tags=["gallery"])
async def get_gallery(service: ServiceDep) -> GalleryState:
    """Get the state of the gallery."""
    return await service.executor.read(
        _state, read_only=service.settings.read_only, has_model=service.inference.has_model
    )


@router.get("/model", tags=["gallery"], response_model=api_type(ModelMetadata), responses=MISSING | CONFLICT)
async def get_model(
    service: ServiceDep,
    species: Annotated[str | None, Query(description="Of several bundles: that for this species.")] = None,
) -> Any:
    """Get the model's metadata: its training data, results and calibration. Of several bundles, that of the first."""
    bundles = service.inference.embedder.bundles
    for names, bundle in bundles.items():
        if species is None or species in names:
            return {"file_id": bundle.file_id, "species": names} | dataclasses.asdict(bundle.metadata)
    known = ", ".join(name for names in bundles for name in names)
    detail = f"there is no bundle for {species}" + (f"; there is one for {known}" if known else ": it has one bundle")
    raise HttpProblem(404, "no-bundle-for-species", detail)


@router.post("/cluster", tags=["gallery"], responses=WRITE)
async def cluster(service: ServiceDep, body: requests.ClusterRequest) -> ClusterResult:
    """Cluster the unassigned faces, or with `rebuild` all, respecting all corrections."""
    return await service.executor.compute_then_write(Gallery.cluster, threshold=body.threshold, rebuild=body.rebuild)


@router.get("/questions", tags=["questions"])
async def list_questions(
    service: ServiceDep, limit: QuestionLimit = 10, species: requests.Species = None
) -> list[Question]:
    """List the most informative questions to review, by expected gain."""
    return await service.executor.read(Gallery.questions, limit, species=species)


@router.post("/questions/answer", tags=["questions"], status_code=204, response_class=Response, responses=EDIT)
async def answer_question(service: ServiceDep, body: requests.AnswerRequest) -> None:
    """Answer a question. Conflict if its faces or identities have changed since it was listed."""
    await service.executor.write(Gallery.answer, Question(**dict(body.question)), body.same)


@router.get("/batches", tags=["questions"])
async def list_batches(service: ServiceDep, limit: QuestionLimit = 10, species: requests.Species = None) -> list[Batch]:
    """List batches of faces that may show one individual, those whose answers settle most first."""
    return await service.executor.read(Gallery.batches, limit, species=species)


@router.post("/batches/answer", tags=["questions"], status_code=204, response_class=Response, responses=EDIT)
async def answer_batch(service: ServiceDep, body: requests.BatchAnswerRequest) -> None:
    """Name the individual of a batch, add what shows it and take out what does not.

    Conflict if its faces have changed since it was listed, the name is taken, or a photo would show the individual
    twice, unless `same_photo` accepts that.
    """
    shown = body.batch
    batch = Batch(shown.identity, tuple(shown.members), tuple(shown.candidates), shown.expected_gain)
    await service.executor.write(Gallery.answer_batch, batch, body.same, body.name, same_photo=body.same_photo)


@router.get("/decisions", tags=["gallery"])
async def list_decisions(service: ServiceDep, limit: requests.Limit = 20) -> list[Decision]:
    """List the last changes that can be undone, newest first."""
    return await service.executor.read(Gallery.decisions, limit)


@router.post("/undo", tags=["gallery"], responses=EDIT)
async def undo(
    service: ServiceDep,
    decision: Annotated[
        int | None, Query(ge=1, le=LARGEST_NUMBER, description="Undo only if this is the last one.")
    ] = None,
) -> Decision:
    """Undo the last change and return it."""
    return await service.executor.write(Gallery.undo, decision)


def _state(gallery: Gallery, *, read_only: bool, has_model: bool) -> GalleryState:
    with gallery.read():
        space, current = gallery.space, gallery.calibration()
        return GalleryState(
            counts=gallery.counts(),
            space_id=space.space_id,
            embedding_dim=space.embedding_dim,
            prefixes=space.prefixes,
            thresholds=MinSimilarities(
                current.high_precision.similarity,
                current.balanced.similarity,
                current.high_recall.similarity,
                gallery.main_species().threshold,
                gallery.thresholds(),
                gallery.threshold_is_guess(),
            ),
            revision=gallery.revision,
            read_only=read_only,
            has_model=has_model,
        )
