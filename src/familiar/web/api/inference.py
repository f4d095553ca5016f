"""Photos that are in no gallery: the faces on them, who they show, and whether two show one individual."""

from collections.abc import Sequence
from http import HTTPStatus
from typing import Annotated, Any

import numpy as np
from fastapi import APIRouter, Query, UploadFile
from jaxtyping import Float32

from familiar.core.vectors import check_unit_rows
from familiar.embedding.verification import VerificationResult, verify_embeddings
from familiar.gallery.clustering.assignments import check_faces
from familiar.gallery.clustering.calibration import calibration
from familiar.gallery.database.connection import Gallery
from familiar.gallery.search.search import Filter, search_identities, search_photos
from familiar.gallery.search.search import verify as verify_identity_of
from familiar.web.api import requests, responses
from familiar.web.api.openapi import UPLOAD_STATUSES, problems
from familiar.web.errors import HttpProblem
from familiar.web.inference import PhotoResult, DetectedFace
from familiar.web.service import ServiceDep, Service
from familiar.web.uploads import SkippedPhoto, receive

router = APIRouter()
Vector = Float32[np.ndarray, " d"]


@router.post(
    "/detect",
    operation_id="detect",
    tags=["recognize"],
    response_model=responses.DetectionResult[responses.DetectedFace],
    responses=problems(*UPLOAD_STATUSES),
)
async def detect(service: ServiceDep, files: requests.Photos) -> dict[str, Any]:
    """Where the faces of photos are."""
    return await _detect_all(service, files, embed=False)


@router.post(
    "/embed",
    operation_id="embed",
    tags=["recognize"],
    response_model=responses.DetectionResult[responses.EmbeddedFace],
    responses=problems(*UPLOAD_STATUSES),
)
async def embed(service: ServiceDep, files: requests.Photos) -> dict[str, Any]:
    """The faces of photos, with an embedding each."""
    return await _detect_all(service, files, embed=True)


@router.post(
    "/search",
    operation_id="search",
    tags=["search"],
    response_model=responses.SearchResult,
    responses=problems(404),
)
async def search(service: ServiceDep, body: requests.SearchRequest) -> dict[str, Any]:
    """Who is like an embedding, or like one of the gallery's faces."""
    return await service.executor.read(_search, body)


@router.post(
    "/search/photo",
    operation_id="search_photo",
    tags=["search"],
    response_model=responses.SearchResult,
    responses=problems(*UPLOAD_STATUSES),
)
async def search_photo(
    service: ServiceDep,
    photo: requests.Photo,
    k: Annotated[requests.K, Query()] = 10,
    by: Annotated[requests.ResultKind | None, Query(description="Only photos, or only identities.")] = None,
) -> dict[str, Any]:
    """Who is on a photo, by its best face."""
    (seen,) = await _best_faces(service, photo)
    query = requests.SearchRequest.model_construct(k=k, by=by)
    return await service.read_in_model_space(_search_result, _embedding(seen), query)


@router.post(
    "/verify",
    operation_id="verify",
    tags=["search"],
    response_model=responses.PhotoVerificationResult,
    responses=problems(*UPLOAD_STATUSES),
)
async def verify(service: ServiceDep, first: requests.Photo, second: requests.Photo) -> dict[str, Any]:
    """Do two photos show one individual? By their best faces."""
    one, other = await _best_faces(service, first, second)
    means = await service.read_in_model_space(calibration)
    answer = verify_embeddings(_embedding(one), _embedding(other), means)
    return vars(answer) | {"first": _face_body(one), "second": _face_body(other)}


@router.post(
    "/identities/{identity}/verify",
    operation_id="verify_identity",
    tags=["search"],
    response_model=responses.VerificationResult,
    responses=problems(404, *UPLOAD_STATUSES),
)
async def verify_identity(service: ServiceDep, identity: requests.PathNumber, photo: requests.Photo) -> VerificationResult:
    """Does a photo show this identity? By its best face, compared with the mean of the identity's."""
    (seen,) = await _best_faces(service, photo)
    return await service.read_in_model_space(verify_identity_of, _embedding(seen), identity)


async def _detect_all(service: Service, files: Sequence[UploadFile], *, embed: bool) -> dict[str, Any]:
    """As `responses.LookedAt`."""
    left_out: list[SkippedPhoto] = []
    photos: list[dict[str, Any]] = []
    async with receive(files, service.settings.limits, skipped=left_out) as uploads:
        looked = await service.inference.detect_all(uploads, embed=embed)
    skipped = [f"{one.name}: {one.reason}" for one in left_out]
    for upload, found in zip(uploads, looked, strict=True):
        if not isinstance(found, PhotoResult):
            skipped.append(str(found))
        else:
            faces = [_face_body(seen) for seen in found.faces]
            photos.append({"name": upload.name, "size_px": found.size_px, "faces": faces})
    return {"photos": photos, "skipped": skipped}


async def _best_faces(service: Service, *files: UploadFile) -> list[DetectedFace]:
    """The best face of each, embedded. NoFaceFound, UnreadablePhoto, Refused."""
    async with receive(files, service.settings.limits) as uploads:
        return await service.inference.best_faces(uploads)


def _face_body(seen: DetectedFace) -> dict[str, Any]:
    """As `responses.Embedded`, or `Detected`."""
    landmarks = seen.detection.landmarks_px
    return {
        "box_xyxy_px": seen.detection.box_xyxy_px,
        "landmarks_px": None if landmarks is None else landmarks.tolist(),
        "score": seen.detection.score,
        "quality": seen.quality,
        "embedding": None if seen.embedding is None else seen.embedding.tolist(),
    }


def _embedding(seen: DetectedFace) -> Vector:
    assert seen.embedding is not None, "the best face is embedded"
    return seen.embedding


def _search(gallery: Gallery, body: requests.SearchRequest) -> dict[str, Any]:
    with gallery.reading():
        return _search_result(gallery, _query_vector(gallery, body), body)


def _search_result(gallery: Gallery, query: Vector, body: requests.SearchRequest) -> dict[str, Any]:
    """As `responses.Answers`."""
    only, who = body.only, body.only.identities
    passing = Filter(None if who is None else tuple(who), only.species, only.since, only.until)
    with gallery.reading():
        matches = [] if body.by == "photo" else search_identities(gallery, query, body.k, only=passing)
        hits = [] if body.by == "identity" else search_photos(gallery, query, body.k, only=passing, prefix=body.prefix)
    known = next((match for match in matches if match.known), None)
    return {"known": known, "identities": matches, "photos": hits}


def _query_vector(gallery: Gallery, body: requests.SearchRequest) -> Vector:
    """What is searched for, a unit vector of the gallery's space. Refused with 422 where it is none."""
    space = gallery.space
    if body.prefix is not None and body.prefix not in space.prefixes:
        raise _invalid_field("prefix", f"the valid prefixes are {', '.join(map(str, space.prefixes))}, not {body.prefix}")
    if body.face is not None:
        check_faces(gallery, [body.face])
        faces = gallery.faces()
        return faces.unit_rows(faces.rows_of(np.array([body.face])))[0]
    query = np.array(body.embedding, np.float32)
    try:
        if len(query) != space.embedding_dim:
            raise ValueError(f"an embedding here has {space.embedding_dim} numbers, not {len(query)}")
        check_unit_rows(query[None])
    except ValueError as error:
        raise _invalid_field("embedding", str(error)) from error
    return query


def _invalid_field(what: str, detail: str) -> HttpProblem:
    return HttpProblem(HTTPStatus.UNPROCESSABLE_ENTITY, f"wrong-{what}", detail)
