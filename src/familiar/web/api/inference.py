"""Routes of photos that are not in the gallery: detection, embedding, search and verification."""

from collections.abc import Sequence
from typing import Annotated, Any

import numpy as np
from fastapi import APIRouter, Query, UploadFile

from familiar.core.field_types import Vector
from familiar.core.gallery_types import SkippedPhoto
from familiar.core.recognition_types import (
    DetectionResult,
    EmbeddedFace,
    PhotoVerificationResult,
    SearchResult,
    VerificationResult,
)
from familiar.core.types import Face
from familiar.core.vectors import check_unit_rows
from familiar.detection.faces import DetectedFaces
from familiar.gallery import Filter, Gallery
from familiar.web.api import requests
from familiar.web.api.openapi import MISSING, UPLOAD
from familiar.web.api.shared_types import ApiRoute
from familiar.web.errors import HttpProblem
from familiar.web.service import Service, ServiceDep
from familiar.web.uploads import to_uploads

router = APIRouter(route_class=ApiRoute)


@router.post("/detect", tags=["inference"], responses=UPLOAD)
async def detect(service: ServiceDep, files: requests.Photos) -> DetectionResult[Face]:
    """Detect the faces of photos."""
    return await _detect_all(service, files, embed=False)


@router.post("/embed", tags=["inference"], responses=UPLOAD)
async def embed(service: ServiceDep, files: requests.Photos) -> DetectionResult[EmbeddedFace]:
    """Detect and embed the faces of photos."""
    return await _detect_all(service, files, embed=True)


@router.post("/search", tags=["search"], responses=MISSING)
async def search(service: ServiceDep, body: requests.SearchRequest) -> SearchResult:
    """Search for an embedding, or for a face of the gallery."""
    return await service.executor.read(_search, body)


@router.post("/search/photo", tags=["search"], responses=UPLOAD)
async def search_photo(
    service: ServiceDep,
    photo: requests.Photo,
    k: Annotated[requests.K, Query()] = 10,
    by: Annotated[requests.ResultKind | None, Query(description="Return only photos, or only identities.")] = None,
    species: requests.Species = None,
) -> SearchResult:
    """Search for the best face of a photo."""
    _, (embedding,) = await service.best_faces(photo)
    query = requests.SearchRequest.model_construct(k=k, by=by, filter=requests.SearchFilter(species=species))
    return await service.read_in_model_space(_search_result, embedding, query)


@router.post("/verify", tags=["search"], responses=UPLOAD)
async def verify(service: ServiceDep, first: requests.Photo, second: requests.Photo) -> PhotoVerificationResult:
    """Decide whether the best faces of two photos show the same individual."""
    faces, embeddings = await service.best_faces(first, second)
    answer = await service.read_in_model_space(Gallery.compare, *embeddings)
    return PhotoVerificationResult(**vars(answer), first=faces[0], second=faces[1])


@router.post("/identities/{identity}/verify", tags=["search"], responses=MISSING | UPLOAD)
async def verify_identity(
    service: ServiceDep, identity: requests.PathNumber, photo: requests.Photo
) -> VerificationResult:
    """Decide whether a photo's best face shows this identity, by the mean of the identity's faces."""
    _, (embedding,) = await service.best_faces(photo)
    return await service.read_in_model_space(Gallery.verify, embedding, identity)


async def _detect_all(service: Service, files: Sequence[UploadFile], *, embed: bool) -> DetectionResult[Any]:
    skipped_uploads: list[SkippedPhoto] = []
    uploads = to_uploads(files, service.settings.limits, skipped=skipped_uploads)
    results = await service.inference.detect_all(uploads, embed=embed)
    skipped = [f"{upload.name}: {upload.reason}" for upload in skipped_uploads]
    photos: list[DetectedFaces] = []
    for result in results:
        if isinstance(result, DetectedFaces):
            photos += [result] if result.faces or not result.skipped else []
            skipped += map(str, result.skipped)
        else:
            skipped.append(str(result))
    return DetectionResult(tuple(photos), tuple(skipped))


def _search(gallery: Gallery, body: requests.SearchRequest) -> SearchResult:
    with gallery.read():
        return _search_result(gallery, _query_vector(gallery, body), body)


def _search_result(gallery: Gallery, query: Vector, body: requests.SearchRequest) -> SearchResult:
    identities = None if body.filter.identities is None else tuple(body.filter.identities)
    only = Filter(identities, body.filter.species, body.filter.since, body.filter.until)
    query = gallery.truncate_query(query)
    with gallery.read():
        matches = [] if body.by == "photo" else gallery.identify(query, body.k, only=only)
        hits = [] if body.by == "identity" else gallery.search(query, body.k, only=only, prefix=body.prefix)
    known = next((match for match in matches if match.known), None)
    return SearchResult(known, tuple(matches), tuple(hits))


def _query_vector(gallery: Gallery, body: requests.SearchRequest) -> Vector:
    """Return the query as a unit vector of the gallery's space. HttpProblem with 422 if it is none."""
    space = gallery.space
    if body.prefix is not None and body.prefix not in space.prefixes:
        raise _invalid_field(
            "prefix", f"the valid prefixes are {', '.join(map(str, space.prefixes))}, not {body.prefix}"
        )
    if body.face is not None:
        return gallery.face_embedding(body.face)
    query = np.array(body.embedding, np.float32)
    try:
        if len(query) not in space.lengths:
            lengths = " or ".join(map(str, space.lengths))
            raise ValueError(f"an embedding of this gallery has {lengths} dimensions, got {len(query)}")
        check_unit_rows(query[None])
    except ValueError as error:
        raise _invalid_field("embedding", str(error)) from error
    return query


def _invalid_field(field: str, detail: str) -> HttpProblem:
    return HttpProblem(422, f"invalid-{field}", detail)
