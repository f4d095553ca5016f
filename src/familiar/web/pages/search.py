"""Who is on a photo, by each of its faces. The photo is looked at and forgotten."""

from dataclasses import dataclass
from typing import Annotated

import numpy as np
from fastapi import APIRouter, File, Request, UploadFile
from fastapi.responses import HTMLResponse
from jaxtyping import Float32

from familiar.gallery.database.connection import Gallery
from familiar.gallery.search.listing import KnownFace, face
from familiar.gallery.search.search import Hit, Match, search_identities, search_photos
from familiar.web.inference import DetectedFace
from familiar.web.pages.crops import as_data_url
from familiar.web.pages.render import render_page
from familiar.web.service import ServiceDep
from familiar.web.uploads import receive

MAX_FACES = 12  # of one photo that are searched for, the best first
MATCHES = 5
HITS = 12
MIN_MENTIONED = 0.01  # probability of another individual from which it is named

router = APIRouter()


@dataclass(frozen=True)
class SimilarFace:
    """A face of the gallery that was found, and what is known of it."""

    hit: Hit
    face: KnownFace


@dataclass(frozen=True)
class FaceAnswer:
    """Who one face of the photo may be.

    `known` is the likeliest of the gallery, where that is more likely than not; else `likeliest` is, if there is one.
    `others` are worth a mention. `so`: photos of whom is known; `like`: other faces like it.
    """

    crop: str
    known: Match | None
    most_likely: Match | None
    others: list[Match]
    photos_of_known: list[SimilarFace]
    similar_faces: list[SimilarFace]


@router.get("/search")
async def ask(request: Request, service: ServiceDep) -> HTMLResponse:
    return await render_page(request, service, "search.html", found=None)


@router.post("/search")
async def answer(request: Request, service: ServiceDep, photo: Annotated[UploadFile, File()]) -> HTMLResponse:
    """Refused where it is no photo; UnreadablePhoto."""
    async with receive([photo], service.settings.limits) as (upload,):
        looked = await service.inference.detect(upload)
    faces = looked.faces[:MAX_FACES]
    embeddings = [seen.embedding for seen in faces if seen.embedding is not None]
    answers = await service.read_in_model_space(_answers, embeddings)
    found = [_face_answer(seen, *one) for seen, one in zip(faces, answers, strict=True)]
    return await render_page(
        request,
        service,
        "search.html",
        found=found,
        name=upload.name,
        left_out=len(looked.faces) - len(found),
    )


def _answers(gallery: Gallery, embeddings: list[Float32[np.ndarray, " d"]]) -> list[tuple[list[Match], list[SimilarFace]]]:
    with gallery.reading():
        return [
            (
                search_identities(gallery, embedding, MATCHES),
                [SimilarFace(hit, face(gallery, hit.face)) for hit in search_photos(gallery, embedding, HITS)],
            )
            for embedding in embeddings
        ]


def _face_answer(seen: DetectedFace, matches: list[Match], similar: list[SimilarFace]) -> FaceAnswer:
    known = next((match for match in matches if match.known), None)
    worth = [match for match in matches if match.probability is None or match.probability >= MIN_MENTIONED]
    so = [one for one in similar if known is not None and one.hit.identity == known.identity]
    return FaceAnswer(
        as_data_url(seen.crop),
        known,
        matches[0] if matches and known is None else None,
        [match for match in worth if match is not known],
        so,
        [one for one in similar if one not in so],
    )
