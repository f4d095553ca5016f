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
from familiar.web.inference import Seen
from familiar.web.pages.crops import as_data_url
from familiar.web.pages.render import page
from familiar.web.service import Served
from familiar.web.uploads import received

MOST_FACES = 12  # of one photo that are searched for, the best first
MATCHES = 5
HITS = 12
MENTIONED = 0.01  # probability of another individual from which it is named

router = APIRouter()


@dataclass(frozen=True)
class Similar:
    """A face of the gallery that was found, and what is known of it."""

    hit: Hit
    face: KnownFace


@dataclass(frozen=True)
class Found:
    """Who one face of the photo may be.

    `known` is the likeliest of the gallery, where that is more likely than not; else `likeliest` is, if there is one.
    `others` are worth a mention. `so`: photos of whom is known; `like`: other faces like it.
    """

    crop: str
    known: Match | None
    likeliest: Match | None
    others: list[Match]
    so: list[Similar]
    like: list[Similar]


@router.get("/search")
async def ask(request: Request, service: Served) -> HTMLResponse:
    return await page(request, service, "search.html", found=None)


@router.post("/search")
async def answer(request: Request, service: Served, photo: Annotated[UploadFile, File()]) -> HTMLResponse:
    """Refused where it is no photo; UnreadablePhoto."""
    async with received([photo], service.settings.limits) as (upload,):
        looked = await service.vision.look(upload)
    faces = looked.faces[:MOST_FACES]
    embeddings = [seen.embedding for seen in faces if seen.embedding is not None]
    answers = await service.compare(_answers, embeddings)
    found = [_found(seen, *one) for seen, one in zip(faces, answers, strict=True)]
    return await page(
        request,
        service,
        "search.html",
        found=found,
        name=upload.name,
        left_out=len(looked.faces) - len(found),
    )


def _answers(gallery: Gallery, embeddings: list[Float32[np.ndarray, " d"]]) -> list[tuple[list[Match], list[Similar]]]:
    with gallery.reading():
        return [
            (
                search_identities(gallery, embedding, MATCHES),
                [Similar(hit, face(gallery, hit.face)) for hit in search_photos(gallery, embedding, HITS)],
            )
            for embedding in embeddings
        ]


def _found(seen: Seen, matches: list[Match], similar: list[Similar]) -> Found:
    known = next((match for match in matches if match.known), None)
    worth = [match for match in matches if match.probability is None or match.probability >= MENTIONED]
    so = [one for one in similar if known is not None and one.hit.identity == known.identity]
    return Found(
        as_data_url(seen.crop),
        known,
        matches[0] if matches and known is None else None,
        [match for match in worth if match is not known],
        so,
        [one for one in similar if one not in so],
    )
