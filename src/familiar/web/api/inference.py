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
from familiar.web.api.openapi import UPLOAD, problems
from familiar.web.errors import Refused
from familiar.web.inference import Looked, Seen
from familiar.web.service import Served, Service
from familiar.web.uploads import Skipped, received

router = APIRouter()
Vector = Float32[np.ndarray, " d"]


@router.post(
    "/detect",
    operation_id="detect",
    tags=["recognize"],
    response_model=responses.LookedAt[responses.Detected],
    responses=problems(*UPLOAD),
)
async def detect(service: Served, files: requests.Photos) -> dict[str, Any]:
    """Where the faces of photos are."""
    return await _looked_at(service, files, embed=False)


@router.post(
    "/embed",
    operation_id="embed",
    tags=["recognize"],
    response_model=responses.LookedAt[responses.Embedded],
    responses=problems(*UPLOAD),
)
async def embed(service: Served, files: requests.Photos) -> dict[str, Any]:
    """The faces of photos, with an embedding each."""
    return await _looked_at(service, files, embed=True)


@router.post(
    "/search",
    operation_id="search",
    tags=["search"],
    response_model=responses.Answers,
    responses=problems(404),
)
async def search(service: Served, body: requests.Search) -> dict[str, Any]:
    """Who is like an embedding, or like one of the gallery's faces."""
    return await service.threads.read(_search, body)


@router.post(
    "/search/photo",
    operation_id="search_photo",
    tags=["search"],
    response_model=responses.Answers,
    responses=problems(*UPLOAD),
)
async def search_photo(
    service: Served,
    photo: requests.Photo,
    k: Annotated[requests.K, Query()] = 10,
    by: Annotated[requests.By | None, Query(description="Only photos, or only identities.")] = None,
) -> dict[str, Any]:
    """Who is on a photo, by its best face."""
    (seen,) = await _best(service, photo)
    query = requests.Search.model_construct(k=k, by=by)
    return await service.compare(_answers, _embedding(seen), query)


@router.post(
    "/verify",
    operation_id="verify",
    tags=["search"],
    response_model=responses.VerdictOfTwo,
    responses=problems(*UPLOAD),
)
async def verify(service: Served, first: requests.Photo, second: requests.Photo) -> dict[str, Any]:
    """Do two photos show one individual? By their best faces."""
    one, other = await _best(service, first, second)
    means = await service.compare(calibration)
    answer = verify_embeddings(_embedding(one), _embedding(other), means)
    return vars(answer) | {"first": _face(one), "second": _face(other)}


@router.post(
    "/identities/{identity}/verify",
    operation_id="verify_identity",
    tags=["search"],
    response_model=responses.Verdict,
    responses=problems(404, *UPLOAD),
)
async def verify_identity(service: Served, identity: requests.InAddress, photo: requests.Photo) -> VerificationResult:
    """Does a photo show this identity? By its best face, compared with the mean of the identity's."""
    (seen,) = await _best(service, photo)
    return await service.compare(verify_identity_of, _embedding(seen), identity)


async def _looked_at(service: Service, files: Sequence[UploadFile], *, embed: bool) -> dict[str, Any]:
    """As `responses.LookedAt`."""
    left_out: list[Skipped] = []
    photos: list[dict[str, Any]] = []
    async with received(files, service.settings.limits, skipped=left_out) as uploads:
        looked = await service.vision.look_all(uploads, embed=embed)
    skipped = [f"{one.name}: {one.reason}" for one in left_out]
    for upload, found in zip(uploads, looked, strict=True):
        if not isinstance(found, Looked):
            skipped.append(str(found))
        else:
            faces = [_face(seen) for seen in found.faces]
            photos.append({"name": upload.name, "size_px": found.size_px, "faces": faces})
    return {"photos": photos, "skipped": skipped}


async def _best(service: Service, *files: UploadFile) -> list[Seen]:
    """The best face of each, embedded. NoFaceFound, UnreadablePhoto, Refused."""
    async with received(files, service.settings.limits) as uploads:
        return await service.vision.best_of_each(uploads)


def _face(seen: Seen) -> dict[str, Any]:
    """As `responses.Embedded`, or `Detected`."""
    landmarks = seen.detection.landmarks_px
    return {
        "box_xyxy_px": seen.detection.box_xyxy_px,
        "landmarks_px": None if landmarks is None else landmarks.tolist(),
        "score": seen.detection.score,
        "quality": seen.quality,
        "embedding": None if seen.embedding is None else seen.embedding.tolist(),
    }


def _embedding(seen: Seen) -> Vector:
    assert seen.embedding is not None, "the best face is embedded"
    return seen.embedding


def _search(gallery: Gallery, body: requests.Search) -> dict[str, Any]:
    with gallery.reading():
        return _answers(gallery, _query(gallery, body), body)


def _answers(gallery: Gallery, query: Vector, body: requests.Search) -> dict[str, Any]:
    """As `responses.Answers`."""
    only, who = body.only, body.only.identities
    passing = Filter(None if who is None else tuple(who), only.species, only.since, only.until)
    with gallery.reading():
        matches = [] if body.by == "photo" else search_identities(gallery, query, body.k, only=passing)
        hits = [] if body.by == "identity" else search_photos(gallery, query, body.k, only=passing, prefix=body.prefix)
    known = next((match for match in matches if match.known), None)
    return {"known": known, "identities": matches, "photos": hits}


def _query(gallery: Gallery, body: requests.Search) -> Vector:
    """What is searched for, a unit vector of the gallery's space. Refused with 422 where it is none."""
    space = gallery.space
    if body.prefix is not None and body.prefix not in space.prefixes:
        raise _wrong("prefix", f"the valid prefixes are {', '.join(map(str, space.prefixes))}, not {body.prefix}")
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
        raise _wrong("embedding", str(error)) from error
    return query


def _wrong(what: str, detail: str) -> Refused:
    return Refused(HTTPStatus.UNPROCESSABLE_ENTITY, f"wrong-{what}", detail)
